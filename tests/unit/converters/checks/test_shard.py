"""converters.checks.shard and record: faults with record, offset and file."""

import dataclasses
import itertools
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator

import hypothesis
import numpy as np
import pytest
import xxhash
from hypothesis import strategies

from converters.checks import (
    catalog as catalog_checks,
    record as record_checks,
    shard as shard_checks,
)
from converters.jobs.again import Again
from tests.support.data.trees import make_jpeg
from tfpipe.location.location import Location
from tfpipe.shards import image_record, index, records
from tfpipe.shards.example import (
    Buffers,
    Feature,
    bytes_feature,
    decode_example,
    encode_example,
    float_feature,
    int64_feature,
)
from tfpipe.shards.sql import quoted

SHARD = "train-00001-of-00003"
Edit = Callable[[dict[str, Buffers]], None]


def make_task(data_dir: pathlib.Path) -> shard_checks.CheckTask:
    known = index.load(data_dir)
    offsets, _ = catalog_checks.load_byte_offsets(known, data_dir)
    return shard_checks.CheckTask(
        split="train",
        number=1,
        shard=known.splits["train"][1],
        byte_offsets=offsets[SHARD],
    )


def make_settings(
    data_dir: pathlib.Path, level: str, input_dir: pathlib.Path | None = None
) -> shard_checks.Settings:
    known = index.load(data_dir)
    return shard_checks.Settings(
        data_dir=data_dir,
        level=level,
        features=None,
        classes=known.classes,
        label_base=known.label_base,
        input_dir=None if input_dir is None else Location(str(input_dir)),
    )


def check_one(
    data_dir: pathlib.Path, level: str, *, input_dir: pathlib.Path | None = None
) -> shard_checks.Findings:
    settings = make_settings(data_dir, level, input_dir)
    task = make_task(data_dir)
    if settings.input_dir is not None:
        names = rows(data_dir)["filename"]
        images = Again(settings.input_dir).find_all(names)
        task = dataclasses.replace(task, images=images)
    return shard_checks.check_shard(settings, task)


def rows(data_dir: pathlib.Path) -> dict[str, list]:
    """Places and file names of the records of SHARD."""
    columns = ["shard", "byte_offset", "num_bytes", "filename"]
    table = index.load_catalog(data_dir, "train", columns)
    mine = table.pop("shard") == 1
    return {name: values[mine].tolist() for name, values in table.items()}


def to_buffers(feature: Feature) -> Buffers:
    if feature.kind == "bytes":
        return bytes_feature(feature.values[0])
    if feature.kind == "int64":
        return int64_feature(feature.values)
    return float_feature(feature.values)


def edit_last(data_dir: pathlib.Path, edit: Edit) -> int:
    """Changes the last record of SHARD, with right CRCs; returns its number."""
    path, place = data_dir / SHARD, rows(data_dir)
    *_, last = records.read(path)
    example = decode_example(last.data)
    features = {key: to_buffers(feature) for key, feature in example.items()}
    edit(features)
    framed = b"".join(records.frame(encode_example(features)))
    path.write_bytes(path.read_bytes()[: last.byte_offset] + framed)
    return len(place["byte_offset"]) - 1


@pytest.mark.parametrize("level", shard_checks.LEVELS[1:])
def test_shards_of_the_converter_have_no_fault(
    data_dir: pathlib.Path, raw_dir: pathlib.Path, level: str
) -> None:
    found = check_one(data_dir, level, input_dir=raw_dir)

    assert (found.faults, found.num_faults, found.num_not_comparable) == ([], 0, 0)


