"""Lists the images of ILSVRC-2012, from a tree of folders or from the official tars.

In: a folder, or the URL of one, that holds for each split one of these:
    train/<synset>/*.JPEG, train/<synset>.tar, both, or ILSVRC2012_img_train.tar
    val/*.JPEG, val/<synset>/*.JPEG or ILSVRC2012_img_val.tar
or the layout of Kaggle, see `kaggle`.
Out: the images of each split, with the same names and in the same order for every
form. Files are listed and headers of tars are read; no image is opened or unpacked. An
input that cannot be converted is an error before any work starts.
"""

import concurrent.futures
import contextlib
import functools
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from converters.inputs import (
    boxes,
    devkit,
    files,
    folders,
    kaggle,
    listing,
    reading,
    tars,
)
from converters.inputs.classes import Class
from converters.inputs.folder_images import (
    Content,
    FolderTar,
    Place,
    duplicate_error,
    path_of,
    read_folder,
    read_tar,
)
from converters.inputs.folders import AtUrl, Folder, OnDisk
from tfpipe.shards.split_names import split_of_name

TRAIN_TAR = "ILSVRC2012_img_train.tar"
VALIDATION_TAR = "ILSVRC2012_img_val.tar"
_TAR_NAMES = {TRAIN_TAR, VALIDATION_TAR, *boxes.TAR_NAMES}
# The threads wait for the disk most of the time, so that there are more than CPUs.
_NUM_HEADER_READERS = 16


class Image(NamedTuple):
    """A source image: its name, its class, and the place of its bytes.

    Attributes:
        name: `<folder>/<synset>/<file>`, the same for a tree and a tar.
        class_index: Number of its class, from 0.
        file: File that holds its bytes, relative to the input folder; or its URL.
        offset: Start of its bytes in that file.
        num_bytes: Size in bytes; may be 0.
    """

    name: str
    class_index: int
    file: str
    offset: int
    num_bytes: int


class Tree(NamedTuple):
    """The images of each split.

    Attributes:
        splits: The images by split.
        left_out: The names that were left out.
        states: State of each file that holds many images, before it was read.
        num_rows: Number of rows of the input; None if only names were listed.
    """

    splits: Mapping[str, Sequence[Image]]
    left_out: Sequence[listing.LeftOut]
    states: Mapping[str, files.State] = {}
    num_rows: int | None = None

    @property
    def ignored(self) -> dict[str, int]:
        """Number of names that were left out, by reason."""
        return listing.count(self.left_out)


def read_image(input_dir: pathlib.Path, image: Image) -> bytes:
    """Reads the bytes of an image.

    Args:
        input_dir: Path or URL of the input folder.
        image: The image.

    Raises:
        OSError: If they cannot be read; the message names the file.
        RemoteError: If they cannot be read by URL.
    """
    if reading.is_remote(input_dir, image.file):
        return reading.read(input_dir, image.file, image.offset, image.num_bytes)
    # Plain system calls, because pathlib and file objects double the time of a read
    # from the page cache.
    path = f"{input_dir}/{image.file}"
    # O_NONBLOCK: if a pipe has replaced the file, opening it would wait forever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        data = os.pread(descriptor, image.num_bytes, image.offset)
    except OSError as error:
        raise files.with_path(error, path) from error
    finally:
        os.close(descriptor)
    if len(data) != image.num_bytes:
        raise OSError(
            f"{path} must have {image.num_bytes} bytes of {image.name} at byte "
            f"{image.offset}, got {len(data)}: it has changed since it was listed."
        )
    return data


def catalog_name(name: str) -> str:
    r"""Returns a file name as text that can be stored as UTF-8.

    File systems allow any bytes in names. Bytes that are not UTF-8 are lone surrogates
    in a Python string; each becomes the text `\udcXX`, where XX is the byte.
    """
    return name.encode(errors="backslashreplace").decode()


