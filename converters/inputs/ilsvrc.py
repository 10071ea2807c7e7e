"""Lists the images of ILSVRC-2012, from a tree of folders or from the official tars.

In: a folder or a URL with a row of the following for every split:
    train/<synset>/*.JPEG, train/<synset>.tar, both, or ILSVRC2012_img_train.tar
    val/*.JPEG, val/<synset>/*.JPEG or ILSVRC2012_img_val.tar
or the layout of Kaggle, see `kaggle`.
Out: the images of each split, with the same names and in the same order for every
form. Files are listed and headers of tars are read; no image is opened or unpacked. An
input that cannot be converted is an error before any work starts.
"""

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from converters.inputs import boxes, devkit, folders, kaggle, listing, reading, tars
from converters.inputs.class_lists import ClassList
from converters.inputs.classes import read_classes
from converters.inputs.folders import Folder
from converters.inputs.image import NO_CLASS, Image
from converters.inputs.listed import Listed
from converters.inputs.listing import LeftOut
from converters.inputs.meaning import Meaning
from converters.inputs.reader import Reader, Workspace
from converters.inputs.reading import State
from tfpipe.location.location import Location
from tfpipe.shards import missing_index
from tfpipe.shards.split_names import split_of_name

TRAIN_TAR = "ILSVRC2012_img_train.tar"
VALIDATION_TAR = "ILSVRC2012_img_val.tar"
_TAR_NAMES = {TRAIN_TAR, VALIDATION_TAR, *boxes.TAR_NAMES}

