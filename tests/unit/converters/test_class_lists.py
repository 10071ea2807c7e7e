"""Names and labels of classes come along: from exports, Parquet, TFDS and lists."""

import collections
import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import duckdb
import pytest

from converters import export, verify
from converters.inputs.image import read_image
from converters.jobs.job import Job
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.inputs import KINDS, write_json_tar, write_tree
from tests.support.data.trees import make_jpeg
from tfpipe.shards.example import bytes_feature, encode_example, int64_feature
from tfpipe.shards.records import frame

Images = collections.Counter[tuple[str, int, str, str, bytes]]


def _images(job: Job) -> Images:
    """Split, label, class, text and bytes of each image."""
    return collections.Counter(
        (
            plan.split,
            job.classes[image.class_index].label,
            job.classes[image.class_index].synset,
            job.classes[image.class_index].text,
            read_image(job.input_dir, image),
        )
        for plan in job.plans
        for image in plan.images
    )


def _of_tree(place: pathlib.Path, out: pathlib.Path) -> Job:
    return conversions.make_job(
        conversion("folder", input_dir=str(place), output_dir=str(out))
    )


def _of_tars(place: pathlib.Path, out: pathlib.Path) -> Job:
    return conversions.make_job(
        conversion("webdataset", input=[str(place)], output_dir=str(out))
    )


def _of_parquet(place: pathlib.Path, out: pathlib.Path) -> Job:
    return conversions.make_job(
        conversion(
            "table",
            input=str(place),
            image_column="image",
            label_column="label",
            output_dir=str(out),
        )
    )


EXPORTS: dict[str, Callable[[pathlib.Path, pathlib.Path], Job]] = {
    "tree": _of_tree,
    "webdataset": _of_tars,
    "parquet": _of_parquet,
}


