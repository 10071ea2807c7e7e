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
python -m converters.query DIR --materialize=OUT writes all records as a usual data set.
The command runs until Ctrl-C, SIGTERM or --until_idle. The last line on stdout is one
JSON object. Exit code: 0 done, 1 an error.
"""

import dataclasses
import functools
import socket
import sys
import time
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from converters.conversion import steps
from converters.images.policy import KINDS, STORED, Policy
from converters.inputs.labels import read_label_map
from converters.options import shared
from converters.options.job import ConvertOptions, policy
from converters.streams.batch import Batch, BatchReader
from converters.streams.folder import FolderStream
from converters.streams.growing import GrowingDataSet, MessageClaim, counted
from converters.streams.message import Message, Stream, StreamError, bytes_of
from tfpipe import cli
from tfpipe.cli import output
from tfpipe.cli.signals import terminated_as_interrupted
from tfpipe.errors import count_of
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shards.index import Index
from tfpipe.shards.split_names import SPLITS, TRAIN

_COMMAND = "converters.stream"
_SCHEMA_VERSION = 1
_BROKERS = {"redis": 6379, "nats": 4222, "kafka": 9092}
_CHUNK = 100  # messages that are asked for at once
_FIRST_WAIT, _MOST_WAIT = 0.2, 5.0  # seconds between tries of a broker that is away
_stream = cli.group(shared.INPUT)
_labels = cli.group(shared.LABELS)
_Answer = TypeVar("_Answer")


@cli.options
class StreamOptions:
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
    def broker(self) -> tuple[str, str, int, str] | None:
        """Kind, host, port and stream of a broker; None for a watched folder."""
        scheme, separator, rest = self.source.partition("://")
        if not separator or scheme not in _BROKERS:
            shared.location_of("SOURCE", self.source)
            return None
        url = urllib.parse.urlsplit(f"//{rest}")
        name = url.path.strip("/")
        if "@" in url.netloc or not url.hostname or not name or "/" in name:
            raise ValueError(
                f"SOURCE must be {scheme}://HOST:PORT/STREAM without a password, which "
                "comes from the environment."
            )
        return scheme, url.hostname, url.port or _BROKERS[scheme], name

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
        )


def open_stream(options: StreamOptions, stored: set[str]) -> Stream:
    """Opens the source; a broker is asked at the first read.

    Raises:
        ValueError: If the client of the broker is not installed.
    """
    if options.broker is None:
        return FolderStream(shared.location_of("SOURCE", options.source), stored)
    kind, host, port, name = options.broker
    settings: dict[str, Any] = {"host": host, "port": port, "name": name}
    settings |= {"group": options.group, "takeover_seconds": options.takeover_seconds}
    # The clients of brokers are optional packages.
    try:
        if kind == "redis":
            from converters.streams.redis_stream import RedisStream

            return RedisStream(worker=options.worker_name, **settings)
        if kind == "nats":
            from converters.streams.nats_stream import NatsStream

            return NatsStream(**settings)
        from converters.streams.kafka_stream import KafkaStream

        return KafkaStream(**settings)
    except ImportError as error:
        raise ValueError(
            f"{kind}:// needs a package: pip install 'tfpipe[{kind}]' ({error})."
        ) from error


class Worker:
    """Reads messages, writes generations, and counts.

    Args:
        options: The options.
        stream: The source of the messages; None opens the source of the options.
    """

    def __init__(self, options: StreamOptions, stream: Stream | None = None) -> None:
        classes: Sequence[str] = ()
        if options.label_map is not None:
            path = shared.path_of("--label_map", options.label_map)
            classes = list(read_label_map(path, 1))
        self.options = options
        self.data = GrowingDataSet(Files(options.output), options.worker_name, classes)
        if not self.data.classes and options.new_class != "append":
            raise ValueError(
                "--new_class=append or --label_map is needed for the first generation."
            )
        self.stream = stream or open_stream(options, self.data.stored)
        self.root = (
            None
            if options.root is None
            else Files(shared.location_of("--root", options.root))
        )
        folder = (
            options.output.path
            if options.output.is_local
            else (options.conversion(".").local_dir)
        )
        self.spool = folder / "generations" / f".spool-{options.worker_name}"
        self.counts: dict[str, int] = dict.fromkeys(
            (
                "num_messages",
                "num_records",
                "num_duplicates",
                "num_generations",
                "num_bad_messages",
                "num_of_new_classes",
            ),
            0,
        )
        self.decisions: dict[str, int] = {}
        self._last_message = time.monotonic()

    def count(self, **more: int) -> None:
        self.counts = counted(self.counts, more)

    def patiently(self, ask: Callable[[], _Answer]) -> _Answer:
        """Asks the broker, and again while it does not answer."""
        end, wait = time.monotonic() + self.options.patience, _FIRST_WAIT
        while True:
            try:
                return ask()
            except StreamError as error:
                if time.monotonic() + wait > end:
                    raise
                output.tell(f"{error}; asking again")
                time.sleep(wait)
                wait = min(2 * wait, _MOST_WAIT)

    def loop(self) -> None:
        """Completes the claims of an earlier run, then stores what arrives."""
        for claim in self.data.unfinished():
            batch, positions = Batch(self.spool), [p for p, _ in claim.messages]
            again = self.patiently(functools.partial(self.stream.fetch, positions))
            done = [m.position for m in again if not self._take(batch, m)]
            if list(batch.messages) == [id for _, id in claim.messages]:
                self._store(batch, claim)
            else:
                self.data.give_up(claim)
                self._store(batch, None)
            self._acknowledge(done)
        while not self._is_idle():
            batch = Batch(self.spool)
            done = self._collect(batch)
            self._store(batch, None)
            self._acknowledge(done)

    def _is_idle(self) -> bool:
        limit = self.options.until_idle
        return limit is not None and time.monotonic() - self._last_message > limit

    def _collect(self, batch: Batch) -> list[str]:
        """Fills a batch; returns the positions of messages that are not stored."""
        options, end = self.options, 0.0
        done: list[str] = []
        while (
            (room := options.max_records - len(batch.messages)) > 0
            and batch.num_bytes < options.max_mb << 20
            and not self._is_idle()
        ):
            wait = min(1.0, end - time.monotonic()) if end else 1.0
            if wait <= 0 or len(done) > options.max_records:
                break
            for message in self.patiently(
                functools.partial(self.stream.read, min(room, _CHUNK), wait)
            ):
                end = end or time.monotonic() + options.max_seconds
                self._last_message = time.monotonic()
                if not self._take(batch, message):
                    done.append(message.position)
        return done

    def _take(self, batch: Batch, message: Message) -> bool:
        """Adds a message to a batch, unless there is a reason not to."""
        options, earlier = self.options, batch.messages.get(message.id)
        self.count(num_messages=1)
        if earlier is not None and earlier.position == message.position:
            return True  # the broker gave it twice
        if earlier is not None or message.id in self.data.stored:
            self.count(num_duplicates=1)
            return False
        if message.fault:
            return self._refuse(message, options.bad_message, "num_bad_messages")
        if message.label not in self.data.classes and options.new_class != "append":
            fault = f"the class {message.label!r} is new, see --new_class"
            message = dataclasses.replace(message, fault=fault)
            return self._refuse(message, options.new_class, "num_of_new_classes")
        batch.add(message, bytes_of(message, self.root))
        return True

    def _refuse(self, message: Message, choice: str, counter: str) -> bool:
        text = f"Message {message.id!r} at {message.position}: {message.fault}"
        if choice == "fail":
            raise ValueError(f"{text}. Mend the producer, or skip such messages.")
        print(text, file=sys.stderr)
        self.count(**{counter: 1})
        return False

    def _store(self, batch: Batch, claim: MessageClaim | None) -> None:
        """Publishes a batch as a generation, and acknowledges its messages."""
        data = self.data
        while batch.messages:
            messages = list(batch.messages.values())
            pairs = [(each.position, each.id) for each in messages]
            claim = data.claim(pairs) if claim is None else claim
            whole = data.complete(claim)
            if whole is None or not data.fits(whole):
                whole = self._convert(batch, claim, overwrite=whole is not None)
            if data.publish(claim.folder, whole):
                self.count(
                    num_generations=1,
                    num_records=sum(map(whole.num_records, whole.splits)),
                )
                self.decisions = counted(self.decisions, whole.made_by["decisions"])
                data.refresh()
                self._acknowledge([position for position, _ in pairs])
                output.tell(
                    f"{claim.folder}: generation {len(data.log)}, {len(pairs)} messages"
                )
                return
            data.refresh()
            # Another worker may have stored some of the messages.
            if theirs := batch.without(data.stored):
                self.count(num_duplicates=len(theirs))
                self._acknowledge([each.position for each in theirs])
                data.give_up(claim)
                claim = None

    def _convert(self, batch: Batch, claim: MessageClaim, *, overwrite: bool) -> Index:
        """Writes the shards of a claim, as a usual conversion."""
        labels = self.data.labels
        for each in batch.messages.values():
            labels.setdefault(each.label, self.data.label_base + len(labels))
        reader = BatchReader(
            path=self.spool / batch.path.name,
            messages=list(batch.messages.values()),
            labels=labels,
            split=self.options.split,
        )
        options = dataclasses.replace(
            self.options.conversion(claim.folder), overwrite=overwrite
        )
        steps.convert(_COMMAND, options, reader)
        return self.data.index_of(claim.folder)

    def _acknowledge(self, positions: Sequence[str]) -> None:
        if positions:
            self.patiently(lambda: self.stream.acknowledge(positions))


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
        worker.stream.close()
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
