"""Copies of a data set keep the columns beside the usual ones, and all labels."""

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from converters import query, replicate, verify
from converters.options.query import QueryOptions
from converters.options.replicate import ReplicateOptions
from tests.support.data.carried import COLUMNS, make_table
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.faults.damage import flip
from tfpipe.shards import index, records, subset
from tfpipe.shards.example import decode_example

pytestmark = needs_native

Rows = list[tuple[Any, ...]]
Make = Callable[[pathlib.Path, pathlib.Path], int]


def _replicate(**options: Any) -> Make:
    values = {"copies": 2, "num_workers": 1, "fsync": False} | options

    def make(source: pathlib.Path, out: pathlib.Path) -> int:
        config = ReplicateOptions(data_dir=str(source), output_dir=str(out), **values)
        replicate.make_copies(config)
        return config.wanted.copies or 1

    return make


def _query(**options: Any) -> Make:
    values = {"num_workers": 1, "fsync": False} | options

    def make(source: pathlib.Path, out: pathlib.Path) -> int:
        query.ask(QueryOptions(data_dir=str(source), materialize=str(out), **values))
        return 1

    return make


COPIES = {
    "distinct": _replicate(),
    "mirrored": _replicate(mirror=True),
    "enlarged": _replicate(enlarge=2.0, copies=None),
    "links": _replicate(identical=True),
    "bytes": _replicate(identical=True, identical_by="copy"),
    "chosen": _query(),
}
every_copy = pytest.mark.parametrize("make", COPIES.values(), ids=COPIES.keys())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return make_table(tmp_path_factory.mktemp("source"), extra_in_records=True)


def _rows(data_dir: pathlib.Path, where: str = "true") -> Rows:
    query = (
        f"SELECT split, filename, label, labels, {COLUMNS} FROM read_parquet(?) "
        f"WHERE {where} ORDER BY ALL"
    )
    return index.query_catalog(data_dir, query, [])


def _features(data_dir: pathlib.Path) -> list[tuple[object, ...]]:
    """Returns the further features of each record, in the order of the catalog."""
    return [
        tuple(
            (key, tuple(feature.values))
            for key, feature in decode_example(record.data).items()
            if key.startswith("extra/") or key == "image/class/labels"
        )
        for shards in index.load(data_dir).splits.values()
        for shard in shards
        for record in records.read(data_dir / shard.name)
    ]


@every_copy
def test_copies_keep_columns_labels_and_features(
    make: Make, source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    copies = make(source, tmp_path / "out")
    again = make(tmp_path / "out", tmp_path / "again")

    assert _rows(tmp_path / "out") == sorted(copies * _rows(source), key=_nulls_last)
    assert len(_rows(tmp_path / "again")) == copies * again * len(_rows(source))
    assert sorted(_features(tmp_path / "out")) == sorted(copies * _features(source))
    for folder in (tmp_path / "out", tmp_path / "again"):
        config = verify.VerifyOptions(data_dir=str(folder), num_workers=1)
        assert verify.verify(config).faults == []


def _nulls_last(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the key of a row by which DuckDB sorts: NULL is last."""
    return tuple((value is None, value) for value in row)


@every_copy
def test_a_subset_of_a_copy_is_chosen_by_these_columns(
    make: Make, source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    make(source, tmp_path / "out")
    saved = tmp_path / "s.parquet"
    clause = "score > 1 AND list_contains(labels, 1)"

    query.ask(
        QueryOptions(data_dir=str(tmp_path / "out"), clause=clause, save=str(saved))
    )

    chosen = sum(map(len, subset.read(saved).splits.values()))
    assert chosen == len(_rows(tmp_path / "out", clause)) > 0


def test_columns_stay_with_their_records_where_a_damaged_record_is_left_out(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "damaged"
    _replicate(identical=True, identical_by="copy", copies=1)(source, folder)
    query = "SELECT byte_offset, filename FROM read_parquet(?) WHERE split = 'train'"
    ((start, name),) = index.query_catalog(
        folder, f"{query} AND shard = 0 AND record = 0", []
    )
    flip(folder / index.load(folder).splits["train"][0].name, start + 100, mask=1)

    _replicate(damaged="skip", copies=1)(folder, tmp_path / "out")

    kept = [row for row in _rows(source) if row[1] != name]
    assert _rows(tmp_path / "out") == kept