@pytest.mark.parametrize("form", EXPORTS)
@pytest.mark.parametrize(
    ("classes", "options"),
    [
        ("abc", {}),
        ("abc", {"label_base": 0}),
        (("1", "3", "4"), {}),
        (("0", "2"), {}),
        (("007", "1.10", "x y"), {}),
        ("ab", {"map": "b\nunused\na\n"}),
    ],
)
def test_an_export_is_read_as_the_data_set_that_it_was_made_from(
    form: str, classes: tuple[str, ...], options: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    tree, data_set, place = (tmp_path / name for name in ("tree", "data", "export"))
    write_tree(tree, [(split, c) for split in ("train", "test") for c in classes])
    if "map" in options:
        (tmp_path / "map").write_text(options["map"])
        options = {"label_map": str(tmp_path / "map")}
    config = conversion(
        "folder",
        input_dir=str(tree),
        output_dir=str(data_set),
        fsync=False,
        num_workers=1,
        **options,
    )
    conversions.convert(config)
    export.export(
        export.ExportOptions(
            data_dir=str(data_set),
            output_dir=str(place),
            format=form,  # type: ignore[arg-type]
            fsync=False,
            num_workers=1,
        )
    )

    job = EXPORTS[form](place, tmp_path / "again")

    assert _images(job) == _images(conversions.make_job(config))
    assert [*map(str, job.classes)] == [*map(str, conversions.make_job(config).classes)]


def _hugging_face(path: pathlib.Path, feature: Any, label: str = "1") -> pathlib.Path:
    """A Parquet file with three images and the metadata of `datasets`."""
    metadata = json.dumps({"info": {"features": {"label": feature}}})
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t(image BLOB, name VARCHAR)")
        for number in range(3):
            row = [make_jpeg(number), f"{path.stem}{number}"]
            connection.execute("INSERT INTO t VALUES (?, ?)", row)
        connection.execute(
            f"COPY (SELECT *, {label} AS label FROM t) TO '{path}' "
            f"(FORMAT parquet, KV_METADATA {{huggingface: '{metadata}'}})"
        )
    return path


def _table(place: pathlib.Path, **options: Any) -> Job:
    return conversions.make_job(
        conversion(
            "table",
            input=str(place),
            output_dir=str(place.with_name("out")),
            **{
                "image_column": "image",
                "label_column": "label",
                "name_column": "name",
                **options,
            },
        )
    )


def _classes(job: Job) -> list[tuple[int, str]]:
    return [(each.label, each.synset) for each in job.classes]


NAMES = {"names": ["cat", "dog", "owl"], "_type": "ClassLabel"}


@pytest.mark.parametrize(
    ("feature", "label", "expected"),
    [
        (NAMES, "1", [(0, "cat"), (1, "dog"), (2, "owl")]),
        ({"feature": NAMES, "_type": "Sequence"}, "[0, 2]", [(0, "cat"), (2, "owl")]),
        ({"feature": NAMES, "_type": "List"}, "[0, 2]", [(0, "cat"), (2, "owl")]),
        ({"num_classes": 3, "_type": "ClassLabel"}, "1", [(0, "0"), (2, "2")]),
        ({"dtype": "int64", "_type": "Value"}, "1", [(1, "1")]),
    ],
)
def test_names_of_hugging_face_metadata_come_along(
    tmp_path: pathlib.Path, feature: Any, label: str, expected: list[tuple[int, str]]
) -> None:
    job = _table(_hugging_face(tmp_path / "a.parquet", feature, label))

    assert set(expected) <= set(_classes(job))
    assert len(job.classes) in (1, 3)


def test_files_that_name_other_classes_are_refused(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    _hugging_face(folder / "a.parquet", NAMES)
    _hugging_face(folder / "b.parquet", {**NAMES, "names": ["x", "y"]})

    with pytest.raises(ValueError, match=r"same classes, got other names .*b\.parquet"):
        _table(folder)
    (tmp_path / "map").write_text("0 a\n1 b\n")
    named = _table(folder, label_map=str(tmp_path / "map"))
    assert _classes(named) == [(0, "a"), (1, "b")]
    texts = _table(folder, label_type="text")
    assert _classes(texts) == [(1, "1")]

    # A comparison with the input needs no names.
    options = {"input": str(folder), "fsync": False, "num_workers": 1}
    options |= {"image_column": "image", "label_column": "label", "name_column": "name"}
    made = conversion(
        "table",
        output_dir=str(tmp_path / "set"),
        label_map=str(tmp_path / "map"),
        **options,
    )
    conversions.convert(made)
    result = verify.verify(
        verify.VerifyOptions(
            data_dir=str(tmp_path / "set"),
            level="source",
            input=(str(folder),),
            num_workers=1,
        )
    )
    assert result.faults == []


def test_a_query_and_a_label_map_decide_before_the_metadata(
    tmp_path: pathlib.Path,
) -> None:
    path = _hugging_face(tmp_path / "a.parquet", NAMES)
    (tmp_path / "map").write_text("0 zero\n1 one\n2 two\n")

    query = "SELECT image, name, label + 1 AS label FROM input"
    assert _classes(_table(path, query=query))[-1] == (2, "2")
    named = _table(path, label_map=str(tmp_path / "map"))
    assert _classes(named) == [(0, "zero"), (1, "one"), (2, "two")]


@pytest.mark.parametrize("form", ["tfrecord", "webdataset"])
@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("labels.txt", "0:cat\n1:dog\n2:owl\n", [(0, "cat"), (1, "dog"), (2, "owl")]),
        ("classes.txt", "cat\ndog\n\n", [(0, "cat"), (1, "dog")]),
        ("classnames.txt", "a\x0bb\r\ndog", [(0, "a\\x0bb"), (1, "dog")]),
    ],
)
def test_names_of_a_list_beside_shards_come_along(
    form: str,
    tmp_path: pathlib.Path,
    name: str,
    content: str,
    expected: list[tuple[int, str]],
) -> None:
    KINDS[form][1](tmp_path / "in", [("train", "1")])
    (tmp_path / "in" / name).write_text(content)
    (tmp_path / "again").mkdir()

    job = conversion(
        form, input=[str(tmp_path / "in")], output_dir=str(tmp_path / "out")
    ).make_job()

    assert [(each.label, each.text) for each in job.classes] == expected


