"""Lists the images of ILSVRC-2012, from a tree of folders or from the official tars.

In: a folder that holds for each split one of these:
    train/<synset>/*.JPEG, train/<synset>.tar, both, or ILSVRC2012_img_train.tar
    val/*.JPEG, val/<synset>/*.JPEG or ILSVRC2012_img_val.tar
Out: the images of each split, with the same names and in the same order for every
form. Files are listed and headers of tars are read; no image is opened or unpacked. An
input that cannot be converted is an error before any work starts.
"""

import concurrent.futures
import functools
import itertools
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from converters.inputs import devkit, files, listing, tars
from converters.inputs.classes import Class

TRAIN_TAR = "ILSVRC2012_img_train.tar"
VALIDATION_TAR = "ILSVRC2012_img_val.tar"
# The threads wait for the disk most of the time, so that there are more than CPUs.
_NUM_HEADER_READERS = 16


class Image(NamedTuple):
    """A source image: its name, its class, and the place of its bytes.

    Attributes:
        name: `<folder>/<synset>/<file>`, the same for a tree and a tar.
        class_index: Number of its class, from 0.
        file: File that holds its bytes, relative to the input folder.
        offset: Start of its bytes in that file.
        num_bytes: Size in bytes; may be 0.
    """

    name: str
    class_index: int
    file: str
    offset: int
    num_bytes: int


class Tree(NamedTuple):
    """The images of each split, and the names that were left out."""

    splits: Mapping[str, Sequence[Image]]
    left_out: Sequence[listing.LeftOut]

    @property
    def ignored(self) -> dict[str, int]:
        """Number of names that were left out, by reason."""
        return listing.count(self.left_out)


class _Place(NamedTuple):
    """The base name of an image and the place of its bytes, as in `Image`."""

    name: str
    file: str
    offset: int
    num_bytes: int


class _Content(NamedTuple):
    """The images of a folder, or of the tar of that folder.

    Attributes:
        places: The images, sorted by name.
        names: All names that end like an image, also of links, folders and the like.
        left_out: What was left out. Names are relative to the input folder; names of
            members of a tar begin with the name of the tar.
    """

    places: Sequence[_Place]
    names: Sequence[str]
    left_out: Sequence[listing.LeftOut]


class _Tar(NamedTuple):
    """A tar with the content of a folder, or the part of another tar that is one."""

    file: str
    part: tars.Member | None = None


def read_image(input_dir: pathlib.Path, image: Image) -> bytes:
    """Reads the bytes of an image.

    Raises:
        OSError: If they cannot be read; the message names the file.
    """
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


def read_tree(input_dir: pathlib.Path, classes: Sequence[Class]) -> Tree:
    """Lists the images of the train and validation splits under an input folder.

    Raises:
        ValueError: If there is nothing to convert, a split is both a folder and a tar,
            a class is not in the class list, a tar is damaged, or labels do not match.
        OSError: If something cannot be read.
    """
    if not input_dir.is_dir():
        raise ValueError(
            f"--input_dir must be a folder, got {input_dir}: no such folder."
        )
    index = {item.synset: number for number, item in enumerate(classes)}
    left_out: list[listing.LeftOut] = []
    splits = {"train": _read_train(input_dir, index, left_out)}
    validation = _read_validation(input_dir, index, left_out)
    if validation is not None:
        splits["validation"] = validation
    return Tree(splits, left_out)


def locate(
    input_dir: pathlib.Path, names: Sequence[str], class_indices: Sequence[int]
) -> list[Image]:
    """Finds the images that a catalog names, in the tree or in a tar.

    Args:
        input_dir: Folder with a tree or tars.
        names: Names of the images as `catalog_name` returns them.
        class_indices: Number of the class of each image, from 0.

    Raises:
        ValueError: If an image is not found.
        OSError: If something cannot be read.
    """
    images = []
    for name, class_index in zip(map(str, names), map(int, class_indices), strict=True):
        place = _locate_file(input_dir, name) or _tar_places(input_dir).get(name)
        if place is None:
            raise ValueError(
                f"{input_dir} must hold the image {name}, in a tree or in a tar; got "
                "neither. Give the folder that the data set was made from."
            )
        images.append(Image(place.name, class_index, *place[1:]))
    return images