def read_tree(
    input_dir: pathlib.Path | Folder,
    classes: Sequence[Class],
    *,
    lists_dir: pathlib.Path | None = None,
) -> Tree:
    """Lists the images of the train and validation splits under an input folder.

    Args:
        input_dir: The folder, its path or its URL.
        classes: All classes in label order.
        lists_dir: Folder with the list of validation labels or the development kit;
            None stands for the input folder, if that is on a disk.

    Raises:
        ValueError: If there is nothing to convert, a split is both a folder and a tar,
            a class is not in the class list, a tar is damaged or at a URL, or labels
            do not match.
        OSError: If something cannot be read.
        RemoteError: If the store cannot be listed.
    """
    source = (
        folders.open_folder(input_dir)
        if isinstance(input_dir, pathlib.Path)
        else input_dir
    )
    folders.require(source)
    index = {item.synset: number for number, item in enumerate(classes)}
    report = _Report(_other_splits(source), {})
    splits = {"train": _read_train(source, index, report)}
    validation = _read_validation(source, lists_dir, index, report)
    if validation is not None:
        splits["validation"] = validation
    return Tree(splits, report.left_out, report.states)


def _other_splits(source: Folder) -> list[listing.LeftOut]:
    """Returns the folders and tars that are called as a split and are not read."""
    top = source.scan("", (".tar",))
    names = [f"{name}/" for name in top.folders if name not in ("train", "val")]
    names += [name for name, _ in top.files if name not in _TAR_NAMES]
    return [
        listing.LeftOut(name, listing.NOT_A_SPLIT)
        for name in names
        if split_of_name(name)
    ]


class _Report(NamedTuple):
    """The names that were left out so far, and the states of the tars."""

    left_out: list[listing.LeftOut]
    states: dict[str, files.State]

    def add(self, content: Content) -> None:
        self.left_out.extend(content.left_out)
        for tar, state in content.states.items():
            self.states.setdefault(tar, state)


def locate(
    input_dir: pathlib.Path, names: Sequence[str], class_indices: Sequence[int]
) -> list[Image]:
    """Finds the images that a catalog names, in the tree or in a tar.

    Args:
        input_dir: Folder with a tree or tars, or URL of a tree.
        names: Names of the images as `catalog_name` returns them.
        class_indices: Number of the class of each image, from 0.

    Raises:
        ValueError: If an image is not found.
        OSError: If something cannot be read.
    """
    images = []
    source, prefix = folders.open_folder(input_dir), ""
    if kaggle.is_root(source):
        source = folders.open_folder(input_dir / kaggle.IMAGES)
        prefix = f"{kaggle.IMAGES}/"
    for name, class_index in zip(map(str, names), map(int, class_indices), strict=True):
        place = _locate_file(source, name) or _tar_places(source).get(name)
        if place is None:
            raise ValueError(
                f"{source.shown('')} must hold the image {name}, in a tree or in a "
                "tar; got neither. Give the folder that the data set was made from."
            )
        images.append(Image(place.name, class_index, prefix + place.file, *place[2:]))
    return images


def _locate_file(source: Folder, name: str) -> Place | None:
    undecoded = re.sub(r"\\u(dc[89a-f][0-9a-f])", lambda m: chr(int(m[1], 16)), name)
    for candidate in (name, undecoded):
        if (size := source.size(candidate)) is not None:
            return Place(candidate, candidate, 0, size)
    return None


@functools.lru_cache(maxsize=1)
def _tar_places(source: Folder) -> Mapping[str, Place]:
    """Returns all images in the tars of an input folder, by their catalog names."""
    found: dict[str, Place] = {}
    if isinstance(source, AtUrl):
        return found
    for folder, tar_name in (("train", TRAIN_TAR), ("val", None)):
        sources, _ = _class_sources(source, folder, tar_name)
        in_tars = {synset: tar for synset, tar in sources.items() if tar is not None}
        for synset, content in _read_contents(source, folder, in_tars):
            found |= _by_name(f"{folder}/{synset}/", content.places)
    if source.exists(VALIDATION_TAR):
        content = read_tar(source, FolderTar(VALIDATION_TAR))
        found |= _by_name("val/", content.places)
    return found


def _by_name(prefix: str, places: Sequence[Place]) -> dict[str, Place]:
    return {
        catalog_name(prefix + place.name): place._replace(name=prefix + place.name)
        for place in places
    }


def _read_train(
    source: Folder,
    index: Mapping[str, int],
    report: _Report,
) -> list[Image]:
    tar_exists = _require_one(source, TRAIN_TAR, "train")
    if not tar_exists and not source.is_folder("train"):
        raise ValueError(
            f"{source.shown('train')} must hold a folder for each class, with its JPEG "
            f"files inside; got no such folder, and no {TRAIN_TAR}. See --help for "
            "the layout."
        )
    return _read_classes(source, "train", TRAIN_TAR, index, report)


