"""Lists the images of a folder by name, and the names left out with the reason.

In: a folder on a disk or at a URL. Out: a `Listing`, and the reasons. Files are listed,
not opened: their format is decided from their bytes, later.
"""

import collections
import dataclasses
import enum
from collections.abc import Collection, Iterable
from typing import NamedTuple

from converters.inputs.image import Image, whole_file
from tfpipe.location.browse import Folder
from tfpipe.location.location import Location
from tfpipe.pictures import formats
from tfpipe.shards import missing_index

# Names of JPEGs in ImageNet's own archives.
JPEG_SUFFIXES = (".jpeg", ".jpg")
OTHER_SUFFIXES = formats.OTHER_SUFFIXES  # converted to JPEG
IMAGE_SUFFIXES = (*formats.JPEG_SUFFIXES, *OTHER_SUFFIXES)


class Reason(enum.Enum):
    """Why a name has no record; the text says what must hold, for the reports."""

    OTHER_NAME = "the name must end as that of an image or a tar that is read here"
    NOT_A_FILE = "a name like that of an image must be that of a file"
    DANGLING_LINK = "a link must lead to a file or a folder"
    IN_SUBFOLDER = "images must lie in the folder of their class, not below it"
    NO_CLASS_FOLDER = "an image must lie in the folder of its class"
    NOT_A_SPLIT = (
        "beside train/ only val/ or validation/ is read, and test/ if it holds a "
        "folder for each class"
    )
    OTHER_CLASS = "the class is not among --classes"
    EMPTY_FOLDER = "a folder of a class must hold images"
    CLASS_NOT_MAPPED = "--class_map leaves the class out"
    LINK_LOOP = "a link must not lead to a folder that it is in"
    # About members of tars and records of others.
    UNSAFE_NAME = "a name must be relative, without `..` and empty parts"
    NO_IMAGE = "a sample must have an image; see --image_part or --image_key"
    SEVERAL_IMAGES = "a sample must have one image; choose one with --image_part"
    NO_LABEL = "an image must have a class; see --label_key, or --label_from of tars"
    SEVERAL_LABELS = "an image must have one class, or a row of 0 and 1"
    FLOAT_LABEL = "a class must be a whole number or a text, and no number with a point"
    BAD_LABEL = (
        "a class must be a whole number, or a text in UTF-8 of at most 1,000 "
        "characters without a line break"
    )
    BAD_RECORD = "a record must have right checksums and be a tf.train.Example"
    # About rows of tables.
    NULL_IMAGE = "a row must have an image, got NULL"
    NULL_LABEL = "a row must have a label, got none"
    NULL_SPLIT = "a row must have a split, got NULL"
    MISSING_FILE = "a row must have an image that exists"
    # About boxes.
    BBOX_DROPPED_EMPTY = "a box must have an area inside of the image"
    BBOX_DROPPED_OTHER_SYNSET = (
        "a box must be of the class that the file is named after"
    )
    BBOX_DROPPED_NO_SIZE = (
        "an annotation with boxes must give width and height of the image"
    )
    BBOX_FILE_OF_OTHER_CLASS = "an annotation must be of a class in the class list"
    BBOX_FILE_NOT_READ = "an annotation must be a file that ends in .xml"

    @property
    def slug(self) -> str:
        """The reason in snake case, as in the summary."""
        return self.name.lower()


# macOS writes such files with metadata into tars and onto disks of other systems. They
# have the suffix of the image but hold no image.
_APPLE_DOUBLE_PREFIX = "._"


# Folders that operating systems and network drives make beside the images.
_SYSTEM_FOLDERS = {
    *("__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found"),
}


def is_hidden(name: str) -> bool:
    """Whether a file or folder of the name is no part of a data set."""
    return not name or name.startswith(".") or name in _SYSTEM_FOLDERS


class LeftOut(NamedTuple):
    """A name without a record, for the reports.

    Attributes:
        name: Path relative to the listed folder; a folder ends in "/".
        reason: Why.
    """

    name: str
    reason: Reason

    def under(self, prefix: str) -> "LeftOut":
        """Returns the same entry with a prefix before its name."""
        return LeftOut(prefix + self.name, self.reason)


class Listing(NamedTuple):
    """Entries of a folder, or of a tar in its place, sorted by name.

    Attributes:
        images: The files with a suffix of the list, by their names in the input folder.
        folders: Names of the folders.
        names: All names with such a suffix, also of folders, pipes and the like.
        left_out: Names in neither `images` nor `folders`, with the reason.
    """

    images: list[Image]
    folders: list[str]
    names: list[str]
    left_out: list[LeftOut]


@dataclasses.dataclass
class Report:
    """The names that were read so far, for the check that no name is lost."""

    left_out: list[LeftOut] = dataclasses.field(default_factory=list)
    num_names: int = 0  # of files, and of the folders among `left_out`

    def read(self, here: Listing, prefix: str) -> None:
        """Adds the files of a folder, and the names in the folder that are left out."""
        self.num_names += len(here.images)
        self.leave_out(item.under(prefix) for item in here.left_out)

    def leave_out(self, lines: Iterable[LeftOut]) -> None:
        """Adds names that are left out and were not read as files."""
        before = len(self.left_out)
        self.left_out += lines
        self.num_names += len(self.left_out) - before

    def forget(self, names: Collection[str]) -> None:
        """Takes out names left out, whose files are read for more than images."""
        before = len(self.left_out)
        self.left_out[:] = [item for item in self.left_out if item.name not in names]
        self.num_names -= before - len(self.left_out)


def count(left_out: Iterable[LeftOut]) -> dict[str, int]:
    """Counts the names left out, by reason."""
    counts = collections.Counter(item.reason.slug for item in left_out)
    return dict(sorted(counts.items()))


def has_suffix(name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether a file name, in upper or lower case, has a suffix of the list."""
    return name.lower().endswith(suffixes) and not name.startswith(_APPLE_DOUBLE_PREFIX)


def scan(
    folder: Folder, name: str, *, suffixes: tuple[str, ...] = IMAGE_SUFFIXES
) -> Listing:
    """Lists a folder by its name in another. Links are followed.

    Hidden folders, folders of operating systems, and folders with such a suffix are
    left out.
    """
    prefix = f"{name.rstrip('/')}/" if name else ""
    found = Listing([], [], [], [])
    for entry in folder.entries(name):
        base = entry.name
        is_named = has_suffix(base, suffixes)
        if is_named:
            found.names.append(base)
        elif is_hidden(base) or (entry.exists and not entry.is_folder):
            found.left_out.append(LeftOut(base, Reason.OTHER_NAME))
            continue
        if entry.is_file:
            found.images.append(whole_file(prefix + base, entry.size))
        elif entry.is_folder and not is_named:
            found.folders.append(base)
        else:
            reason = Reason.NOT_A_FILE if entry.exists else Reason.DANGLING_LINK
            found.left_out.append(
                LeftOut(f"{base}/" if entry.is_folder else base, reason)
            )
    return found


def input_folder(value: str) -> Folder:
    """Returns the folder in the value of --input_dir."""
    location = Location.from_user("--input_dir", value, expand_user=True)
    folder = Folder(location)
    if not folder.is_folder(""):
        kind = "folder" if location.is_local else "file below this URL"
        other = missing_index.other_converter(location.shown, "converters.folder")
        raise ValueError(
            f"--input_dir must be a folder, got {location.shown}: no such {kind}."
            f"{other}"
        )
    return folder
