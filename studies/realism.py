r"""Do synthetic photographs cost as much to read and to decode as real ones?

  python -m studies.realism --real_dir=/data/imagenet/val \
      --synthetic_dir=/tmp/raw

The study decodes two trees of *.JPEG files with tf.io.decode_jpeg in its default
setting and compares CPU-seconds and bytes per image. It reads the files into memory
first and decodes them one at a time in one thread, so that storage and threads do not
matter. The trees are interleaved, a twentieth of their images at a time, so that a slow
spell of the machine affects both; each figure is the median of the repeats.

Compare `cpu_ratio` and `bytes_ratio`: synthetic over real, 1.0 is a perfect likeness.
Absolute CPU-seconds hold for this machine only. If a tree has more files than
--num_decoded_images, evenly spaced files are taken. The last line on stdout is one JSON
object.
"""

import dataclasses
import os
import pathlib
import platform
import statistics
import sys
import time
from collections.abc import Mapping, Sequence

from absl import flags

import tfpipe
from benchmarks.options import command
from benchmarks.reporting import output

_REAL_DIR = flags.DEFINE_string(
    "real_dir", None, "Folder with photographs, searched for *.JPEG.", required=True
)
_SYNTHETIC_DIR = flags.DEFINE_string(
    "synthetic_dir", None, "Folder written by converters.synthesize.", required=True
)
_NUM_DECODED_IMAGES = flags.DEFINE_integer(
    "num_decoded_images",
    1000,
    "Maximum number of images to take of each folder.",
    lower_bound=1,
)
_NUM_REPEATS = flags.DEFINE_integer(
    "num_repeats", 5, "Times to decode each folder's images.", lower_bound=1
)
_RESULT_FILE = flags.DEFINE_string(
    "result_file", None, "File to write the JSON object to as well. Default: none."
)

_SCHEMA_VERSION = 1
_NUM_TURNS = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a comparison; the flags have the same names."""

    real_dir: pathlib.Path
    synthetic_dir: pathlib.Path
    num_decoded_images: int = 1000
    num_repeats: int = 5
    result_file: pathlib.Path | None = None

    def to_json(self) -> dict[str, object]:
        """Returns the fields for the result; folders by name, as paths differ."""
        return {
            "real_dir": self.real_dir.resolve().name,
            "synthetic_dir": self.synthetic_dir.resolve().name,
            "num_decoded_images": self.num_decoded_images,
            "num_repeats": self.num_repeats,
        }


def compare(config: Config) -> dict[str, object]:
    """Measures both trees and returns the report.

    Raises:
        ValueError: If a folder holds no *.JPEG file.
        OSError: If a file cannot be read.
    """
    trees = {
        "real": read_images(config.real_dir, config.num_decoded_images),
        "synthetic": read_images(config.synthetic_dir, config.num_decoded_images),
    }
    # This first decoding is also the warm-up.
    sizes = {name: decode(images)[1] for name, images in trees.items()}
    repeats = [decode_in_turns(trees) for _ in range(config.num_repeats)]
    cpu_seconds = {name: [repeat[name] for repeat in repeats] for name in trees}
    figures = {
        name: _figures(images, cpu_seconds[name], sizes[name])
        for name, images in trees.items()
    }
    real, synthetic = figures["real"], figures["synthetic"]
    return {
        "command": "studies.realism",
        "schema_version": _SCHEMA_VERSION,
        "config": config.to_json(),
        "environment": _environment(),
        **figures,
        "cpu_ratio": _rounded(
            statistics.median(r["synthetic"] / r["real"] for r in repeats)
        ),
        "bytes_ratio": _rounded(synthetic["bytes_per_image"] / real["bytes_per_image"]),
    }


def read_images(folder: pathlib.Path, count: int) -> list[bytes]:
    """Reads at most `count` evenly spaced *.JPEG files below a folder.

    Raises:
        ValueError: If the folder holds no such file.
    """
    paths = sorted(folder.rglob("*.JPEG"))
    if not paths:
        raise ValueError(
            f"A folder to compare must hold *.JPEG files, got none below {folder}."
        )
    taken = min(count, len(paths))
    return [paths[i * len(paths) // taken].read_bytes() for i in range(taken)]


def decode_in_turns(trees: Mapping[str, Sequence[bytes]]) -> dict[str, float]:
    """Decodes the trees in turns; returns the CPU-seconds per image of each."""
    seconds = dict.fromkeys(trees, 0.0)
    for turn in range(_NUM_TURNS):
        for name, images in trees.items():
            seconds[name] += decode(images[turn::_NUM_TURNS])[0]
    return {name: seconds[name] / len(images) for name, images in trees.items()}


def decode(images: Sequence[bytes]) -> tuple[float, list[tuple[int, int]]]:
    """Decodes images one by one.

    Returns:
        CPU-seconds of the whole process, and (width, height) of each image in pixels.
    """
    import tensorflow as tf  # slow, so the arguments are checked before

    sizes = []
    start = time.process_time()
    for encoded in images:
        height, width, _ = tf.io.decode_jpeg(encoded).shape
        sizes.append((width, height))
    return time.process_time() - start, sizes


def _figures(
    images: Sequence[bytes],
    cpu_seconds: Sequence[float],
    sizes: Sequence[tuple[int, int]],
) -> dict[str, float]:
    num_bytes = [len(encoded) for encoded in images]
    pixels = [width * height for width, height in sizes]
    return {
        "num_images": len(images),
        "cpu_seconds_per_image": _rounded(statistics.median(cpu_seconds)),
        "cpu_seconds_per_image_min": _rounded(min(cpu_seconds)),
        "cpu_seconds_per_image_max": _rounded(max(cpu_seconds)),
        "bytes_per_image": _rounded(statistics.fmean(num_bytes)),
        "pixels_per_image": _rounded(statistics.fmean(pixels)),
        "bytes_per_pixel": _rounded(sum(num_bytes) / sum(pixels)),
        "mean_width": _rounded(statistics.fmean(width for width, _ in sizes)),
        "mean_height": _rounded(statistics.fmean(height for _, height in sizes)),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _environment() -> dict[str, object]:
    import tensorflow as tf

    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "cpu_model": tfpipe.cpu_model(),
        "num_cpus": len(os.sched_getaffinity(0)),
    }


def table(report: dict[str, object]) -> str:
    """Returns a table with the figures of both trees side by side."""
    real, synthetic = report["real"], report["synthetic"]
    assert isinstance(real, dict)
    assert isinstance(synthetic, dict)
    lines = [f"{'':28}{'real':>12}{'synthetic':>12}{'ratio':>8}"]
    for key, value in real.items():
        ratio = synthetic[key] / value
        lines.append(f"{key:28}{value:12.6g}{synthetic[key]:12.6g}{ratio:8.3f}")
    return "\n".join(lines)


def config_from_flags() -> Config:
    """Returns the settings that the flags describe."""
    return Config(
        real_dir=pathlib.Path(_REAL_DIR.value),
        synthetic_dir=pathlib.Path(_SYNTHETIC_DIR.value),
        num_decoded_images=_NUM_DECODED_IMAGES.value,
        num_repeats=_NUM_REPEATS.value,
        result_file=pathlib.Path(_RESULT_FILE.value) if _RESULT_FILE.value else None,
    )


def main(argv: list[str]) -> int:
    """Prints the comparison that the flags describe."""
    command.refuse_arguments(argv)
    config = config_from_flags()
    try:
        report = compare(config)
        output.finish(report, table(report), path=config.result_file)
    except (OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    command.run(main, {})
