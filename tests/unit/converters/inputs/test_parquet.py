"""Values of Parquet columns, found by page: compared with what was written."""

import os
import pathlib
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from converters.inputs import parquet
from converters.inputs.parquet import UnknownFormError
from converters.inputs.tables.spool import Spool
from tfpipe.shards import index

_FORMS = {
    "column": ("v", ["v"]),
    "struct": ("{'bytes': v, 'path': 'a'} AS v", ["v", "bytes"]),
    "struct or NULL": (
        "CASE WHEN v IS NOT NULL THEN {'bytes': v, 'path': 'a'} END AS v",
        ["v", "bytes"],
    ),
}
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
    """The values of a column, and whether each one is in the file itself."""
    folder = pathlib.Path(file).parent
    spool = Spool(folder)
    with index.catalog_connection() as connection:
        chunks = parquet.find_chunks(connection, file, names)
    places = list(parquet.values(file, chunks, parquet.Inflater(spool)))
    spool.close()
    unpacked = (folder / "images").read_bytes() if spool.num_bytes else b""
    packed = pathlib.Path(file).read_bytes()
    is_packed = {chunk.codec != parquet.UNCOMPRESSED for chunk in chunks}
    found: list[bytes | None] = []
    for place in places:
        if place is None:
            found.append(None)
            continue
        assert {place.is_unpacked} == is_packed
        content = unpacked if place.is_unpacked else packed
        found.append(content[place.offset :][: place.num_bytes])
    return found


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    values=_VALUES,
    form=st.sampled_from(sorted(_FORMS)),
    codec=st.sampled_from([parquet.UNCOMPRESSED, *parquet.CODECS]),
)
def test_places_hold_the_values_that_were_written(
    values: list[bytes | None], form: str, codec: str, tmp_path: pathlib.Path
) -> None:
    select, names = _FORMS[form]
    options = f"COMPRESSION {codec}"
    file = write(tmp_path / "t.parquet", values, select=select, options=options)

    assert find(file, names) == values


@pytest.mark.parametrize(
    ("options", "select", "names"),
    [
        ("COMPRESSION lz4_raw", "v", ["v"]),
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


@pytest.mark.parametrize(
    ("codec", "distinct"),
    [("uncompressed", 3), ("uncompressed", 60), ("snappy", 60), ("zstd", 3)],
)
def test_damaged_pages_are_an_error_or_places_inside_of_the_chunk(
    codec: str, distinct: int, tmp_path: pathlib.Path
) -> None:
    values = [None if n % 7 == 3 else b"%03d" % (n % distinct) for n in range(60)]
    file = write(tmp_path / "t.parquet", values, options=f"COMPRESSION {codec}")
    spool = Spool(tmp_path)
    inflater = parquet.Inflater(spool)
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
                found = list(parquet._chunk_values(descriptor, chunk, inflater))
            except UnknownFormError:
                refused += 1
            else:
                assert len(found) == 60
                start, stop = chunk.start, chunk.stop
                if codec != "uncompressed":
                    start, stop = 0, spool.num_bytes
                assert all(
                    start <= each.offset <= each.offset + each.num_bytes <= stop
                    for each in found
                    if each is not None
                )
            spool.clear()
        os.pwrite(descriptor, content[position : position + 1], position)
    os.ftruncate(descriptor, chunk.stop - 1)
    with pytest.raises(UnknownFormError):
        list(parquet._chunk_values(descriptor, chunk, inflater))
    os.close(descriptor)
    spool.close()

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
