"""converters.checks.foreign and adopt: shards of TensorFlow without an index."""

import collections
import dataclasses
import gzip
import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import tensorflow as tf

import tfpipe
from converters import verify
from converters.checks import adopt, foreign, shard as shard_checks
from tests.support.data.trees import SYNSETS, forget_digests, make_jpeg
from tfpipe import errors
from tfpipe.shards import index


def example(features: Mapping[str, Any]) -> bytes:
    """A serialized example; the kind of a feature follows from its value."""

    def feature(value: Any) -> tf.train.Feature:
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list={"value": [value]})
        if isinstance(value, int):
            return tf.train.Feature(int64_list={"value": [value]})
        return tf.train.Feature(float_list={"value": value})

    named = {key: feature(value) for key, value in features.items()}
    return tf.train.Example(features={"feature": named}).SerializeToString()


def inception(number: int, label: int, **others: Any) -> bytes:
    return example(
        {
            "image/encoded": make_jpeg(number),
            "image/height": 32,
            "image/width": 40,
            "image/class/label": label,
            "image/filename": f"image{number}.JPEG".encode(),
            "image/object/bbox/xmin": [0.5] * (number % 2),
        }
        | others
    )


def tfds(number: int, label: int) -> bytes:
    name = f"image{number}.JPEG".encode()
    return example({"image": make_jpeg(number), "label": label, "file_name": name})