@pytest.fixture(scope="module")
def scratch(
    data_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[shard_checks.Settings, shard_checks.CheckTask, dict[str, list], bytes]:
    """Settings, task and content of a copy of SHARD that tests may overwrite."""
    folder = tmp_path_factory.mktemp("flip") / "copy"
    shutil.copytree(data_dir, folder)
    content = (folder / SHARD).read_bytes()
    return make_settings(folder, "crc"), make_task(folder), rows(folder), content


@hypothesis.settings(max_examples=40, deadline=None, derandomize=True)
@hypothesis.given(
    place=strategies.floats(0, 1, exclude_max=True), bit=strategies.integers(0, 7)
)
@hypothesis.example(place=0.0, bit=0)
def test_a_flipped_bit_anywhere_is_named_with_its_record(
    scratch: tuple[
        shard_checks.Settings, shard_checks.CheckTask, dict[str, list], bytes
    ],
    place: float,
    bit: int,
) -> None:
    settings, task, table, content = scratch
    position = int(place * len(content))
    damaged = bytearray(content)
    damaged[position] ^= 1 << bit
    (settings.data_dir / SHARD).write_bytes(damaged)

    found = shard_checks.check_shard(settings, task)

    record = int(np.searchsorted(table["byte_offset"], position, side="right")) - 1
    named = [(f.shard, f.record, f.byte_offset, f.file) for f in found.faults]
    expected = (SHARD, record, table["byte_offset"][record], table["filename"][record])
    assert named == [expected]


def test_every_byte_of_a_frame_is_covered(
    scratch: tuple[
        shard_checks.Settings, shard_checks.CheckTask, dict[str, list], bytes
    ],
) -> None:
    """Header and footer of one record: length, its CRC, the CRC of the data."""
    settings, task, table, content = scratch
    start = table["byte_offset"][3]
    footer = start + table["num_bytes"][3] - records.FOOTER_BYTES
    for position in (*range(start, start + 12), *range(footer, footer + 4)):
        damaged = bytearray(content)
        damaged[position] ^= 0x40
        (settings.data_dir / SHARD).write_bytes(damaged)

        found = shard_checks.check_shard(settings, task)

        assert [fault.record for fault in found.faults] == [3], position


def test_all_damaged_records_of_a_shard_are_named(copy_dir: pathlib.Path) -> None:
    table, content = rows(copy_dir), bytearray((copy_dir / SHARD).read_bytes())
    content[table["byte_offset"][1]] ^= 1  # a length
    content[table["byte_offset"][2] + 3] ^= 1  # the next length too
    content[table["byte_offset"][5] + 400] ^= 1  # data
    (copy_dir / SHARD).write_bytes(content)

    found = check_one(copy_dir, "decode")

    assert [fault.record for fault in found.faults] == [1, 2, 5]
    assert "header" in found.faults[0].fault
    assert "CRC of the data" in found.faults[2].fault


def test_without_a_catalog_the_rest_after_a_bad_header_is_one_fault(
    copy_dir: pathlib.Path,
) -> None:
    table, content = rows(copy_dir), bytearray((copy_dir / SHARD).read_bytes())
    offset = table["byte_offset"][2]
    content[offset] ^= 1
    (copy_dir / SHARD).write_bytes(content)

    task = dataclasses.replace(make_task(copy_dir), byte_offsets=None)
    found = shard_checks.check_shard(make_settings(copy_dir, "crc"), task)

    first, rest = found.faults
    assert (first.record, first.byte_offset) == (2, offset)
    assert f"the last {len(content) - offset} bytes" in first.fault
    assert (rest.record, rest.fault) == (
        3,
        "missing, like all records up to 7, the last one",
    )


def test_cut_shard_names_the_cut_and_the_missing_records(
    copy_dir: pathlib.Path,
) -> None:
    table = rows(copy_dir)
    cut = table["byte_offset"][4] + 100
    (copy_dir / SHARD).write_bytes((copy_dir / SHARD).read_bytes()[:cut])

    found = check_one(copy_dir, "crc")

    assert [(f.record, f.file) for f in found.faults] == [
        (4, table["filename"][4]),
        (5, table["filename"][5]),
    ]
    expected = f"must have {table['num_bytes'][4]} bytes, got 100 to the end"
    assert expected in found.faults[0].fault
    assert found.faults[1].byte_offset == table["byte_offset"][5]


def test_too_many_records_are_named(copy_dir: pathlib.Path) -> None:
    size = (copy_dir / SHARD).stat().st_size
    with open(copy_dir / SHARD, "ab") as shard:
        shard.write(2 * b"".join(records.frame([b"more"])))

    fault, second = check_one(copy_dir, "crc").faults

    assert (fault.record, fault.byte_offset, fault.file) == (8, size, None)
    assert (second.record, second.fault) == (9, fault.fault)
    assert "the index says that the shard has 8 records" in fault.fault


def test_records_in_another_order_are_found_though_every_crc_is_right(
    copy_dir: pathlib.Path,
) -> None:
    framed = [b"".join(records.frame([r.data])) for r in records.read(copy_dir / SHARD)]
    framed[0], framed[1] = framed[1], framed[0]
    (copy_dir / SHARD).write_bytes(b"".join(framed))

    crc, schema = check_one(copy_dir, "crc"), check_one(copy_dir, "schema")

    assert crc.num_faults == 1
    assert "the catalog says that it starts" in str(crc.faults[0]) or (
        "the digest must be" in str(crc.faults[0])
    )
    assert {0, 1} <= {fault.record for fault in schema.faults}


def test_only_the_first_faults_of_a_shard_are_kept_but_all_are_counted() -> None:
    found = shard_checks.Findings(SHARD)
    for number in range(shard_checks.MAX_FAULTS + 7):
        found.add(shard_checks.Fault(shard=SHARD, record=number, fault="bad"))

    assert len(found.faults) == shard_checks.MAX_FAULTS
    assert found.num_faults == shard_checks.MAX_FAULTS + 7


def _set(key: str, buffers: Buffers) -> Edit:
    def edit(features: dict[str, Buffers]) -> None:
        features[key] = buffers

    return edit


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda features: features.pop("image/width"), "image/width is missing"),
        (
            _set("image/extra", int64_feature([1])),
            "image/extra is not one of those",
        ),
        (
            _set("image/height", bytes_feature(b"32")),
            "image/height must be of type int64, got bytes",
        ),
        (
            _set("image/height", int64_feature([32, 32])),
            "image/height must have one value, got 2",
        ),
        (_set("image/channels", int64_feature([1])), "must be 3, got 1"),
        (
            _set("image/class/label", int64_feature([1001])),
            "the label must be 1 to 1000, got 1001",
        ),
        (
            _set("image/class/label", int64_feature([0])),
            "the label must be 1 to 1000, got 0",
        ),
        (
            _set("image/class/synset", bytes_feature(b"n00000000")),
            "got 'n00000000'",
        ),
        (_set("image/class/text", bytes_feature(b"cat")), "got 'cat'"),
        (
            _set("image/filename", bytes_feature(b"x.JPEG")),
            "got 'x.JPEG'",
        ),
        (
            _set("image/height", int64_feature([99])),
            "the image's header says height 3",
        ),
        (
            _set("image/encoded", bytes_feature(make_jpeg(999))),
            "the digest of the image must be",
        ),
        (
            _set("image/encoded", bytes_feature(b"nothing")),
            "no readable header",
        ),
        (
            _set("image/object/bbox/xmin", float_feature([0.5])),
            "must have one length",
        ),
    ],
)
def test_schema_names_what_is_wrong_in_a_record(
    copy_dir: pathlib.Path, edit: Edit, fault: str
) -> None:
    number = edit_last(copy_dir, edit)

    found = check_one(copy_dir, "schema")

    assert {one.record for one in found.faults} == {number}
    assert found.faults[0].file == rows(copy_dir)["filename"][number]
    assert fault in "\n".join(map(str, found.faults))


