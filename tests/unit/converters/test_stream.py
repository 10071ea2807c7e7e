"""Streams into a growing data set: order, duplicates, classes, claims, two workers."""

import contextlib
import json
import pathlib
import types
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import xxhash

from converters import stream, verify
from converters.stream import StreamOptions, Worker
from converters.streams import lease
from converters.streams.batch import Batch
from converters.streams.folder import FolderStream
from converters.streams.growing import GrowingDataSet
from converters.streams.lease import WriterLease
from converters.streams.message import Message, Stream, message_of
from tests.support.data.trees import digests, make_jpeg
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shards import generations, index


class Ended(BaseException):
    """The broker of a test has no more messages."""


class Broker:
    """Messages in memory; each is given again until it is acknowledged."""

    errors: tuple[type[Exception], ...] = (ConnectionError,)

    def __init__(
        self, messages: Sequence[Message], *, fails_at: int = -1, refuses: str = ""
    ) -> None:
        self.messages = {each.position: each for each in messages}
        self.acknowledged: list[str] = []
        self.given: set[str] = set()
        self.calls, self.fails_at, self.refuses = 0, fails_at, refuses

    def read(self, count: int, seconds: float) -> list[Message]:
        self.calls += 1
        if self.calls == self.fails_at:
            raise ConnectionError("no answer")
        left = [p for p in self.messages if p not in self.given | {*self.acknowledged}]
        if not left:
            raise Ended
        self.given.update(left[:count])
        return [self.messages[position] for position in left[:count]]

    def refusal(self, error: Exception) -> str:
        return self.refuses

    def acknowledge(self, positions: Sequence[str]) -> None:
        self.acknowledged += positions

    def close(self) -> None:
        self.given.clear()


def _message(
    number: int, *, id: str = "", image: bytes | None = None, **fields: str
) -> Message:
    named = {"label": "a", "id": id or f"m{number}", "name": f"{number}.jpg"}
    encoded = {name: value.encode() for name, value in (named | fields).items()}
    content = make_jpeg(number) if image is None else image
    return message_of(f"p{number}", encoded, content)


def _options(tmp_path: pathlib.Path, **options: Any) -> StreamOptions:
    values: dict[str, Any] = {"num_workers": 1, "fsync": False, "max_records": 4}
    values |= {"source": str(tmp_path), "output_dir": str(tmp_path / "set")}
    return StreamOptions(**values | {"worker": "w", "patience": 0.0} | options)


def _run(broker: Stream, options: StreamOptions) -> Worker:
    with contextlib.closing(Worker(options, broker)) as worker, pytest.raises(Ended):
        worker.loop()
    return worker


def _stored(folder: pathlib.Path) -> list[tuple[str, str, int]]:
    """Returns folder, file name and label of each record."""
    rows = []
    for part in sorted(folder.glob("gen-*")):
        columns = index.load_catalog(part, "train", ["filename", "label"])
        rows += [
            (part.name, str(name), int(label))
            for name, label in zip(columns["filename"], columns["label"], strict=True)
        ]
    return rows


def test_messages_become_generations(tmp_path: pathlib.Path) -> None:
    broker = Broker([_message(n) for n in range(8)])

    worker = _run(broker, _options(tmp_path))

    rows = _stored(tmp_path / "set")
    assert sorted(name for _, name, _ in rows) == [f"{n}.jpg" for n in range(8)]
    assert [folder for folder, *_ in rows] == ["gen-000001"] * 4 + ["gen-000002"] * 4
    assert sorted(broker.acknowledged) == [f"p{n}" for n in range(8)]
    assert worker.counts["num_records"] == 8
    claim = tmp_path / "set" / "generations" / "gen-000002.messages.json"
    assert json.loads(claim.read_bytes())["messages"] == [f"m{n}" for n in range(4, 8)]


def test_duplicates_are_dropped_and_counted(tmp_path: pathlib.Path) -> None:
    messages = [_message(n, id=f"m{n % 4}") for n in range(8)]
    messages.insert(2, _message(9, id="m0"))
    worker = _run(
        Broker([*messages, *[_message(n) for n in (10, 11, 12, 13)]]),
        _options(tmp_path),
    )

    assert worker.counts["num_duplicates"] == 5
    assert len(_stored(tmp_path / "set")) == 8


