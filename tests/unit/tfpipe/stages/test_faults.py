import collections
import contextlib
import os
import re
import resource
import struct

import google_crc32c
import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.presets import preset_over
from tests.support.faults.damage import NUM_TRAIN, flip, places, read, spoil_jpeg
from tfpipe import errors
from tfpipe.location import answers
from tfpipe.native import op as native_op
from tfpipe.shards import records
from tfpipe.stages import faults


def evaluate(folder, **options):
    defaults = {"image_size": 8, "batch_size": 4, "with_record_id": True}
    options = {"split": "train", **defaults, **options}
    pipeline = preset_over(tfpipe.imagenet_eval, folder, **options)
    return pipeline, list(pipeline.build().as_numpy_iterator())


def _failing(number):
    tf.debugging.Assert(number > 3, ["labels must be", number])
    return number


@pytest.mark.parametrize(
    ("fail", "expected"),
    [
        (lambda: tf.io.decode_jpeg(b"x"), "Unknown image file format."),
        (lambda: tf.function(tf.io.decode_jpeg)(b"x"), "Unknown image file format."),
        (
            lambda: next(iter(tf.data.Dataset.from_tensors(1).map(_failing))),
            "assertion failed: [labels must be] [1]",
        ),
    ],
    ids=["eager", "function", "dataset"],
)
def test_a_message_has_no_names_of_the_graph(fail, expected):
    with pytest.raises(tf.errors.OpError) as raised:
        fail()

    assert faults.message(raised.value).startswith(expected)
    assert "{{" not in faults.message(raised.value)
    assert "Op:" not in faults.message(raised.value)


def joined(batches, name):
    return np.concatenate([batch[name] for batch in batches])


# Number of a record -> position of the flipped byte: in the length, in the CRC of the
# length, in the first and last bytes of the data, and in their CRC. The shards begin
# with records 0, 8 and 16.
POSITIONS = {0: 0, 5: 4, 7: 4, 9: 9, 11: 12, 13: 300, 16: 12, 18: -5, 23: -1}


def test_a_flipped_byte_costs_its_record_alone(copy_dir, capfd):
    positions = POSITIONS
    damaged = {number: places(copy_dir)[number] for number in positions}
    for number, (path, offset, size, _) in damaged.items():
        flip(path, offset + positions[number] % size)
    log = tfpipe.FaultLog(len(positions))

    passed_on = read(copy_dir, log)

    assert len(passed_on) == NUM_TRAIN
    expected = [n for n in range(NUM_TRAIN) if n not in positions]
    assert sorted(n for n, real in passed_on if real) == expected
    printed = capfd.readouterr().err
    for fault, number in zip(log.faults, positions, strict=True):
        path, offset, _, name = damaged[number]
        assert fault.record_id == number
        assert (fault.shard, fault.byte_offset) == (str(path), offset)
        assert fault.reason == ("header" if positions[number] in range(12) else "crc")
        assert f"{path}: record {number} of the split at byte {offset} " in printed
        assert f"(image {name})" in printed


