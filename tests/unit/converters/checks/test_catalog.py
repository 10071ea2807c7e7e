"""converters.checks.catalog: the catalog's columns and rows against the index."""

import os
import pathlib
import shutil
from collections.abc import Callable

import pytest

from converters import verify
from tests.support.data.trees import forget_digests
from tfpipe import errors
from tfpipe.shards import catalog as stored, index
from tfpipe.shards.sql import quoted

SHARD = "train-00001-of-00003"
COLUMNS = list(index.CATALOG_COLUMNS)
HERE = "split = 'train' AND shard = 1 AND record = 2"


@pytest.fixture
def copy(data_dir: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the data set whose index has no digest of the catalog."""
    folder = pathlib.Path(shutil.copytree(data_dir, tmp_path / "copy"))
    forget_digests(folder)
    return folder


def edit(data_dir: pathlib.Path, query: str) -> None:
    """Replaces the catalog with the result of a query of the table `old`."""
    path = str(data_dir / index.CATALOG_NAME)
    with index.catalog_connection() as connection:
        connection.execute("CREATE TEMP TABLE old AS FROM read_parquet(?)", [path])
        connection.execute(f"COPY ({query}) TO {quoted(path)} (FORMAT parquet)")


def replaced(column: str, value: str, where: str = HERE) -> str:
    """Returns a query that sets another value of a column in some rows."""
    cases = f"CASE WHEN {where} THEN {value} ELSE {column} END AS {column}"
    return f"SELECT * REPLACE ({cases}) FROM old"


def catalog_faults(data_dir: pathlib.Path, level: str = "quick") -> list[str]:
    config = verify.VerifyOptions(data_dir=str(data_dir), level=level, num_workers=1)
    found = verify.verify(config).faults
    return [fault.fault for fault in found if fault.shard == index.CATALOG_NAME]


@pytest.mark.parametrize("level", ["quick", "schema"])
def test_a_sound_catalog_has_no_fault(copy: pathlib.Path, level: str) -> None:
    assert catalog_faults(copy, level) == []


def _other_type(column: str) -> str:
    return "VARCHAR" if index.CATALOG_COLUMNS[column] != "VARCHAR" else "BLOB"


def _all_columns(template: str) -> str:
    """The template for each column, separated by commas."""
    return ", ".join(
        template.format(column=column, other=_other_type(column)) for column in COLUMNS
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            f"SELECT {_all_columns('{column} AS other_{column}')} FROM old",
            "must have a column {column}, got",
        ),
        (
            f"SELECT {_all_columns('{column}::{other} AS {column}')} FROM old",
            "column {column} must be {kind}, got {other}",
        ),
        (
            # One more row, with no value in any column.
            "SELECT * FROM old UNION ALL BY NAME SELECT NULL AS split",
            "column {column} must have a value in each row, got 1 empty",
        ),
    ],
    ids=["renamed", "of another type", "empty"],
)
def test_each_bad_column_is_one_fault(
    copy: pathlib.Path, query: str, expected: str
) -> None:
    edit(copy, query)

    faults = catalog_faults(copy, "schema")

    assert len(faults) == len(COLUMNS)
    for column, fault in zip(COLUMNS, faults, strict=True):
        kind, other = index.CATALOG_COLUMNS[column], _other_type(column)
        assert expected.format(column=column, kind=kind, other=other) in fault


def test_one_bad_column_is_the_only_fault(copy: pathlib.Path) -> None:
    """The values of the other columns are not compared then."""
    edit(copy, replaced("height", "NULL"))

    (fault,) = catalog_faults(copy, "schema")

    assert fault.startswith("column height must have a value in each row, got 1")


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("record", "3", f"record 2 of {SHARD} must have this number, got 3"),
        ("num_bytes", "num_bytes + 1", f"record 3 of {SHARD} must start at byte"),
        ("byte_offset", "byte_offset - 1", f"record 2 of {SHARD} must start at byte"),
        ("label", "0", "labels of split 'train' must be 1 to 1000, got 0"),
        ("label", "5", "the synset of label 5 must be"),
        ("synset", "'n00000000'", "must be 'n01440764' as the index says, got 'n000"),
        ("shard", "3", "the numbers of shards must be 0 to 2, got 1 other"),
        ("shard", "-1", "the numbers of shards must be 0 to 2, got 1 other"),
        ("shard", "0", "a row for each of the 8 records of train-00000-of-00003, got"),
        ("split", "'test'", "has 1 rows of split 'test', which is not in the index"),
    ],
)
def test_a_wrong_value_is_named(
    copy: pathlib.Path, column: str, value: str, expected: str
) -> None:
    edit(copy, replaced(column, value))

    assert expected in "\n".join(catalog_faults(copy))


def test_the_last_record_must_end_where_the_shard_does(copy: pathlib.Path) -> None:
    where = "split = 'train' AND shard = 1 AND record = 7"
    edit(copy, replaced("num_bytes", "num_bytes - 4", where))

    (fault,) = catalog_faults(copy)

    assert f"{SHARD} must end at byte" in fault


def test_schema_compares_the_synset_with_the_record(copy: pathlib.Path) -> None:
    """Records of another tool may have none, so that the index is no help."""
    edit(copy, replaced("synset", "''"))

    result = verify.verify(
        verify.VerifyOptions(data_dir=str(copy), level="schema", num_workers=1)
    )

    (fault,) = result.faults
    assert (fault.shard, fault.record) == (SHARD, 2)
    assert fault.fault.startswith("the synset must be '' as the catalog says, got 'n0")


@pytest.mark.parametrize(
    ("column", "query"),
    [
        ("byte_offset", "SELECT * RENAME (byte_offset AS other) FROM old"),
        ("byte_offset", "SELECT * REPLACE ('x' AS byte_offset) FROM old"),
        ("byte_offset", replaced("byte_offset", "NULL")),
        ("filename", replaced("filename", "NULL")),
    ],
)
def test_readers_refuse_a_bad_column_by_name(
    copy: pathlib.Path, column: str, query: str
) -> None:
    edit(copy, query)

    with pytest.raises(errors.BadIndexError, match=rf"catalog\.parquet.*{column}"):
        index.load_catalog(copy, "train", [column])


def test_sizes_that_are_not_there_are_none(copy: pathlib.Path) -> None:
    edit(copy, "FROM old WHERE split = 'validation'")

    assert stored.median_short_side(copy, "train") is None


def _pipe(path: pathlib.Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: pathlib.Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("replace", [_pipe, _folder])
def test_a_catalog_or_index_that_is_no_file_is_not_waited_for(
    copy: pathlib.Path, replace: Callable[[pathlib.Path], None]
) -> None:
    replace(copy / index.CATALOG_NAME)

    (fault,) = catalog_faults(copy)
    replace(copy / index.INDEX_NAME)

    assert "no regular file" in fault
    with pytest.raises(
        errors.BadIndexError, match=r"index\.json cannot be read: it is"
    ):
        index.load(copy)