def test_a_record_without_a_synset_may_have_a_wrong_text(
    data_dir: pathlib.Path,
) -> None:
    first, *_ = records.read(data_dir / SHARD)
    example = decode_example(first.data)
    del example["image/class/synset"]

    (fault,) = record_checks._class_faults(example, [("n", "other")] * 1000, 1)

    assert re.match(r"image/class/text of label \d+ must be 'other', got '\w", fault)


def _relabel(labels: list[int]) -> Edit:
    """Gives a record these labels, and no boxes."""

    def edit(features: dict[str, Buffers]) -> None:
        features["image/class/label"] = int64_feature(labels)

    return edit


@pytest.mark.parametrize("labels", [[], [1, 1000, 7]])
def test_several_labels_are_sound_if_the_index_says_so(
    copy_dir: pathlib.Path, labels: list[int]
) -> None:
    edit_last(copy_dir, _relabel(labels))
    settings = make_settings(copy_dir, "schema")
    several = dataclasses.replace(settings, multi_label=True)
    task = make_task(copy_dir)

    one, many = (shard_checks.check_shard(s, task) for s in (settings, several))

    assert f"must have one value, got {len(labels)}" in "\n".join(map(str, one.faults))
    assert all(fault.record is None for fault in many.faults)  # the shard's digest
    edit_last(copy_dir, _relabel([1, 1001]))
    wrong = shard_checks.check_shard(several, task).faults
    assert "the label must be 1 to 1000, got 1001" in "\n".join(map(str, wrong))


