"""What loaders written in Python do with a JPEG: decode, crop, resize, flip, normalize.

In: the bytes of a file and a source of random numbers. Out: pixels, [height, width, 3].
The two decoders are what people use: Pillow, as torchvision does it, and simplejpeg
with OpenCV, the fastest that installs with pip.
"""

import dataclasses
import functools
import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import PIL.Image

# Of pixels in [0, 255], as torchvision and TensorFlow Model Garden have them.
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)

AREA_RANGE = (0.08, 1.0)
RATIO_RANGE = (3 / 4, 4 / 3)

# Uniform in [0, 1).
Draw = Callable[[], float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What every peer does: batches of random crops of the train split, shuffled.

    Attributes:
        data_dir: Folder of TFRecords with index.json.
        peer_dir: Folder of the same images in the forms that other peers read.
        image_size: Height and width, in pixels.
        batch_size: Images in a batch.
        dtype: "uint8", or "float32" normalized by `MEAN` and `STD`.
        num_workers: Threads or worker processes; tf.data chooses its own.
        num_warmup_images: Images before the timed ones.
        num_timed_images: Images to time.

    Raises:
        ValueError: If a value is out of its range.
    """

    data_dir: str
    peer_dir: str = ""
    image_size: int = 224
    batch_size: int = 64
    dtype: str = "uint8"
    num_workers: int = 2
    num_warmup_images: int = 1000
    num_timed_images: int = 4000

    def __post_init__(self) -> None:
        if self.dtype not in ("uint8", "float32"):
            raise ValueError(f"dtype must be uint8 or float32, got {self.dtype!r}.")
        for name in ("image_size", "batch_size", "num_workers", "num_timed_images"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}.")


# Bytes of a JPEG -> image of the job's size and dtype.
Load = Callable[[bytes, Job, Draw], Any]


def window(height: int, width: int, draw: Draw) -> tuple[int, int, int, int]:
    """A random window, top, left, height and width, as torchvision draws it.

    Area and ratio are uniform in `AREA_RANGE` and, by its logarithm, in `RATIO_RANGE`;
    after ten windows that do not fit, the largest one in the middle is taken.
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
    """As torchvision does it: the whole image, then a crop, resized with antialias."""
    image = PIL.Image.open(io.BytesIO(encoded)).convert("RGB")
    top, left, rows, columns = window(image.height, image.width, draw)
    image = image.crop((left, top, left + columns, top + rows))
    size = (job.image_size, job.image_size)
    return _finish(
        np.asarray(image.resize(size, PIL.Image.Resampling.BILINEAR)), job, draw
    )


def load_cv(encoded: bytes, job: Job, draw: Draw) -> Any:
    """By simplejpeg with libjpeg-turbo's fast DCT, and OpenCV."""
    import cv2
    import simplejpeg

    pixels = simplejpeg.decode_jpeg(encoded, colorspace="RGB", fastdct=True)
    top, left, rows, columns = window(*pixels.shape[:2], draw)
    image = cv2.resize(
        pixels[top : top + rows, left : left + columns],
        (job.image_size, job.image_size),
        interpolation=cv2.INTER_LINEAR,
    )
    return _finish(image, job, draw)


def one_thread_each() -> None:
    """Keeps OpenCV from starting threads in each worker."""
    import cv2

    cv2.setNumThreads(0)


def _finish(image: Any, job: Job, draw: Draw) -> Any:
    if draw() < 0.5:
        image = image[:, ::-1]
    image = np.ascontiguousarray(image)
    if job.dtype == "uint8":
        return image
    # Whole rows at once: NumPy is slow where the last axis has three elements.
    scale, offset = _row_constants(job.image_size)
    rows = image.reshape(job.image_size, -1) * scale
    rows += offset
    return rows.reshape(image.shape)


@functools.cache
def _row_constants(width: int) -> tuple[Any, Any]:
    std = np.array(STD)
    scale, offset = 1 / std, -np.array(MEAN) / std
    return tuple(np.tile(row, width).astype(np.float32) for row in (scale, offset))