@pytest.mark.parametrize("form", ["tfrecord", "webdataset"])
def test_a_list_may_stand_above_the_folders_of_splits(
    form: str, tmp_path: pathlib.Path
) -> None:
    for split in ("train", "val"):
        KINDS[form][1](tmp_path / "in" / split, [(split, "1")])
    (tmp_path / "in" / "labels.txt").write_text("cat\ndog\n")
    options = {"input": [str(tmp_path / "in")], "output_dir": str(tmp_path / "out")}

    assert _classes(conversion(form, **options).make_job()) == [(0, "cat"), (1, "dog")]

    # A list in the folder of a split has other names.
    (tmp_path / "in" / "val" / "labels.txt").write_text("dog\ncat\n")
    with pytest.raises(ValueError, match=r"same classes, got other names in .*labels"):
        conversion(form, **options).make_job()
    (tmp_path / "map").write_text("0 a\n1 b\n")
    options["label_map"] = str(tmp_path / "map")
    assert _classes(conversion(form, **options).make_job()) == [(0, "a"), (1, "b")]
    options |= {"label_map": None, "label_type": "text"}
    assert _classes(conversion(form, **options).make_job()) == [(1, "1")]


@pytest.mark.parametrize("name", ["words.txt", "synset_words.txt"])
@pytest.mark.parametrize("split", ["", "train/"])
def test_names_of_synsets_beside_a_tree_come_along(
    tmp_path: pathlib.Path, name: str, split: str
) -> None:
    """As Tiny-ImageNet has the list: of all synsets of WordNet, in any order."""
    for number, synset in enumerate(("n02", "n01", "n03")):
        image = tmp_path / "in" / split / synset / "images" / f"{synset}_0.JPEG"
        image.parent.mkdir(parents=True)
        image.write_bytes(make_jpeg(number))
    words = "n09\tno class here\nn02\tgoldfish, Carassius auratus\r\n\nn01 a tench\n"
    (tmp_path / "in" / name).write_text(words)

    job = _of_tree(tmp_path / "in", tmp_path / "out")

    assert [(each.label, each.synset, each.text) for each in job.classes] == [
        (1, "n01", "a tench"),
        (2, "n02", "goldfish, Carassius auratus"),
        (3, "n03", "n03"),
    ]
    assert job.left_out == [
        {**line, "name": name, "reason": "other_name"} for line in job.left_out
    ]
    labels = {i.name: i.class_index for plan in job.plans for i in plan.images}
    assert labels[f"{split}n02/images/n02_0.JPEG"] == 1


