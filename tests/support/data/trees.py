"""Tiny images, trees and data sets for the tests."""

import functools
import hashlib
import io
import json
import pathlib
import re
from typing import Any

import numpy as np
import PIL.Image

from converters.inputs import boxes, classes
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tfpipe.location.browse import Folder
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shards import index

SYNSETS = ("n01440764", "n01443537", "n01484850", "n01491361")


def folder_at(path: pathlib.Path) -> Folder:
    """A folder on the disk, as readers see it."""
    return Folder(Location(str(path)))


def read_boxes(path: pathlib.Path, *, num_workers: int = 1) -> boxes.Boxes:
    """The boxes below a folder, of classes of ImageNet."""
    synsets = [each.synset for each in classes.read_classes(folder_at(path))]
    return boxes.read_boxes(folder_at(path), synsets, num_workers=num_workers)


# Options of two jobs that put the same images into shards of the same names.
JOB_X = {"seed": 1, "num_train_shards": 6, "num_validation_shards": 1}
JOB_Y = JOB_X | {"seed": 2}

# "X" or "Y", and the name of a file -> its digest.
JobDigests = dict[str, dict[str, str]]


@functools.cache
def make_jpeg(
    seed: int, *, height: int = 32, width: int = 40, mode: str = "RGB"
) -> bytes:
    """A small JPEG of smooth noise, another one for each seed."""
    random = np.random.default_rng(seed)
    small = PIL.Image.fromarray(random.integers(0, 256, (4, 5, 3), dtype=np.uint8))
    image = small.resize((width, height), PIL.Image.Resampling.BICUBIC).convert(mode)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=95, subsampling=0)
    return out.getvalue()


def make_tree(
    folder: pathlib.Path, *, num_images: int, num_validation_images: int = 0
) -> pathlib.Path:
    """An ImageNet-style tree over SYNSETS, image sizes differing by a few pixels."""
    for number in range(num_images):
        synset = SYNSETS[number % len(SYNSETS)]
        path = folder / "train" / synset / f"{synset}_{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(number, height=32 + number % 3))
    labels = []
    for number in range(num_validation_images):
        path = folder / "val" / f"ILSVRC2012_val_{number + 1:08d}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(1000 + number, width=40 + number % 2))
        labels.append(SYNSETS[number % len(SYNSETS)] + "\n")
    if labels:
        (folder / "synset_labels.txt").write_text("".join(labels))
    return folder


def convert(
    raw_dir: pathlib.Path, output_dir: pathlib.Path, **options: Any
) -> dict[str, Any]:
    """Runs converters.imagenet in this process, by default with one worker."""
    options = {"num_workers": 1, "fsync": False, **options}
    config = conversion(
        "imagenet", input_dir=str(raw_dir), output_dir=str(output_dir), **options
    )
    return conversions.convert(config)


# The revision, and the digest of the index with the revision.
_REVISION = re.compile(rb'\n *"git_revision": .*|\n "digest": .*')


def digests(folder: pathlib.Path) -> dict[str, str]:
    """Returns the digest of each file below a folder, by its relative path.

    The revision of the checkout in an index has no effect: the revision changes when
    somebody commits while other processes of a test run.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            if path.name == index.INDEX_NAME:
                data = _REVISION.sub(b"", data)
            found[str(path.relative_to(folder))] = hashlib.sha256(data).hexdigest()
    return found


def upload(folder: pathlib.Path, url: str) -> None:
    """Copies all files below a folder to a URL."""
    files = Files(url)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files.upload(path.relative_to(folder).as_posix(), path)


def forget_digests(data_dir: pathlib.Path) -> None:
    """Makes the index of a data set one of an older version: without new keys."""
    path = data_dir / index.INDEX_NAME
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["files"], document["digest"]
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")
