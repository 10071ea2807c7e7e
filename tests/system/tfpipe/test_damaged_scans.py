"""Shards without an index that are cut short, damaged or empty."""

import pytest

import tfpipe
from tests.support.data.foreign import write_shard
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.trees import make_jpeg
from tfpipe import errors
from tfpipe.shards import records

pytestmark = needs_native

NUM_RECORDS = 4
# For the second of three shards: the bytes that remain of a record and its number, or
# the byte of its header that changes; and the kind of the fault.
DAMAGE = {
    "cut in the data": (2, 500, None, "cut"),
    "cut in the footer": (3, -1, None, "cut"),
    "cut behind the header": (3, 12, None, "cut"),
    "cut in the header": (2, 5, None, "header"),
    "cut in the first record": (0, 500, None, "cut"),
    "length changed": (2, None, 1, "header"),
    "huge length": (2, None, 7, "header"),
    "CRC of the length": (1, None, 9, "header"),
    "first header": (0, None, 0, "header"),
}


def write(folder):
    """Writes three shards, each record with its number in the split as the label."""
    for shard in range(3):
        write_shard(
            folder / f"part-{shard}.tfrecord",
            [
                {
                    "image/encoded": make_jpeg(n),
                    "image/class/label": NUM_RECORDS * shard + n,
                }
                for n in range(NUM_RECORDS)
            ],
        )
    return folder / "part-1.tfrecord"


def damaged(folder, name):
    """Damages the second shard; returns the labels of the sound records."""
    record, num_left, byte, _ = DAMAGE[name]
    path = write(folder)
    spans = list(records.scan(path))
    content = bytearray(path.read_bytes())
    start = spans[record].byte_offset
    if byte is not None:
        content[start + byte] ^= 0x55
    else:
        left = num_left if num_left > 0 else spans[record].num_bytes + num_left
        del content[start + left :]
    path.write_bytes(content)
    every = range(3 * NUM_RECORDS)
    return [n for n in every if not NUM_RECORDS + record <= n < 2 * NUM_RECORDS]


def read(folder, reading="auto", whole=True, **options):
    source = tfpipe.TFRecordSource(
        folder,
        files="*.tfrecord",
        batch_size=2,
        shuffle="none",
        remainder="pad",
        reading=reading,
        **options,
    )
    pipeline = tfpipe.imagenet_eval(
        source, parse=tfpipe.Parse(label_base=0), image_size=8, whole_batches=whole
    )
    labels = [
        int(label)
        for batch in pipeline.build(num_epochs=1)
        for label, mask in zip(batch["label"], batch["mask"], strict=True)
        if mask
    ]
    return labels, pipeline.faults.faults


@pytest.mark.parametrize(
    ("name", "reading", "whole"),
    [
        *((name, "native", True) for name in DAMAGE),
        ("cut in the data", "tensorflow", False),
        ("first header", "tensorflow", False),
    ],
)
def test_records_before_the_damage_are_read_and_it_is_one_fault(
    tmp_path, capfd, name, reading, whole
):
    sound = damaged(tmp_path, name)

    labels, faults = read(tmp_path, reading, whole, on_error="skip")

    assert labels == sound
    (fault,) = faults
    assert fault.reason == DAMAGE[name][3]
    assert fault.shard == str(tmp_path / "part-1.tfrecord")
    said = capfd.readouterr().err
    assert "bytes count as one damaged record" in said
    assert said.count("Skipped a damaged record.") == 1
    with pytest.raises(tfpipe.errors.BadIndexError, match=r"part-1\.tfrecord: record"):
        read(tmp_path)


def test_the_fault_of_a_cut_shard_counts_for_max_faults(tmp_path):
    damaged(tmp_path, "cut in the data")

    with pytest.raises(Exception, match="max_faults allows 0"):
        read(tmp_path, on_error="skip", max_faults=0)


def test_a_repaired_shard_is_read_as_a_whole(tmp_path):
    damaged(tmp_path, "cut in the data")
    read(tmp_path, on_error="skip")
    write(tmp_path)

    assert read(tmp_path, on_error="skip") == ([*range(3 * NUM_RECORDS)], [])


@pytest.mark.parametrize("on_error", ["skip", "raise"])
def test_an_empty_shard_is_said_each_time(tmp_path, capfd, on_error):
    write(tmp_path).write_bytes(b"")

    for _ in range(2):
        labels, faults = read(tmp_path, on_error=on_error)
        assert labels == [0, 1, 2, 3, 8, 9, 10, 11]
        assert not faults
        assert (
            f"1 shard of 3 without a record in {tmp_path}, the first is "
            "part-1.tfrecord (0 bytes)"
        ) in capfd.readouterr().err


def test_a_shard_that_cannot_be_read_is_no_fault(tmp_path, monkeypatch):
    write(tmp_path)

    def fail(path):
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(records, "scan", fail)
    with pytest.raises(OSError, match="Input/output error"):
        read(tmp_path, on_error="skip")


def test_a_compressed_shard_is_refused(tmp_path):
    write(tmp_path)
    write_shard(
        tmp_path / "part-1.tfrecord",
        [{"image/encoded": make_jpeg(0), "image/class/label": 0}],
        compression="GZIP",
    )

    with pytest.raises(errors.BadIndexError, match="must not be compressed"):
        read(tmp_path, on_error="skip")
