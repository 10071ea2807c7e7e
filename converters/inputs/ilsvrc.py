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
import functools
import itertools
import os
from collections.abc import Collection, Mapping
from typing import NamedTuple

from converters.inputs import boxes, devkit, listing, tars
from converters.inputs.classes import ClassList, read_classes
from converters.inputs.image import NO_CLASS, Image
from converters.inputs.listed import Listed
from converters.inputs.listing import LeftOut, Reason
from converters.inputs.meaning import Meaning
from converters.inputs.reader import Reader, Workspace
from tfpipe.location import parts
from tfpipe.location.browse import Folder
from tfpipe.shards import missing_index
from tfpipe.shards.split_names import VALIDATION, split_of_name

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
        """Lists the images of the train and validation splits."""
        lists = source = listing.input_folder(self.input_dir)
        if lists.is_folder(devkit.IMAGES):
            source = Folder(lists.location / devkit.IMAGES)
        devkit.refuse(source)
        classes = read_classes(lists)
        tree = _Tree(source, lists, {item.synset for item in classes})
        splits = {"train": tree.read_train()}
        if (validation := tree.read_validation()) is not None:
            splits["validation"] = validation
        unread = [] if "validation" in splits else tree.unread_validation()
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
            warnings=[
                f"{source.shown(name)} is called as the validation split, and is not "
                f"read: rename it to val, or a tar to {VALIDATION_TAR}."
                for name in unread
            ],
        )
        return listed.in_splits(meaning)


class _Holder(NamedTuple):
    """A folder of images, or a tar in its place, also as a part of another tar."""

    folder: str
    tar: str = ""
    part: tars.Member | None = None