def _locate_file(input_dir: pathlib.Path, name: str) -> _Place | None:
    undecoded = re.sub(r"\\u(dc[89a-f][0-9a-f])", lambda m: chr(int(m[1], 16)), name)
    for candidate in (name, undecoded):
        path = input_dir / candidate
        if path.is_file():
            return _Place(candidate, candidate, 0, path.stat().st_size)
    return None


@functools.lru_cache(maxsize=1)
def _tar_places(input_dir: pathlib.Path) -> Mapping[str, _Place]:
    """Returns all images in the tars of an input folder, by their catalog names."""
    found: dict[str, _Place] = {}
    for folder, tar_name in (("train", TRAIN_TAR), ("val", None)):
        sources, _ = _class_sources(input_dir, folder, tar_name)
        in_tars = {synset: tar for synset, tar in sources.items() if tar is not None}
        for synset, content in _read_contents(input_dir, folder, in_tars):
            found |= _by_name(f"{folder}/{synset}/", content.places)
    if (input_dir / VALIDATION_TAR).exists():
        content = _read_tar(input_dir, _Tar(VALIDATION_TAR))
        found |= _by_name("val/", content.places)
    return found


def _by_name(prefix: str, places: Sequence[_Place]) -> dict[str, _Place]:
    return {
        catalog_name(prefix + place.name): place._replace(name=prefix + place.name)
        for place in places
    }


def _read_train(
    input_dir: pathlib.Path,
    index: Mapping[str, int],
    left_out: list[listing.LeftOut],
) -> list[Image]:
    tar_exists = _require_one(input_dir, TRAIN_TAR, "train")
    root = input_dir / "train"
    if not tar_exists and not root.is_dir():
        raise ValueError(
            f"{root} must hold a folder for each class, with its JPEG files inside; "
            f"got no such folder, and no {TRAIN_TAR}. See --help for the layout."
        )
    return _read_classes(input_dir, "train", TRAIN_TAR, index, left_out)


def _read_validation(
    input_dir: pathlib.Path,
    index: Mapping[str, int],
    left_out: list[listing.LeftOut],
) -> list[Image] | None:
    root = input_dir / "val"
    if _require_one(input_dir, VALIDATION_TAR, "val"):
        content = _read_tar(input_dir, _Tar(VALIDATION_TAR))
    elif not os.path.lexists(root):
        return None
    elif not root.is_dir():
        raise ValueError(f"{root} must be a folder, got a file or a link to nowhere.")
    elif _class_sources(input_dir, "val", None)[0]:
        return _read_classes(input_dir, "val", None, index, left_out)
    else:
        content = _read_folder(input_dir, "val")
    left_out += content.left_out
    synsets = devkit.validation_synsets(
        input_dir, [place.name for place in content.places], content.names
    )
    for name, synset in synsets.items():
        if synset not in index:
            raise ValueError(
                f"{synset}, the class of val/{name}, is not in the class list. "
                f"List all synsets in label order in {input_dir / 'synsets.txt'}."
            )
    return [
        _image("val/", place, index[synsets[place.name]]) for place in content.places
    ]


def _require_one(input_dir: pathlib.Path, tar_name: str, folder: str) -> bool:
    """Whether a split is a tar; a ValueError if it is also a folder with content."""
    tar, root = input_dir / tar_name, input_dir / folder
    if not os.path.lexists(tar):
        return False
    if root.is_dir() and any(root.iterdir()):
        raise ValueError(
            f"{input_dir} must hold {tar_name} or {folder}/ but not both. Remove "
            f"{root} to read the tar, or move {tar} away to read the folder."
        )
    return True


def _read_classes(
    input_dir: pathlib.Path,
    folder: str,
    tar_name: str | None,
    index: Mapping[str, int],
    left_out: list[listing.LeftOut],
) -> list[Image]:
    """Returns the images of a split with a folder or a tar for each class."""
    sources, others = _class_sources(input_dir, folder, tar_name)
    left_out += others
    where = input_dir / folder
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
            f"{input_dir / 'synsets.txt'}."
        )
    images: list[Image] = []
    for synset, content in _read_contents(input_dir, folder, sources):
        left_out += content.left_out
        prefix, number = f"{folder}/{synset}/", index[synset]
        images += [_image(prefix, place, number) for place in content.places]
    if not images:
        raise ValueError(
            f"{where} must hold images named *.JPEG, *.jpeg or *.jpg, got none."
        )
    return images


