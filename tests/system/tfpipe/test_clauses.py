"""Random WHERE clauses: a view delivers what is found by reading all records."""

import dataclasses
import functools
import itertools
import pathlib
from typing import Any

import duckdb
import hypothesis
import pytest
import xxhash
from hypothesis import strategies as st

import tfpipe
from converters.catalog import question
from converters.catalog.question import Question
from converters.exports.source import Source, open_source
from tests.support.data import conversions
from tests.support.data.clauses import Clause, Columns, Row, clauses
from tests.support.data.tables import config
from tests.support.data.trees import make_jpeg
from tests.support.faults.torture import rounds
from tfpipe.location.location import Location
from tfpipe.shards import index, records, subset
from tfpipe.shards.example import decode_example

NUM_IMAGES = 40
# In names of classes, of images and of cameras: what SQL and LIKE take for their own.
WORDS = ("it's", "50%", "a_b", "Ä b", 'say "x"', "back\\slash", "two\nlines", "--")
EXTRAS = ("votes", "score", "camera", "marks", "box")
COLUMNS = Columns(
    numbers=[
        *("shard", "record", "byte_offset", "num_bytes", "label"),
        *("height", "width", "votes", "score"),
    ],
    texts=["split", "synset", "class", "text", "filename", "digest", "camera"],
    lists=["labels", "marks"],
    boxes=["box"],
)