@dataclasses.dataclass
class _Tree:
    """An input folder during its reading."""

    source: Folder  # of train/ and val/, or of their tars
    lists: Folder  # of the lists of classes and labels
    synsets: Collection[str]
    report: listing.Report = dataclasses.field(default_factory=listing.Report)
    states: dict[str, str] = dataclasses.field(default_factory=dict)  # by tar

    def read_train(self) -> _Classes:
        top = listing.scan(self.source, "", suffixes=(".tar",))
        others = [f"{name}/" for name in top.folders if name not in ("train", "val")]
        others += [name for name, *_ in top.images if name not in _TAR_NAMES]
        self.report.leave_out(
            LeftOut(name, Reason.NOT_A_SPLIT) for name in others if split_of_name(name)
        )
        is_tar = self._is_tar(TRAIN_TAR, "train")
        return self._read_classes("train", self._tars_in_tar() if is_tar else {})

    def read_validation(self) -> _Classes | None:
        """Returns the images of the validation split; None if there is none."""
        source, holder = self.source, _Holder("val")
        if self._is_tar(VALIDATION_TAR, "val"):
            holder = _Holder("val", VALIDATION_TAR)
        elif not source.is_folder("val"):
            if not source.exists("val"):
                return None
            raise ValueError(
                f"{source.shown('val')} must be a folder, got a file or a link to "
                "nowhere."
            )
        elif any(listing.scan(source, "val", suffixes=(".tar",))[:2]):
            return self._read_classes("val", {})
        here = self._read({"val": holder})["val"]
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

    def unread_validation(self) -> list[str]:
        """Returns the folders and tars that are called as the validation split."""
        names = (item.name.rstrip("/") for item in self.report.left_out)
        return [n for n in names if "/" not in n and split_of_name(n) == VALIDATION]

    def _read(self, holders: Mapping[str, _Holder]) -> dict[str, listing.Listing]:
        """Returns the images of each folder or tar, in the order of the keys."""
        keys, read = sorted(holders), functools.partial(_read_holder, self.source)
        results = parts.in_threads(read, [holders[key] for key in keys])
        listings = {}
        for key, (state, here) in zip(keys, results, strict=True):
            folder, tar, part = holders[key]
            self.report.read(here, f"{tar or folder}{f'/{part.name}' if part else ''}/")
            if state is not None:
                self.states.setdefault(tar, state)
            listings[key] = here
        return listings

    def _is_tar(self, tar_name: str, folder: str) -> bool:
        """Whether a split is a tar; a ValueError if it is a folder with files too."""
        source = self.source
        if not source.exists(tar_name):
            return False
        if source.is_folder(folder) and any(listing.scan(source, folder, suffixes=())):
            raise ValueError(
                f"{source.shown('')} must hold {tar_name} or {folder}/ but not both. "
                f"Remove {source.shown(folder)} to read the tar, or move "
                f"{source.shown(tar_name)} away to read the folder."
            )
        return True

    def _tars_in_tar(self) -> dict[str, _Holder]:
        holders: dict[str, _Holder] = {}
        for part in tars.read_members(self.source, TRAIN_TAR):
            synset, suffix = os.path.splitext(os.path.basename(part.name))
            if suffix != ".tar" or not part.is_file:
                name = f"{TRAIN_TAR}/{part.name}"
                self.report.leave_out([LeftOut(name, Reason.OTHER_NAME)])
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
        here = listing.scan(self.source, folder, suffixes=(".tar",))
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

        `holders` has the tars of classes in a tar, and gets the tars and folders in the
        folder of the split, if there is one.
        """
        source, where = self.source, self.source.shown(folder)
        if is_there := source.is_folder(folder):
            self._add_folder(folder, holders)
        if not holders:
            root = source.shown("")
            raise ValueError(
                f"{where} must hold a folder for each class, with its JPEG files "
                f"inside; got no {'' if is_there else 'such '}folder, and no "
                f"{TRAIN_TAR}. See --help for the layout."
                + missing_index.other_converter(root, "converters.imagenet")
            )
        if unknown := sorted(holders.keys() - self.synsets):
            raise ValueError(
                f"{where} has {len(unknown)} class folders that are not in the class "
                f"list, the first is {unknown[0]}. List all synsets in label order in "
                f"{source.shown('synsets.txt')}."
            )
        read = self._read(holders).items()
        classes = {synset: here.images for synset, here in read if here.images}
        if not classes:
            raise ValueError(
                f"{where} must hold images named *.JPEG, *.jpeg or *.jpg, got none."
            )
        return classes


def _read_holder(source: Folder, holder: _Holder) -> tuple[str | None, listing.Listing]:
    """Returns the state of a tar, if it is one, and the images by base name.

    Images in a tar have their names after unpacking.
    """
    folder, tar = holder.folder, holder.tar
    if not tar:
        here = listing.scan(source, folder, suffixes=listing.JPEG_SUFFIXES)
        for name in here.folders:
            below = source.files_below(f"{folder}/{name}")
            lines = (LeftOut(f"{name}/{n}", Reason.IN_SUBFOLDER) for n in below)
            here.left_out.extend(lines)
        return None, here
    state = parts.state_of(source.location.resolve(tar))
    here = listing.Listing([], [], [], [])
    for member in tars.read_members(source, tar, part=holder.part):
        name = os.path.basename(member.name)
        if not listing.has_suffix(name, listing.JPEG_SUFFIXES):
            here.left_out.append(LeftOut(member.name, Reason.OTHER_NAME))
            continue
        here.names.append(name)
        if member.is_file:
            span = (tar, member.offset, member.num_bytes)
            here.images.append(Image(f"{folder}/{name}", NO_CLASS, *span))
        else:
            here.left_out.append(LeftOut(member.name, Reason.NOT_A_FILE))
    here.images.sort()
    here.names.sort()
    for name, after in itertools.pairwise(here.names):
        if name == after:
            raise _duplicate_error(source, tar, name)
    return state, here


def _duplicate_error(source: Folder, tar: str, name: str) -> ValueError:
    return ValueError(
        f"{source.shown(tar)} holds {name} twice, so that it is unknown which one is "
        "meant. Unpack it, keep one of them, and give the folder instead."
    )