def _image(prefix: str, place: _Place, class_index: int) -> Image:
    name = prefix + place.name
    # One string object for both fields saves a quarter of the memory of an image.
    file = name if place.file == name else place.file
    return Image(name, class_index, file, place.offset, place.num_bytes)


def _class_sources(
    input_dir: pathlib.Path, folder: str, tar_name: str | None
) -> tuple[dict[str, _Tar | None], list[listing.LeftOut]]:
    """Finds the tar of each class of a split (None for a folder), and other names."""
    left_out: list[listing.LeftOut] = []
    sources: dict[str, _Tar | None] = {}
    if tar_name is not None and (input_dir / tar_name).exists():
        for part in tars.read_members(input_dir / tar_name):
            synset, suffix = os.path.splitext(os.path.basename(part.name))
            if suffix != ".tar" or not part.is_file:
                name = f"{tar_name}/{part.name}"
                left_out.append(listing.LeftOut(name, listing.OTHER_NAME))
            elif synset in sources:
                raise _twice(input_dir / tar_name, f"{synset}.tar")
            else:
                sources[synset] = _Tar(tar_name, part)
        if not sources:
            raise ValueError(
                f"{input_dir / tar_name} must hold a tar for each class, got none."
            )
    if (input_dir / folder).is_dir():
        found = listing.scan(input_dir / folder, (".tar",))
        left_out += (item.under(f"{folder}/") for item in found.left_out)
        sources |= dict.fromkeys(found.folders)
        for name, _ in found.files:
            synset = os.path.splitext(name)[0]
            if synset in sources:
                raise ValueError(
                    f"{input_dir / folder} must hold {synset}/ or {name} but not both. "
                    "Remove one of them."
                )
            sources[synset] = _Tar(f"{folder}/{name}")
    return sources, left_out


def _read_contents(
    input_dir: pathlib.Path, folder: str, sources: Mapping[str, _Tar | None]
) -> Iterator[tuple[str, _Content]]:
    """Yields each class and its images; classes are sorted by name."""

    def read(synset: str) -> _Content:
        tar = sources[synset]
        if tar is None:
            return _read_folder(input_dir, f"{folder}/{synset}")
        return _read_tar(input_dir, tar)

    synsets = sorted(sources)
    with concurrent.futures.ThreadPoolExecutor(_NUM_HEADER_READERS) as pool:
        # Groups limit how far the threads read ahead of the caller, and the memory.
        for start in range(0, len(synsets), _NUM_HEADER_READERS):
            group = synsets[start : start + _NUM_HEADER_READERS]
            yield from zip(group, pool.map(read, group), strict=True)


def _read_folder(input_dir: pathlib.Path, folder: str) -> _Content:
    found = listing.scan(input_dir / folder, listing.JPEG_SUFFIXES)
    left_out = [item.under(f"{folder}/") for item in found.left_out]
    for below in found.folders:
        for name in listing.files_below(input_dir / folder / below):
            name = f"{folder}/{below}/{name}"
            left_out.append(listing.LeftOut(name, listing.SUBFOLDER))
    places = []
    for name, num_bytes in found.files:
        places.append(_Place(name, f"{folder}/{name}", 0, num_bytes))
    return _Content(places, found.names, left_out)


def _read_tar(input_dir: pathlib.Path, tar: _Tar) -> _Content:
    """Returns the images of a tar by base name, as if it were unpacked to a folder."""
    places, names = [], []
    left_out: list[listing.LeftOut] = []
    prefix = f"{tar.file}/{tar.part.name}/" if tar.part else f"{tar.file}/"
    for member in tars.read_members(input_dir / tar.file, part=tar.part):
        name = os.path.basename(member.name)
        if not listing.has_suffix(name, listing.JPEG_SUFFIXES):
            left_out.append(listing.LeftOut(prefix + member.name, listing.OTHER_NAME))
            continue
        names.append(name)
        if member.is_file:
            places.append(_Place(name, tar.file, member.offset, member.num_bytes))
        else:
            left_out.append(listing.LeftOut(prefix + member.name, listing.NOT_A_FILE))
    places.sort()
    names.sort()
    for one, other in itertools.pairwise(names):
        if one == other:
            raise _twice(input_dir / tar.file, one)
    return _Content(places, names, left_out)


def _twice(tar: pathlib.Path, name: str) -> ValueError:
    return ValueError(
        f"{tar} holds {name} twice, so that it is unknown which one is meant. "
        "Unpack it, keep one of them, and give the folder instead."
    )
