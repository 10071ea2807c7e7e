"""Images in a folder, or in a tar in the place of a folder.

In: an input folder, and the name of a folder or tar in it. Out: the images by base
name, with the places of their bytes, and the names that were left out.
"""

import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from converters.inputs import listing, tars
from converters.inputs.files import State, state_of
from converters.inputs.folders import Folder
from converters.inputs.image import NO_CLASS, Image
from converters.inputs.tars import Member


class Content(NamedTuple):
    """The images of a folder, or of the tar of a folder.

    Attributes:
        images: The images, sorted by name, without the folder in their names.
        names: All names with the ending of an image, also of links and folders.
        left_out: The names that were left out, relative to the input folder. Names of
            members of a tar begin with the name of the tar.
        states: State of the tar, before it was read.
    """

    images: Sequence[Image]
    names: Sequence[str]
    left_out: Sequence[listing.LeftOut]
    states: Mapping[str, State] = {}

    def below(self, prefix: str, class_index: int = NO_CLASS) -> list[Image]:
        """Returns the images of a class, with the folder in their names."""
        return [image.below(prefix, class_index) for image in self.images]


class FolderTar(NamedTuple):
    """A tar with the content of a folder, also as a part of another tar."""

    file: str
    part: Member | None = None


def path_of(source: Folder, name: str) -> pathlib.Path:
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


def read_folder(source: Folder, folder: str) -> Content:
    """Returns the images of a folder.

    Raises:
        OSError: If the file cannot be read.
    """
    found = source.scan(folder, listing.JPEG_SUFFIXES)
    left_out = [item.under(f"{folder}/") for item in found.left_out]
    for below in found.folders:
        for name in source.files_below(f"{folder}/{below}"):
            name = f"{folder}/{below}/{name}"
            left_out.append(listing.LeftOut(name, listing.SUBFOLDER))
    images = [
        Image(name, NO_CLASS, f"{folder}/{name}", 0, num_bytes)
        for name, num_bytes in found.files
    ]
    return Content(images, found.names, left_out)


def read_tar(source: Folder, tar: FolderTar) -> Content:
    """Returns the images of a tar by base name, as if unpacked to a folder.

    Raises:
        ValueError: If the tar is damaged, at a URL, or holds a name twice.
        OSError: If the file cannot be read.
    """
    images, names = [], []
    left_out: list[listing.LeftOut] = []
    path = path_of(source, tar.file)
    states = {tar.file: state_of(path)}
    prefix = f"{tar.file}/{tar.part.name}/" if tar.part else f"{tar.file}/"
    for member in tars.read_members(path, part=tar.part):
        name = os.path.basename(member.name)
        if not listing.has_suffix(name, listing.JPEG_SUFFIXES):
            left_out.append(listing.LeftOut(prefix + member.name, listing.OTHER_NAME))
            continue
        names.append(name)
        if member.is_file:
            parts = (tar.file, member.offset, member.num_bytes)
            images.append(Image(name, NO_CLASS, *parts))
        else:
            left_out.append(listing.LeftOut(prefix + member.name, listing.NOT_A_FILE))
    images.sort()
    names.sort()
    for one, other in itertools.pairwise(names):
        if one == other:
            raise duplicate_error(path, one)
    return Content(images, names, left_out, states)


def duplicate_error(tar: pathlib.Path, name: str) -> ValueError:
    """Returns the error about a tar with a name twice."""
    return ValueError(
        f"{tar} holds {name} twice, so that it is unknown which one is meant. "
        "Unpack it, keep one of them, and give the folder instead."
    )
