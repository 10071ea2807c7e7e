"""Image work of the loaders written in Python: decode, crop, resize, flip, normalize.

In: the bytes of a JPEG file and a source of random numbers. Out: pixels, [height,
width, 3]. There are the two decoders that people use: Pillow, as torchvision uses it,
and simplejpeg with OpenCV, the fastest that pip installs.
"""

import dataclasses
import functools
import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import PIL.Image

from studies import harness

# Per channel, for pixels in [0, 255]; torchvision and TensorFlow Model Garden use them.
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)

AREA_RANGE = (0.08, 1.0)
RATIO_RANGE = (3 / 4, 4 / 3)

# Returns a random number, uniform in [0, 1).
Draw = Callable[[], float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(harness.Job):
    """Work of every loader: batches of random crops of the shuffled train split.

    Attributes:
        peer_dir: Folder of the same images in the forms that other loaders read.
        entries_data_dir: Folder of the same data set with entry points, or "".
        dtype: "uint8", or "float32" normalized by `MEAN` and `STD`.
        num_workers: Threads or worker processes; tf.data chooses its own.

    Raises:
        ValueError: If dtype is another one, or a number is below 1.
    """

    peer_dir: str = ""
    entries_data_dir: str = ""
    dtype: str = "uint8"
    num_workers: int = 2

    def __post_init__(self) -> None:
        if self.dtype not in ("uint8", "float32"):
            raise ValueError(f"dtype must be uint8 or float32, got {self.dtype!r}.")
        for name in ("image_size", "batch_size", "num_workers", "num_timed_images"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}.")


# Bytes of a JPEG file -> image of the job's size and dtype.
Load = Callable[[bytes, Job, Draw], Any]


def crop_box(height: int, width: int, draw: Draw) -> tuple[int, int, int, int]:
    """Draws a random crop box as torchvision's RandomResizedCrop does.

    The area is uniform in `AREA_RANGE`, the logarithm of the aspect ratio uniform
    between the logarithms of `RATIO_RANGE`. If ten boxes in a row do not fit, the
    largest box in the middle, with a ratio in `RATIO_RANGE`, is taken.

    Returns:
        top, left, height and width of the box, in pixels.
    """
    logs = [math.log(ratio) for ratio in RATIO_RANGE]
    for _ in range(10):
        area = height * width * _between(AREA_RANGE, draw)
        ratio = math.exp(_between(logs, draw))
        rows, columns = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < rows <= height and 0 < columns <= width:
            top, left = draw() * (height - rows + 1), draw() * (width - columns + 1)
            return int(top), int(left), rows, columns
    rows = min(height, round(width / RATIO_RANGE[0]))
    columns = min(width, round(height * RATIO_RANGE[1]))
    return (height - rows) // 2, (width - columns) // 2, rows, columns


def _between(limits: Any, draw: Draw) -> float:
    return limits[0] + draw() * (limits[1] - limits[0])


def load_pillow(encoded: bytes, job: Job, draw: Draw) -> Any:
    """Loads as torchvision does: decodes all, crops, resizes with antialiasing."""
    image = PIL.Image.open(io.BytesIO(encoded)).convert("RGB")
    top, left, rows, columns = crop_box(image.height, image.width, draw)
    image = image.crop((left, top, left + columns, top + rows))
    size = (job.image_size, job.image_size)
    return _finish(
        np.asarray(image.resize(size, PIL.Image.Resampling.BILINEAR)), job, draw
    )


def load_cv(encoded: bytes, job: Job, draw: Draw) -> Any:
    """Loads by simplejpeg, with libjpeg-turbo's fast DCT, and OpenCV."""
    import cv2
    import simplejpeg

    pixels = simplejpeg.decode_jpeg(encoded, colorspace="RGB", fastdct=True)
    top, left, rows, columns = crop_box(*pixels.shape[:2], draw)
    image = cv2.resize(
        pixels[top : top + rows, left : left + columns],
        (job.image_size, job.image_size),
        interpolation=cv2.INTER_LINEAR,
    )
    return _finish(image, job, draw)


def one_thread_each() -> None:
    """Keeps OpenCV from starting threads within each worker of a loader."""
    import cv2

    cv2.setNumThreads(0)


def _finish(image: Any, job: Job, draw: Draw) -> Any:
    if draw() < 0.5:
        image = image[:, ::-1]
    image = np.ascontiguousarray(image)
    if job.dtype == "uint8":
        return image
    # Rows are flattened: NumPy is slow where the last axis has only three elements.
    scale, offset = _row_constants(job.image_size)
    rows = image.reshape(job.image_size, -1) * scale
    rows += offset
    return rows.reshape(image.shape)


@functools.cache
def _row_constants(width: int) -> tuple[Any, Any]:
    std = np.array(STD)
    scale, offset = 1 / std, -np.array(MEAN) / std
    return tuple(np.tile(row, width).astype(np.float32) for row in (scale, offset))
