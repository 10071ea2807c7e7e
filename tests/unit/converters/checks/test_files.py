"""converters.checks.files: the index against the files, without reading a shard."""

import dataclasses
import pathlib

import pytest

from converters.checks import catalog as catalog_checks, files
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tfpipe.location.location import Location
from tfpipe.shards import index


def faults(data_dir: pathlib.Path) -> list[tuple[str, str]]:
    known = index.load(data_dir)
    found = [
        *files.shard_faults(known, files.DataSetFiles(data_dir=data_dir)),
        *files.stray_faults(known, files.DataSetFiles(data_dir=data_dir)),
    ]
    return [(fault.shard, fault.fault) for fault in found]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train-00001-of-00003", ("train", 1, 3, "train")),
        ("my-set-00001-of-00003", ("my-set", 1, 3, "my-set")),
        (
            "imagenet2012-validation.tfrecord-00000-of-00064",
            ("imagenet2012-validation.tfrecord", 0, 64, "validation"),
        ),
        ("train-100000-of-100001", ("train", 100000, 100001, "train")),
        ("train-00000-of-00010.tfrecord", ("train", 0, 10, "train")),
        ("train-00000-of-00010.idx", None),
        ("train-" + "\u0660" * 5 + "-of-00010", None),
        (".train-00000-of-00010", None),
        ("train-0-of-10", None),
        ("labels.txt", None),
    ],
)
def test_names_are_taken_apart(name: str, expected: tuple | None) -> None:
    parsed = files.parse_shard_name(name)

    assert (parsed and (*parsed, parsed.split)) == expected


def test_what_the_converter_wrote_has_no_fault(data_dir: pathlib.Path) -> None:
    offsets, catalog_faults = catalog_checks.load_byte_offsets(
        index.load(data_dir), data_dir
    )

    assert faults(data_dir) == []
    assert catalog_faults == []
    assert {name: len(values) for name, values in offsets.items()} == {
        "train-00000-of-00003": 8,
        "train-00001-of-00003": 8,
        "train-00002-of-00003": 8,
        "validation-00000-of-00002": 3,
        "validation-00001-of-00002": 4,
    }


def test_missing_and_resized_shards_are_named(copy_dir: pathlib.Path) -> None:
    (copy_dir / "train-00000-of-00003").unlink()
    shard = copy_dir / "train-00002-of-00003"
    size = shard.stat().st_size
    shard.write_bytes(b"")

    assert faults(copy_dir) == [
        ("train-00000-of-00003", "the index lists it, but there is no such file"),
        ("train-00002-of-00003", f"must have {size} bytes as the index says, got 0"),
    ]


@pytest.mark.parametrize(
    ("name", "is_read"),
    [
        ("train-00003-of-00004", True),
        ("train-00000-of-00003.tmp", True),
        ("validation-notes", True),
        ("test-00000-of-00001", True),
        ("training.json", True),
        ("training.tfrecord", True),
        ("validation", True),
        ("more.tfrecord.gz", True),
        ("README.md", False),
        (".train-00000-of-00003.tmp", False),
    ],
)
def test_files_that_readers_would_take_for_shards_are_named(
    copy_dir: pathlib.Path, name: str, is_read: bool
) -> None:
    (copy_dir / name).write_bytes(b"")

    assert [shard for shard, _ in faults(copy_dir)] == [name] * is_read


def test_shards_out_of_order_in_the_index_are_named(data_dir: pathlib.Path) -> None:
    known = index.load(data_dir)
    first, second, third = known.splits["train"]
    known = dataclasses.replace(known, splits={"train": (second, first, third)})

    found = [
        fault.fault
        for fault in files.shard_faults(known, files.DataSetFiles(data_dir=data_dir))
    ]

    assert found == [
        f"the index lists this file as shard {number} of 3 of split 'train', but its "
        "name says otherwise"
        for number in (0, 1)
    ]


def test_an_index_without_a_record_is_a_fault(copy_dir: pathlib.Path) -> None:
    known = index.load(copy_dir)
    for splits, expected in (
        ({}, "must list a split, got none"),
        ({**known.splits, "test": ()}, "split 'test' must have a record, got none"),
    ):
        changed = dataclasses.replace(known, splits=splits)
        index.write(changed, copy_dir)

        (fault,) = files.index_faults(changed, copy_dir)

        assert (fault.shard, fault.fault) == (index.INDEX_NAME, expected)


def test_a_shard_that_is_listed_twice_or_in_another_split_is_named(
    data_dir: pathlib.Path,
) -> None:
    known = index.load(data_dir)
    (first, second) = known.splits["validation"]
    splits = {"validation": (first, second), "test": (first, second)}
    known = dataclasses.replace(known, splits=splits)

    found = [
        (f.shard, f.fault)
        for f in files.shard_faults(known, files.DataSetFiles(data_dir=data_dir))
    ]

    misnamed = [
        f"the index lists this file as shard {number} of 2 of split 'test', but its "
        "name says otherwise"
        for number in (0, 1)
    ]
    assert found == [
        (first.name, misnamed[0]),
        (second.name, misnamed[1]),
        (first.name, "the index lists it 2 times"),
        (second.name, "the index lists it 2 times"),
    ]


def test_strays_of_a_split_that_the_index_does_not_have_are_named(
    tmp_path: pathlib.Path, raw_dir: pathlib.Path
) -> None:
    """A data set of photographs without a validation split."""
    raw = str(raw_dir / "train")
    conversions.convert(
        conversion(
            "folder",
            input_dir=Location(str(raw)),
            output_dir=str(tmp_path),
            num_workers=1,
            fsync=False,
        )
    )
    names = ["training.tfrecord", "validation-00000-of-00001"]
    for name in names:
        (tmp_path / name).write_bytes(b"")

    assert [shard for shard, _ in faults(tmp_path)] == names


def test_a_catalog_of_another_number_of_records_is_named(
    data_dir: pathlib.Path,
) -> None:
    known = index.load(data_dir)
    shards = list(known.splits["train"])
    shards[1] = dataclasses.replace(shards[1], num_records=9)
    splits = {**known.splits, "train": tuple(shards)}
    known = dataclasses.replace(known, splits=splits)

    offsets, found = catalog_checks.load_byte_offsets(known, data_dir)

    whole = [shards[0], shards[2], *known.splits["validation"]]
    assert sorted(offsets) == [shard.name for shard in whole]
    assert [fault.fault for fault in found] == [
        "must have a row for each of the 9 records of train-00001-of-00003, got 8"
    ]


@pytest.mark.parametrize("content", [None, b"no parquet"])
def test_a_catalog_that_cannot_be_read_is_a_fault(
    copy_dir: pathlib.Path, content: bytes | None
) -> None:
    catalog = copy_dir / index.CATALOG_NAME
    catalog.unlink()
    if content is not None:
        catalog.write_bytes(content)

    offsets, found = catalog_checks.load_byte_offsets(index.load(copy_dir), copy_dir)

    assert offsets == {}
    assert [fault.shard for fault in found] == [index.CATALOG_NAME]


def test_only_faulty_files_that_the_index_lists_are_restored(
    copy_dir: pathlib.Path,
) -> None:
    known = index.load(copy_dir)
    listed = dict(known.files or {})
    first, second, *_ = files.restore(known, copy_dir, listed)
    other = dataclasses.replace(known, files=listed | {first: listed[second]})

    assert files.restore(known, copy_dir, [first, "unknown"]) == [first]
    assert files.restore(other, copy_dir, [first]) == []
