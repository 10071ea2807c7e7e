"""A batch of messages: the images of one generation before they are stored.

In: messages. Out: their bytes in a file, and a `Reader` of them for a usual conversion.
The file need not survive a kill: the broker gives the messages again.
"""

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import xxhash

from converters.inputs.class_lists import ClassList
from converters.inputs.image import NO_CLASS, Image
from converters.inputs.listed import Listed
from converters.inputs.meaning import Meaning
from converters.inputs.reader import Workspace
from converters.inputs.tables import spool
from converters.streams.message import Message
from tfpipe.location import atomic
from tfpipe.location.location import Location

_IMAGES = "images"


class Stored(NamedTuple):
    """A message whose image is in the file of the batch."""

    position: str
    id: str
    label: str
    name: str
    offset: int
    num_bytes: int


class Batch:
    """Messages in order of arrival, with their images in a file.

    Args:
        folder: Folder for the file, made if it is missing; an older file is replaced.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / _IMAGES
        self.messages: dict[str, Stored] = {}  # by id
        self.num_bytes = 0
        self.path.write_bytes(b"")

    def add(self, message: Message, image: bytes) -> None:
        """Adds a message whose id is new."""
        with atomic.naming(self.path), open(self.path, "ab") as file:
            file.write(image)
        self.messages[message.id] = Stored(
            *(message.position, message.id, message.label, message.name),
            *(self.num_bytes, len(image)),
        )
        self.num_bytes += len(image)

    def without(self, ids: "set[str]") -> list[Stored]:
        """Takes messages out, and returns them."""
        return [self.messages.pop(each) for each in ids & self.messages.keys()]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchReader:
    """The reader of a batch, see `converters.inputs.reader.Reader`.

    Attributes:
        path: The file with the images.
        messages: The messages in order.
        labels: Label of every class, also of classes without a message.
        split: Split of all images.
    """

    path: pathlib.Path
    messages: Sequence[Stored]
    labels: Mapping[str, int]
    split: str

    def list_images(self, meaning: Meaning, workspace: Workspace) -> Listed:
        """Lists the messages as images of one file in the working folder.

        Two messages may have one name: the later one gets a part of its id's digest.
        """
        folder = spool.folder_in(workspace, "messages")
        target = folder / _IMAGES
        target.unlink(missing_ok=True)
        try:
            os.link(self.path, target)
        except OSError:  # another file system
            shutil.copyfile(self.path, target)
        classes: dict[str, list[Image]] = {}
        names: set[str] = set()
        for each in self.messages:
            name = each.name.lstrip("/")
            if name in names or not name:
                stem, suffix = os.path.splitext(name)
                name = f"{stem}-{xxhash.xxh3_64_hexdigest(each.id.encode())}{suffix}"
            names.add(name)
            image = Image(name, NO_CLASS, _IMAGES, each.offset, each.num_bytes)
            classes.setdefault(each.label, []).append(image)
        return Listed(
            folder=Location(str(folder)),
            splits={self.split: classes},
            classes=ClassList("The data set", labels=self.labels),
            num_rows=len(self.messages),
            apart=(Location(str(folder)),),
        )

    @property
    def recorded(self) -> Mapping[str, Any]:
        """The digest of the ordered ids, for the index."""
        digest = xxhash.xxh3_128()
        for each in self.messages:
            digest.update(f"{len(each.id)} {each.id}\n".encode())
        return {"messages": digest.hexdigest()}

    @property
    def slow_files(self) -> Sequence[str] | None:
        """None: a batch is quick to list."""
        return None

    def to_json(self) -> dict[str, Any]:
        """Returns the fields for the summary of the conversion."""
        return {"num_messages": len(self.messages), "split": self.split}