CUTS = ["claim", "convert", "publish", "acknowledge"]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("is_after", [False, True])
def test_a_worker_goes_on_after_a_cut(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, cut: str, is_after: bool
) -> None:
    """Each message is stored once, wherever the worker was cut off."""
    broker = Broker([_message(n, label="ab"[n % 2]) for n in range(8)])
    owner, name = {
        "claim": (stream.GrowingDataSet, "claim"),
        "convert": (stream.steps, "convert"),
        "publish": (stream.GrowingDataSet, "publish"),
        "acknowledge": (Broker, "acknowledge"),
    }[cut]
    whole = getattr(owner, name)

    def cut_off(*args: Any, **kwargs: Any) -> None:
        if is_after:
            whole(*args, **kwargs)
        raise Ended

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, cut_off)
        _run(broker, _options(tmp_path))
    _run(broker, _options(tmp_path))

    rows = _stored(tmp_path / "set")
    assert sorted(name for _, name, _ in rows) == [f"{n}.jpg" for n in range(8)]
    assert {*broker.acknowledged} == {f"p{n}" for n in range(8)}
    log = generations.read_log(generations.Files(str(tmp_path / "set")))
    assert {part.name for (part,) in log} == {folder for folder, *_ in rows}


def test_two_workers_with_the_same_messages_store_them_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker publishes the same and other messages in the meantime."""
    mine = Broker([_message(n) for n in range(4)])
    theirs = Broker([_message(n, label="b") for n in (2, 3, 4, 5)])
    publish = stream.GrowingDataSet.publish

    def slow(self: stream.GrowingDataSet, *args: Any) -> bool:
        monkeypatch.setattr(stream.GrowingDataSet, "publish", publish)
        _run(theirs, _options(tmp_path, worker="other"))
        return publish(self, *args)

    monkeypatch.setattr(stream.GrowingDataSet, "publish", slow)
    worker = _run(mine, _options(tmp_path))

    rows = _stored(tmp_path / "set")
    assert sorted(name for _, name, _ in rows) == [f"{n}.jpg" for n in range(6)]
    # The class b was first: the other worker published first.
    assert {(name, label) for _, name, label in rows} == {
        *((f"{n}.jpg", 2) for n in (0, 1)),
        *((f"{n}.jpg", 1) for n in (2, 3, 4, 5)),
    }
    assert worker.counts["num_duplicates"] == 2
    assert {*mine.acknowledged} == {"p0", "p1", "p2", "p3"}


@pytest.mark.parametrize(("choice", "num_records"), [("append", 8), ("skip", 6)])
def test_new_classes(tmp_path: pathlib.Path, choice: str, num_records: int) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("1 z\n2 a\n")
    broker = Broker(
        [_message(n, label="new" if n in (1, 5) else "a") for n in range(8)]
    )
    options = _options(tmp_path, new_class=choice, label_map=str(labels))

    _run(broker, options)
    if choice == "skip":  # the last messages fill no generation
        broker.messages |= {m.position: m for m in map(_message, (8, 9))}
        _run(broker, options)

    rows = {name: label for _, name, label in _stored(tmp_path / "set")}
    assert rows.get("1.jpg") == (3 if choice == "append" else None)
    assert rows["0.jpg"] == 2
    assert len(rows) >= num_records


@pytest.mark.parametrize(
    ("options", "message", "error"),
    [
        ({"new_class": "fail"}, _message(0, label="b"), "'m0' at p0: the class 'b' is"),
        ({}, _message(0, label=" "), "label must have 1 to"),
        ({}, _message(0, label="a\nb"), "label must be one line"),
        ({}, _message(0, image=b""), "either the bytes of an image or a location"),
        ({}, _message(0, location="x"), "either the bytes of an image or a location"),
        ({}, _message(0, image=b"", location="x"), "--root must say"),
        ({"root": "."}, _message(0, image=b"", location="x"), "x failed: No such file"),
        ({"root": "."}, _message(0, image=b"", location="../x"), "stay below the fold"),
    ],
)
def test_messages_that_end_the_command(
    tmp_path: pathlib.Path, options: dict[str, Any], message: Message, error: str
) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("a\n")
    chosen = _options(tmp_path, label_map=str(labels), **options)
    worker = Worker(chosen, Broker([message]))
    with contextlib.closing(worker), pytest.raises(ValueError, match=error):
        worker.loop()


def test_new_class_needs_classes(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="--label_map is needed for the first"):
        Worker(_options(tmp_path, new_class="fail"), Broker([]))


POISON = {
    "empty": _message(9, image=b""),
    "text": _message(9, image=b"no image"),
    "cut": _message(9, image=make_jpeg(9)[:200]),
    "huge": _message(9, image=bytes(100 << 20)),
    "no label": _message(9, label=" "),
    "no file": _message(9, image=b"", location="lost.jpg"),
}


@pytest.mark.parametrize("kind", POISON)
@pytest.mark.parametrize("num_sound", [0, 3])
def test_poison_is_skipped_counted_and_acknowledged(
    tmp_path: pathlib.Path, kind: str, num_sound: int
) -> None:
    """Also a generation without any image goes on, and the poison never comes back."""
    broker = Broker([POISON[kind], *(_message(n) for n in range(num_sound))])
    options = _options(
        tmp_path,
        bad_message="skip",
        max_seconds=1e-6,  # a generation of each answer of the broker
        root=str(tmp_path),
    )

    worker = _run(broker, options)

    skipped = worker.counts["num_bad_messages"] + sum(
        count for name, count in worker.decisions.items() if "skipped" in name
    )
    assert skipped == 1
    assert "p9" in broker.acknowledged
    assert len(_stored(tmp_path / "set")) == num_sound
    again = Broker([POISON[kind]])
    assert _run(again, options).counts["num_records"] == 0


def test_the_first_message_of_an_id_counts(tmp_path: pathlib.Path) -> None:
    broker = Broker([_message(0), _message(5, id="m0", label="b"), _message(1)])

    worker = _run(broker, _options(tmp_path, max_records=2))

    assert worker.counts["num_duplicates"] == 1
    rows = index.load_catalog(tmp_path / "set/gen-000001", "train", ["digest"])
    wanted = [xxhash.xxh3_128_hexdigest(make_jpeg(n)) for n in (0, 1)]
    assert sorted(rows["digest"]) == sorted(wanted)


def test_a_location_is_read_below_the_root(tmp_path: pathlib.Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "x.jpg").write_bytes(make_jpeg(1))
    message = _message(0, image=b"", location="x.jpg")

    options = _options(tmp_path, root=str(tmp_path / "raw"), max_records=1)
    _run(Broker([message]), options)

    assert [name for _, name, _ in _stored(tmp_path / "set")] == ["0.jpg"]


def test_a_worker_has_its_name_for_itself(tmp_path: pathlib.Path) -> None:
    worker = Worker(_options(tmp_path), Broker([]))
    with (
        contextlib.closing(worker),
        pytest.raises(ValueError, match="--worker=w runs"),
    ):
        Worker(_options(tmp_path), Broker([]))
    Worker(_options(tmp_path), Broker([])).close()


def test_images_fill_a_generation(tmp_path: pathlib.Path) -> None:
    """Back-pressure: a batch takes no more messages than its bytes allow."""
    broker = Broker([_message(n, image=bytes(1 << 20)) for n in range(40)])
    options = _options(tmp_path, max_records=100, max_mb=8)
    worker, batch = Worker(options, broker), Batch(tmp_path, "train")
    with contextlib.closing(worker):
        worker._collect(batch)
    assert len(batch.images) == 8


def test_a_broker_that_stays_away_is_an_error(tmp_path: pathlib.Path) -> None:
    broker = Broker([_message(n) for n in range(8)], fails_at=1)
    with pytest.raises(errors.RemoteError, match="does not answer: no answer"):
        Worker(_options(tmp_path), broker).loop()
    broker = Broker([], fails_at=1, refuses="No such topic.")
    with pytest.raises(errors.RefusedError, match="No such topic"):
        Worker(_options(tmp_path, worker="v", patience=60.0), broker).loop()


@pytest.mark.parametrize(
    ("source", "broker"),
    [
        ("redis://h/s", ("h", 6379, "s")),
        ("nats://h:1/s", ("h", 1, "s")),
        ("kafka://h/t", ("h", 9092, "t")),
        ("/in", None),
        ("s3://bucket/in", None),
    ],
)
def test_sources(tmp_path: pathlib.Path, source: str, broker: object) -> None:
    options = _options(tmp_path, source=source).broker
    assert (options and (options.host, options.port, options.name)) == broker


@pytest.mark.parametrize("source", ["redis://h", "redis://u:p@h/s", "nats://h/a/b"])
def test_bad_urls_are_refused(tmp_path: pathlib.Path, source: str) -> None:
    with pytest.raises(ValueError, match="without a password"):
        _options(tmp_path, source=source)


class SlowGroup(Broker):
    """A broker whose group deals partitions 30 seconds after a worker asks."""

    def __init__(self, messages: Sequence[Message], sleep: Callable[[float], None]):
        super().__init__(messages)
        self.sleep = sleep

    def read(self, count: int, seconds: float) -> list[Message]:
        if self.calls == 0:
            self.calls += 1
            self.sleep(30.0)
            return []
        try:
            return super().read(count, seconds)
        except Ended:
            self.sleep(seconds)
            return []


def test_to_join_a_group_is_not_to_be_idle(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(
        stream, "time", types.SimpleNamespace(monotonic=lambda: clock[0])
    )

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    broker = SlowGroup([_message(n) for n in range(4)], sleep)
    worker = Worker(_options(tmp_path, until_idle=15.0), broker)
    worker.loop()
    worker.close()

    assert len(broker.acknowledged) == 4
    assert 45.0 < clock[0] < 50.0


def test_a_watched_folder(tmp_path: pathlib.Path) -> None:
    for name in ("a/1.jpg", "a/b/2.png", "a/.3.jpg", "a/notes.txt", "a/4.jpg"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    watched = FolderStream(Location(str(tmp_path)), {"a/4.jpg"})

    messages = watched.read(10, 0)

    assert [(m.id, m.label) for m in messages] == [
        ("a/1.jpg", "a"),
        ("a/b/2.png", "a/b"),
    ]
    assert watched.read(10, 0) == []


class Watched(FolderStream):
    """A folder that ends the worker where it has no new file."""

    def read(self, count: int, seconds: float) -> list[Message]:
        if not (messages := super().read(count, 0)):
            raise Ended
        return messages


def test_damaged_generations_of_a_folder_are_built_again(
    tmp_path: pathlib.Path,
) -> None:
    arriving, grown = tmp_path / "arriving", tmp_path / "set"
    for number in range(8):
        path = arriving / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(number))
    watched = Watched(Location(str(arriving)), set())
    _run(watched, _options(tmp_path, source=str(arriving)))
    whole = digests(grown)
    (grown / "gen-000001/train-00000-of-00001").write_bytes(b"cut")
    (grown / "gen-000002/train-00000-of-00001").unlink()
    (grown / "gen-000002/classes.tsv").write_bytes(b"")

    options = verify.VerifyOptions(
        data_dir=str(grown), num_workers=1, repair=True, input_dir=str(arriving)
    )
    assert verify.verify(options).num_faults == 0

    assert digests(grown) == whole


class Store:
    """Files in memory whose creates replace, as those of some stores do."""

    def __init__(self) -> None:
        self.location, self.content = Location("s3://bucket/set"), dict[str, bytes]()

    def read(self, name: str) -> bytes:
        if name not in self.content:
            raise errors.MissingFileError(f"{name} is missing")
        return self.content[name]

    def write(self, name: str, content: bytes) -> None:
        self.content[name] = content

    def delete(self, name: str) -> None:
        del self.content[name]


@pytest.mark.parametrize(
    ("other", "change", "is_taken"),
    [
        (None, None, True),
        (b"w 1 7\n", None, True),  # the same writer after a kill
        (b"v 1 7\n", None, True),  # another writer, which gave no sign of life
        (b"v 1 7\n", b"v 1 8\n", False),  # another writer that lives
        (None, b"v 2 1\n", False),  # another writer wrote last
    ],
)
def test_a_store_without_creates_has_one_writer(
    other: bytes | None, change: bytes | None, is_taken: bool
) -> None:
    store = Store()
    name = "generations/lease"
    if other is not None:
        store.content[name] = other

    def sleep(seconds: float) -> None:
        if change is not None:
            store.content[name] = change

    files: Any = store
    if not is_taken:
        with pytest.raises(errors.RefusedError, match=r"one writer at a time, .* is v"):
            WriterLease(files, "w", 600.0, sleep=sleep)
        return
    held = WriterLease(files, "w", 600.0, sleep=sleep)
    held.require()
    store.content[name] = b"v 1 1\n"
    with pytest.raises(errors.RefusedError, match="which is v now"):
        held.require()
    held.release()
    assert store.content == {name: b"v 1 1\n"}


def test_two_writers_with_a_lease(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without conditional creates a claim and an entry are as safe by the lease."""
    monkeypatch.setattr(GrowingDataSet, "_has_creates", lambda self: False)
    monkeypatch.setattr(lease, "_SETTLE_SECONDS", 0.0)
    broker = Broker([_message(n) for n in range(8)])
    files = Files(str(tmp_path / "set"))

    _run(broker, _options(tmp_path, takeover_seconds=1e-9))

    assert len(generations.read_log(files)) == 2
    assert not (tmp_path / "set/generations/lease").exists()
    first = GrowingDataSet(files, "w", lease_seconds=0.0)
    # The first gives no sign of life.
    second = GrowingDataSet(files, "v", lease_seconds=0.0)
    with pytest.raises(errors.RefusedError, match="which is v now"):
        first.claim(["m9"])
    assert second.claim(["m9"]) == "gen-000003"
