"""Values of Parquet columns, found by page: compared with what was written."""

import os
import pathlib
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from converters.inputs import parquet
from converters.inputs.parquet import UnknownFormError
from tfpipe.shards import index

_FORMS = {
    "column": ("v", ["v"]),
    "struct": ("{'bytes': v, 'path': 'a'} AS v", ["v", "bytes"]),
    "struct or NULL": (
        "CASE WHEN v IS NOT NULL THEN {'bytes': v, 'path': 'a'} END AS v",
        ["v", "bytes"],
    ),
}
_CODECS = ("snappy", "zstd", "gzip", "brotli", "lz4_raw")
# Few different values make DuckDB write a dictionary, many make it write plain ones.
_VALUES = st.one_of(
    st.lists(st.one_of(st.none(), st.binary(max_size=300)), max_size=60),
    st.lists(st.sampled_from([None, b"", b"a", b"bc" * 300]), max_size=60),
)


def write(
    path: pathlib.Path,
    values: Sequence[bytes | None],
    *,
    select: str = "v",
    options: str = "COMPRESSION uncompressed",
) -> str:
    with index.catalog_connection() as connection:
        connection.execute("CREATE TEMP TABLE t (v BLOB)")
        if values:
            marks = ", ".join("(?)" for _ in values)
            connection.execute(f"INSERT INTO t VALUES {marks}", values)
        connection.execute(f"COPY (SELECT {select} FROM t) TO '{path}' ({options})")
    return str(path)


def find(file: str, names: Sequence[str]) -> list[bytes | None]:
    """The values of a column, at their places in the file."""
    with index.catalog_connection() as connection:
        chunks = parquet.find_chunks(connection, file, names)
    content = pathlib.Path(file).read_bytes()
    return [
        None if value is None else content[value.offset :][: value.num_bytes]
        for value in parquet.values(file, chunks)
    ]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(values=_VALUES, form=st.sampled_from(sorted(_FORMS)))
def test_places_hold_the_values_that_were_written(
    values: list[bytes | None], form: str, tmp_path: pathlib.Path
) -> None:
    select, names = _FORMS[form]
    file = write(tmp_path / "t.parquet", values, select=select)

    assert find(file, names) == values


@pytest.mark.parametrize(
    ("options", "select", "names"),
    [
        *((f"COMPRESSION {codec}", "v", ["v"]) for codec in _CODECS),
        ("COMPRESSION uncompressed, PARQUET_VERSION V2", "v", ["v"]),
        ("COMPRESSION uncompressed", "[v] AS v", ["v"]),
        ("COMPRESSION uncompressed", "[v] AS v", ["v", "list", "element"]),
        ("COMPRESSION uncompressed", "1 AS v", ["v"]),
        ("COMPRESSION uncompressed", "v", ["w"]),
        ("COMPRESSION uncompressed", "v", ["v", "bytes"]),
    ],
)
def test_other_columns_are_left_to_duckdb(
    options: str, select: str, names: list[str], tmp_path: pathlib.Path
) -> None:
    values = [bytes([number]) * 40 for number in range(40)]
    file = write(tmp_path / "t.parquet", values, select=select, options=options)

    with pytest.raises(UnknownFormError):
        find(file, names)


@pytest.mark.parametrize("distinct", [3, 60])
def test_damaged_pages_are_an_error_or_places_inside_of_the_chunk(
    distinct: int, tmp_path: pathlib.Path
) -> None:
    values = [None if n % 7 == 3 else b"%03d" % (n % distinct) for n in range(60)]
    file = write(tmp_path / "t.parquet", values)
    with index.catalog_connection() as connection:
        (chunk,) = parquet.find_chunks(connection, file, ["v"])
    content = pathlib.Path(file).read_bytes()
    (tmp_path / "bad").write_bytes(content)
    descriptor = os.open(tmp_path / "bad", os.O_RDWR)
    refused = 0

    for position in range(chunk.start, chunk.stop):
        for value in (0, 1, 127, 255):
            os.pwrite(descriptor, bytes([value]), position)
            try:
                found = list(parquet._chunk_values(descriptor, chunk))
            except UnknownFormError:
                refused += 1
            else:
                assert len(found) == 60
                values_found = [value for value in found if value is not None]
                assert all(
                    chunk.start <= start <= start + num_bytes <= chunk.stop
                    for start, num_bytes in values_found
                )
        os.pwrite(descriptor, content[position : position + 1], position)
    os.ftruncate(descriptor, chunk.stop - 1)
    with pytest.raises(UnknownFormError):
        list(parquet._chunk_values(descriptor, chunk))
    os.close(descriptor)

    assert refused > 100


@pytest.mark.parametrize(
    ("data", "width", "count", "expected"),
    [
        (b"", 0, 3, [0, 0, 0]),
        (b"\x06\x01", 1, 3, [1, 1, 1]),
        # Parquet's own example: 0 to 7 in three bits each.
        (b"\x03\x88\xc6\xfa", 3, 8, list(range(8))),
        (b"\x03\x88\xc6\xfa\x04\x05", 3, 10, [*range(8), 5, 5]),
        (b"\x05\x01\x02", 1, 12, [1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]),
        (b"\x04\x34\x12", 13, 2, [0x1234, 0x1234]),
        (b"\xac\x02\x01", 1, 150, [1] * 150),
    ],
)
def test_hybrid_integers(
    data: bytes, width: int, count: int, expected: list[int]
) -> None:
    assert parquet.hybrid(data, width, count) == expected