def test_data_that_is_not_an_example_is_named(copy_dir: pathlib.Path) -> None:
    path = copy_dir / SHARD
    *_, last = records.read(path)
    junk = b"".join(records.frame([b"\xff" * 40]))
    path.write_bytes(path.read_bytes()[: last.byte_offset] + junk)

    (fault,) = check_one(copy_dir, "schema").faults

    assert fault.record == 7
    assert "not a tf.train.Example" in fault.fault


def test_decode_finds_an_image_that_is_cut_behind_its_header(
    copy_dir: pathlib.Path,
) -> None:
    """The catalog agrees with the cut image, as if it had been converted so."""
    *_, last = records.read(copy_dir / SHARD)
    whole = decode_example(last.data)[image_record.ENCODED].values[0]
    cut = whole[:-200]
    edit_last(copy_dir, _set(image_record.ENCODED, bytes_feature(cut)))
    replace_digest(copy_dir, xxhash.xxh3_128_hexdigest(whole), cut)

    schema, decode = check_one(copy_dir, "schema"), check_one(copy_dir, "decode")

    assert [fault.record for fault in schema.faults] == [None]
    assert "the digest must be" in schema.faults[0].fault
    assert [fault.record for fault in decode.faults] == [7]
    assert "does not decode" in decode.faults[0].fault


def replace_digest(data_dir: pathlib.Path, old: str, encoded: bytes) -> None:
    """Writes the digest of other bytes into the catalog for one image."""
    catalog, new = data_dir / index.CATALOG_NAME, xxhash.xxh3_128_hexdigest(encoded)
    with index.catalog_connection() as connection:
        connection.execute(
            "CREATE TEMP TABLE catalog AS FROM read_parquet(?)", [str(catalog)]
        )
        connection.execute("UPDATE catalog SET digest = ? WHERE digest = ?", [new, old])
        connection.execute(f"COPY catalog TO {quoted(catalog)} (FORMAT parquet)")


def test_source_compares_with_the_files(
    copy_dir: pathlib.Path, raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    raw = pathlib.Path(shutil.copytree(raw_dir, tmp_path / "raw"))
    names = rows(copy_dir)["filename"]
    changed = bytearray((raw / names[2]).read_bytes())
    changed[50] ^= 1
    (raw / names[2]).write_bytes(changed)
    (raw / names[6]).unlink()

    found = check_one(copy_dir, "source", input_dir=raw)

    assert [(fault.record, fault.file) for fault in found.faults] == [
        (2, names[2]),
        (6, names[6]),
    ]
    assert "they differ from byte 50" in found.faults[0].fault
    assert "the input must hold the image" in found.faults[1].fault


def test_an_image_that_cannot_be_read_is_a_fault_and_a_broken_disk_is_none(
    copy_dir: pathlib.Path, raw_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Exception] = [OSError("a tar ends too early"), ValueError("no image")]

    def fail(*_: object) -> None:
        raise raised[0]

    monkeypatch.setattr(shard_checks, "read_image", fail)
    for error in list(raised):
        raised[0] = error
        found = check_one(copy_dir, "source", input_dir=raw_dir)
        assert {fault.fault for fault in found.faults} == {
            f"the source cannot be read: {error}"
        }
    raised[0] = OSError(5, "Input/output error")
    with pytest.raises(OSError, match="Input/output error"):
        check_one(copy_dir, "source", input_dir=raw_dir)


def test_a_shard_that_cannot_be_read_on_is_no_fault(
    copy_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = records.read

    def fail(path: pathlib.Path, **options: object) -> Iterator[records.Record]:
        yield from itertools.islice(real(path, **options), 2)
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(records, "read", fail)

    with pytest.raises(OSError, match=f"Input/output error: .*{SHARD}"):
        check_one(copy_dir, "crc")
