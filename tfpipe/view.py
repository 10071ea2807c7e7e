"""A batch as a picture: its images on a contact sheet, each with its label.

In: a batch as numpy arrays or tensors. Out: a PIL image, to be shown or saved.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image
import PIL.ImageDraw

from tfpipe.ops import IMAGENET_MEAN, IMAGENET_STD

Pixels = npt.NDArray[Any]

_MARGIN = 4  # pixels
_CAPTION_HEIGHT = 14


def contact_sheet(
    batch: Mapping[str, Any],
    *,
    class_names: Sequence[str] | None = None,
    num_columns: int = 8,
    max_images: int = 32,
) -> PIL.Image.Image:
    """Draws the images of a batch in rows, each above its label.

    Args:
        batch: `image` [batch, height, width, 3], uint8 in 0..255, or a float type as
            `ops.Normalize` makes it; `label` integer [batch].
        class_names: Name of each label; the number is shown where there is none.
        num_columns: Images in a row.
        max_images: Images to draw, from the first.

    Raises:
        ValueError: If `image` is not of that shape, or a number is below 1.
    """
    if num_columns < 1 or max_images < 1:
        raise ValueError(
            "num_columns and max_images must be >= 1, "
            f"got {num_columns} and {max_images}."
        )
    images = _as_uint8(np.asarray(batch["image"])[:max_images])
    labels = np.asarray(batch["label"])[:max_images]
    num_images, height, width, _ = images.shape
    num_columns = min(num_columns, num_images)
    cell_width, cell_height = width + _MARGIN, height + _MARGIN + _CAPTION_HEIGHT
    num_rows = -(-num_images // num_columns)
    sheet = PIL.Image.new(
        "RGB",
        (num_columns * cell_width + _MARGIN, num_rows * cell_height + _MARGIN),
        "white",
    )
    draw = PIL.ImageDraw.Draw(sheet)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        row, column = divmod(number, num_columns)
        x, y = column * cell_width + _MARGIN, row * cell_height + _MARGIN
        sheet.paste(PIL.Image.fromarray(image), (x, y))
        caption = _caption(int(label), class_names)
        while len(caption) > 1 and draw.textlength(caption) > width:
            caption = caption[:-1]
        draw.text((x, y + height + 1), caption, fill="black")
    return sheet


def _as_uint8(images: Pixels) -> Pixels:
    if images.ndim != 4 or images.shape[-1] != 3 or len(images) == 0:
        raise ValueError(
            "batch['image'] must have the shape [batch, height, width, 3] and at least "
            f"one image, got {list(images.shape)}."
        )
    if images.dtype == np.uint8:
        return images
    pixels = images.astype(np.float32) * IMAGENET_STD + IMAGENET_MEAN
    rounded: Pixels = np.clip(np.round(pixels), 0, 255).astype(np.uint8)
    return rounded


def _caption(label: int, class_names: Sequence[str] | None) -> str:
    if class_names is None or not 0 <= label < len(class_names):
        return str(label)
    return f"{label} {class_names[label]}"
