"""Lists the images of ILSVRC-2012, from a tree of folders or from the official tars.

In: a folder or a URL with a row of the following for every split:
    train/<synset>/*.JPEG, train/<synset>.tar, both, or ILSVRC2012_img_train.tar
    val/*.JPEG, val/<synset>/*.JPEG or ILSVRC2012_img_val.tar
or the layout of Kaggle, see `kaggle`.
Out: the images of each split, with the same names and in the same order for every
form. Files are listed and headers of tars are read; no image is opened or unpacked. An
input that cannot be converted is an error before any work starts.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from converters.inputs import boxes, devkit, folders, kaggle, listing, tars
from converters.inputs.classes import read_classes
from converters.inputs.files import State, state_of
from converters.inputs.folders import Folder
from converters.inputs.image import NO_CLASS, Image, catalog_name, whole_file
from converters.inputs.listed import Listed
from converters.inputs.listing import LeftOut
from converters.inputs.meaning import Meaning
from converters.inputs.reader import Reader, Workspace
from tfpipe.location.location import Location
from tfpipe.shards.split_names import split_of_name

TRAIN_TAR = "ILSVRC2012_img_train.tar"
VALIDATION_TAR = "ILSVRC2012_img_val.tar"
_TAR_NAMES = {TRAIN_TAR, VALIDATION_TAR, *boxes.TAR_NAMES}
# The threads wait for the disk most of the time, so that there are more than CPUs.
_NUM_HEADER_READERS = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class IlsvrcReader(Reader):
    """Reads ILSVRC-2012: official tars, unpacked tars, any mix; or a URL of a tree."""

    input_dir: str

    def list_images(self, meaning: Meaning, workspace: Workspace) -> Listed:
        """Lists the images of the train and validation splits.

        Raises:
            ValueError: If there is nothing to convert, a split is both a folder and a
                tar, a class is not in the class list, a tar is damaged or at a URL, or
                labels do not match.
        """
        input_dir = Location.from_user("--input_dir", self.input_dir, expand_user=True)
        above = images = folders.open_folder(input_dir)
        if kaggle.is_root(above):
            input_dir /= kaggle.IMAGES
            images = folders.open_folder(input_dir)
        kaggle.refuse(images, reader="converters.imagenet")
        with lists_near(above) as lists_dir:
            classes = read_classes(lists_dir)
            folders.require(images)
            report = _Report()
            report.leave_out(_other_splits(images))
            numbers = {item.synset: number for number, item in enumerate(classes)}
            splits = {"train": _read_train(images, numbers, report)}
            validation = _read_validation(images, lists_dir, numbers, report)
            if validation is not None:
                splits["validation"] = validation
            found = boxes.read_boxes(lists_dir, num_workers=workspace.num_workers)
        listed = Listed(
            input_dir,
            splits,
            report.left_out,
            names_from="The list of synsets, in which 0 is the background,",
            labels={item.synset: item.label for item in classes},
            texts={item.synset: item.text for item in classes},
            states=report.states,
            num_rows=report.num_names,
            boxes=found,
        )
        return listed.in_splits(meaning)


def _other_splits(source: Folder) -> list[LeftOut]:
    """Returns the folders and tars that are called as a split and are not read."""
    top = source.scan("", (".tar",))
    names = [f"{name}/" for name in top.folders if name not in ("train", "val")]
    names += [name for name, _ in top.files if name not in _TAR_NAMES]
    return [LeftOut(name, listing.NOT_A_SPLIT) for name in names if split_of_name(name)]


# By synset, the images of a split.
_Classes = dict[str, list[Image]]


@dataclasses.dataclass
class _Report(listing.Report):
    """The names that were read so far, and the states of the tars."""

    states: dict[str, State] = dataclasses.field(default_factory=dict)

    def add(self, content: "_Content") -> None:
        self.left_out.extend(content.left_out)
        self.num_names += content.num_names
        for tar, state in content.states.items():
            self.states.setdefault(tar, state)


def locate(
    input_dir: Location, names: Sequence[str], class_indices: Sequence[int]
) -> list[Image]:
    """Finds the images that a catalog names, in the tree or in a tar.

    Args:
        input_dir: Folder with a tree or tars, or URL of a tree.
        names: Names of the images as `catalog_name` returns them.
        class_indices: Number of the class of each image, from 0.

    Raises:
        ValueError: If an image is not found.
    """
    images = []
    source, prefix = folders.open_folder(input_dir), ""
    if kaggle.is_root(source):
        source = folders.open_folder(input_dir / kaggle.IMAGES)
        prefix = f"{kaggle.IMAGES}/"
    for name, class_index in zip(map(str, names), map(int, class_indices), strict=True):
        image = _locate_file(source, name) or _tar_images(source).get(name)
        if image is None:
            raise ValueError(
                f"{source.shown('')} must hold the image {name}, in a tree or in a "
                "tar; got neither. Give the folder that the data set was made from."
            )
        file = prefix + image.file
        images.append(image._replace(class_index=class_index, file=file))
    return images


def _locate_file(source: Folder, name: str) -> Image | None:
    undecoded = re.sub(r"\\u(dc[89a-f][0-9a-f])", lambda m: chr(int(m[1], 16)), name)
    for candidate in (name, undecoded):
        if (size := source.size(candidate)) is not None:
            return whole_file(candidate, size)
    return None


@functools.lru_cache(maxsize=1)
def _tar_images(source: Folder) -> Mapping[str, Image]:
    """Returns all images in the tars of an input folder, by their catalog names."""
    found: list[Image] = []
    if not source.location.is_local:
        return {}
    for folder, tar_name in (("train", TRAIN_TAR), ("val", None)):
        sources, _ = _class_sources(source, folder, tar_name)
        in_tars = {synset: tar for synset, tar in sources.items() if tar is not None}
        for synset, content in _read_contents(source, folder, in_tars):
            found += content.below(f"{folder}/{synset}/")
    if source.exists(VALIDATION_TAR):
        found += _read_tar(source, _FolderTar(VALIDATION_TAR)).below("val/")
    return {catalog_name(image.name): image for image in found}


def _read_train(
    source: Folder,
    numbers: Mapping[str, int],
    report: _Report,
) -> _Classes:
    tar_exists = _require_one(source, TRAIN_TAR, "train")
    if not tar_exists and not source.is_folder("train"):
        raise ValueError(
            f"{source.shown('train')} must hold a folder for each class, with its JPEG "
            f"files inside; got no such folder, and no {TRAIN_TAR}. See --help for "
            "the layout."
        )
    return _read_classes(source, "train", TRAIN_TAR, numbers, report)


def _read_validation(
    source: Folder,
    lists_dir: pathlib.Path,
    numbers: Mapping[str, int],
    report: _Report,
) -> _Classes | None:
    if _require_one(source, VALIDATION_TAR, "val"):
        content = _read_tar(source, _FolderTar(VALIDATION_TAR))
    elif not source.exists("val"):
        return None
    elif not source.is_folder("val"):
        raise ValueError(
            f"{source.shown('val')} must be a folder, got a file or a link to nowhere."
        )
    elif _class_sources(source, "val", None)[0]:
        return _read_classes(source, "val", None, numbers, report)
    else:
        content = _read_folder(source, "val")
    report.add(content)
    synsets = devkit.validation_synsets(
        lists_dir, [image.name for image in content.images], content.names
    )
    for name, synset in synsets.items():
        if synset not in numbers:
            raise ValueError(
                f"{synset}, the class of val/{name}, is not in the class list. "
                f"List all synsets in label order in {source.shown('synsets.txt')}."
            )
    classes: _Classes = {}
    for image in content.images:
        synset = synsets[image.name]
        images = classes.setdefault(synset, [])
        images.append(image.below("val/", numbers[synset]))
    return classes


class _Content(NamedTuple):
    """The images of a folder, or of the tar of a folder.

    Attributes:
        images: The images, sorted by name, without the folder in their names.
        names: All names with the ending of an image, also of links and folders.
        left_out: The names that were left out, relative to the input folder. Names of
            members of a tar begin with the name of the tar.
        num_names: Number of names that were read.
        states: State of the tar, before it was read.
    """

    images: Sequence[Image]
    names: Sequence[str]
    left_out: Sequence[LeftOut]
    num_names: int
    states: Mapping[str, State] = {}

    def below(self, prefix: str, class_index: int = NO_CLASS) -> list[Image]:
        """Returns the images of a class, with the folder in their names."""
        return [image.below(prefix, class_index) for image in self.images]


class _FolderTar(NamedTuple):
    """A tar with the content of a folder, also as a part of another tar."""

    file: str
    part: tars.Member | None = None


def _path_of(source: Folder, name: str) -> pathlib.Path:
    """Returns the path of a tar.

    Raises:
        ValueError: If the tar is at a URL.
    """
    if not source.location.is_local:
        raise ValueError(
            f"{source.shown(name)} is a tar, which is read on a disk only. Copy it to "
            "a disk, or unpack it in the store."
        )
    return source.location.path / name


def _read_folder(source: Folder, folder: str) -> _Content:
    """Returns the images of a folder."""
    found = source.scan(folder, listing.JPEG_SUFFIXES)
    left_out = [item.under(f"{folder}/") for item in found.left_out]
    for below in found.folders:
        for name in source.files_below(f"{folder}/{below}"):
            name = f"{folder}/{below}/{name}"
            left_out.append(LeftOut(name, listing.SUBFOLDER))
    images = [
        Image(name, NO_CLASS, f"{folder}/{name}", 0, num_bytes)
        for name, num_bytes in found.files
    ]
    num_names = len(found.files) + len(left_out)
    return _Content(images, found.names, left_out, num_names)


def _read_tar(source: Folder, tar: _FolderTar) -> _Content:
    """Returns the images of a tar by base name, as if unpacked to a folder.

    Raises:
        ValueError: If the tar is damaged, at a URL, or holds a name twice.
    """
    images, names = [], []
    left_out: list[LeftOut] = []
    path = _path_of(source, tar.file)
    states = {tar.file: state_of(path)}
    prefix = f"{tar.file}/{tar.part.name}/" if tar.part else f"{tar.file}/"
    num_names = 0
    for member in tars.read_members(path, part=tar.part):
        num_names += 1
        name = os.path.basename(member.name)
        if not listing.has_suffix(name, listing.JPEG_SUFFIXES):
            left_out.append(LeftOut(prefix + member.name, listing.OTHER_NAME))
            continue
        names.append(name)
        if member.is_file:
            parts = (tar.file, member.offset, member.num_bytes)
            images.append(Image(name, NO_CLASS, *parts))
        else:
            left_out.append(LeftOut(prefix + member.name, listing.NOT_A_FILE))
    images.sort()
    names.sort()
    for one, other in itertools.pairwise(names):
        if one == other:
            raise _duplicate_error(path, one)
    return _Content(images, names, left_out, num_names, states)


def _duplicate_error(tar: pathlib.Path, name: str) -> ValueError:
    """Returns the error about a tar with a name twice."""
    return ValueError(
        f"{tar} holds {name} twice, so that it is unknown which one is meant. "
        "Unpack it, keep one of them, and give the folder instead."
    )


def _require_one(source: Folder, tar_name: str, folder: str) -> bool:
    """Whether a split is a tar; a ValueError if it is also a folder with content."""
    if not source.exists(tar_name):
        return False
    if source.is_folder(folder) and not source.is_empty(folder):
        raise ValueError(
            f"{source.shown('')} must hold {tar_name} or {folder}/ but not both. "
            f"Remove {source.shown(folder)} to read the tar, or move "
            f"{source.shown(tar_name)} away to read the folder."
        )
    return True


def _read_classes(
    source: Folder,
    folder: str,
    tar_name: str | None,
    numbers: Mapping[str, int],
    report: _Report,
) -> _Classes:
    """Returns the images of a split with a folder or a tar for each class."""
    sources, others = _class_sources(source, folder, tar_name)
    report.leave_out(others)
    where = source.shown(folder)
    if not sources:
        raise ValueError(
            f"{where} must hold a folder for each class, with its JPEG files inside; "
            "got no folder. See --help for the layout."
        )
    unknown = sorted(sources.keys() - numbers.keys())
    if unknown:
        raise ValueError(
            f"{where} has {len(unknown)} class folders that are not in the class list, "
            f"the first is {unknown[0]}. List all synsets in label order in "
            f"{source.shown('synsets.txt')}."
        )
    classes: _Classes = {}
    for synset, content in _read_contents(source, folder, sources):
        report.add(content)
        if images := content.below(f"{folder}/{synset}/", numbers[synset]):
            classes[synset] = images
    if not classes:
        raise ValueError(
            f"{where} must hold images named *.JPEG, *.jpeg or *.jpg, got none."
        )
    return classes


def _class_sources(
    source: Folder, folder: str, tar_name: str | None
) -> tuple[dict[str, _FolderTar | None], list[LeftOut]]:
    """Finds the tar of each class of a split (None for a folder), and other names."""
    left_out: list[LeftOut] = []
    sources: dict[str, _FolderTar | None] = {}
    if tar_name is not None and source.exists(tar_name):
        path = _path_of(source, tar_name)
        for part in tars.read_members(path):
            synset, suffix = os.path.splitext(os.path.basename(part.name))
            if suffix != ".tar" or not part.is_file:
                name = f"{tar_name}/{part.name}"
                left_out.append(LeftOut(name, listing.OTHER_NAME))
            elif synset in sources:
                raise _duplicate_error(path, f"{synset}.tar")
            else:
                sources[synset] = _FolderTar(tar_name, part)
        if not sources:
            raise ValueError(f"{path} must hold a tar for each class, got none.")
    if source.is_folder(folder):
        found = source.scan(folder, (".tar",))
        left_out += (item.under(f"{folder}/") for item in found.left_out)
        sources |= dict.fromkeys(found.folders)
        for name, _ in found.files:
            synset = os.path.splitext(name)[0]
            if synset in sources:
                raise ValueError(
                    f"{source.shown(folder)} must hold {synset}/ or {name} but not "
                    "both. Remove one of them."
                )
            sources[synset] = _FolderTar(f"{folder}/{name}")
    return sources, left_out


def _read_contents(
    source: Folder, folder: str, sources: Mapping[str, _FolderTar | None]
) -> Iterator[tuple[str, _Content]]:
    """Yields each class and its images; classes are sorted by name."""

    def read(synset: str) -> _Content:
        tar = sources[synset]
        if tar is None:
            return _read_folder(source, f"{folder}/{synset}")
        return _read_tar(source, tar)

    synsets = sorted(sources)
    with concurrent.futures.ThreadPoolExecutor(_NUM_HEADER_READERS) as pool:
        # Groups limit how far the threads read ahead of the caller, and the memory.
        for start in range(0, len(synsets), _NUM_HEADER_READERS):
            group = synsets[start : start + _NUM_HEADER_READERS]
            yield from zip(group, pool.map(read, group), strict=True)


_KIT_FILES = (devkit.TRUTH_NAME, devkit.META_NAME)
_LIST_NAMES = (
    "synsets.txt",
    "synset_words.txt",
    devkit.LABELS_NAME,
    kaggle.MAPPING_NAME,
    kaggle.SOLUTION_NAME,
    f"{devkit.FOLDER_NAME}.tar.gz",
    *_KIT_FILES,
    *(f"{devkit.FOLDER_NAME}/data/{name}" for name in _KIT_FILES),
    *boxes.TAR_NAMES,
)


@contextlib.contextmanager
def lists_near(source: folders.Folder) -> Iterator[pathlib.Path]:
    """Yields a folder on the disk with the lists of an input folder.

    Args:
        source: The input folder.

    Raises:
        ValueError: If the boxes are XML files at a URL, or a file is too large.
    """
    if not source.location.is_local:
        for name in filter(source.is_folder, boxes.FOLDER_NAMES):
            raise ValueError(
                f"{source.shown(name)} holds bounding boxes as XML files, which are "
                f"read on a disk only. Pack the folder as {boxes.TAR_NAMES[0]}, put it "
                "beside train/, and remove the folder."
            )
    with folders.near(source, _LIST_NAMES) as lists_dir:
        yield lists_dir
