r"""Do the copies of converters.replicate share any bytes, and what do they cost?

  python -m studies.replicas --num_drawn_images=1000 --num_copies=20 \
      --replicas_dir=WORK --replicas_result=result.json

The study draws images and converts them, or takes the train split of --source_dir. It
makes distinct copies and identical ones, and copies the distinct ones once more with cp
and sync. All files go to a folder in --replicas_dir that is removed at the end: it
needs room for 3 times the copies.

  blocks   share of blocks of 4 kB that another copy has too, there at any byte
  zstd     zstd with a window of 2 GiB over all copies together, beside one copy alone
  pixels   images whose pixels differ from those of the source, decoded with Pillow
  speed    MB/s of distinct and of identical copies, of cp, and per CPU-second

Three claims are checked: less than 2 % of the blocks are shared; zstd gains less than
3 % over one copy; no pixel differs. Exit code 2 if one does not hold. The last line on
stdout is one JSON object.
"""

import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from benchmarks.options import command
from benchmarks.reporting import output
from studies.replicas import blocks, pixels

_SOURCE_DIR = flags.DEFINE_string(
    "source_dir", None, "A data set of a converter. Default: images are drawn."
)
_NUM_IMAGES = flags.DEFINE_integer(
    "num_drawn_images", 1000, "Images to draw, without --source_dir.", lower_bound=1
)
_NUM_COPIES = flags.DEFINE_integer(
    "num_copies", 20, "Copies to make and to compare.", lower_bound=2
)
_REPLICAS_DIR = flags.DEFINE_string(
    "replicas_dir",
    None,
    "Folder for all files. Default: the folder for temporary files.",
)
_RESULT = flags.DEFINE_string(
    "replicas_result", None, "File to write the JSON object to as well."
)

MAX_SHARED, MAX_GAIN = 0.02, 0.03
_NUM_ALONE = 3

Paths = Sequence[pathlib.Path]


def _run(*words: str) -> dict[str, float]:
    """Runs a command and returns its seconds and CPU-seconds.

    Raises:
        OSError: If it fails; the message holds the end of what it printed.
    """
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise OSError(f"{' '.join(words)} failed: {done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu_seconds": cpu}


def _python(module: str, *arguments: str) -> dict[str, float]:
    return _run(sys.executable, "-m", module, *arguments)


def _draw(folder: pathlib.Path, num_images: int) -> pathlib.Path:
    raw, made = folder / "raw", folder / "source"
    _python(
        "converters.synthesize",
        *(f"--output_dir={raw}", f"--num_images={num_images}", "--num_classes=10"),
    )
    _python(
        "converters.imagenet",
        *(f"--input_dir={raw}", f"--output_dir={made}", "--num_train_shards=2"),
    )
    return made


def _shards(folder: pathlib.Path) -> Paths:
    """Returns the shards of the train split in order.

    Raises:
        OSError: If there is none.
    """
    found = sorted(folder.glob("train-?????-of-?????"))
    if not found:
        raise OSError(f"{folder} must hold shards of a train split, got none")
    return found


def _replicate(
    source: pathlib.Path, made: pathlib.Path, num_copies: int, *more: str
) -> tuple[list[Paths], dict[str, float]]:
    """Makes copies. Returns the shards of each copy, and the cost."""
    cost = _python(
        "converters.replicate",
        str(source),
        *(f"--output_dir={made}", f"--copies={num_copies}", "--splits=train", *more),
    )
    shards = _shards(made)
    each = len(shards) // num_copies
    return [shards[i * each : (i + 1) * each] for i in range(num_copies)], cost


def _copy(copies: Sequence[Paths], target: pathlib.Path) -> dict[str, float]:
    """Copies all files with cp, until they are on the disk."""
    target.mkdir()
    names = [str(path) for copy in copies for path in copy]
    cost = _run("cp", "--reflink=never", *names, str(target))
    flushed = _run("sync", *(str(path) for path in target.iterdir()))
    return {name: cost[name] + flushed[name] for name in cost}


def _compressed(paths: Paths) -> float:
    """Returns the ratio of the size after zstd --long=31 to that before."""
    words = ["zstd", "-q", "--long=31", "-c"]
    num_bytes = 0
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with subprocess.Popen(
            ["wc", "-c"], stdin=process.stdout, stdout=subprocess.PIPE, text=True
        ) as count:
            process.stdout.close()
            for path in paths:
                num_bytes += path.stat().st_size
                with path.open("rb") as file:
                    shutil.copyfileobj(file, process.stdin)
            process.stdin.close()
            num_compressed = int(count.communicate()[0])
    if process.returncode:
        raise OSError(f"{' '.join(words)} ended with {process.returncode}")
    return num_compressed / num_bytes


