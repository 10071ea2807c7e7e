"""Turns images that arrive into shards of a growing data set.

  python -m converters.stream INCOMING DIR
  python -m converters.stream redis://localhost:6379/photos DIR --max_seconds=60
  python -m converters.stream nats://localhost:4222/photos DIR
  python -m converters.stream kafka://localhost:9092/photos DIR

INCOMING is a folder with a folder for each class, or its URL, in which files appear
whole. Of a broker, photos is the Redis stream, the JetStream stream or the topic. Each
message has a label, the bytes of an image or a location below --root, and maybe an id
and a name: fields of Redis (label, image, location, id, name), or headers of NATS and
Kafka, whose data is the image. A second message of the same id is a duplicate, which is
dropped and counted.

Every --max_records messages, or --max_seconds after the first one, the messages become
a generation: a folder such as DIR/gen-000012 of usual shards. DIR/index.json lists all.
Messages are acknowledged when their generation is published. The same command goes on
after a kill at any moment, and stores each message once. Several commands with other
names (--worker) share the work of a --group, on any hosts.

Training reads a generation: tfpipe.TFRecordSource(DIR, "train", generation="latest").
python -m converters.query DIR --compact=OUT writes all records as a usual data set.
The command runs until Ctrl-C, SIGTERM or --until_idle. The last line on stdout is one
JSON object. Exit code: 0 done, 1 an error.
"""

import collections
import dataclasses
import functools
import math
import socket
import sys
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from converters.conversion import steps
from converters.engines import locks
from converters.exports.source import require_package
from converters.images.policy import KINDS, STORED, Policy
from converters.inputs.labels import read_label_map
from converters.jobs.publish import NothingStoredError
from converters.options import shared
from converters.options.job import ConvertOptions, policy
from converters.streams.batch import Batch
from converters.streams.brokers import BROKERS, BrokerOptions
from converters.streams.folder import FolderStream
from converters.streams.growing import GrowingDataSet, folder_of
from converters.streams.message import Message, Stream
from tfpipe import cli, errors
from tfpipe.cli import output
from tfpipe.cli.signals import terminated_as_interrupted
from tfpipe.errors import count_of
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shards import generations
from tfpipe.shards.generations import ShardFolder
from tfpipe.shards.index import Index
from tfpipe.shards.split_names import SPLITS, TRAIN

_COMMAND = "converters.stream"
_SCHEMA_VERSION = 1
_CHUNK = 100  # messages that are asked for at once
_FIRST_WAIT, _MOST_WAIT = 0.2, 5.0  # seconds between tries of a broker that is away
_COUNTS = (
    *("num_messages", "num_records", "num_duplicates", "num_generations"),
    *("num_bad_messages", "num_of_new_classes"),
)
_stream = cli.group(shared.INPUT)
_labels = cli.group(shared.LABELS)
_Answer = TypeVar("_Answer")


@cli.options
class StreamOptions(cli.StoreOptions):
    """Options of a stream.

    Raises:
        ValueError: If the source or the output cannot be used.
    """

    source: str = cli.argument(
        "Folder that is watched, or its URL, or the URL of a broker.",
        shown="SOURCE",
        url=True,
    )
    output_dir: str = cli.argument(
        "Folder or URL of the growing data set.", shown="DIR", url=True
    )
    group: str = _stream("tfpipe", "Name of the group of workers at the broker.")
    worker: str | None = _stream(
        None,
        "Name of this worker: after a kill the same name goes on with its messages. "
        "Each of several workers needs another name. Default: the name of the host.",
    )
    max_records: int = _stream(10_000, "Most messages of a generation.", least=1)
    max_seconds: float = _stream(
        60.0, "Seconds after the first message at which a generation ends.", above=0
    )
    max_mb: int = _stream(
        1024, "Most MB of images of a generation, which wait on the disk.", least=1
    )
    until_idle: float | None = _stream(
        None, "End when no message came for so many seconds. Default: never.", above=0
    )
    patience: float = _stream(
        300.0, "Seconds to wait for a broker that does not answer.", least=0
    )
    takeover_seconds: float = _stream(
        600.0,
        "Seconds after which the messages of a lost worker go to another one; more than"
        " a generation takes.",
        above=0,
    )
    root: str | None = shared.root(None)
    bad_message: Literal["fail", "skip"] = _stream(
        "fail",
        "What to do about a message without a label or an image. skip: count it, name "
        "it on stderr, and acknowledge it.",
    )
    new_class: Literal["append", "skip", "fail"] = _labels(
        "append",
        "What to do about a class that no generation and no --label_map has. append: "
        "give it the next label. Labels never change.",
    )
    label_map: str | None = _labels(
        None,
        "File of lines `<label> <class>`, or of classes in label order, for the first "
        "generation.",
        shown="FILE",
    )
    split: str = _labels(TRAIN, "Split of all images.", choices=SPLITS)
    name: str = "stream"
    seed: int = shared.seed()
    policy: Policy = policy(exif_orientation="apply")
    num_workers: int | None = shared.num_workers()
    fsync: bool = shared.fsync()

    def __post_init__(self) -> None:
        _ = self.broker, self.output
        name = self.worker_name
        if not name or "/" in name or name.startswith("."):
            raise ValueError(f"--worker must be a plain name, got {name!r}.")

    @property
    def worker_name(self) -> str:
        """The name of the worker."""
        return socket.gethostname() if self.worker is None else self.worker

    @functools.cached_property
    def output(self) -> Location:
        """The growing data set."""
        return shared.location_of("DIR", self.output_dir)

    @functools.cached_property
    def broker(self) -> BrokerOptions | None:
        """The stream of a broker; None for a watched folder."""
        scheme, _, rest = self.source.partition("://")
        if scheme not in BROKERS:
            shared.location_of("SOURCE", self.source)
            return None
        url = urllib.parse.urlsplit(f"//{rest}")
        name = url.path.strip("/")
        if "@" in url.netloc or not url.hostname or not name or "/" in name:
            raise ValueError(
                f"SOURCE must be {scheme}://HOST:PORT/STREAM without a password, which "
                "comes from the environment."
            )
        at = url.hostname, url.port or BROKERS[scheme][1], name
        return BrokerOptions(*at, self.group, self.worker_name, self.takeover_seconds)

    def conversion(self, folder: str) -> ConvertOptions:
        """Returns the options of the conversion that writes a folder."""
        return ConvertOptions(
            output_dir=(self.output / folder).text,
            name=self.name,
            label_type="text",
            seed=self.seed,
            policy=self.policy,
            num_workers=self.num_workers,
            fsync=self.fsync,
            check_inputs="digest",
            overwrite=True,
        )


