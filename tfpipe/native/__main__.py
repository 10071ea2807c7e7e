"""Builds the native crop op, checks it against the stock ops and says what it saves.

Also builds the library that --restart_rows of the converters needs.

  python -m tfpipe.native

Needs a C++ compiler, about ten seconds, and nothing else: TensorFlow's wheel has the
headers, Pillow's the library. Pipelines that are made from then on use it. Run it again
after TensorFlow, Pillow or tfpipe has changed: what is still good is kept, and what is
damaged is built again. The last line on stdout is one JSON object; the exit code is 0
if the op works, otherwise 1.

$TFPIPE_NATIVE_DIR is the folder to keep it in, $CXX the compiler.
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
from tfpipe.native.op import CropOp
from tfpipe.ops.crop import crop_image

# Of ImageNet, about: a crop of 300 x 300 to 224.
_SIDES = (400, 500)
_WINDOW = (31, 57, 300, 300)
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
        help="also decode N broken images under AddressSanitizer; 10000 take 2 seconds",
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
    """Raises OSError if sound libraries do not load, as those of another host."""
    module, reason = op.load()
    if module is None:
        remedy = "" if force else ". Run: python -m tfpipe.native --force"
        raise OSError(f"{reason}{remedy}")


def _checked() -> dict[str, Any]:
    """Largest difference of a crop's pixels, and CPU-seconds of both ways."""
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
    """A JPEG of smooth noise with grain, as large as a photograph of ImageNet."""
    random = np.random.default_rng(0)
    coarse = PIL.Image.fromarray(random.integers(0, 256, (8, 10, 3), dtype=np.uint8))
    smooth = coarse.resize(_SIDES[::-1], PIL.Image.Resampling.BICUBIC)
    grain = random.normal(0, 8, (*_SIDES, 3))
    pixels = (np.asarray(smooth) + grain).clip(0, 255).astype(np.uint8)
    out = io.BytesIO()
    PIL.Image.fromarray(pixels).save(out, "JPEG", quality=90)
    return out.getvalue()


def _crop(jpeg: bytes, crop_op: CropOp) -> tuple[Any, float]:
    """Pixels of a crop, and the CPU-seconds that one takes in a pipeline."""
    # Elements, as what is constant would be folded.
    crops = tf.data.Dataset.from_tensors(jpeg).repeat(2 * _NUM_TIMED)
    crops = crops.map(
        lambda encoded: crop_image(
            encoded,
            tf.constant(_WINDOW, tf.int32),
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