# By synset, the images of a split.
_Classes = dict[str, list[Image]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class IlsvrcReader(Reader):
    """Reads ILSVRC-2012: official tars, unpacked tars, or any mix."""

    input_dir: str

    def list_images(self, meaning: Meaning, workspace: Workspace) -> Listed:
        """Lists the images of the train and validation splits.

        Raises:
            ValueError: If there is nothing to convert, a split is both a folder and a
                tar, a class is not in the class list, a tar is damaged, or labels do
                not match.
        """
        input_dir = Location.from_user("--input_dir", self.input_dir, expand_user=True)
        lists = source = folders.open_folder(input_dir)
        if kaggle.is_root(lists):
            source = folders.open_folder(input_dir / kaggle.IMAGES)
        kaggle.refuse(source, reader="converters.imagenet")
        classes = read_classes(lists)
        folders.require(source)
        tree = _Tree(source, lists, {c.synset: i for i, c in enumerate(classes)})
        splits = {"train": tree.read_train()}
        if (validation := tree.read_validation()) is not None:
            splits["validation"] = validation
        listed = Listed(
            source.location,
            splits,
            tree.report.left_out,
            ClassList(
                "The list of synsets, in which 0 is the background,",
                labels={item.synset: item.label for item in classes},
                texts={item.synset: item.text for item in classes},
            ),
            states=tree.states,
            num_rows=tree.report.num_names,
            boxes=boxes.read_boxes(
                lists, tree.numbers, num_workers=workspace.num_workers
            ),
        )
        return listed.in_splits(meaning)


class _FolderTar(NamedTuple):
    """A tar with the content of a folder, also as a part of another tar."""

    file: str
    part: tars.Member | None = None


class _Content(NamedTuple):
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
    left_out: Sequence[LeftOut]
    states: Mapping[str, State] = {}


@dataclasses.dataclass
class _Tree:
    """An input folder during its reading.

    Attributes:
        source: Folder of train/ and val/, or of their tars.
        lists: Folder of the lists of classes and labels.
        numbers: Number of each synset in label order, from 0.
        report: The names that were read so far.
        states: State of each tar, before it was read.
    """

    source: Folder
    lists: Folder
    numbers: Mapping[str, int]
    report: listing.Report = dataclasses.field(default_factory=listing.Report)
    states: dict[str, State] = dataclasses.field(default_factory=dict)

    def read_train(self) -> _Classes:
        top = self.source.scan("", (".tar",))
        others = [f"{name}/" for name in top.folders if name not in ("train", "val")]
        others += [name for name, _ in top.files if name not in _TAR_NAMES]
        self.report.leave_out(
            LeftOut(name, listing.NOT_A_SPLIT) for name in others if split_of_name(name)
        )
        is_tar = self._is_tar(TRAIN_TAR, "train")
        if not is_tar and not self.source.is_folder("train"):
            raise ValueError(
                f"{self.source.shown('train')} must hold a folder for each class, with "
                f"its JPEG files inside; got no such folder, and no {TRAIN_TAR}. See "
                "--help for the layout."
                + missing_index.other_converter(
                    self.source.shown(""), "converters.imagenet"
                )
            )
        return self._read_classes("train", self._tars_in_tar() if is_tar else {})

    def read_validation(self) -> _Classes | None:
        """Returns the images of the validation split; None if there is none."""
        source = self.source
        if self._is_tar(VALIDATION_TAR, "val"):
            content = _read_tar(source, _FolderTar(VALIDATION_TAR))
        elif not source.exists("val"):
            return None
        elif not source.is_folder("val"):
            raise ValueError(
                f"{source.shown('val')} must be a folder, got a file or a link to "
                "nowhere."
            )
        elif any(source.scan("val", (".tar",))[:2]):
            return self._read_classes("val", {})
        else:
            content = _read_folder(source, "val")
        self._add(content)
        names = [image.name for image in content.images]
        synsets = devkit.validation_synsets(self.lists, names, content.names)
        classes: _Classes = {}
        for image in content.images:
            synset = synsets[image.name]
            if synset not in self.numbers:
                raise ValueError(
                    f"{synset}, the class of val/{image.name}, is not in the class "
                    "list. List all synsets in label order in "
                    f"{source.shown('synsets.txt')}."
                )
            image = image.below("val/", self.numbers[synset])
            classes.setdefault(synset, []).append(image)
        return classes

    def _add(self, content: _Content) -> None:
        self.report.left_out += content.left_out
        self.report.num_names += len(content.images) + len(content.left_out)
        self.states = {**content.states, **self.states}

    def _is_tar(self, tar_name: str, folder: str) -> bool:
        """Whether a split is a tar; a ValueError if it is a folder with files too."""
        source = self.source
        if not source.exists(tar_name):
            return False
        if source.is_folder(folder) and not source.is_empty(folder):
            raise ValueError(
                f"{source.shown('')} must hold {tar_name} or {folder}/ but not both. "
                f"Remove {source.shown(folder)} to read the tar, or move "
                f"{source.shown(tar_name)} away to read the folder."
            )
        return True

    def _tars_in_tar(self) -> dict[str, _FolderTar | None]:
        """Returns the tar of each class in the tar of the train split."""
        contents: dict[str, _FolderTar | None] = {}
        for part in tars.read_members(self.source, TRAIN_TAR):
            synset, suffix = os.path.splitext(os.path.basename(part.name))
            if suffix != ".tar" or not part.is_file:
                name = f"{TRAIN_TAR}/{part.name}"
                self.report.leave_out([LeftOut(name, listing.OTHER_NAME)])
            elif synset in contents:
                raise _duplicate_error(self.source, TRAIN_TAR, f"{synset}.tar")
            else:
                contents[synset] = _FolderTar(TRAIN_TAR, part)
        if not contents:
            raise ValueError(
                f"{self.source.shown(TRAIN_TAR)} must hold a tar for each class, got "
                "none."
            )
        return contents

    def _add_folder(self, folder: str, contents: dict[str, _FolderTar | None]) -> None:
        here = self.source.scan(folder, (".tar",))
        self.report.leave_out(item.under(f"{folder}/") for item in here.left_out)
        contents |= dict.fromkeys(here.folders)
        for name, _ in here.files:
            synset = os.path.splitext(name)[0]
            if synset in contents:
                raise ValueError(
                    f"{self.source.shown(folder)} must hold {synset}/ or {name} but "
                    "not both. Remove one of them."
                )
            contents[synset] = _FolderTar(f"{folder}/{name}")

    def _read_classes(
        self, folder: str, contents: dict[str, _FolderTar | None]
    ) -> _Classes:
        """Returns the images of a split with a folder or a tar for each class.

        Args:
            folder: The folder of the split, if it exists.
            contents: The tars of classes in a tar. Tars and folders in the folder of
                the split are added; None stands for a folder.
        """
        source, where = self.source, self.source.shown(folder)
        if source.is_folder(folder):
            self._add_folder(folder, contents)
        if not contents:
            raise ValueError(
                f"{where} must hold a folder for each class, with its JPEG files "
                "inside; got no folder. See --help for the layout."
            )
        if unknown := sorted(contents.keys() - self.numbers.keys()):
            raise ValueError(
                f"{where} has {len(unknown)} class folders that are not in the class "
                f"list, the first is {unknown[0]}. List all synsets in label order in "
                f"{source.shown('synsets.txt')}."
            )
        classes: _Classes = {}

        def read(synset: str) -> tuple[str, _Content]:
            if (tar := contents[synset]) is None:
                return synset, _read_folder(source, f"{folder}/{synset}")
            return synset, _read_tar(source, tar)

        for synset, content in reading.in_threads(read, sorted(contents)):
            self._add(content)
            for image in content.images:
                image = image.below(f"{folder}/{synset}/", self.numbers[synset])
                classes.setdefault(synset, []).append(image)
        if not classes:
            raise ValueError(
                f"{where} must hold images named *.JPEG, *.jpeg or *.jpg, got none."
            )
        return classes


def _read_folder(source: Folder, folder: str) -> _Content:
    """Returns the images of a folder."""
    here = source.scan(folder, listing.JPEG_SUFFIXES)
    left_out = [item.under(f"{folder}/") for item in here.left_out]
    for below in (f"{folder}/{name}" for name in here.folders):
        names = source.files_below(below)
        left_out += (LeftOut(f"{below}/{n}", listing.SUBFOLDER) for n in names)
    images = [Image(n, NO_CLASS, f"{folder}/{n}", 0, size) for n, size in here.files]
    return _Content(images, here.names, left_out)


def _read_tar(source: Folder, tar: _FolderTar) -> _Content:
    """Returns the images of a tar by base name, as if unpacked to a folder.

    Raises:
        ValueError: If the tar is damaged, or holds a name twice.
    """
    images, names = [], []
    left_out: list[LeftOut] = []
    num_bytes = source.size(tar.file) or 0
    states = {
        tar.file: reading.state_of(
            source.location.resolve(tar.file), num_bytes=num_bytes
        )
    }
    prefix = f"{tar.file}/{tar.part.name}/" if tar.part else f"{tar.file}/"
    for member in tars.read_members(source, tar.file, part=tar.part):
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
    for name, after in itertools.pairwise(names):
        if name == after:
            raise _duplicate_error(source, tar.file, name)
    return _Content(images, names, left_out, states)


def _duplicate_error(source: Folder, tar: str, name: str) -> ValueError:
    """Returns the error about a tar with a name twice."""
    return ValueError(
        f"{source.shown(tar)} holds {name} twice, so that it is unknown which one is "
        "meant. Unpack it, keep one of them, and give the folder instead."
    )
