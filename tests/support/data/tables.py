"""The same few images as a tree of classes and as tables of each kind."""

import csv
import io
import json
import pathlib
import sqlite3
import tarfile
from typing import Any, NamedTuple

import xxhash

from tests.support.data.conversions import Conversion, conversion
from tests.support.data.trees import make_jpeg
from tfpipe.shards import index, records
from tfpipe.shards.example import decode_example

CLASSES = ("cat", "dog", "emu")


class Row(NamedTuple):
    """One image: its path below the root, its bytes, its class and a number."""

    path: str
    img: bytes
    label: str
    score: float


def make_rows(root: pathlib.Path, *, num_images: int = 9) -> list[Row]:
    """Writes a tree of classes, and returns its images as rows."""
    rows = []
    for number in range(num_images):
        label = CLASSES[number % len(CLASSES)]
        row = Row(f"{label}/{number}.jpg", make_jpeg(number), label, number / 4)
        path = root / row.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(row.img)
        rows.append(row)
    return rows


def write_tables(folder: pathlib.Path, rows: list[Row]) -> dict[str, dict[str, str]]:
    """Writes the rows in each form of a file; returns the options that read each."""
    plain = [(row.path, row.label, row.score) for row in rows]
    with open(folder / "rows.csv", "w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "score"), *plain])
    keys = ("path", "label", "score")
    lines = [json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in plain]
    (folder / "rows.jsonl").write_text("".join(lines))
    with sqlite3.connect(folder / "rows.db") as sqlite:
        sqlite.execute("CREATE TABLE photos (path TEXT, img BLOB, label TEXT, score)")
        sqlite.executemany("INSERT INTO photos VALUES (?, ?, ?, ?)", rows)
    sqlite.close()
    with index.catalog_connection() as connection:
        connection.execute(
            "CREATE TEMP TABLE t (path VARCHAR, img BLOB, label VARCHAR, score DOUBLE)"
        )
        connection.executemany(
            "INSERT INTO t VALUES (?, ?, ?, ?)", [list(row) for row in rows]
        )
        for name, query in {
            "paths": "SELECT path, label, score FROM t",
            "bytes": "SELECT path, img, label, score FROM t",
            "structs": "SELECT {'bytes': img, 'path': path} AS img, label FROM t",
            # Every second row has its bytes, the others a path alone.
            "mixed": "SELECT {'bytes': CASE WHEN score * 4 % 2 = 0 THEN img END, "
            "'path': path} AS img, label FROM t",
        }.items():
            connection.execute(f"COPY ({query}) TO '{folder}/{name}.parquet'")
            plain = f"'{folder}/{name} plain.parquet' (COMPRESSION uncompressed)"
            connection.execute(f"COPY ({query}) TO {plain}")
    path, img = {"image_column": "path"}, {"image_column": "img"}
    named = img | {"name_column": "path"}
    return {
        "csv": {"input": str(folder / "rows.csv")} | path,
        "jsonl": {"input": str(folder / "rows.jsonl")} | path,
        "parquet paths": {"input": str(folder / "paths.parquet")} | path,
        "parquet bytes": {"input": str(folder / "bytes.parquet")} | named,
        "parquet structs": {"input": str(folder / "structs.parquet")} | img,
        "parquet mixed": {"input": str(folder / "mixed.parquet")} | img,
        "plain bytes": {"input": str(folder / "bytes plain.parquet")} | named,
        "plain structs": {"input": str(folder / "structs plain.parquet")} | img,
        "plain mixed": {"input": str(folder / "mixed plain.parquet")} | img,
        "sqlite": {"input": f"{folder / 'rows.db'}#photos"} | named,
    }


def config(output_dir: pathlib.Path, **options: Any) -> Conversion:
    """Options of a conversion with one worker."""
    return conversion(
        "table",
        **{
            "output_dir": str(output_dir),
            "label_column": "label",
            "num_workers": 1,
            "fsync": False,
        }
        | options,
    )


def examples(data_dir: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the features of all records of a data set, in order."""
    found = []
    for shards in index.load(data_dir).splits.values():
        for shard in shards:
            for record in records.read(data_dir / shard.name):
                example = decode_example(record.data)
                found.append({key: list(item.values) for key, item in example.items()})
    return found


def contents(data_dir: pathlib.Path) -> list[tuple[str, str, int]]:
    """Returns (name, digest of the bytes, label) of all records, sorted."""
    return sorted(
        (
            each["image/filename"][0].decode(),
            xxhash.xxh3_128_hexdigest(each["image/encoded"][0]),
            each["image/class/label"][0],
        )
        for each in examples(data_dir)
    )


def write_tar(path: pathlib.Path, rows: list[Row]) -> None:
    """Writes the rows as a tar of a WebDataset."""
    with tarfile.open(path, "w") as tar:
        for row in rows:
            key = row.path.removesuffix(".jpg")
            for part, content in {"jpg": row.img, "cls": row.label.encode()}.items():
                info = tarfile.TarInfo(f"{key}.{part}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