def open_stream(options: StreamOptions, stored: set[str]) -> Stream:
    """Opens the source; a broker is asked at the first read.

    Raises:
        ValueError: If the client of the broker is not installed.
    """
    if options.broker is None:
        return FolderStream(shared.location_of("SOURCE", options.source), stored)
    kind = options.source.partition(":")[0]
    make, _, package = BROKERS[kind]
    require_package(f"{kind}://", package, kind)
    return make(options.broker)


class Worker:
    """Reads messages, writes generations, and counts.

    Args:
        options: The options.
        stream: The source of the messages; None opens the source of the options.

    Raises:
        ValueError: If an option cannot be used, or a worker of this name runs.
    """

    def __init__(self, options: StreamOptions, stream: Stream | None = None) -> None:
        self.options, classes = options, list[str]()
        if options.label_map is not None:
            path = shared.path_of("--label_map", options.label_map)
            classes = list(read_label_map(path, 1))
        files = Files(options.output)
        generations.read_log(files)  # nothing is written into a usual data set
        near = options.conversion("generations").local_dir
        self.spool = near / f".spool-{options.worker_name}"
        self.spool.mkdir(parents=True, exist_ok=True)
        self._lock = locks.acquire(self.spool / "lock")
        if self._lock is None:
            raise ValueError(
                f"A command with --worker={options.worker_name} runs. Each worker needs"
                " a name of its own."
            )
        self.data = GrowingDataSet(
            files, options.worker_name, classes, options.takeover_seconds
        )
        if not self.data.classes and options.new_class != "append":
            raise ValueError(
                "--new_class=append or --label_map is needed for the first generation."
            )
        self.stream = stream or open_stream(options, self.data.stored)
        root = options.root
        self.root = None if root is None else Files(shared.location_of("--root", root))
        self.counts = collections.Counter(dict.fromkeys(_COUNTS, 0))
        self.decisions = collections.Counter[str]()
        self._idle_seconds = 0.0

    def _ask(self, request: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """Asks the source, and again while it does not answer."""
        end, wait = math.inf, _FIRST_WAIT
        while True:
            try:
                return request(*arguments)
            except self.stream.errors as error:
                self.stream.close()
                if refusal := self.stream.refusal(error):
                    raise errors.RefusedError(refusal) from None
                end = min(end, time.monotonic() + self.options.patience)
                text = f"{self.options.source} does not answer: {error}"
                if time.monotonic() + wait > end:
                    raise errors.RemoteError(text) from error
                output.tell(f"{text}; asking again")
                time.sleep(wait)
                wait = min(2 * wait, _MOST_WAIT)

    def loop(self) -> None:
        """Stores what arrives, and acknowledges what is stored."""
        while not self._is_idle():
            batch = Batch(self.spool, self.options.split)
            self._collect(batch)
            self._store(batch)
            if batch.positions:
                self._ask(self.stream.acknowledge, list(batch.positions))
                self._idle_seconds = 0.0  # messages may have come meanwhile

    def close(self) -> None:
        """Ends the connections; another worker may have the name."""
        self.stream.close()
        self.data.close()
        if self._lock is not None:
            locks.release(self._lock)

    def _is_idle(self) -> bool:
        limit = self.options.until_idle
        return limit is not None and self._idle_seconds > limit

    def _collect(self, batch: Batch) -> None:
        """Fills a batch."""
        options, end, count = self.options, 0.0, 1
        while (
            (room := options.max_records - len(batch.images)) > 0
            and len(batch.positions) < 2 * options.max_records
            and batch.num_bytes < options.max_mb << 20
            and not self._is_idle()
        ):
            wait = min(1.0, end - time.monotonic()) if end else 1.0
            if wait <= 0:
                return
            fitting = batch.num_fitting(options.max_mb << 20)
            count = min(2 * count, _CHUNK, room, fitting)
            began = time.monotonic()
            messages = self._ask(self.stream.read, count, wait)
            # To join a group, or to find a server again, is not to be idle.
            waited = min(wait, time.monotonic() - began)
            self._idle_seconds = 0.0 if messages else self._idle_seconds + waited
            for message in messages:
                end = end or time.monotonic() + options.max_seconds
                self._take(batch, message)

    def _take(self, batch: Batch, message: Message) -> None:
        """Adds a message to a batch, unless there is a reason not to."""
        options = self.options
        if message.position in batch.positions:
            return  # the broker gave it twice
        self.counts["num_messages"] += 1
        batch.positions[message.position] = None
        if message.id in batch.images or message.id in self.data.stored:
            self.counts["num_duplicates"] += 1
        elif fault := message.fault:
            self._refuse(message, options.bad_message, "num_bad_messages", fault)
        elif message.label not in self.data.classes and options.new_class != "append":
            fault = f"the class {message.label!r} is new, see --new_class"
            self._refuse(message, options.new_class, "num_of_new_classes", fault)
        else:
            try:
                batch.add(message, message.content(self.root))
            except errors.MissingFileError as error:
                fault = str(error).rstrip(".")
                self._refuse(message, options.bad_message, "num_bad_messages", fault)

    def _refuse(self, message: Message, choice: str, counter: str, fault: str) -> None:
        text = f"Message {message.id!r} at {message.position}: {fault}"
        if choice == "fail":
            raise ValueError(f"{text}. Mend the producer, or skip such messages.")
        print(text, file=sys.stderr)
        self.counts[counter] += 1

    def _store(self, batch: Batch) -> None:
        """Publishes a batch as a generation."""
        data = self.data
        while batch.images:
            name = data.claim(list(batch.images))
            whole, decisions = self._convert(batch, name)
            folder = (
                ShardFolder(name, "", 0) if whole is None else folder_of(name, whole)
            )
            # Another worker may have stored some messages, or begun other classes.
            while not (theirs := batch.remove(data.stored)) and data.fits(whole):
                if data.publish(folder):
                    self.counts["num_generations"] += 1
                    self.counts["num_records"] += folder.num_records
                    self.decisions.update(decisions)
                    count = count_of(len(batch.images), "message")
                    output.tell(f"{name}: generation {len(data.log)}, {count}")
                    return
            self.counts["num_duplicates"] += theirs

    def _convert(
        self, batch: Batch, name: str
    ) -> tuple[Index | None, Mapping[str, int]]:
        """Writes the shards of a claim, as a usual conversion.

        Returns:
            The index and its decisions; no index if no image could be stored.
        """
        batch.labels = labels = self.data.labels
        for label, _ in batch.images.values():
            labels.setdefault(label, self.data.label_base + len(labels))
        try:
            steps.convert(_COMMAND, self.options.conversion(name), batch)
        except NothingStoredError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return None, {f"skipped_{key}": n for key, n in error.reasons.items()}
        whole = self.data.index_of(name)
        return whole, whole.made_by["decisions"]


def run(options: StreamOptions) -> None:
    """Stores what arrives, and prints the summary."""
    began, worker = time.monotonic(), Worker(options)
    ended = "idle"
    try:
        with terminated_as_interrupted():
            worker.loop()
    except KeyboardInterrupt:
        ended = "interrupted"
    finally:
        worker.close()
    seconds = time.monotonic() - began
    document = {
        "command": _COMMAND,
        "schema_version": _SCHEMA_VERSION,
        "config": dataclasses.asdict(options),
        **worker.counts,
        "decisions": worker.decisions,
        "generation": len(worker.data.log),
        "ended": ended,
        "seconds": round(seconds, 3),
    }
    done = worker.counts
    output.show(
        document,
        [
            f"{options.output.shown}: generation {len(worker.data.log)}; "
            f"{done['num_records']:,} records in "
            f"{count_of(done['num_generations'], 'new generation')}, "
            f"{done['num_duplicates']:,} duplicates; {seconds:.1f} s"
        ],
    )


COMMANDS = (
    cli.Command(
        StreamOptions,
        run,
        arguments=("source", "output_dir"),
        groups=(
            shared.INPUT,
            shared.LABELS,
            shared.SHARDS,
            STORED,
            KINDS,
            shared.RUNNING,
        ),
        hint=lambda options, error: "The same command goes on.",
    ),
)

if __name__ == "__main__":
    cli.run(*COMMANDS)