def _write_table(path: pathlib.Path) -> None:
    """Writes a table with values of each kind, and NULL in every fourth or so."""

    def unless(is_null: bool, value: Any) -> Any:
        return None if is_null else value

    rows = []
    for n in range(NUM_IMAGES):
        image = make_jpeg(n, height=30 + n % 5, width=30 + n % 7)
        word = WORDS[n % len(WORDS)]
        labels = [word, *WORDS[n % 3 : n % 3 + n % 2]]
        split = ("train", "train", "validation")[n % 3]
        extras = (
            unless(n % 4 == 0, n % 6),
            unless(n % 5 == 1, n / 8),
            unless(n % 4 == 2, WORDS[n // 2 % len(WORDS)]),
            unless(n % 3 == 1, [n % 5, n % 2][: 1 + n % 2]),
            unless(n % 3 == 2, [n % 2 / 4, 0.25, 0.5 + n % 4 / 8, 0.75]),
        )
        rows.append([image, labels, f"{word} {n}.jpg", split, *extras])
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t (img BLOB, label VARCHAR[], name VARCHAR, fold VARCHAR, "
            "votes INTEGER, score DOUBLE, camera VARCHAR, marks INTEGER[], "
            "box DOUBLE[])"
        )
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO t VALUES ({marks})", rows)
        connection.execute(f"COPY t TO '{path}' (FORMAT parquet)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A data set with extra columns, which its records have too."""
    folder = tmp_path_factory.mktemp("clauses")
    _write_table(folder / "t.parquet")
    conversions.convert(
        config(
            folder / "set",
            input=str(folder / "t.parquet"),
            image_column="img",
            name_column="name",
            split_column="fold",
            extra_columns=EXTRAS,
            extra_in_records=True,
            num_train_shards=3,
            num_validation_shards=2,
        )
    )
    return folder


@pytest.fixture(scope="module")
def everything(folder: pathlib.Path) -> list[Row]:
    """A row for each record, from the bytes of the shards alone."""
    known = index.load(folder / "set")
    return [
        row
        for split, shards in known.splits.items()
        for row in _rows(split, [folder / "set" / shard.name for shard in shards])
    ]


def _rows(split: str, shards: list[pathlib.Path]) -> list[Row]:
    rows: list[Row] = []
    for number, path in enumerate(shards):
        for place, record in enumerate(records.read(path)):
            rows.append(
                {
                    "split": split,
                    "shard": number,
                    "record": place,
                    "record_id": len(rows),
                    "byte_offset": record.byte_offset,
                    "num_bytes": len(record.data) + 16,
                    "data": record.data,
                    **_fields(record.data),
                }
            )
    return rows


def _fields(data: bytes) -> dict[str, Any]:
    """Returns the columns that are features of the record; NULL has no value there."""
    values = {key: list(one.values) for key, one in decode_example(data).items()}

    def one(key: str) -> Any:
        (value,) = values[key] or [None]
        return value.decode() if isinstance(value, bytes) else value

    synset = one("image/class/synset")
    return {
        "label": one("image/class/label"),
        "synset": synset,
        "class": synset,
        "text": one("image/class/text"),
        "height": one("image/height"),
        "width": one("image/width"),
        "filename": one("image/filename"),
        "digest": xxhash.xxh3_128_hexdigest(values["image/encoded"][0]),
        "labels": values["image/class/labels"],
        "votes": one("extra/votes"),
        "score": one("extra/score"),
        "camera": one("extra/camera"),
        "marks": values["extra/marks"] or None,
        "box": values["extra/box"] or None,
    }


Element = tuple[int, bytes]


@dataclasses.dataclass
class Asked:
    """A clause that was asked, and the elements that its view must deliver."""

    text: str
    source: tfpipe.TFRecordSource
    wanted: list[Element]


def test_a_view_of_a_random_clause_delivers_what_reading_everything_finds(
    folder: pathlib.Path, everything: list[Row]
) -> None:
    known = open_source(Location(str(folder / "set")), folder, ())
    asked: list[Asked] = []
    sizes: list[int] = []

    @hypothesis.settings(
        max_examples=rounds(few=40, many=300),
        deadline=None,
        derandomize=True,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],  # of a busy host
    )
    @hypothesis.given(
        clauses(COLUMNS, everything),
        st.sampled_from(["none", "none", "window", "full"]),
        st.sampled_from(["train", "validation"]),
    )
    def check(clause: Clause, shuffle: str, split: str) -> None:
        wanted = [row for row in everything if clause.of(row) is True]
        sizes.append(len(wanted))
        chosen = _ask(known, clause.text)
        places = [tuple(row[n] for n in ("split", "shard", "record")) for row in wanted]
        assert ([] if chosen is None else _places(chosen)) == places
        if chosen is None or split not in chosen.splits:
            return
        view: tfpipe.Subset | pathlib.Path = chosen
        if len(asked) % 10 == 0:  # writing and reading takes longer than the question
            view = folder / "subset.parquet"
            subset.write(chosen, view)
        source = tfpipe.TFRecordSource(
            folder / "set", split, subset=view, shuffle=shuffle, window_size=8
        )
        elements = [(r["record_id"], r["data"]) for r in wanted if r["split"] == split]
        asked.append(Asked(clause.text, source, elements))

    check()
    assert sum(0 < size < NUM_IMAGES for size in sizes) >= len(sizes) // 2
    in_order = [one for one in asked if one.source.shuffle == "none"]
    shuffled = [one for one in asked if one.source.shuffle != "none"]
    assert _delivered(in_order) == [(one.text, one.wanted) for one in in_order]
    found = [(text, sorted(elements)) for text, elements in _delivered(shuffled)]
    assert found == [(one.text, one.wanted) for one in shuffled]


def _ask(source: Source, clause: str) -> tfpipe.Subset | None:
    """Returns the subset that a clause chooses; None if it chooses no record."""
    query = "SELECT split, shard, record FROM chosen ORDER BY place"
    with question.ask(source, Question(clause=clause), num_threads=1) as rows:
        found = rows.execute(query).fetchnumpy()
    if not len(found["split"]):
        return None
    return subset.choose(found, source.known, query=clause)


def _places(chosen: tfpipe.Subset) -> list[tuple[str, int, int]]:
    return [
        (split, shard, record)
        for split, of in sorted(chosen.splits.items())
        for shard, record in zip(of.shard.tolist(), of.record.tolist(), strict=True)
    ]


def _delivered(asked: list[Asked]) -> list[tuple[str, list[Element]]]:
    """Returns what the sources deliver; one stage reads for all of them, one by one."""
    datasets = [one.source(tfpipe.State(), 1) for one in asked]
    windows = functools.reduce(lambda all, more: all.concatenate(more), datasets)
    elements = tfpipe.Interleave()(windows).as_numpy_iterator()
    read = [(int(one["record_id"]), one["record"]) for one in elements]
    assert len(read) == sum(one.source.order.num_records for one in asked)
    rest = iter(read)
    return [
        (one.text, list(itertools.islice(rest, one.source.order.num_records)))
        for one in asked
    ]
