"""Exports of MongoDB as tables: Extended JSON of both forms, arrays, and BSON."""

import datetime
import gzip
import pathlib
from typing import Any

import bson
import pytest
from bson import json_util

from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.trees import make_jpeg
from tfpipe.shards import index

DAY = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def _documents() -> list[dict[str, Any]]:
    return [
        {
            "_id": bson.ObjectId(f"{n:024x}"),
            "image": make_jpeg(n),
            "label": ["cat", "dog"][n % 2],
            "file": f"{n}.jpg",
            "views": bson.Int64(2**40 + n),
            "taken": DAY,
            **({"meta": {"camera": "x", "n": n}} if n else {}),
        }
        for n in range(6)
    ]


def _lines(options: json_util.JSONOptions) -> bytes:
    texts = [json_util.dumps(each, json_options=options) for each in _documents()]
    return "\n".join(texts).encode() + b"\n"


CANONICAL, RELAXED = json_util.CANONICAL_JSON_OPTIONS, json_util.RELAXED_JSON_OPTIONS
FILES = {
    "canonical.json": lambda: _lines(CANONICAL),
    "relaxed.jsonl": lambda: _lines(RELAXED),
    "array.json": lambda: (
        b"[" + _lines(RELAXED).strip().replace(b"\n", b",\n") + b"]\n"
    ),
    "packed.jsonl.gz": lambda: gzip.compress(_lines(CANONICAL)),
    "dump.bson": lambda: b"".join(map(bson.encode, _documents())),
    "dump.bson.gz": lambda: gzip.compress(b"".join(map(bson.encode, _documents()))),
}


def _convert(path: pathlib.Path, output: pathlib.Path, **options: Any) -> pathlib.Path:
    values: dict[str, Any] = {"input": str(path), "name_column": "file"}
    values |= {"num_workers": 1, "fsync": False, "output_dir": str(output)}
    conversions.convert(conversion("table", **values | options))
    return output


@pytest.mark.parametrize("name", FILES)
def test_an_export_becomes_a_data_set(tmp_path: pathlib.Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name]())

    folder = _convert(
        tmp_path / name,
        tmp_path / "set",
        extra_columns=("_id", "views", "taken", "meta"),
    )

    query = (
        "SELECT filename, synset, _id, views, taken, meta, digest FROM "
        "read_parquet(?) ORDER BY filename"
    )
    rows = index.query_catalog(folder, query, [])
    assert len({row[-1] for row in rows}) == 6
    _, synset, oid, views, taken, meta, _ = rows[3]
    assert (synset, oid, views) == ("dog", f"{3:024x}", 2**40 + 3)
    assert str(taken).startswith("2026-01-02 03:04:05")
    assert '"camera": "x"' in meta
    assert rows[0][5] is None


def test_a_query_is_of_duckdb(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.bson").write_bytes(FILES["dump.bson"]())
    (tmp_path / "names.csv").write_text("label,german\ncat,Katze\ndog,Hund\n")

    folder = _convert(
        tmp_path / "a.bson",
        tmp_path / "set",
        query="SELECT image, german AS label, file FROM input JOIN names USING (label) "
        "WHERE views > 1099511627776",
        table={"names": str(tmp_path / "names.csv")},
    )

    rows = index.query_catalog(
        folder, "SELECT filename, synset FROM read_parquet(?) ORDER BY 1", []
    )
    assert [tuple(row) for row in rows][:2] == [("1.jpg", "Hund"), ("2.jpg", "Katze")]
    assert len(rows) == 5


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.bson", b"\x05\x00\x00", "document cannot be read"),
        ("a.bson", FILES["dump.bson"]()[:-3], "document cannot be read"),
        ("a.json", b'{"_id": {"$oid": "0"}}\n', "line 1 cannot be read"),
        ("a.json", b'{"a": {"$oid": "' + b"0" * 24 + b'"}}\n{"a":\n', "line 2 cannot"),
    ],
)
def test_damage_names_the_file_and_the_line(
    tmp_path: pathlib.Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} must hold documents .* {said}"):
        _convert(tmp_path / name, tmp_path / "set")


def test_plain_json_lines_stay_with_duckdb(tmp_path: pathlib.Path) -> None:
    (tmp_path / "1.jpg").write_bytes(make_jpeg(1))
    (tmp_path / "a.jsonl").write_text(
        '{"image": "1.jpg", "label": "$oid", "file": 1}\n'
    )

    folder = _convert(tmp_path / "a.jsonl", tmp_path / "set")

    assert index.load(folder).num_records("train") == 1
