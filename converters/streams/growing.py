"""The writing side of a growing data set: claims of messages, published generations.

In: batches of messages. Out: generations, each message in one of them.

    generations/gen-000012.messages.json   the claim: its worker and its messages
    gen-000012/                            the shards, a pure function of the claim
    generations/000012.json                the entry of the log, see `generations`

A worker writes these in this order, and acknowledges the messages at last. A kill
leaves a claim without an entry: the same worker completes the generation. A message
that another worker has published is taken out of the claim, under a new number.
"""

import contextlib
import dataclasses
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from converters.jobs import at_url
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shards import generations
from tfpipe.shards.generations import Log, LogEntry
from tfpipe.shards.index import Index

_CLAIM = re.compile(rf"{generations.LOG_FOLDER}/(gen-[0-9]{{6}})\.messages\.json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MessageClaim:
    """The messages of a generation, in order.

    Attributes:
        folder: The folder of the generation.
        worker: The worker that writes the folder.
        messages: (position, id) of each message.
    """

    folder: str
    worker: str
    messages: Sequence[tuple[str, str]]


class GrowingDataSet:
    """A growing data set that a worker adds generations to.

    All ids of stored messages are in memory: about 100 bytes each.

    Attributes:
        stored: Ids of all messages of published generations.
        classes: The classes in label order.

    Args:
        files: The data set.
        worker: Name of the worker, different from the names of all others.
        classes: Classes of a data set without a generation, in label order.

    Raises:
        BadIndexError: If something else is at the place.
        RemoteError: If the place cannot be read, or cannot refuse a second file of a
            name.
    """

    def __init__(self, files: Files, worker: str, classes: Sequence[str]) -> None:
        self.files, self._worker = files, worker
        self.stored: set[str] = set()
        self.classes, self.label_base = list(classes), 1
        self.log: Log = ()
        self._require_create()
        self.refresh()

    def _require_create(self) -> None:
        """Checks whether the store refuses a second file of one name."""
        if self.files.location.is_local:
            log = self.files.location.path / generations.LOG_FOLDER
            log.mkdir(parents=True, exist_ok=True)
            return
        name = f"{generations.LOG_FOLDER}/probe-{self._worker}"
        first = self.files.create(name, b"first")
        second = self.files.create(name, b"second")
        content = self.files.read(name)
        self.files.delete(name)
        if not first or second or content != b"first":
            raise errors.RemoteError(
                f"{self.files.location.shown} does not refuse a second file of one name"
                " (If-None-Match), so that two writers could lose a generation. Use a "
                "folder, or another store."
            )

    def refresh(self) -> None:
        """Reads newly published generations."""
        log = generations.read_log(self.files)
        if log and not self.log:
            self.classes = []  # those of the data set count
        new, self.log = log[len(self.log) :], log
        for entry in filter(lambda each: each.folder, new):
            # A replaced folder's messages stay known: they never come back.
            with contextlib.suppress(errors.MissingFileError):
                self.stored.update(id for _, id in self._read(entry.folder).messages)
            whole = self.index_of(entry.folder)
            self.label_base = whole.label_base
            names = [synset for synset, _ in whole.classes]
            self.classes = max(self.classes, names, key=len)

    @property
    def labels(self) -> dict[str, int]:
        """Label of each class."""
        return {name: n for n, name in enumerate(self.classes, self.label_base)}

    def index_of(self, folder: str) -> Index:
        """Reads the index of a folder."""
        return at_url.load_index(Files(self.files.location / folder))

    def _read(self, folder: str) -> MessageClaim:
        name = _claim_name(folder)
        try:
            document = errors.from_json(self.files.read(name))
            return MessageClaim(folder=folder, **document)
        except (ValueError, TypeError) as error:
            shown = (self.files.location / name).shown
            raise ValueError(
                f"{shown} must be a claim of messages: {error}. A power loss can empty "
                "a claim of --nofsync: remove the file, and the messages come again."
            ) from error

    def _claims(self) -> list[str]:
        matches = map(_CLAIM.fullmatch, self.files.names(f"{generations.LOG_FOLDER}/"))
        return [match[1] for match in matches if match]

    def unfinished(self) -> Iterator[MessageClaim]:
        """Yields the unpublished claims of the worker."""
        published = {entry.folder for entry in self.log}
        for folder in self._claims():
            if folder not in published:
                claim = self._read(folder)
                if claim.worker == self._worker:
                    yield claim

    def claim(self, messages: Sequence[tuple[str, str]]) -> MessageClaim:
        """Stores the ids of the messages of a new folder."""
        document = json.dumps({"worker": self._worker, "messages": list(messages)})
        taken = {int(folder[4:]) for folder in self._claims()}
        taken |= {int(entry.folder[4:]) for entry in self.log if entry.folder}
        last = max(taken, default=0)
        while True:
            last += 1
            folder = f"gen-{last:06d}"
            if self.files.create(_claim_name(folder), document.encode()):
                return MessageClaim(
                    folder=folder, worker=self._worker, messages=messages
                )

    def give_up(self, claim: MessageClaim) -> None:
        """Removes a claim, and what was written for it."""
        location = self.files.location / claim.folder
        if location.is_local:
            shutil.rmtree(location.path, ignore_errors=True)
        else:
            there = Files(location)
            for name in there.names():
                there.delete(name)
        self.files.delete(_claim_name(claim.folder))

    def complete(self, claim: MessageClaim) -> Index | None:
        """Returns the index of a claim whose shards are complete."""
        with contextlib.suppress(errors.BadIndexError, errors.MissingFileError):
            return self.index_of(claim.folder)
        return None

    def fits(self, whole: Index) -> bool:
        """Whether the labels of a folder go on those of the newest generation."""
        ours, theirs = [synset for synset, _ in whole.classes], self.classes
        shorter = min(len(ours), len(theirs))
        base = not self.log or whole.label_base == self.label_base
        return base and ours[:shorter] == theirs[:shorter]

    def publish(self, folder: str, whole: Index, *, replaces: str = "") -> bool:
        """Publishes a folder as the next generation, if no other writer was first."""
        entry = LogEntry(
            generation=len(self.log) + 1,
            folder=folder,
            digest=generations.identity(whole),
            num_records=sum(map(whole.num_records, whole.splits)) if folder else 0,
            replaces=replaces,
        )
        return generations.publish(self.files, self.log, entry)


def _claim_name(folder: str) -> str:
    return f"{generations.LOG_FOLDER}/{folder}.messages.json"


def counted(counts: Mapping[str, Any], more: Mapping[str, int]) -> dict[str, Any]:
    """Returns counts by name, with more counts added."""
    return {**counts, **{name: counts.get(name, 0) + n for name, n in more.items()}}
