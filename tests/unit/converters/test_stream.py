"""Streams into a growing data set: order, duplicates, classes, claims, two workers."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import pytest

from converters import stream
from converters.stream import StreamOptions, Worker
from converters.streams.folder import FolderStream
from converters.streams.message import Message, StreamError, message_of
from tests.support.data.trees import make_jpeg
from tfpipe.location.location import Location
from tfpipe.shards import generations, index


class Ended(BaseException):
    """The broker of a test has no more messages."""


class Broker:
    """Messages in memory; each is given again until it is acknowledged."""

    def __init__(self, messages: Sequence[Message], *, fails_at: int = -1) -> None:
        self.messages = {each.position: each for each in messages}
        self.acknowledged: list[str] = []
        self.given: set[str] = set()
        self.calls, self.fails_at = 0, fails_at

    def read(self, count: int, seconds: float) -> list[Message]:
        self.calls += 1
        if self.calls == self.fails_at:
            raise StreamError("no answer")
        left = [p for p in self.messages if p not in self.given | {*self.acknowledged}]
        if not left:
            raise Ended
        self.given.update(left[:count])
        return [self.messages[position] for position in left[:count]]

    def fetch(self, positions: Sequence[str]) -> list[Message]:
        return [self.messages[p] for p in positions if p in self.messages]

    def acknowledge(self, positions: Sequence[str]) -> None:
        self.acknowledged += positions

    def close(self) -> None:
        self.given.clear()


def _message(number: int, *, label: str = "a", id: str = "", **fields: str) -> Message:
    named = {"label": label, "id": id or f"m{number}", "name": f"{number}.jpg"}
    encoded = {name: value.encode() for name, value in (named | fields).items()}
    return message_of(f"p{number}", encoded, make_jpeg(number))


def _options(tmp_path: pathlib.Path, **options: Any) -> StreamOptions:
    values: dict[str, Any] = {"num_workers": 1, "fsync": False, "max_records": 4}
    values |= {"source": str(tmp_path), "output_dir": str(tmp_path / "set")}
    return StreamOptions(**values | {"worker": "w", "patience": 0.0} | options)


def _run(broker: Broker, options: StreamOptions) -> Worker:
    worker = Worker(options, broker)
    with pytest.raises(Ended):
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
    assert json.loads(claim.read_bytes())["messages"] == [
        [f"p{n}", f"m{n}"] for n in range(4, 8)
    ]


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
    broker.given.clear()
    _run(broker, _options(tmp_path))

    rows = _stored(tmp_path / "set")
    assert sorted(name for _, name, _ in rows) == [f"{n}.jpg" for n in range(8)]
    assert {*broker.acknowledged} == {f"p{n}" for n in range(8)}
    log = generations.read_log(generations.Files(str(tmp_path / "set")))
    assert {entry.folder for entry in log} == {folder for folder, *_ in rows}


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
        broker.given.clear()
        broker.messages |= {m.position: m for m in map(_message, (8, 9))}
        _run(broker, options)

    rows = {name: label for _, name, label in _stored(tmp_path / "set")}
    assert rows.get("1.jpg") == (3 if choice == "append" else None)
    assert rows["0.jpg"] == 2
    assert len(rows) >= num_records


def test_a_new_class_and_a_bad_message_can_be_errors(tmp_path: pathlib.Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("a\n")
    options = _options(tmp_path, new_class="fail", label_map=str(labels))
    with pytest.raises(ValueError, match=r"'m0' at p0: the class 'b' is new"):
        Worker(options, Broker([_message(0, label="b")])).loop()
    with pytest.raises(ValueError, match="label must have 1 to"):
        Worker(_options(tmp_path), Broker([_message(0, label=" ")])).loop()
    with pytest.raises(ValueError, match="--label_map is needed for the first"):
        Worker(_options(tmp_path, new_class="fail"), Broker([]))


def test_bad_messages_are_skipped_and_acknowledged(tmp_path: pathlib.Path) -> None:
    bad = message_of("p9", {"label": b"a"}, b"")
    broker = Broker([bad, *(_message(n) for n in range(4))])

    worker = _run(broker, _options(tmp_path, bad_message="skip"))

    assert worker.counts["num_bad_messages"] == 1
    assert "p9" in broker.acknowledged or broker.given  # after the generation
    assert len(_stored(tmp_path / "set")) == 4


def test_a_location_is_read_below_the_root(tmp_path: pathlib.Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "x.jpg").write_bytes(make_jpeg(1))
    at = message_of("p0", {"label": b"a", "location": b"x.jpg"}, b"")
    with pytest.raises(ValueError, match="--root must say"):
        Worker(_options(tmp_path), Broker([at])).loop()
    outside = message_of("p0", {"label": b"a", "location": b"../set"}, b"")
    options = _options(tmp_path, root=str(tmp_path / "raw"), max_records=1)
    with pytest.raises(ValueError, match="must stay below the folder"):
        Worker(options, Broker([outside])).loop()

    _run(Broker([at]), options)

    assert [name for _, name, _ in _stored(tmp_path / "set")] == ["p0"]


def test_a_broker_that_stays_away_is_an_error(tmp_path: pathlib.Path) -> None:
    broker = Broker([_message(n) for n in range(8)], fails_at=1)
    with pytest.raises(StreamError, match="no answer"):
        Worker(_options(tmp_path), broker).loop()


@pytest.mark.parametrize(
    ("source", "broker"),
    [
        ("redis://h/s", ("redis", "h", 6379, "s")),
        ("nats://h:1/s", ("nats", "h", 1, "s")),
        ("kafka://h:2/t", ("kafka", "h", 2, "t")),
        ("/in", None),
        ("s3://bucket/in", None),
    ],
)
def test_sources(tmp_path: pathlib.Path, source: str, broker: object) -> None:
    assert _options(tmp_path, source=source).broker == broker


@pytest.mark.parametrize("source", ["redis://h", "redis://u:p@h/s", "nats://h/a/b"])
def test_bad_urls_are_refused(tmp_path: pathlib.Path, source: str) -> None:
    with pytest.raises(ValueError, match="without a password"):
        _options(tmp_path, source=source)


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