def _zstd(copies: Sequence[Paths]) -> dict[str, float]:
    alone = statistics.fmean(_compressed(copy) for copy in copies[:_NUM_ALONE])
    together = _compressed([path for copy in copies for path in copy])
    return {
        "alone_ratio": alone,
        "together_ratio": together,
        "gain": alone / together - 1,
    }


def _rates(num_bytes: int, cost: dict[str, float]) -> dict[str, float]:
    return cost | {
        "mb_per_s": num_bytes / cost["seconds"] / 1e6,
        "mb_per_cpu_s": num_bytes / max(cost["cpu_seconds"], 1e-9) / 1e6,
    }


def measure(
    source: pathlib.Path, folder: pathlib.Path, num_copies: int
) -> dict[str, Any]:
    """Makes the copies and returns all figures.

    Raises:
        OSError: If a program fails or is missing.
    """
    distinct, cost = _replicate(source, folder / "distinct", num_copies)
    identical, plain = _replicate(
        source, folder / "identical", num_copies, "--identical"
    )
    copied = _copy(distinct, folder / "copied")
    num_bytes = sum(path.stat().st_size for copy in distinct for path in copy)
    source_bytes = sum(path.stat().st_size for path in _shards(source))
    return {
        "num_copies": num_copies,
        "num_bytes": num_bytes,
        "size_ratio": num_bytes / num_copies / source_bytes,
        "shared_blocks": blocks.shared_share([*distinct, _shards(source)]),
        "shared_blocks_of_identical": blocks.shared_share(identical[:2]),
        "zstd": _zstd(distinct),
        "pixels": pixels.compare(_shards(source), distinct),
        "speed": {
            "distinct": _rates(num_bytes, cost),
            "identical": _rates(source_bytes * num_copies, plain),
            "copied": _rates(num_bytes, copied),
        },
    }


def holds(figures: dict[str, Any]) -> bool:
    """Whether the three claims hold."""
    return bool(
        figures["shared_blocks"] < MAX_SHARED
        and figures["zstd"]["gain"] < MAX_GAIN
        and figures["pixels"]["num_different"] == 0
    )


def table(figures: dict[str, Any]) -> str:
    """Returns the figures as lines."""
    zstd, compared, speed = (figures[name] for name in ("zstd", "pixels", "speed"))
    rows = [
        f"{figures['num_copies']} copies, {figures['num_bytes'] / 1e6:.0f} MB; each "
        f"has {figures['size_ratio']:.4f} of the bytes of the source",
        f"blocks in another copy   {figures['shared_blocks']:.2%} (must be below "
        f"{MAX_SHARED:.0%}; identical copies: "
        f"{figures['shared_blocks_of_identical']:.0%})",
        f"zstd over all, over one  {zstd['together_ratio']:.4f}, "
        f"{zstd['alone_ratio']:.4f}: gain {zstd['gain']:.2%} (must be below "
        f"{MAX_GAIN:.0%})",
        f"pixels that differ       {compared['num_different']} of "
        f"{compared['num_images']} images; {compared['num_same_bytes']} with the "
        "bytes of the source",
    ]
    rows += [
        f"{name:<24} {rate['mb_per_s']:.0f} MB/s, {rate['mb_per_cpu_s']:.0f} MB a "
        "CPU-second"
        for name, rate in speed.items()
    ]
    return "\n".join(rows)


def main(argv: Sequence[str]) -> int:
    """Prints the figures that the flags describe."""
    command.refuse_arguments(argv)
    if shutil.which("zstd") is None:
        raise app.UsageError("The program zstd must be installed: apt install zstd")
    from benchmarks.reporting import environment

    with tempfile.TemporaryDirectory(dir=_REPLICAS_DIR.value) as name:
        folder = pathlib.Path(name)
        try:
            source = (
                pathlib.Path(_SOURCE_DIR.value)
                if _SOURCE_DIR.value
                else _draw(folder, _NUM_IMAGES.value)
            )
            figures = measure(source, folder, _NUM_COPIES.value)
        except (OSError, ValueError) as error:
            print(f"Error: {error}", file=sys.stderr)
            return 1
    report = {
        "command": "studies.replicas",
        "schema_version": 1,
        "config": {
            "num_copies": _NUM_COPIES.value,
            "source": "given" if _SOURCE_DIR.value else "drawn",
            "num_images": figures["pixels"]["num_images"] // _NUM_COPIES.value,
        },
        "load_average": os.getloadavg()[0],
        **figures,
        "holds": holds(figures),
        "environment": environment.describe(),
    }
    output.finish(report, table(figures), path=_RESULT.value)
    return 0 if report["holds"] else 2


if __name__ == "__main__":
    command.run(main, {})
