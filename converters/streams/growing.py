"""The writing side of a growing data set: claims of messages, published generations.

In: batches of messages. Out: generations, each message in one of them.

    generations/gen-000012.messages.json   the claim: its worker and its messages' ids
    gen-000012/                            the shards, a pure function of the claim
    generations/000012.json                the entry of the log, see `generations`

A worker writes the files in this order, and acknowledges the messages at last. After a
kill the messages come again, and the worker claims the folder without an entry anew. A
message that another worker has published is taken out of the claim.
"""

import contextlib
import json
import re
from collections.abc import Sequence
from typing import Any

from converters.jobs import at_url
from converters.streams.lease import WriterLease
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shards import generations
from tfpipe.shards.generations import LOG_FOLDER, Log, ShardFolder
from tfpipe.shards.index import Index

_CLAIM = re.compile(r"(gen-[0-9]{6})\.messages\.json")


class GrowingDataSet:
    """A growing data set, to which a worker adds generations.

    All ids of stored messages are in memory: about 100 bytes each.

    Attributes:
        stored: Ids of all messages of published generations.
        classes: The classes in label order.

    Args:
        files: The data set.
        worker: Name of the worker, different from the names of all others.
        classes: Classes of a data set without a generation, in label order.
        lease_seconds: Time of the lease at a store that replaces files in any case.

    Raises:
        BadIndexError: If a usual data set is at the place.
        RemoteError: If the place cannot be read, or another writer has the lease.
    """

    def __init__(
        self,
        files: Files,
        worker: str,
        classes: Sequence[str] = (),
        lease_seconds: float = 600.0,
    ) -> None:
        self.files, self._worker = files, worker
        self.stored: set[str] = set()
        self.classes, self.label_base = list(classes), 1
        self.log: Log = ()
        self.refresh()
        self._lease: WriterLease | None = None
        if not self._has_creates():
            self._lease = WriterLease(files, worker, lease_seconds)
        log: Log = self.log
        published = {each.name for entry in log for each in entry}
        claims = self._claims()
        self._last = max((int(name[4:]) for name in claims | published), default=0)
        mine = [n for n in claims - published if self._claim(n)["worker"] == worker]
        self._unpublished = min(mine, default="")

    def _claims(self) -> set[str]:
        with contextlib.suppress(errors.MissingFileError):  # a new folder
            names = Files(self.files.location / LOG_FOLDER).names()
            return {match[1] for match in map(_CLAIM.fullmatch, names) if match}
        return set()

    def _has_creates(self) -> bool:
        """Whether the place refuses a second file of one name."""
        if self.files.location.is_local:
            return True
        name = f"{LOG_FOLDER}/probe-{self._worker}"
        try:
            self.files.create(name, b"first")
            is_refused = not self.files.create(name, b"second")
        except errors.RemoteError:  # if the store is away, the lease says so
            return False
        self.files.delete(name)
        return is_refused

    def _create(self, name: str, content: bytes) -> bool:
        if self._lease is None:
            return self.files.create(name, content)
        self._lease.require()
        if self.files.exists(name):
            return self.files.read(name) == content
        self.files.write(name, content)
        return True

    def refresh(self) -> None:
        """Reads newly published generations."""
        log = generations.read_log(self.files)
        if log and not self.log:
            self.classes = []  # those of the data set count
        new, self.log = log[len(self.log) :], log
        for each in (folder for entry in new for folder in entry):
            # The messages of removed records stay known: they never come back.
            with contextlib.suppress(errors.MissingFileError):
                self.stored.update(self._claim(each.name)["messages"])
            if each.num_records:
                whole = self.index_of(each.name)
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

    def _claim(self, folder: str) -> Any:
        name = _claim_name(folder)
        try:
            claim = errors.from_json(self.files.read(name))
            return {key: claim[key] for key in ("worker", "messages")}
        except (ValueError, TypeError, KeyError) as error:
            shown = (self.files.location / name).shown
            raise ValueError(
                f"{shown} must be a claim of messages: {error}. A power loss can empty "
                "a claim of --nofsync: remove the file, and the messages come again."
            ) from error

    def claim(self, ids: Sequence[str]) -> str:
        """Stores the ids of the messages of a folder; returns its name.

        A folder that the worker claimed before and has not published is taken again.
        """
        claim = json.dumps({"worker": self._worker, "messages": ids}).encode()
        if self._unpublished:
            self.files.write(_claim_name(self._unpublished), claim)
        while not self._unpublished:
            self._last += 1
            if self._create(_claim_name(name := f"gen-{self._last:06d}"), claim):
                self._unpublished = name
        return self._unpublished

    def fits(self, whole: Index | None) -> bool:
        """Whether the labels of a folder go on those of the newest generation."""
        if whole is None:
            return True
        ours, theirs = [synset for synset, _ in whole.classes], self.classes
        shorter = min(len(ours), len(theirs))
        base = not self.log or whole.label_base == self.label_base
        return base and ours[:shorter] == theirs[:shorter]

    def publish(self, *entry: ShardFolder) -> bool:
        """Publishes folders as the next generation, if no other writer was first."""
        done = generations.publish(self.files, self.log, entry, create=self._create)
        if done and self._unpublished in {each.name for each in entry}:
            self._unpublished = ""
        self.refresh()
        return done

    def close(self) -> None:
        """Ends the lease, if there is one."""
        if self._lease is not None:
            self._lease.release()


def folder_of(name: str, whole: Index) -> ShardFolder:
    """Returns a folder with its shards, for an entry of the log."""
    num_records = sum(map(whole.num_records, whole.splits))
    return ShardFolder(name, generations.identity(whole), num_records)


def _claim_name(folder: str) -> str:
    return f"{LOG_FOLDER}/{folder}.messages.json"