def _read_validation(
    source: Folder,
    lists_dir: pathlib.Path | None,
    index: Mapping[str, int],
    report: _Report,
) -> list[Image] | None:
    if _require_one(source, VALIDATION_TAR, "val"):
        content = read_tar(source, FolderTar(VALIDATION_TAR))
    elif not source.exists("val"):
        return None
    elif not source.is_folder("val"):
        raise ValueError(
            f"{source.shown('val')} must be a folder, got a file or a link to nowhere."
        )
    elif _class_sources(source, "val", None)[0]:
        return _read_classes(source, "val", None, index, report)
    else:
        content = read_folder(source, "val")
    report.add(content)
    synsets = devkit.validation_synsets(
        lists_dir or path_of(source, ""),
        [place.name for place in content.places],
        content.names,
    )
    for name, synset in synsets.items():
        if synset not in index:
            raise ValueError(
                f"{synset}, the class of val/{name}, is not in the class list. "
                f"List all synsets in label order in {source.shown('synsets.txt')}."
            )
    return [
        _image("val/", place, index[synsets[place.name]]) for place in content.places
    ]


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
    index: Mapping[str, int],
    report: _Report,
) -> list[Image]:
    """Returns the images of a split with a folder or a tar for each class."""
    sources, others = _class_sources(source, folder, tar_name)
    report.left_out.extend(others)
    where = source.shown(folder)
    if not sources:
        raise ValueError(
            f"{where} must hold a folder for each class, with its JPEG files inside; "
            "got no folder. See --help for the layout."
        )
    unknown = sorted(sources.keys() - index.keys())
    if unknown:
        raise ValueError(
            f"{where} has {len(unknown)} class folders that are not in the class list, "
            f"the first is {unknown[0]}. List all synsets in label order in "
            f"{source.shown('synsets.txt')}."
        )
    images: list[Image] = []
    for synset, content in _read_contents(source, folder, sources):
        report.add(content)
        prefix, number = f"{folder}/{synset}/", index[synset]
        images += [_image(prefix, place, number) for place in content.places]
    if not images:
        raise ValueError(
            f"{where} must hold images named *.JPEG, *.jpeg or *.jpg, got none."
        )
    return images


def _image(prefix: str, place: Place, class_index: int) -> Image:
    name = prefix + place.name
    # One string object for both fields saves a quarter of the memory of an image.
    file = name if place.file == name else place.file
    return Image(name, class_index, file, place.offset, place.num_bytes)


def _class_sources(
    source: Folder, folder: str, tar_name: str | None
) -> tuple[dict[str, FolderTar | None], list[listing.LeftOut]]:
    """Finds the tar of each class of a split (None for a folder), and other names."""
    left_out: list[listing.LeftOut] = []
    sources: dict[str, FolderTar | None] = {}
    if tar_name is not None and source.exists(tar_name):
        path = path_of(source, tar_name)
        for part in tars.read_members(path):
            synset, suffix = os.path.splitext(os.path.basename(part.name))
            if suffix != ".tar" or not part.is_file:
                name = f"{tar_name}/{part.name}"
                left_out.append(listing.LeftOut(name, listing.OTHER_NAME))
            elif synset in sources:
                raise duplicate_error(path, f"{synset}.tar")
            else:
                sources[synset] = FolderTar(tar_name, part)
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
            sources[synset] = FolderTar(f"{folder}/{name}")
    return sources, left_out


def _read_contents(
    source: Folder, folder: str, sources: Mapping[str, FolderTar | None]
) -> Iterator[tuple[str, Content]]:
    """Yields each class and its images; classes are sorted by name."""

    def read(synset: str) -> Content:
        tar = sources[synset]
        if tar is None:
            return read_folder(source, f"{folder}/{synset}")
        return read_tar(source, tar)

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
        RemoteError: If the store cannot be read.
    """
    if not isinstance(source, OnDisk):
        for name in filter(source.is_folder, boxes.FOLDER_NAMES):
            raise ValueError(
                f"{source.shown(name)} holds bounding boxes as XML files, which are "
                f"read on a disk only. Pack the folder as {boxes.TAR_NAMES[0]}, put it "
                "beside train/, and remove the folder."
            )
    with folders.near(source, _LIST_NAMES) as lists_dir:
        yield lists_dir
