"""Fuzzes the C++ of the crop op and of the JPEG rewriter under sanitizers.

In: the number of broken images. Out: the number of images that were refused, rewritten,
turned, varied, entered and parsed. All cores take part.

An image is an error if the code reads or writes outside of its memory, leaks or
overflows, if its pixels differ from those of libjpeg's own decoder or by entry points,
or if they change when it is rewritten or varied, or turned and turned back. A crop box
that is drawn must lie within its image. libjpeg is Pillow's and has no sanitizer in it,
so only faults that corrupt the heap or crash are found in it.
"""

import collections
import concurrent.futures
import io
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
import PIL.Image
import tqdm

from tfpipe import host
from tfpipe.native import build, libraries
from tfpipe.native.libraries import libjpeg

_FOLDER = pathlib.Path(__file__).parent / "src"
_SOURCES = (
    *("fuzz.cc", "rewrite.cc", "turn.cc", "vary.cc", "entry_points.cc"),
    "check.cc",
)
_FLAGS = (
    *("-g1", "-ffp-contract=off", "-DTFPIPE_SMALL_CHUNKS"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)

# From this number of images on -O2 saves more time than it takes to compile.
_NUM_FOR_O2 = 50_000

# Options of the images before they are broken: all features of baseline decoding, and
# progressive images, which the op leaves to libjpeg.
_OPTIONS: tuple[dict[str, Any], ...] = (
    *({"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}),
    *({"quality": 100, "subsampling": 0}, {"optimize": True}),
    *({"restart_marker_rows": 1}, {"restart_marker_blocks": 2}),
    {"progressive": True},
)
_MODES = ("RGB", "L", "CMYK")
_SIZES = ((60, 73), (64, 80))  # width, height
_NUM_A_RUN = 5000  # images of one process, about four seconds


def fuzz(num_images: int, seed: int) -> dict[str, int]:
    """Builds src/fuzz.cc and runs it, in as many processes as there are cores.

    The images depend on `num_images` and `seed`, and not on the number of cores.

    Returns:
        `num_images`, `num_refused`, `num_rewritten`, `num_turned`, `num_varied`,
        `num_entered`, the images with entry points, `num_parsed`, the records, and
        `images_per_second`, without the time to compile.

    Raises:
        OSError: If there is no compiler, or a fault was found; carries the report.
    """
    with tempfile.TemporaryDirectory() as name:
        level = "-O2" if num_images >= _NUM_FOR_O2 else "-O1"
        driver = _build(pathlib.Path(name), level)
        files = [str(path) for path in _write_images(driver.parent)]
        starts = range(0, num_images, _NUM_A_RUN)
        commands = [
            [str(driver), str(min(_NUM_A_RUN, num_images - start)), str(run), *files]
            for run, start in enumerate(starts, start=seed * 1_000_000)
        ]
        begin = time.perf_counter()
        total = _run_all(commands, num_images)
    return total | {
        "images_per_second": round(num_images / (time.perf_counter() - begin))
    }


def _build(folder: pathlib.Path, level: str) -> pathlib.Path:
    driver = folder / "fuzz"
    build.run_compiler(
        [
            *libraries.find_compiler(),
            level,
            *_FLAGS,
            *build.compile_flags(),
            *build.libjpeg_flags(*(_FOLDER / name for name in _SOURCES)),
        ],
        driver,
    )
    return driver


def _run_all(commands: list[list[str]], num_images: int) -> dict[str, int]:
    """Runs the commands on all cores and returns the sums of what they print."""
    total: collections.Counter[str] = collections.Counter()
    bar = tqdm.tqdm(total=num_images, unit="image", file=sys.stderr, disable=None)
    with bar, concurrent.futures.ThreadPoolExecutor(host.num_cores()) as pool:
        runs = [pool.submit(_run, command) for command in commands]
        try:
            for done in concurrent.futures.as_completed(runs):
                total.update(done.result())
                bar.update(done.result()["num_images"])
        finally:
            pool.shutdown(cancel_futures=True)
    return dict(total)


def _run(command: list[str]) -> dict[str, int]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(
            f"{libjpeg().name}: the fuzzer ended with {done.returncode} after seed "
            f"{command[2]}:\n{done.stdout}{done.stderr}"
        )
    result: dict[str, int] = json.loads(done.stdout)
    return result


def _write_images(folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes images of several MCUs in each direction.

    Those of 73 x 60 end with a part of an MCU. Those of 80 x 64 do not, so that they
    can be mirrored without loss.
    """
    y, x = np.mgrid[:80, :64]
    smooth = np.stack([x * 3, y * 3, 255 - x - y], -1)
    grain = np.random.default_rng(0).normal(0, 12, smooth.shape)
    whole = PIL.Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8))
    paths = []
    for size, mode in itertools.product(_SIZES, _MODES):
        image = whole.crop((0, 0, *size)).convert(mode)
        for number, options in enumerate(_OPTIONS):
            out = io.BytesIO()
            image.save(out, "JPEG", **options)
            paths.append(folder / f"{mode}{size[0]}_{number}.jpg")
            paths[-1].write_bytes(out.getvalue())
    return paths