def test_what_was_skipped_is_told_at_the_end_of_the_epoch(copy_dir, capfd):
    path, offset, size, _ = places(copy_dir)[5]
    flip(path, offset + size // 2)
    source = tfpipe.TFRecordSource(
        copy_dir, "train", batch_size=4, on_error="skip", max_faults=1
    )
    pipeline = tfpipe.imagenet_train(source, image_size=8)

    dataset = pipeline.build()
    assert dataset.cardinality() == 6
    batches = list(dataset)

    told = capfd.readouterr().err
    assert len(batches) == 6
    assert "Skipped 1 record." in told
    assert f"  {path} at {offset}" in told.splitlines()


def test_nothing_is_told_where_nothing_was_skipped(data_dir, capfd):
    read(data_dir, tfpipe.FaultLog(1))

    assert "skipped" not in capfd.readouterr().err


def test_the_first_damaged_record_is_an_error_that_names_it_each_time(copy_dir):
    path, offset, _, name = places(copy_dir)[13]
    flip(path, offset + 50)

    log = tfpipe.FaultLog(0)
    budget = "max_faults allows 0"
    for given, told in ((None, "converters.verify"), (log, budget), (log, budget)):
        with pytest.raises(tf.errors.UnknownError, match=told) as caught:
            read(copy_dir, given)

        place = f"{path}: record 13 of the split at byte {offset} (image {name})"
        message = str(caught.value)
        assert place in message
        assert "the CRC of the data is wrong" in message
        assert "converters.verify" in message
    assert [fault.byte_offset for fault in log.faults] == [offset]


@pytest.mark.parametrize(("num_ranks", "shuffle"), [(1, "full"), (3, "window")])
def test_every_rank_keeps_its_steps(copy_dir, num_ranks, shuffle):
    bad = [2, 3, 13]
    for number in bad:
        path, offset, _, _ = places(copy_dir)[number]
        flip(path, offset + 50)
    log = tfpipe.FaultLog(3)
    whole = {"num_ranks": num_ranks, "shuffle": shuffle, "batch_size": 3}

    shares = [read(copy_dir, log, rank=rank, **whole) for rank in range(num_ranks)]

    assert len({len(share) for share in shares}) == 1
    real = [number for share in shares for number, is_real in share if is_real]
    assert sorted(real) == [n for n in range(NUM_TRAIN) if n not in bad]
    assert [fault.record_id for fault in log.faults] == bad
    assert log.num_faults_by_reason == {"crc": 3}


def test_sound_records_keep_their_places(copy_dir):
    before = read(copy_dir, None, seed=4)
    path, offset, _, _ = places(copy_dir)[13]
    flip(path, offset + 50)

    after = read(copy_dir, tfpipe.FaultLog(1), seed=4)

    differ = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    ((was, stand_in),) = differ
    assert was == (13, True)
    assert stand_in[0] != 13
    assert stand_in[1] is False


def test_more_faults_than_the_budget_are_an_error(copy_dir):
    for number in (2, 13):
        path, offset, _, _ = places(copy_dir)[number]
        flip(path, offset + 50)

    with pytest.raises(
        tf.errors.UnknownError, match=r"Found 2 damaged records, max_faults allows 1"
    ):
        read(copy_dir, tfpipe.FaultLog(1))


def test_record_that_fills_up_may_be_damaged(copy_dir):
    path, offset, _, _ = places(copy_dir)[0]
    flip(path, offset + 50)

    log = tfpipe.FaultLog(1)

    passed_on = read(copy_dir, log, shuffle="none", batch_size=7)

    assert [real for _, real in passed_on] == [False, *[True] * 23, *[False] * 4]
    assert [fault.record_id for fault in log.faults] == [0]


def test_another_shard_stands_in_for_one_without_a_sound_record(copy_dir):
    """Each of the first two windows is damaged as a whole."""
    for path, offset, _, _ in places(copy_dir)[:9]:
        flip(path, offset + 50)

    passed_on = read(copy_dir, tfpipe.FaultLog(9), shuffle="none", window_size=4)

    assert passed_on[:9] == [(9, False)] * 9
    assert passed_on[9:] == [(number, True) for number in range(9, NUM_TRAIN)]


def test_data_without_a_sound_record_are_an_error(copy_dir):
    for path, offset, _, _ in places(copy_dir):
        flip(path, offset + 50)

    with pytest.raises(
        tf.errors.UnknownError, match=r"No sound record .*CRC of the data is wrong"
    ):
        read(copy_dir, tfpipe.FaultLog(100))


@contextlib.contextmanager
def no_files_left(path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextlib.contextmanager
def replaced(path, make):
    kept = path.rename(path.with_name("kept"))
    make(path)
    try:
        yield
    finally:
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        kept.rename(path)


ERRORS_OF_THE_HOST = {
    "No such file": lambda path: replaced(path, lambda path: None),
    "s a directory": lambda path: replaced(path, os.mkdir),
    "oo many levels of symbolic links": lambda path: replaced(
        path, lambda path: path.symlink_to(path)
    ),
}
# Where no file can be opened, TensorFlow 2.21 itself ends the process: each of
# its iterators opens a std::random_device.
if tf.__version__ < "2.18":
    ERRORS_OF_THE_HOST["Too many open files"] = no_files_left


@pytest.mark.parametrize(
    "options",
    [
        {"reading": "native"},
        {"reading": "tensorflow"},
        {"whole_batches": False},
        {"cache": "ram"},
    ],
    ids=str,
)
def test_an_error_of_the_host_raises_and_is_no_fault(copy_dir, options):
    if options.get("reading") == "native" and native_op.load()[0] is None:
        pytest.skip("the native op is not built")
    if "cache" in options:
        options = {"cache": tfpipe.Cache("ram")}
    small = {"image_size": 8, "batch_size": 4, "with_record_id": True}
    skip = {"on_error": "skip", "max_faults": NUM_TRAIN, **small, **options}
    pipeline = preset_over(tfpipe.imagenet_train, copy_dir, **skip)
    dataset = pipeline.build()

    for message, failing in ERRORS_OF_THE_HOST.items():
        with (
            failing(copy_dir / "train-00001-of-00003"),
            pytest.raises(tf.errors.OpError, match=message),
        ):
            list(dataset)
        assert pipeline.faults.faults == []

    assert_all_but([*dataset.as_numpy_iterator()], [])


def raising(error):
    def fail():
        raise error

    return fail


def test_each_error_of_tensorflow_is_of_the_host_or_of_the_bytes():
    """Ops that decode, parse and assert raise those of the bytes."""
    of_bytes = {
        *(tf.errors.InvalidArgumentError, tf.errors.DataLossError),
        *(tf.errors.OutOfRangeError, tf.errors.UnknownError, tf.errors.InternalError),
        *(tf.errors.UnimplementedError, tf.errors.AlreadyExistsError),
    }
    kinds = {*tf.errors.OpError.__subclasses__()}
    assert of_bytes < kinds
    for kind in kinds:
        fail = raising(kind(None, None, "x" * 1000))
        if kind in of_bytes:
            result, detail = faults.tried(fail)
            assert result is None
            assert len(detail) < 500
        else:
            with pytest.raises(OSError, match="no record counts as damaged"):
                faults.tried(fail)


# Text of an error of TensorFlow or tensorflow-io, and the remedy.
REMEDIES = {
    "/data/train-0: Too many open files": errors.OPEN_FILES,
    "/data/train-0: Input/output error": "Run again when the file can be read.",
    "/data/ExpiredToken: No such file": "Run again when the file can be read.",
    "s3://b/train-0: ExpiredToken: The provided token has expired.": (
        f"The login has ended: log in again. {answers.LOGINS['s3']}"
    ),
    "gs://b/train-0: HTTP response code: 401": (
        f"Check the credentials. {answers.LOGINS['gs']}"
    ),
    "s3://b/train-0: HTTP response code: 403": (
        f"Check the credentials. {answers.LOGINS['s3']}"
    ),
    "s3://b/train-0: RequestTimeTooSkewed": "Set the clock of this host.",
    "s3://b/train-0: HTTP response code: 500": "Run again when the file can be read.",
}


@pytest.mark.parametrize("detail", REMEDIES)
def test_an_error_of_the_host_ends_with_the_remedy_of_its_kind(detail):
    said = str(faults.host_error(detail))
    assert said.startswith(f"{detail}. ")
    assert said.endswith(f"no record counts as damaged. {REMEDIES[detail]}")


def test_a_message_with_bytes_of_a_record_is_shown_as_text():
    def fail():
        raise UnicodeDecodeError("utf-8", b"value: \xff\x00.", 7, 8, "invalid")

    assert faults.tried(fail) == (None, "value: \N{REPLACEMENT CHARACTER}\ufffd.")


def test_what_succeeds_when_it_is_tried_again_is_delivered():
    tries = collections.Counter()

    def third_time(numbers):
        tries.update(numbers.ravel().tolist())
        if any(tries[number] < 3 for number in {3, 5, 6, 7} & {*numbers.ravel()}):
            raise ValueError("not yet")
        return numbers

    def op(example):
        ids = example["record_id"]
        same = tf.numpy_function(third_time, [ids], tf.int64)
        return {"record_id": tf.ensure_shape(same, ids.shape)}

    log = tfpipe.FaultLog(0, locate=lambda number: ("shard", number))
    for size in (2, 8):
        tries.clear()
        dataset = tf.data.Dataset.range(8).map(lambda x: {"record_id": x}).batch(size)
        found = [*tfpipe.Map(op, faults=log)(dataset).as_numpy_iterator()]
        assert joined(found, "record_id").tolist() == [*range(8)]
    assert log.faults == []


@pytest.mark.parametrize("cache", [None, "ram"])
@pytest.mark.parametrize("reading", ["native", "tensorflow"])
@pytest.mark.parametrize(
    ("record", "start_step", "stand_in"), [(23, 0, None), (1, 1, None), (17, 1, 18)]
)
def test_a_record_is_a_fault_only_if_it_is_delivered(
    copy_dir, reading, cache, record, start_step, stand_in
):
    if reading == "native" and (cache or native_op.load()[0] is None):
        pytest.skip("the native op does not read here")
    path, offset, _, _ = places(copy_dir)[record]
    flip(path, offset + 50)
    options = {"image_size": 8, "batch_size": 5, "shuffle": "none", "reading": reading}
    options |= {"cache": cache and tfpipe.Cache(cache), "with_record_id": True}
    options |= {"on_error": "skip", "max_faults": 1} if stand_in else {}
    pipeline = preset_over(tfpipe.imagenet_train, copy_dir, **options)

    batches = [*pipeline.build(start_step=start_step).as_numpy_iterator()]

    delivered = [stand_in if n == record else n for n in range(5 * start_step, 20)]
    assert joined(batches, "record_id").tolist() == delivered
    faults = [fault.record_id for fault in pipeline.faults.faults]
    assert faults == ([record] if stand_in else [])


def test_a_length_that_turns_huge_after_the_source_was_made_is_one_fault(copy_dir):
    source = tfpipe.TFRecordSource(copy_dir, "train", shuffle="none")
    log = tfpipe.FaultLog(1)
    dataset = tfpipe.Pipeline(source, [tfpipe.Interleave(faults=log)]).build()
    assert len(list(dataset)) == NUM_TRAIN
    path, offset, _, _ = places(copy_dir)[9]
    lengthen(path, offset, 2**62)

    read_again = [*dataset.as_numpy_iterator()]

    assert len([e for e in read_again if e["is_real"]]) == NUM_TRAIN - 1
    assert [(fault.record_id, fault.reason) for fault in log.faults] == [(9, "cut")]


def test_a_fault_is_counted_and_said_once(capfd):
    log = tfpipe.FaultLog(1)
    fault = faults.Fault(
        reason="crc", shard="/nowhere/train-0", byte_offset=5, record_id=3, detail="bad"
    )

    log.add(fault)
    log.add(fault)

    assert log.faults == [fault]
    line = "/nowhere/train-0: record 3 of the split at byte 5: bad"
    assert capfd.readouterr().err == f"Skipped a damaged record. {line}\n"


def test_summary_says_the_first_ten_of_each_kind():
    log = tfpipe.FaultLog(100)
    for number in range(12):
        log.add(
            faults.Fault(
                reason="crc",
                shard="/s",
                byte_offset=number,
                record_id=number,
                detail="",
            )
        )
    log.add(
        faults.Fault(
            reason="decode", shard="/t", byte_offset=7, record_id=99, detail=""
        )
    )

    lines = log.summary().splitlines()

    assert lines[:2] == ["Skipped 13 records.", "crc: 12"]
    assert lines[2:12] == [f"  /s at {number}" for number in range(10)]
    assert lines[12:] == ["decode: 1", "  /t at 7"]


def fault_of(record_id, shard="/s"):
    return faults.Fault(
        reason="crc", shard=shard, byte_offset=0, record_id=record_id, detail="bad"
    )


def test_logs_are_shown_as_one_and_each_keeps_its_budget():
    one, two, three = tfpipe.FaultLog(2), tfpipe.FaultLog(1), tfpipe.FaultLog(0)
    two.add(fault_of(5))
    one.add(fault_of(9))
    one.add(fault_of(3))

    assert faults.combined([None, one, one, None]) is one
    assert faults.combined([None]) is faults.combined([]) is None
    both = faults.combined([one, None, two])
    assert both.faults == [fault_of(3), fault_of(9), fault_of(5)]
    assert both.max_faults == 3
    assert both.num_faults_by_reason == {"crc": 3}
    assert both.error() is None
    with pytest.raises(TypeError, match="must be added to one of the 2 logs"):
        both.add(fault_of(1))

    with pytest.raises(tfpipe.errors.BadRecordError, match="Found 2 damaged records"):
        two.add(fault_of(1, shard="/last"))
    error = faults.combined([one, two, three]).error()
    assert str(error).startswith(
        "Found 2 damaged records, max_faults allows 1. The last one: /last: record 1 "
    )


def test_budget_below_zero_is_refused():
    with pytest.raises(
        ValueError, match="max_faults must be a whole number >= 0, got -1"
    ):
        tfpipe.FaultLog(-1)


def test_map_wants_to_know_where_records_are():
    with pytest.raises(ValueError, match=r"FaultLog\(\.\.\., locate=source\.locate\)"):
        tfpipe.Map(tf.identity, faults=tfpipe.FaultLog(1))


def test_locate_says_shard_and_offset_of_every_record(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train")

    located = [source.locate(number) for number in range(NUM_TRAIN)]

    assert located == [(str(path), offset) for path, offset, _, _ in places(data_dir)]


def fail_on(*bad):
    def op(example):
        numbers = example["record_id"][..., tf.newaxis]
        known = tf.reduce_all(numbers != tf.constant(bad, tf.int64))
        with tf.control_dependencies([tf.debugging.Assert(known, ["no such thing"])]):
            return {name: tf.identity(value) for name, value in example.items()}

    return op


@pytest.mark.parametrize(
    ("bad", "stand_ins", "calls"),
    [
        ([4, 31, 33, 34], {4: 5, 31: 0, 33: 35, 34: 35}, 1),
        ([64], {64: 0}, 8),
    ],
)
def test_map_lets_the_next_of_its_chunk_stand_in(bad, stand_ins, calls):
    """The last of 65 is a chunk by itself: the first of all stands in for it."""
    log = tfpipe.FaultLog(9, locate=lambda number: ("shard", number * 10))
    stage = tfpipe.Map(fail_on(-1, *bad), num_parallel_calls=calls, faults=log)
    dataset = tf.data.Dataset.range(65).map(
        lambda x: {"record_id": x, "mask": tf.cast(x != 9, tf.float32)}
    )

    mapped = stage(dataset)
    result = list(mapped.as_numpy_iterator())

    assert [e["record_id"] for e in result] == [stand_ins.get(n, n) for n in range(65)]
    masks = [0 if n in (*bad, 9) else 1 for n in range(65)]
    assert [e["mask"] for e in result] == masks
    assert [(f.record_id, f.byte_offset) for f in log.faults] == [
        (number, number * 10) for number in bad
    ]
    assert all(f.reason == "decode" and "no such thing" in f.detail for f in log.faults)
    assert mapped.element_spec == dataset.element_spec


@pytest.mark.parametrize(
    ("bad", "batch_size"), [([5], 1), ([4, 5, 6, 7, 8, 9, 10, 11], 4)]
)
def test_batch_without_a_sound_element_is_replaced(bad, batch_size):
    log = tfpipe.FaultLog(9, locate=lambda number: ("shard", number))
    elements = tf.data.Dataset.range(12).map(lambda x: {"record_id": x, "mask": 1.0})

    stage = tfpipe.Map(fail_on(-1, *bad), faults=log)
    batches = [*stage(elements.batch(batch_size)).as_numpy_iterator()]

    ids, mask = joined(batches, "record_id"), joined(batches, "mask")
    assert ids.tolist() == [0 if number in bad else number for number in range(12)]
    assert mask.tolist() == [number not in bad for number in range(12)]
    assert [fault.record_id for fault in log.faults] == bad


def test_ops_that_fail_on_everything_are_an_error():
    log = tfpipe.FaultLog(9, locate=lambda number: ("shard", number))
    dataset = tf.data.Dataset.range(5).map(lambda x: {"record_id": x})

    with pytest.raises(
        tf.errors.UnknownError, match=r"No sound record .*no such thing"
    ):
        list(tfpipe.Map(fail_on(*range(5)), faults=log)(dataset))


def test_a_fault_before_the_ops_is_not_taken_for_one_of_theirs():
    log = tfpipe.FaultLog(9, locate=lambda number: ("shard", number))
    dataset = tf.data.Dataset.range(5).map(lambda x: {"record_id": x})

    with pytest.raises(tf.errors.InvalidArgumentError, match="no such thing"):
        list(tfpipe.Map(dict, faults=log)(dataset.map(fail_on(3))))


def test_an_image_that_cannot_be_decoded_is_named(copy_dir):
    spoil_jpeg(copy_dir, 13)
    path, offset, _, name = places(copy_dir)[13]

    with pytest.raises(tf.errors.UnknownError) as caught:
        evaluate(copy_dir)

    message = str(caught.value)
    assert f"{path}: record 13 of the split at byte {offset} (image {name})" in message
    assert re.search("JPEG", message)


def test_skipped_images_are_masked_on_every_rank(copy_dir):
    num_ranks = 2
    for number in (5, 13):
        spoil_jpeg(copy_dir, number)
    path, offset, _, _ = places(copy_dir)[20]
    flip(path, offset + 50)

    shares = [
        evaluate(copy_dir, on_error="skip", rank=rank, num_ranks=num_ranks)
        for rank in range(num_ranks)
    ]

    assert len({len(batches) for _, batches in shares}) == 1
    everything = [batch for _, batches in shares for batch in batches]
    real = joined(everything, "record_id")[joined(everything, "mask") == 1]
    assert sorted(real) == [n for n in range(NUM_TRAIN) if n not in (5, 13, 20)]
    found = [fault for pipeline, _ in shares for fault in pipeline.faults.faults]
    assert {(f.record_id, f.reason) for f in found} == {
        (5, "decode"),
        (13, "decode"),
        (20, "crc"),
    }
    assert (20, offset) in [(f.record_id, f.byte_offset) for f in found]


def test_file_name_is_left_out_where_no_index_tells_it(tmp_path):
    fault = faults.Fault(
        reason="crc",
        shard=os.fspath(tmp_path / "train-0"),
        byte_offset=1,
        record_id=2,
        detail="bad",
    )

    assert "image" not in str(fault)


def lengthen(path, offset, length):
    """Gives a record a header that states another length, with the right CRC."""
    stated = struct.pack("<Q", length)
    framed = stated + records._masked(google_crc32c.value(stated))
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(framed)


# Number of a record -> the length that its header states. Record 7 is the last one of
# its shard.
@pytest.mark.parametrize(
    "stated",
    [{3: 2**62, 7: 10**6, 9: 2**64 - 1, 12: 2**40, 17: 10**6, 20: 0}, {23: 0}],
)
def test_header_with_a_wrong_length_costs_its_record_alone(copy_dir, stated):
    for number, length in stated.items():
        path, offset, _, _ = places(copy_dir)[number]
        lengthen(path, offset, length)
    log = tfpipe.FaultLog(len(stated))

    passed_on = read(copy_dir, log)

    expected = [n for n in range(NUM_TRAIN) if n not in stated]
    assert sorted(n for n, real in passed_on if real) == expected
    assert {fault.record_id: fault.reason for fault in log.faults} == {
        number: "cut" if length else "crc" for number, length in stated.items()
    }


def test_header_with_a_wrong_length_is_an_error_that_names_it(copy_dir):
    path, offset, _, _ = places(copy_dir)[NUM_TRAIN - 1]
    lengthen(path, offset, 2**40)

    with pytest.raises(tf.errors.UnknownError, match="record 23 of the split"):
        read(copy_dir, None)


def test_wrong_length_is_named_by_a_scan_and_by_a_cache(copy_dir, tmp_path):
    path, offset, _, _ = places(copy_dir)[3]
    lengthen(path, offset, 2**62)

    log = tfpipe.FaultLog(1)
    source = tfpipe.TFRecordSource(copy_dir, "train", shuffle="none")
    stages = [tfpipe.Interleave(faults=log), tfpipe.Cache("ram")]
    assert len([*tfpipe.Pipeline(source, stages).build(num_epochs=2)]) == 2 * NUM_TRAIN
    assert [fault.record_id for fault in log.faults] == [3]

    (copy_dir / "index.json").unlink()
    with pytest.raises(
        tfpipe.errors.BadIndexError, match=f"record 3 at byte {offset} is cut"
    ):
        tfpipe.TFRecordSource(copy_dir, "train")


def test_lengths_are_looked_at_where_a_shard_is_younger_than_its_index(
    copy_dir, monkeypatch
):
    looked_at = []
    real = records.lengths_are_right

    def is_right(path, *places):
        looked_at.append(os.path.basename(path))
        return real(path, *places)

    monkeypatch.setattr(records, "lengths_are_right", is_right)
    source = tfpipe.TFRecordSource(copy_dir, "train")
    pipeline = tfpipe.Pipeline(source, [tfpipe.Interleave()])
    list(pipeline.build())
    assert looked_at == []

    os.utime(copy_dir / "train-00001-of-00003")
    source = tfpipe.TFRecordSource(copy_dir, "train")
    pipeline = tfpipe.Pipeline(source, [tfpipe.Interleave()])
    list(pipeline.build())
    assert set(looked_at) == {"train-00001-of-00003"}
    looked_at.clear()
    list(pipeline.build(epoch=1))
    assert looked_at == []


NUM_RECORDS = {"train": NUM_TRAIN, "validation": 7}


def assert_all_but(batches, bad, total=NUM_TRAIN):
    """Every sound record is real once; what stands in is masked."""
    mask, number = joined(batches, "mask"), joined(batches, "record_id")
    assert sorted(number[mask == 1]) == [n for n in range(total) if n not in bad]
    assert not set(number) & set(bad)


WHOLE = {"whole_batches": True, "crop_op": "stock"}


@pytest.mark.parametrize(
    ("bad", "options"),
    [
        # The last batch is filled up with record 0.
        ([0], {"batch_size": 10, "whole_batches": False}),
        ([0, 20, 21, 22, 23], {"batch_size": 5, **WHOLE}),
        ([*range(6)], {"batch_size": 4, "split": "validation"}),
    ],
)
def test_chunk_or_batch_without_a_sound_image_is_stood_in_for(copy_dir, bad, options):
    split = options.get("split", "train")
    for number in bad:
        spoil_jpeg(copy_dir, number, split)

    pipeline, batches = evaluate(
        copy_dir, on_error="skip", max_faults=len(bad), **options
    )

    assert_all_but(batches, bad, total=NUM_RECORDS[split])
    assert [fault.record_id for fault in pipeline.faults.faults] == bad


def test_run_that_goes_on_with_nothing_but_damage_is_stood_in_for(copy_dir):
    for number in (20, 21, 22, 23):
        spoil_jpeg(copy_dir, number)
    options = {"image_size": 8, "batch_size": 4, "on_error": "skip", "max_faults": 4}
    pipeline = preset_over(tfpipe.imagenet_eval, copy_dir, split="train", **options)

    (batch,) = pipeline.build(start_step=5).as_numpy_iterator()

    assert batch["mask"].tolist() == [0] * 4
    assert batch["image"].any()


def test_rank_whose_records_are_all_damaged_is_stood_in_for(copy_dir):
    for number in range(12, 24):
        spoil_jpeg(copy_dir, number)
    options = {"num_ranks": 2, "rank": 1, "on_error": "skip", "max_faults": 12}

    _, batches = evaluate(copy_dir, **options)

    assert joined(batches, "mask").tolist() == [0] * 12
    assert set(joined(batches, "record_id")) == {0}


def test_looking_for_a_stand_in_costs_no_budget(copy_dir):
    """The first records of the split are damaged, but on another rank."""
    for number in (0, 1, 2, 20, 21, 22, 23):
        spoil_jpeg(copy_dir, number)
    path, offset, _, _ = places(copy_dir)[3]
    flip(path, offset + 50)
    options = {"num_ranks": 2, "rank": 1, "on_error": "skip", "max_faults": 4}

    pipeline, batches = evaluate(copy_dir, **options, **WHOLE)

    assert joined(batches, "mask").tolist() == [1] * 8 + [0] * 4
    assert [f.record_id for f in pipeline.faults.faults] == [20, 21, 22, 23]


def test_data_without_a_decodable_image_are_an_error(copy_dir):
    for number in range(NUM_RECORDS["validation"]):
        spoil_jpeg(copy_dir, number, "validation")

    with pytest.raises(tf.errors.UnknownError, match=r"No sound record .*JPEG"):
        evaluate(copy_dir, split="validation", on_error="skip")
