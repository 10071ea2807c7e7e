"""The same images as an input of each kind that has a reader."""

import contextlib
import csv
import io
import json
import pathlib
import sqlite3
import tarfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import duckdb

from tests.support.data.conversions import Conversion, conversion
from tests.support.data.trees import make_jpeg
from tfpipe.shards.example import bytes_feature, encode_example
from tfpipe.shards.records import frame

# An image: the name of the split in the input, and the label.
Images = Sequence[tuple[str, str]]
# Fields of the reader of an input.
Fields = dict[str, Any]


def numbered(images: Images) -> Iterator[tuple[str, str, str, bytes]]:
    """Yields split, label, name and content of each image.

    A label such as `a=7` is the class `a` with the content of image 7.
    """
    for number, (split, text) in enumerate(images):
        label, _, content = text.partition("=")
        yield split, label, f"{number:03d}", make_jpeg(int(content or number))


def write_tree(root: pathlib.Path, images: Images) -> Fields:
    """Writes a folder for each class in a folder for each split."""
    for split, label, name, data in numbered(images):
        path = root / split / label / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return {"input_dir": str(root)}


def _write_ilsvrc(root: pathlib.Path, images: Images) -> Fields:
    for split, label, name, data in numbered(images):
        path = root / {"Train": "train", "Test": "val"}.get(split, split)
        path = path / label / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    classes = sorted({label for _, label, _, _ in numbered(images)})
    (root / "synsets.txt").write_text("".join(f"{name}\n" for name in classes))
    return {"input_dir": str(root)}


def _rows(root: pathlib.Path, images: Images) -> dict[str, list[tuple[str, str]]]:
    """Writes the images, and returns paths and labels by split."""
    (root / "img").mkdir(parents=True)
    rows: dict[str, list[tuple[str, str]]] = {}
    for split, label, name, data in numbered(images):
        (root / "img" / f"{name}.jpg").write_bytes(data)
        rows.setdefault(split, []).append((f"img/{name}.jpg", label))
    return rows


def _write_csv(root: pathlib.Path, images: Images) -> Fields:
    for split, rows in _rows(root, images).items():
        with open(root / f"{split}.csv", "w", newline="") as file:
            csv.writer(file).writerows([("image", "label"), *rows])
    return {"input": str(root), "root": str(root)}


def _write_json(root: pathlib.Path, images: Images) -> Fields:
    for split, rows in _rows(root, images).items():
        lines = [json.dumps({"image": path, "label": label}) for path, label in rows]
        (root / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return {"input": str(root), "root": str(root)}


def _write_parquet(root: pathlib.Path, images: Images) -> Fields:
    root.mkdir(parents=True)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t(image BLOB, label VARCHAR, split VARCHAR)")
        for split, label, _, data in numbered(images):
            row = [data, label, split]
            connection.execute("INSERT INTO t VALUES (?, ?, ?)", row)
        for split in dict(images):
            connection.execute(
                f"COPY (SELECT image, label, '{split}_' || row_number() OVER () AS name"
                f" FROM t WHERE split = '{split}') TO '{root}/{split}.parquet' "
                "(FORMAT parquet, COMPRESSION uncompressed)"
            )
    return {"input": str(root), "name_column": "name"}


def _write_sqlite(root: pathlib.Path, images: Images) -> Fields:
    root.mkdir(parents=True)
    with sqlite3.connect(root / "images.db") as connection:
        connection.execute("CREATE TABLE t (image BLOB, label TEXT, split TEXT)")
        rows = [(data, label, split) for split, label, _, data in numbered(images)]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    connection.close()
    return {"input": f"{root}/images.db#t", "split_column": "split"}


def _write_tars(root: pathlib.Path, images: Images) -> Fields:
    root.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        tars: dict[str, tarfile.TarFile] = {}
        for split, label, name, data in numbered(images):
            if split not in tars:
                path = root / f"set-{split}-000.tar"
                tars[split] = stack.enter_context(tarfile.open(path, "w"))
            _add_sample(tars[split], name, data, "cls", label.encode())
    return {"input": [str(root)]}


def write_json_tar(root: pathlib.Path, labels: Sequence[Any]) -> Fields:
    """Writes t.tar in a folder, with labels of any type in the parts .json."""
    with tarfile.open(root / "t.tar", "w") as tar:
        for number, label in enumerate(labels):
            part = json.dumps({"label": label}).encode()
            _add_sample(tar, str(number), make_jpeg(number), "json", part)
    return {"input": [f"{root}/t.tar"], "label_from": "json"}


def _add_sample(
    tar: tarfile.TarFile, key: str, image: bytes, part: str, label: bytes
) -> None:
    for end, data in (("jpg", image), (part, label)):
        member = tarfile.TarInfo(f"{key}.{end}")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))


def _write_tfrecords(root: pathlib.Path, images: Images) -> Fields:
    root.mkdir(parents=True)
    for split, label, _, data in numbered(images):
        features = {
            "image/encoded": bytes_feature(data),
            "image/class/label": bytes_feature(label.encode()),
        }
        with open(root / f"{split}.tfrecord", "ab") as file:
            file.write(b"".join(frame(encode_example(features))))
    return {"input": [str(root)]}


def _write_data_set(root: pathlib.Path, images: Images) -> Fields:
    out = str(root)
    fields = write_tree(root.with_name(f"{root.name}-tree"), images)
    made = conversion("folder", output_dir=out, num_workers=1, fsync=False, **fields)
    made.convert()
    return {"input_dir": out}


def _write_merge(root: pathlib.Path, images: Images) -> Fields:
    write_tree(root / "tree", images)
    return {"sources": {"a": str(root / "tree")}}


def _write_merged_tars(root: pathlib.Path, images: Images) -> Fields:
    return {"sources": {"a": _write_tars(root, images)["input"][0]}}


Write = Callable[[pathlib.Path, Images], Fields]
# By kind, the reader and how to write its input.
KINDS: dict[str, tuple[str, Write]] = {
    "folder": ("folder", write_tree),
    "imagenet": ("imagenet", _write_ilsvrc),
    "table": ("table", _write_csv),
    "json": ("table", _write_json),
    "parquet": ("table", _write_parquet),
    "sqlite": ("table", _write_sqlite),
    "webdataset": ("webdataset", _write_tars),
    "tfrecord": ("tfrecord", _write_tfrecords),
    "data_set": ("data_set", _write_data_set),
    "merge": ("merge", _write_merge),
    "merged_tars": ("merge", _write_merged_tars),
}


def convert_input(
    kind: str, root: pathlib.Path, images: Images, **options: Any
) -> Conversion:
    """Writes an input of a kind below a folder; returns the conversion beside it."""
    command, write = KINDS[kind]
    options = {"output_dir": str(root.with_name("out")), **options}
    fields = write(root, images)
    return conversion(command, **fields, **options)
