"""Builds the native crop op, checks it against the stock ops and reports what it saves.

It also builds the library with which the converters turn photographs upright without
loss, and which their --restart_rows needs.

  python -m tfpipe.native

It needs a C++ compiler, about ten seconds, and nothing else: TensorFlow's wheel has the
headers, Pillow's wheel has libjpeg. Pipelines that are made afterwards use the op. Run
the command again after TensorFlow, Pillow or tfpipe has changed: sound libraries are
kept, and damaged ones are built again. The last line on stdout is one JSON object; the
exit code is 0 if the op works, otherwise 1.

$TFPIPE_NATIVE_DIR is the folder for the libraries, $CXX the compiler.
"""

import argparse
import io
import json
import sys
import time
from typing import Any

import numpy as np
import PIL.Image
import tensorflow as tf

from tfpipe.native import libraries, op
from tfpipe.native.build import build, made_by
from tfpipe.native.fuzz import fuzz
from tfpipe.native.selection import CropOp
from tfpipe.ops.crop import crop_image

# A typical ImageNet image, and a crop box of 300 x 300 resized to 224.
_SIDES = (400, 500)
_CROP_BOX = (31, 57, 300, 300)
_NUM_TIMED = 200


def main() -> int:
    """Builds, checks and reports."""
    parser = argparse.ArgumentParser(
        prog="python -m tfpipe.native",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--force", action="store_true", help="compile even if it is built already"
    )
    parser.add_argument(
        "--fuzz",
        type=int,
        metavar="N",
        default=0,
        help="also decode N broken images under AddressSanitizer, on all cores; a "
        "million take some minutes",
    )
    arguments = parser.parse_args()
    begin = time.perf_counter()
    try:
        path = build(force=arguments.force)
        _require_loading(force=arguments.force)
        report = _checked() | {"library": str(path), "compiler": made_by(path)}
        report |= {"rewrite_library": str(libraries.rewrite_library())}
        if arguments.fuzz:
            report |= {"fuzz": fuzz(arguments.fuzz, seed=0)}
    except (OSError, RuntimeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    report |= {
        "command": "tfpipe.native",
        "schema_version": 1,
        "libjpeg": str(libraries.libjpeg()),
        "tensorflow": tf.__version__,
        "seconds": time.perf_counter() - begin,
    }
    print(json.dumps(report, sort_keys=True))
    return 0 if report["max_difference"] <= 1 else 1


def _require_loading(*, force: bool) -> None:
    """Raises OSError if a sound library does not load, such as one of another host."""
    module, reason = op.load()
    if module is None:
        remedy = "" if force else ". Run: python -m tfpipe.native --force"
        raise OSError(f"{reason}{remedy}")


def _checked() -> dict[str, Any]:
    """Returns a crop's largest pixel difference, and the CPU-seconds of both ops."""
    jpeg = _image()
    report: dict[str, Any] = {}
    images = {}
    names: tuple[CropOp, ...] = ("native", "stock")
    for name in names:
        images[name], seconds = _crop(jpeg, name)
        report[f"{name}_cpu_seconds_per_1000_crops"] = 1000 * seconds
    difference = np.abs(images["native"].astype(int) - images["stock"])
    return report | {"max_difference": int(difference.max())}


def _image() -> bytes:
    """Returns a JPEG of smooth noise with grain, as large as an ImageNet photograph."""
    random = np.random.default_rng(0)
    coarse = PIL.Image.fromarray(random.integers(0, 256, (8, 10, 3), dtype=np.uint8))
    smooth = coarse.resize(_SIDES[::-1], PIL.Image.Resampling.BICUBIC)
    grain = random.normal(0, 8, (*_SIDES, 3))
    pixels = (np.asarray(smooth) + grain).clip(0, 255).astype(np.uint8)
    out = io.BytesIO()
    PIL.Image.fromarray(pixels).save(out, "JPEG", quality=90)
    return out.getvalue()


def _crop(jpeg: bytes, crop_op: CropOp) -> tuple[Any, float]:
    """Returns the pixels of a crop, and the CPU-seconds of one crop in a pipeline."""
    # An element of the dataset: TensorFlow would compute a constant once.
    crops = tf.data.Dataset.from_tensors(jpeg).repeat(2 * _NUM_TIMED)
    crops = crops.map(
        lambda encoded: crop_image(
            encoded,
            tf.constant(_CROP_BOX, tf.int32),
            224,
            flip=tf.constant(True),
            crop_op=crop_op,
        )
    )
    images = iter(crops.batch(_NUM_TIMED))
    image = next(images)[0].numpy()
    begin = time.process_time()
    next(images)
    return image, (time.process_time() - begin) / _NUM_TIMED


if __name__ == "__main__":
    sys.exit(main())