def write(path: pathlib.Path, datas: Sequence[bytes]) -> pathlib.Path:
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for data in datas:
            writer.write(data)
    return path


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two train shards of 3 and 4 records and a validation shard; labels 1 to 5."""
    folder = tmp_path / "foreign"
    write(folder / "train-00000-of-00002", [inception(i, 1 + i) for i in range(3)])
    write(folder / "train-00001-of-00002", [inception(i, i - 1) for i in range(3, 7)])
    write(folder / "validation-00000-of-00001", [inception(7, 3)])
    return folder


def run(folder: pathlib.Path, **options: Any) -> verify.Result:
    return verify.verify(
        verify.VerifyOptions(data_dir=str(folder), num_workers=1, **options)
    )


def digests(folder: pathlib.Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.glob("*-of-*")
    }


@pytest.mark.parametrize("level", ["crc", "schema", "decode"])
def test_sound_shards_are_described(folder: pathlib.Path, level: str) -> None:
    result = run(folder, level=level)

    assert (result.num_faults, result.num_shards, result.num_records) == (0, 3, 8)
    assert result.details["splits"] == {"train": 7, "validation": 1}
    assert result.details["label_range"] == [1, 5]
    assert result.details["label_base"] == 1
    assert result.details["label_base_reason"] == "the smallest label is 1"
    assert result.details["num_classes"] == 5
    assert result.details["features"]["image/object/bbox/xmin"] == "float"
    assert result.details["remarks"] == []
    assert not (folder / index.INDEX_NAME).exists()


def test_quick_counts_records_by_their_headers(folder: pathlib.Path) -> None:
    result = run(folder, level="quick")

    assert (result.num_faults, result.num_records) == (0, 8)
    assert "label_base" not in result.details


@pytest.mark.parametrize("level", ["quick", "crc"])
def test_a_cut_tail_is_named(folder: pathlib.Path, level: str) -> None:
    shard = folder / "train-00001-of-00002"
    shard.write_bytes(shard.read_bytes()[:-7])

    (fault,) = run(folder, level=level).faults

    assert (fault.shard, fault.record) == (shard.name, 3)
    assert "cut short" in fault.fault


def test_a_damaged_record_costs_only_itself(folder: pathlib.Path) -> None:
    shard = folder / "train-00000-of-00002"
    content = bytearray(shard.read_bytes())
    content[-100] ^= 1
    shard.write_bytes(content)

    result = run(folder)

    assert [(fault.shard, fault.record) for fault in result.faults] == [(shard.name, 2)]
    assert result.details["label_range"] == [1, 5]
    assert result.details["features"]["image/encoded"] == "bytes"


def test_missing_numbers_and_mixed_sets_are_named(folder: pathlib.Path) -> None:
    (folder / "train-00000-of-00002").rename(folder / "train-00002-of-00004")

    faults = {str(fault) for fault in run(folder).faults}

    assert "train-00000-of-00002: missing: other shards of this set are there" in faults
    assert "train-00003-of-00004: missing: other shards of this set are there" in faults
    assert (
        "train: split 'train' must be one set of shards, got train-*-of-00002, "
        "train-*-of-00004"
    ) in faults


def test_empty_and_uneven_shards_are_remarks(folder: pathlib.Path) -> None:
    write(folder / "train-00000-of-00002", [])

    result = run(folder)

    assert result.num_faults == 0
    assert result.details["remarks"] == [
        "train: 1 of 2 shards without records",
        "train: the shards are uneven, 0 to 4 records; readers that share shards among "
        "ranks lose some records",
    ]


def test_a_split_without_any_record_is_a_fault(folder: pathlib.Path) -> None:
    write(folder / "validation-00000-of-00001", [])

    (fault,) = run(folder).faults

    assert "split 'validation' has no record" in fault.fault


def test_a_compressed_shard_is_told_apart_from_a_damaged_one(
    folder: pathlib.Path,
) -> None:
    shard = folder / "validation-00000-of-00001"
    shard.write_bytes(gzip.compress(shard.read_bytes()))

    for level in ("quick", "crc"):
        assert "compressed with gzip" in run(folder, level=level).faults[0].fault


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (inception(0, -1), "the label must be 0 to 500,000, got -1"),
        (inception(0, 1, **{"image/encoded": b"text"}), "no readable header"),
        (inception(0, 1, **{"image/encoded": 3}), "one encoded image must be in"),
        (example({"image/encoded": make_jpeg(0)}), "one integer label must be in"),
        (inception(0, 1, **{"image/height": 31}), "header says height 32 and width 40"),
        (b"\xff\xff", "not a tf.train.Example"),
    ],
)
def test_faulty_records_are_named(
    folder: pathlib.Path, data: bytes, fault: str
) -> None:
    write(folder / "validation-00000-of-00001", [inception(0, 1), data])

    result = run(folder, level="schema")

    assert {one.record for one in result.faults} == {1}
    assert fault in result.faults[0].fault


def test_decode_looks_at_the_pixels(folder: pathlib.Path) -> None:
    data = inception(0, 1, **{"image/encoded": make_jpeg(0)[:-300]})
    write(folder / "validation-00000-of-00001", [data])

    assert run(folder, level="schema").num_faults == 0
    assert "does not decode" in run(folder, level="decode").faults[0].fault


def test_few_missing_shards_are_named_one_by_one(folder: pathlib.Path) -> None:
    (folder / "validation-00000-of-00001").rename(folder / "test-00001-of-00101")
    found = [fault.shard for fault in run(folder, level="quick").faults]
    (folder / "test-00001-of-00101").rename(folder / "test-00001-of-00102")
    more = [str(fault) for fault in run(folder, level="quick").faults]

    assert len(found) == shard_checks.MAX_FAULTS
    assert (found[0], found[1]) == ("test-00000-of-00101", "test-00002-of-00101")
    assert more == [
        "test-*-of-00102: 101 of these 102 shards are missing, the first is number 0"
    ]


def test_a_large_label_is_a_class(folder: pathlib.Path) -> None:
    label = 20_000
    write(folder / "validation-00000-of-00001", [inception(0, label)])

    result = run(folder, write_index=True)

    assert (result.faults, result.details["num_classes"]) == ([], label)
    assert index.load(folder).classes[-1] == (str(label), str(label))


def test_a_label_of_two_classes_is_a_fault(folder: pathlib.Path) -> None:
    named = {"image/class/synset": b"n0", "image/class/text": b"cat"}
    write(folder / "validation-00000-of-00001", [inception(0, 2, **named)])

    (fault,) = run(folder).faults

    assert "label 2 must stand for one class" in fault.fault


def test_a_feature_of_every_example_and_of_one_kind_is_common() -> None:
    counts = {("b", "int64"): 1, ("b", "empty"): 1, ("few", "bytes"): 1}
    counts |= {("two", "bytes"): 1, ("two", "int64"): 1, ("all", "bytes"): 2}
    facts = foreign.Facts(num_examples=2, features=collections.Counter(counts))

    assert facts.common_features() == {"b": "int64", "all": "bytes"}


def test_three_names_of_a_label_are_shown() -> None:
    names = {1: {("n1", "")}, 2: {(f"n{n}", "") for n in range(9, 4, -1)}}

    (fault,) = adopt.label_faults(names)

    assert fault.shard == "labels"
    assert fault.fault.endswith("one class, got ('n5', ''), ('n6', ''), ('n7', '')")


def _names(labels: Mapping[int, str]) -> dict[int, set[tuple[str, str]]]:
    return {label: {(synset, "")} for label, synset in labels.items()}


@pytest.mark.parametrize(
    ("labels", "base", "num_classes", "reason"),
    [
        ({0: "", 4: ""}, 0, 5, "smallest label is 0"),
        ({1: "", 4: ""}, 1, 4, "smallest label is 1"),
        ({3: "", 4: ""}, 1, 4, "smallest label is 3; 1 is what"),
        # In the order of ILSVRC-2012, whatever the smallest label is.
        ({4: SYNSETS[3], 2: SYNSETS[1]}, 1, 1000, "n01440764 at 1"),
        ({3: SYNSETS[3], 1: SYNSETS[1]}, 0, 1000, "n01440764 at 0"),
        # A subset with labels of its own.
        ({0: SYNSETS[1], 1: SYNSETS[3]}, 0, 2, "smallest label is 0"),
        ({1: "cat", 2: "dog"}, 1, 2, "smallest label is 1"),
    ],
)
def test_label_base_is_inferred(
    labels: Mapping[int, str], base: int, num_classes: int, reason: str
) -> None:
    found = adopt.infer_labels(_names(labels))

    assert found is not None
    assert (found.base, len(found.classes)) == (base, num_classes)
    assert reason in found.reason
    assert [one.label for one in found.classes[:2]] == [base, base + 1]
    for label, synset in labels.items():
        assert found.classes[label - base].synset == (synset or str(label))


def test_without_a_label_nothing_is_inferred() -> None:
    assert adopt.infer_labels({}) is None
    assert adopt.infer_labels({-1: {("", "")}}) is None


def test_written_index_is_read_by_tfpipe(folder: pathlib.Path) -> None:
    before = digests(folder)
    config = verify.VerifyOptions(data_dir=str(folder), num_workers=1, write_index=True)

    result = verify.verify(config)

    assert result.num_faults == 0
    assert {"index.json", "catalog.parquet", "labels.txt"} <= {
        *result.details["written"]
    }
    assert digests(folder) == before
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    source = tfpipe.TFRecordSource(folder, "train")
    assert source.order.num_records == 7
    for level in ("crc", "schema", "decode"):
        assert run(folder, level=level).faults == []


def test_written_index_of_tfds_names(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "tfds"
    name = "flowers-train.tfrecord-00000-of-00001"
    write(folder / name, [tfds(i, i % 3) for i in range(6)])
    (folder / "labels.txt").write_text("mine")

    result = run(folder, write_index=True, level="decode")

    known = index.load(folder)
    assert result.faults == []
    assert known.made_by["command"] == "converters.verify"
    assert (known.label_base, known.num_classes) == (0, 3)
    assert [shard.name for shard in known.splits["train"]] == [name]
    assert (folder / "labels.txt").read_text() == "mine"
    assert any("image/encoded" in remark for remark in result.details["remarks"])
    catalog = index.load_catalog(folder, "train", ["height", "label", "filename"])
    assert catalog["height"].tolist() == [32] * 6
    assert catalog["label"].tolist() == [0, 1, 2, 0, 1, 2]
    assert catalog["filename"][5] == "image5.JPEG"
    assert tfpipe.TFRecordSource(folder, "train").order.num_records == 6
    assert run(folder, level="decode").faults == []


def test_adopted_shards_are_checked_like_others(folder: pathlib.Path) -> None:
    run(folder, write_index=True)
    shard = folder / "train-00001-of-00002"
    content = bytearray(shard.read_bytes())
    content[0] ^= 1
    shard.write_bytes(content)

    (fault,) = run(folder).faults

    assert (fault.shard, fault.record, fault.file) == (shard.name, 0, "image3.JPEG")
    with pytest.raises(ValueError, match="another tool's"):
        run(folder, repair=True, input_dir=str(folder))


def test_no_index_is_written_for_faulty_shards(folder: pathlib.Path) -> None:
    (folder / "train-00000-of-00002").unlink()

    result = run(folder, write_index=True)

    assert result.num_faults == 1
    assert "the index was not written" in result.details["remarks"][-1]
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["train-00001-of-00002", "validation-00000-of-00001"]


def test_an_empty_shard_can_have_an_index(folder: pathlib.Path) -> None:
    write(folder / "train-00000-of-00002", [])

    run(folder, write_index=True)

    assert tfpipe.TFRecordSource(folder, "train").order.num_records == 4
    assert run(folder, level="decode").faults == []


def test_names_that_are_no_text_do_not_stop_it(folder: pathlib.Path) -> None:
    data = inception(0, 2, **{"image/filename": b"caf\xe9 \xff\n.JPEG"})
    write(folder / "validation-00000-of-00001", [data])

    assert run(folder, write_index=True).faults == []
    assert run(folder, level="decode").faults == []


def test_other_files_that_readers_take_for_shards_are_remarks(
    folder: pathlib.Path,
) -> None:
    for name in ("train-00000-of-00002.idx", "train.tfrecord", ".train", "notes.txt"):
        (folder / name).write_bytes(b"")

    result = run(folder)

    assert result.faults == []
    assert [
        remark.split(" is no shard")[0] for remark in result.details["remarks"]
    ] == [
        "train-00000-of-00002.idx",
        "train.tfrecord",
    ]


def test_side_files_are_no_strays_whatever_the_shards_are_called(
    tmp_path: pathlib.Path,
) -> None:
    """The same holds for an index of an older version, which lists no side files."""
    write(tmp_path / "data-00000-of-00001", [inception(0, 1)])
    run(tmp_path, write_index=True)
    known = run(tmp_path)
    forget_digests(tmp_path)

    assert (tmp_path / "dataset_info.json").exists()
    assert known.faults == run(tmp_path).faults == []


def test_features_of_an_index_that_are_none_are_a_bad_index(
    folder: pathlib.Path,
) -> None:
    run(folder, write_index=True)
    known = index.load(folder)
    made_by = {**known.made_by, "features": ["image/encoded"]}
    index.write(dataclasses.replace(known, made_by=made_by), folder)

    with pytest.raises(errors.BadIndexError, match=r"made_by\.features in index\.json"):
        run(folder, level="schema")


def test_the_level_source_needs_an_index(folder: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="--level=source needs index"):
        run(folder, level="source", input_dir=str(folder))


def test_faults_of_many_shards_are_capped_but_counted(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "many"
    for number in range(2):
        write(folder / f"train-{number:05d}-of-00002", [b"\xff"] * 80)

    result = run(folder)

    assert len(result.faults) == shard_checks.MAX_FAULTS
    assert result.num_faults == 160
