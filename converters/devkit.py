"""Which class each validation image shows: a label list, or the development kit.

In: the folder with the images. Out: the synset of each image by name. The development
kit numbers the classes in its own order, which is not label order: what its numbers
mean is read from its `meta.mat`.
"""

import collections
import pathlib
import re
from collections.abc import Mapping, Sequence

from converters import matfile, tars

LABELS_NAME = "synset_labels.txt"
FOLDER_NAME = "ILSVRC2012_devkit_t12"
TRUTH_NAME = "ILSVRC2012_validation_ground_truth.txt"
META_NAME = "meta.mat"

_NUM_CLASSES = 1000
_NUMBER = re.compile(r"ILSVRC2012_val_(\d{8})\.")


def validation_synsets(
    input_dir: pathlib.Path, names: Sequence[str], listed: Sequence[str]
) -> Mapping[str, str]:
    """The synset of each file of a validation split without class folders.

    A `synset_labels.txt` comes first: its lines go by the order of the names. Else the
    development kit, in whose ground truth the line is the number in the name.

    Args:
        input_dir: Folder with either.
        names: Names of the images, in order.
        listed: Those and the names of what is no file but is named like an image, which
            may have a line of their own in a label list.

    Raises:
        ValueError: If there is neither, or it does not fit the images.
    """
    path = input_dir / LABELS_NAME
    if path.is_file():
        synsets = path.read_text(encoding="utf-8").split()
        for owners in (listed, names):
            if len(owners) == len(synsets):
                return dict(zip(owners, synsets, strict=True))
        raise ValueError(
            f"{path} must have a line for each of the {len(names)} images in "
            f"{input_dir / 'val'}, got {len(synsets)}."
        )
    files = _read_files(input_dir)
    if files is None:
        raise ValueError(
            f"The validation images in {input_dir} have no class folders, so {path} "
            "must give the synset of each, one a line in the order of the file names; "
            f"got no such file, and no {FOLDER_NAME} or {FOLDER_NAME}.tar.gz with "
            f"{TRUTH_NAME} and {META_NAME} either."
        )
    truth = _truth(*files)
    return {name: truth[_number(name, len(truth)) - 1] for name in names}


def _read_files(input_dir: pathlib.Path) -> tuple[bytes, bytes] | None:
    """Ground truth and meta.mat, from a folder or from the kit as it is downloaded."""
    for folder in (input_dir / FOLDER_NAME / "data", input_dir):
        paths = (folder / TRUTH_NAME, folder / META_NAME)
        if all(path.is_file() for path in paths):
            truth, meta = (path.read_bytes() for path in paths)
            return truth, meta
    archive = input_dir / f"{FOLDER_NAME}.tar.gz"
    if not archive.is_file():
        return None
    wanted = {TRUTH_NAME: b"", META_NAME: b""}
    for name, data in tars.stream_files(archive):
        base_name = pathlib.PurePosixPath(name).name
        if base_name in wanted:
            wanted[base_name] = data
    missing = [name for name, data in wanted.items() if not data]
    if missing:
        raise ValueError(f"{archive} must hold {missing[0]}, got no such file in it.")
    return wanted[TRUTH_NAME], wanted[META_NAME]


def _truth(truth: bytes, meta: bytes) -> list[str]:
    """The synset of validation image 1, 2 and so on."""
    rows = matfile.read_structs(meta, "synsets")
    # The later rows are inner nodes of the hierarchy.
    synsets = {
        int(row["ILSVRC2012_ID"]): str(row["WNID"])
        for row in rows
        if int(row["ILSVRC2012_ID"]) <= _NUM_CLASSES
    }
    numbers = [int(line) for line in truth.split()]
    unknown = collections.Counter(n for n in numbers if n not in synsets)
    if unknown:
        raise ValueError(
            f"{TRUTH_NAME} must hold numbers of classes in {META_NAME}, got "
            f"{min(unknown)}."
        )
    return [synsets[number] for number in numbers]


def _number(name: str, count: int) -> int:
    match = _NUMBER.match(name)
    if not match or not 1 <= int(match[1]) <= count:
        raise ValueError(
            f"val/{name} must be named ILSVRC2012_val_<number>, from 00000001 to "
            f"{count:08d}, for {TRUTH_NAME} to say what it shows. Rename it, or list "
            f"the synset of every image in {LABELS_NAME}."
        )
    return int(match[1])
