"""Labels that are no texts in their input: one rule for all readers of such labels."""

import contextlib
import json
import pathlib
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from converters.inputs import labels
from converters.inputs.labels import Labelled
from converters.inputs.meaning import Meaning
from converters.inputs.reader import Workspace
from tests.support.data.conversions import READERS
from tests.support.data.inputs import write_json_tar
from tests.support.data.trees import make_jpeg
from tfpipe.shards import index
from tfpipe.shards.example import (
    bytes_feature,
    encode_example,
    float_feature,
    int64_feature,
)
from tfpipe.shards.records import frame

Labels = Sequence[Any]
Fields = dict[str, Any]


def _write_json(root: pathlib.Path, labels: Labels) -> Fields:
    lines = []
    for number, label in enumerate(labels):
        (root / f"{number}.jpg").write_bytes(make_jpeg(number))
        lines.append(json.dumps({"image": f"{number}.jpg", "label": label}) + "\n")
    (root / "t.jsonl").write_text("".join(lines))
    return {"input": f"{root}/t.jsonl"}


def _write_parquet(root: pathlib.Path, labels: Labels) -> Fields:
    kind = "DOUBLE" if isinstance(labels[0], float) else "BIGINT"
    with index.catalog_connection() as connection:
        connection.execute(f"CREATE TEMP TABLE t (image BLOB, label {kind})")
        for number, label in enumerate(labels):
            row = [make_jpeg(number), label]
            connection.execute("INSERT INTO t VALUES (?, ?)", row)
        connection.execute(f"COPY t TO '{root}/t.parquet'")
    return {"input": f"{root}/t.parquet"}


def _write_sqlite(root: pathlib.Path, labels: Labels) -> Fields:
    rows = [(make_jpeg(number), label) for number, label in enumerate(labels)]
    with contextlib.closing(sqlite3.connect(root / "t.db")) as database, database:
        database.execute("CREATE TABLE t (image, label)")
        database.executemany("INSERT INTO t VALUES (?, ?)", rows)
    return {"input": f"{root}/t.db#t"}


def _write_tfrecord(root: pathlib.Path, labels: Labels) -> Fields:
    with open(root / "t.tfrecord", "wb") as file:
        for number, label in enumerate(labels):
            feature = float_feature if isinstance(label, float) else int64_feature
            values = label if isinstance(label, list) else [label]
            features = {
                "image": bytes_feature(make_jpeg(number)),
                "label": feature(values),
            }
            file.write(b"".join(frame(encode_example(features))))
    return {"input": [f"{root}/t.tfrecord"]}


FORMS: dict[str, tuple[str, Callable[[pathlib.Path, Labels], Fields]]] = {
    "json": ("table", _write_json),
    "parquet": ("table", _write_parquet),
    "sqlite": ("table", _write_sqlite),
    "webdataset": ("webdataset", write_json_tar),
    "tfrecord": ("tfrecord", _write_tfrecord),
}
every_form = pytest.mark.parametrize("form", FORMS)
# Labels of JSON lines stand there as texts, as those of CSV do: `1.10` stays `1.10`.
typed_form = pytest.mark.parametrize("form", sorted({*FORMS} - {"json"}))


def _read(form: str, root: pathlib.Path, values: Labels, **options: Any) -> Labelled:
    kind, write = FORMS[form]
    root.mkdir(exist_ok=True)
    meaning = Meaning(label_type=options.pop("label_type", None))
    with contextlib.ExitStack() as stack:
        workspace = Workspace(folder=root / "work", stack=stack)
        reader = READERS[kind](**write(root, values), **options)
        listed = reader.list_images(meaning, workspace)
    return labels.give_labels(listed, meaning)


@every_form
def test_whole_numbers_with_a_point_are_texts_or_numbers_as_the_user_says(
    form: str, tmp_path: pathlib.Path
) -> None:
    """pandas writes the numbers of a column so, if a value is missing."""
    values = [2.0, 10.0, 1.0]

    assert _read(form, tmp_path / "a", values).labels == {
        "1.0": 1,
        "10.0": 2,
        "2.0": 3,
    }
    numbers = _read(form, tmp_path / "b", values, label_type="number").labels
    assert list(numbers.values()) == list(range(1, 11))


@pytest.mark.parametrize("form", ["json", "webdataset", "tfrecord"])
def test_a_list_of_one_label_is_the_label(form: str, tmp_path: pathlib.Path) -> None:
    assert [*_read(form, tmp_path, [[2], [1], [0]]).labels.values()] == [0, 1, 2]


@typed_form
def test_minus_one_is_no_label(form: str, tmp_path: pathlib.Path) -> None:
    """Hugging Face and TFDS give -1 to images of a test split."""
    options = {"on_null": "skip"} if form != "tfrecord" else {}

    labelled = _read(form, tmp_path / "in", [0, -1, 1], **options)

    assert labelled.labels == {"0": 0, "1": 1}
    reasons = {item.reason.slug for item in labelled.listed.left_out}
    assert reasons <= {"no_label", "null_label"}
    assert len(labelled.listed.left_out) == 1


@typed_form
def test_fractions_are_no_classes(form: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"whole number|no number with a point"):
        _read(form, tmp_path / "in", [0.5, 0.25])
