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
from collections.abc import Collection, Iterator, Mapping
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
        lists = source = folders.input_folder(self.input_dir)
        if lists.is_folder(kaggle.IMAGES):
            source = folders.Folder(lists.location / kaggle.IMAGES)
        kaggle.refuse(source)
        classes = read_classes(lists)
        tree = _Tree(source, lists, {item.synset for item in classes})
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
                lists, tree.synsets, num_workers=workspace.num_workers
            ),
        )
        return listed.in_splits(meaning)


class _Holder(NamedTuple):
    """A folder of images, or a tar in its place, also as a part of another tar."""

    folder: str
    tar: str = ""
    part: tars.Member | None = None

    @property
    def where(self) -> str:
        """The start of the names in it, in reports."""
        if self.part is not None:
            return f"{self.tar}/{self.part.name}/"
        return f"{self.tar or self.folder}/"


@dataclasses.dataclass
class _Tree:
    """An input folder during its reading.

    Attributes:
        source: Folder of train/ and val/, or of their tars.
        lists: Folder of the lists of classes and labels.
        synsets: Synsets of all classes.
        report: The names that were read so far.
        states: State of each tar, before it was read.
    """

    source: Folder
    lists: Folder
    synsets: Collection[str]
    report: listing.Report = dataclasses.field(default_factory=listing.Report)
    states: dict[str, State] = dataclasses.field(default_factory=dict)

    def read_train(self) -> _Classes:
        top = self.source.scan("", (".tar",))
        others = [f"{name}/" for name in top.folders if name not in ("train", "val")]
        others += [name for name, *_ in top.images if name not in _TAR_NAMES]
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
        source, holder = self.source, _Holder("val")
        if self._is_tar(VALIDATION_TAR, "val"):
            holder = _Holder("val", VALIDATION_TAR)
        elif not source.exists("val"):
            return None
        elif not source.is_folder("val"):
            raise ValueError(
                f"{source.shown('val')} must be a folder, got a file or a link to "
                "nowhere."
            )
        elif any(source.scan("val", (".tar",))[:2]):
            return self._read_classes("val", {})
        ((_, here),) = self._read({"val": holder})
        names = [image.name.removeprefix("val/") for image in here.images]
        synsets = devkit.validation_synsets(self.lists, names, here.names)
        classes: _Classes = {}
        for image, name in zip(here.images, names, strict=True):
            synset = synsets[name]
            if synset not in self.synsets:
                raise ValueError(
                    f"{synset}, the class of {image.name}, is not in the class "
                    "list. List all synsets in label order in "
                    f"{source.shown('synsets.txt')}."
                )
            classes.setdefault(synset, []).append(image)
        return classes

    def _read(
        self, holders: Mapping[str, _Holder]
    ) -> Iterator[tuple[str, listing.Listing]]:
        """Yields the images of each folder or tar, in the order of the keys."""

        def look(key: str) -> tuple[str, State | None, listing.Listing]:
            holder = holders[key]
            if not holder.tar:
                return key, None, _read_folder(self.source, holder)
            return key, *_read_tar(self.source, holder)

        for key, state, here in reading.in_threads(look, sorted(holders)):
            self.report.read(here, holders[key].where)
            if state is not None:
                self.states.setdefault(holders[key].tar, state)
            yield key, here

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

    def _tars_in_tar(self) -> dict[str, _Holder]:
        """Returns the tar of each class in the tar of the train split."""
        holders: dict[str, _Holder] = {}
        for part in tars.read_members(self.source, TRAIN_TAR):
            synset, suffix = os.path.splitext(os.path.basename(part.name))
            if suffix != ".tar" or not part.is_file:
                name = f"{TRAIN_TAR}/{part.name}"
                self.report.leave_out([LeftOut(name, listing.OTHER_NAME)])
            elif synset in holders:
                raise _duplicate_error(self.source, TRAIN_TAR, f"{synset}.tar")
            else:
                holders[synset] = _Holder(f"train/{synset}", TRAIN_TAR, part)
        if not holders:
            raise ValueError(
                f"{self.source.shown(TRAIN_TAR)} must hold a tar for each class, got "
                "none."
            )
        return holders

    def _add_folder(self, folder: str, holders: dict[str, _Holder]) -> None:
        here = self.source.scan(folder, (".tar",))
        self.report.leave_out(item.under(f"{folder}/") for item in here.left_out)
        holders |= {name: _Holder(f"{folder}/{name}") for name in here.folders}
        for tar in (image.file for image in here.images):
            synset = os.path.splitext(os.path.basename(tar))[0]
            if synset in holders:
                raise ValueError(
                    f"{self.source.shown(folder)} must hold {synset}/ or "
                    f"{os.path.basename(tar)} but not both. Remove one of them."
                )
            holders[synset] = _Holder(f"{folder}/{synset}", tar)

    def _read_classes(self, folder: str, holders: dict[str, _Holder]) -> _Classes:
        """Returns the images of a split with a folder or a tar for each class.

        Args:
            folder: The folder of the split, if it exists.
            holders: The tars of classes in a tar. Tars and folders in the folder of
                the split are added.
        """
        where = self.source.shown(folder)
        if self.source.is_folder(folder):
            self._add_folder(folder, holders)
        if not holders:
            raise ValueError(
                f"{where} must hold a folder for each class, with its JPEG files "
                "inside; got no folder. See --help for the layout."
            )
        if unknown := sorted(holders.keys() - self.synsets):
            raise ValueError(
                f"{where} has {len(unknown)} class folders that are not in the class "
                f"list, the first is {unknown[0]}. List all synsets in label order in "
                f"{self.source.shown('synsets.txt')}."
            )
        read = self._read(holders)
        classes = {synset: here.images for synset, here in read if here.images}
        if not classes:
            raise ValueError(
                f"{where} must hold images named *.JPEG, *.jpeg or *.jpg, got none."
            )
        return classes


