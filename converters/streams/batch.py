"""A batch of messages: the images of one generation before they are stored.

In: messages. Out: their bytes in a file, and a `Reader` of them for a usual conversion.
The file need not survive a kill: the source gives the messages again.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import xxhash

from converters.inputs.classes import ClassList
from converters.inputs.image import NO_CLASS, Image
from converters.inputs.listed import Listed
from converters.inputs.meaning import Meaning
from converters.inputs.reader import Reader, Workspace
from converters.streams.message import Message
from tfpipe.location import atomic
from tfpipe.location.location import Location

_IMAGES = "images"


@dataclasses.dataclass
class Batch(Reader):
    """Messages in order of arrival, with their images in a file.

    Attributes:
        folder: Folder for the file; an older file is replaced.
        split: Split of all images.
        labels: Label of every class, also of classes without a message.
        images: Class and image of each message, by its id.
        positions: Positions of these, and of all other messages that were read.
        num_bytes: Bytes of the images.
    """

    folder: pathlib.Path
    split: str
    labels: dict[str, int] = dataclasses.field(default_factory=dict)
    images: dict[str, tuple[str, Image]] = dataclasses.field(default_factory=dict)
    positions: dict[str, None] = dataclasses.field(default_factory=dict)
    num_bytes: int = 0

    def __post_init__(self) -> None:
        (self.folder / _IMAGES).write_bytes(b"")
        self._names: set[str] = set()

    def add(self, message: Message, content: bytes) -> None:
        """Adds a message whose id is new.

        Two messages may have one name: the later one gets a part of its id's digest.
        """
        path = self.folder / _IMAGES
        with atomic.naming(path), open(path, "ab") as file:
            file.write(content)
        name = message.name.lstrip("/")
        if name in self._names or not name:
            stem, suffix = os.path.splitext(name)
            name = f"{stem}-{xxhash.xxh3_64_hexdigest(message.id.encode())}{suffix}"
        self._names.add(name)
        image = Image(name, NO_CLASS, _IMAGES, self.num_bytes, len(content))
        self.images[message.id] = message.label, image
        self.num_bytes += len(content)

    def num_fitting(self, max_bytes: int) -> int:
        """Returns how many more messages of the mean size fit, at least 1."""
        mean = max(self.num_bytes // max(len(self.images), 1), 1)
        return max((max_bytes - self.num_bytes) // mean, 1)

    def remove(self, ids: set[str]) -> int:
        """Takes messages out, and returns their number."""
        return len([self.images.pop(each) for each in ids & self.images.keys()])

    def list_images(self, meaning: Meaning, workspace: Workspace) -> Listed:
        """Lists the messages as images of one file."""
        classes: dict[str, list[Image]] = {}
        for label, image in self.images.values():
            classes.setdefault(label, []).append(image)
        folder = Location(str(self.folder))
        return Listed(
            folder=folder,
            splits={self.split: classes},
            classes=ClassList("The data set", labels=self.labels),
            num_rows=len(self.images),
            apart=(folder,),
        )

    @property
    def recorded(self) -> Mapping[str, Any]:
        """The digest of the ordered ids, for the index."""
        ids = "".join(f"{len(each)} {each}\n" for each in self.images)
        return {"messages": xxhash.xxh3_128_hexdigest(ids.encode())}

    def to_json(self) -> dict[str, Any]:
        """Returns no field: the options of the stream have them all."""
        return {}
