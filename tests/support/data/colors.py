"""Data of one color a class, so that a crop of an image tells its label."""

import pathlib

import numpy as np
import PIL.Image

from tests.support.data.trees import SYNSETS, convert

# The color of each class, in RGB; labels of records start at 1.
COLORS = np.array([(220, 30, 30), (30, 200, 30), (40, 40, 220), (240, 240, 230)])
NUM_IMAGES = 24


def make_color_data(raw: pathlib.Path) -> pathlib.Path:
    """Writes images of one color each and converts them to three train shards.

    Returns the folder of the records; the images are in `raw`/train.
    """
    for number in range(NUM_IMAGES):
        label = number % len(SYNSETS)
        image = PIL.Image.new("RGB", (48 + number % 5, 40), tuple(COLORS[label]))
        path = raw / "train" / SYNSETS[label] / f"{SYNSETS[label]}_{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=95)
    folder = raw / "records"
    convert(raw, folder, num_train_shards=3)
    return folder