def _read_folder(source: Folder, holder: _Holder) -> listing.Listing:
    here = source.scan(holder.folder, listing.JPEG_SUFFIXES)
    for name in here.folders:
        below = source.files_below(f"{holder.folder}/{name}")
        here.left_out.extend(LeftOut(f"{name}/{n}", listing.SUBFOLDER) for n in below)
    return here


def _read_tar(source: Folder, holder: _Holder) -> tuple[State, listing.Listing]:
    """Returns the state of a tar, and its images by base name, as if unpacked.

    Raises:
        ValueError: If the tar is damaged, or holds a name twice.
    """
    tar, num_bytes = holder.tar, source.size(holder.tar) or 0
    state = reading.state_of(source.location.resolve(tar), num_bytes=num_bytes)
    here = listing.Listing([], [], [], [])
    for member in tars.read_members(source, tar, part=holder.part):
        name = os.path.basename(member.name)
        if not listing.has_suffix(name, listing.JPEG_SUFFIXES):
            here.left_out.append(LeftOut(member.name, listing.OTHER_NAME))
            continue
        here.names.append(name)
        if member.is_file:
            parts = (tar, member.offset, member.num_bytes)
            here.images.append(Image(f"{holder.folder}/{name}", NO_CLASS, *parts))
        else:
            here.left_out.append(LeftOut(member.name, listing.NOT_A_FILE))
    here.images.sort()
    here.names.sort()
    for name, after in itertools.pairwise(here.names):
        if name == after:
            raise _duplicate_error(source, tar, name)
    return state, here


def _duplicate_error(source: Folder, tar: str, name: str) -> ValueError:
    """Returns the error about a tar with a name twice."""
    return ValueError(
        f"{source.shown(tar)} holds {name} twice, so that it is unknown which one is "
        "meant. Unpack it, keep one of them, and give the folder instead."
    )
