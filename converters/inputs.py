"""Where images and labels come from: an ImageNet-style tree as named images.

In: a folder with `train/<synset>/*.JPEG` and, if it is there, `val/`: flat with the
synsets in `synset_labels.txt` (line i for the i-th file by name), or one folder a
class like `train`. Out: for each split its images, in a fixed order. Files are listed,
not opened; anything that cannot be converted is an error before any work starts.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from converters.classes import Class

JPEG_SUFFIXES = (".jpeg", ".jpg")
LABELS_NAME = "synset_labels.txt"


class Image(NamedTuple):
    """One source image: what it is called, what it shows, and where its bytes are.

    Attributes:
        name: `<folder>/<synset>/<file>`, the same whether it lies in a tree or a tar.
        class_index: Which class, counted from 0.
        file: File that holds its bytes, relative to the input folder.
        offset: Where they start in that file.
        num_bytes: How many they are.
    """

    name: str
    class_index: int
    file: str
    offset: int
    num_bytes: int


def read_image(input_dir: pathlib.Path, image: Image) -> bytes:
    """The bytes of an image.

    Raises:
        OSError: If they cannot be read; names the file.
    """
    path = input_dir / image.file
    with open(path, "rb", buffering=0) as file:
        data = os.pread(file.fileno(), image.num_bytes, image.offset)
    if len(data) != image.num_bytes:
        raise OSError(
            f"{path} must have {image.num_bytes} bytes of {image.name} at byte "
            f"{image.offset}, got {len(data)}: it has changed since it was listed."
        )
    return data


class Tree(NamedTuple):
    """The images of each split, and how many files were ignored for their name."""

    splits: Mapping[str, Sequence[Image]]
    num_ignored: int


def read_tree(input_dir: pathlib.Path, classes: Sequence[Class]) -> Tree:
    """Lists the images of `train/` and `val/` under an input folder.

    Raises:
        ValueError: If there is nothing to convert, a class is not in the class list,
            a file is empty or not a file, or labels and files differ in number.
    """
    if not input_dir.is_dir():
        raise ValueError(
            f"--input_dir must be a folder, got {input_dir}: no such folder."
        )
    index = {item.synset: number for number, item in enumerate(classes)}
    train, ignored = _read_class_folders(input_dir, "train", index)
    splits = {"train": train}
    if (input_dir / "val").is_dir():
        flat = not _folders(input_dir / "val")
        read = _read_flat if flat else _read_class_folders
        splits["validation"], more = read(input_dir, "val", index)
        ignored += more
    return Tree(splits, ignored)


def _read_class_folders(
    input_dir: pathlib.Path, folder: str, index: Mapping[str, int]
) -> tuple[list[Image], int]:
    root = input_dir / folder
    layout = f"{root} must hold a folder for each class, with its JPEG files inside"
    if not root.is_dir():
        raise ValueError(f"{layout}; got no such folder. See --help for the layout.")
    synsets = _folders(root)
    if not synsets:
        raise ValueError(f"{layout}; got no folder. See --help for the layout.")
    unknown = [synset for synset in synsets if synset not in index]
    if unknown:
        raise ValueError(
            f"{root} has {len(unknown)} class folders that are not in the class list, "
            f"the first is {unknown[0]}. List all synsets in label order in "
            f"{input_dir / 'synsets.txt'}."
        )
    images, ignored = [], 0
    for synset in synsets:
        files, others = _list_files(root / synset)
        ignored += others
        images += [
            _tree_image(f"{folder}/{synset}/{name}", index[synset], size)
            for name, size in files
        ]
    _require_images(images, root)
    return images, ignored


def _read_flat(
    input_dir: pathlib.Path, folder: str, index: Mapping[str, int]
) -> tuple[list[Image], int]:
    labels_path = input_dir / LABELS_NAME
    if not labels_path.is_file():
        raise ValueError(
            f"{input_dir / folder} is flat, so {labels_path} must give the synset of "
            "each file, one a line in the order of the file names; got no such file."
        )
    synsets = labels_path.read_text(encoding="utf-8").split()
    files, ignored = _list_files(input_dir / folder)
    if len(synsets) != len(files):
        raise ValueError(
            f"{labels_path} must have a line for each of the {len(files)} images in "
            f"{input_dir / folder}, got {len(synsets)}."
        )
    for number, synset in enumerate(synsets, start=1):
        if synset not in index:
            raise ValueError(
                f"{labels_path} line {number}: {synset} is not in the class list. "
                f"List all synsets in label order in {input_dir / 'synsets.txt'}."
            )
    images = [
        _tree_image(f"{folder}/{name}", index[synset], size)
        for (name, size), synset in zip(files, synsets, strict=True)
    ]
    _require_images(images, input_dir / folder)
    return images, ignored


def _tree_image(path: str, class_index: int, size: int) -> Image:
    return Image(path, class_index, path, 0, size)


def _folders(root: pathlib.Path) -> list[str]:
    with os.scandir(root) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def _list_files(folder: pathlib.Path) -> tuple[list[tuple[str, int]], int]:
    """Name and size of the JPEG files of a folder by name; how many others it has."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    files, others = [], 0
    for entry in found:
        if not entry.name.lower().endswith(JPEG_SUFFIXES):
            others += 1
            continue
        try:
            size = entry.stat().st_size
        except OSError as error:
            raise ValueError(
                f"{entry.path} cannot be read: {error.strerror}."
            ) from None
        if not entry.is_file():
            raise ValueError(f"{entry.path} must be a file, got a folder or a device.")
        if size == 0:
            raise ValueError(
                f"{entry.path} must be a JPEG file, got 0 bytes. "
                "Restore it or remove it from the tree."
            )
        files.append((entry.name, size))
    return files, others


def _require_images(images: Sequence[Image], root: pathlib.Path) -> None:
    if not images:
        raise ValueError(
            f"{root} must hold images named *.JPEG, *.jpeg or *.jpg, got none."
        )
