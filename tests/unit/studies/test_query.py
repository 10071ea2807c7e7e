"""studies.query: its catalog is one that the command takes, and its gate."""

import pathlib

import duckdb
import pytest

from converters import query
from converters.options.own.query import Config
from studies.query import __main__ as study, catalog
from tfpipe.shards import index

NUM_RECORDS = 4000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("catalog's")
    catalog.make(folder, NUM_RECORDS)
    return folder


def test_catalog_has_the_columns_of_a_converter_and_fits_its_index(
    folder: pathlib.Path,
) -> None:
    known = index.load(folder)
    path = folder / index.CATALOG_NAME
    with duckdb.connect() as connection:
        rows = connection.read_parquet(str(path))
        kinds = dict(zip(rows.columns, map(str, rows.types), strict=True))
        places = rows.project("split, shard, record, byte_offset, num_bytes")
        found = places.fetchall()
        some = rows.aggregate(
            "count(DISTINCT filename), count(DISTINCT digest), mode(height), "
            "mode(width)"
        )
        values = some.fetchall()

    assert kinds == dict(index.CATALOG_COLUMNS)
    assert values == [(NUM_RECORDS, NUM_RECORDS, 375, 500)]
    expected = [
        (split, number, record)
        for split, shards in known.splits.items()
        for number, shard in enumerate(shards)
        for record in range(shard.num_records)
    ]
    assert [row[:3] for row in found] == expected
    ends = {row[:2]: row[3] + row[4] for row in found}
    sizes = [shard.num_bytes for shards in known.splits.values() for shard in shards]
    assert list(ends.values()) == sizes
    assert {s: known.num_records(s) for s in known.splits} == {
        "train": 3850,
        "validation": 150,
    }
    assert known.num_classes == 1000


def test_command_counts_what_the_study_expects(folder: pathlib.Path) -> None:
    known = index.load(folder)
    asked = study.clauses([known.classes[n][0] for n in (0, 151, 999)])

    counts = study._counts(folder, asked)

    for name, clause in asked.items():
        done = query.ask(Config(data_dir=str(folder), clause=clause, num_workers=1))
        assert done["num_chosen"] == counts[name]
    assert 0 < counts["classes"] < counts["names"] < counts["all"] == NUM_RECORDS


@pytest.mark.parametrize(("seconds", "code"), [([0.9, 5, 1.0], 0), ([0.9, 5, 1.1], 2)])
def test_gate_is_on_the_median_of_the_query(seconds: list[float], code: int) -> None:
    runs = [{"query": each, "query_cpu": 9, "total": 9, "start": 9} for each in seconds]
    fast = [{"query": 0.1, "query_cpu": 0, "total": 0, "start": 0}]
    row = {"num_chosen": 7, **study.spreads(runs)}

    figures = {study.GATED: row, "all": row | study.spreads(fast)}

    assert study.exit_code(figures) == code
    assert study.spreads(runs)["query"] == {
        "median": seconds[2],
        "min": 0.9,
        "max": 5,
    }
    assert f"{seconds[2]:.3f} s" in study.table(figures)