def test_a_list_of_synsets_that_is_no_text_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "in" / "n01").mkdir(parents=True)
    (tmp_path / "in" / "n01" / "0.JPEG").write_bytes(make_jpeg(0))
    (tmp_path / "in" / "words.txt").write_bytes(b"n01\tcaf\xe9\n")

    with pytest.raises(ValueError, match=r"words\.txt must be text in UTF-8"):
        _of_tree(tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize(
    ("number", "classes"),
    [
        ('"3"', [(0, "0"), (1, "1"), (2, "2")]),
        *((text, [(1, "1")]) for text in ("1e999", '"x"', "[" * 100_000, "{}")),
    ],
)
def test_tfds_says_the_number_of_classes(
    tmp_path: pathlib.Path, number: str, classes: list[tuple[int, str]]
) -> None:
    """A number that cannot be read says nothing."""
    KINDS["tfrecord"][1](tmp_path / "in", [("train", "1")])
    label = f'{{"image/class/label": {{"classLabel": {{"numClasses": {number}}}}}}}'
    (tmp_path / "in" / "features.json").write_text(
        f'{{"featuresDict": {{"features": {label}}}}}'
    )

    job = conversions.make_job(
        conversion(
            "tfrecord", input=[str(tmp_path / "in")], output_dir=str(tmp_path / "out")
        )
    )

    assert _classes(job) == classes


Rows = list[list[float]]


def _rows_in_records(root: pathlib.Path, rows: Rows) -> Job:
    root.mkdir()
    with open(root / "train.tfrecord", "wb") as file:
        for number, row in enumerate(rows):
            numbers = [*map(int, row)]
            features = {
                "image": bytes_feature(make_jpeg(number)),
                "label": int64_feature(numbers),
            }
            file.write(b"".join(frame(encode_example(features))))
    return conversions.make_job(
        conversion("tfrecord", input=[str(root)], output_dir=str(root / "out"))
    )


def _rows_in_a_table(root: pathlib.Path, rows: Rows, kind: str = "INT[]") -> Job:
    root.mkdir()
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t(image BLOB, name VARCHAR, label {kind})")
        for number, row in enumerate(rows):
            values = [make_jpeg(number), str(number), row]
            connection.execute("INSERT INTO t VALUES (?, ?, ?)", values)
        connection.execute(f"COPY t TO '{root}/a.parquet' (FORMAT parquet)")
    return _table(root / "a.parquet")


def _floats_in_a_table(root: pathlib.Path, rows: Rows) -> Job:
    return _rows_in_a_table(root, rows, "DOUBLE[]")


def _booleans_in_a_table(root: pathlib.Path, rows: Rows) -> Job:
    return _rows_in_a_table(root, rows, "BOOLEAN[]")


def _rows_in_texts(root: pathlib.Path, rows: Rows, end: str, kind: Any) -> Job:
    root.mkdir()
    lines = "image,name,label\n" if end == "csv" else ""
    for number, row in enumerate(rows):
        (root / f"{number}.jpg").write_bytes(make_jpeg(number))
        values: dict[str, Any] = {"image": f"{number}.jpg", "name": f"{number}"}
        if end == "csv":
            values["label"] = " ".join(str(kind(value)) for value in row)
            lines += ",".join(values.values()) + "\n"
        else:
            lines += json.dumps({**values, "label": [*map(kind, row)]}) + "\n"
    (root / f"t.{end}").write_text(lines)
    options = {"label_separator": " "} if end == "csv" else {}
    return _table(root / f"t.{end}", **options)


def _rows_in_json_of_tars(root: pathlib.Path, rows: Rows) -> Job:
    root.mkdir()
    options = write_json_tar(root, rows)
    return conversions.make_job(
        conversion("webdataset", output_dir=str(root / "out"), **options)
    )


READERS = [
    *(_rows_in_records, _rows_in_json_of_tars, _rows_in_a_table),
    *(_floats_in_a_table, _booleans_in_a_table),
    *(
        functools.partial(_rows_in_texts, end="jsonl", kind=k)
        for k in (int, float, bool)
    ),
    *(functools.partial(_rows_in_texts, end="csv", kind=k) for k in (int, float)),
]


@pytest.mark.parametrize("make", READERS)
def test_one_hot_rows_are_classes(
    tmp_path: pathlib.Path, make: Callable[[pathlib.Path, Rows], Job]
) -> None:
    job = make(tmp_path / "in", [[0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]])

    labels = [image.class_index for plan in job.plans for image in plan.images]
    assert sorted(labels) == [1, 1, 2]
    assert _classes(job) == [(n, str(n)) for n in range(4)]


def test_multi_hot_rows_are_all_classes_of_an_image_or_refused(
    tmp_path: pathlib.Path,
) -> None:
    rows: Rows = [[1, 1, 0], [0, 1, 0]]

    job = _rows_in_a_table(tmp_path / "table", rows)
    assert [each.label for each in job.classes] == [0, 1, 2]
    assert job.more_columns is not None
    with pytest.raises(ValueError, match="one 1, got the row 110"):
        _rows_in_records(tmp_path / "records", rows)


def test_lists_of_labels_stay_lists(tmp_path: pathlib.Path) -> None:
    job = _rows_in_a_table(tmp_path / "table", [[1, 2], [0]])

    assert [each.label for each in job.classes] == [0, 1, 2]
    with pytest.raises(ValueError, match="one class, or a row of 0 and 1"):
        _rows_in_records(tmp_path / "records", [[1, 2], [4, 0]])
