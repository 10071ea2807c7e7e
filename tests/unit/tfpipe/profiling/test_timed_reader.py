"""tfpipe.profiling.timed_reader: what an element takes, by a clock that ops move."""

import pytest
import tensorflow as tf

from tests.support.faults.clock import SimulatedMeter
from tfpipe.profiling import timed_reader


def taking(meter, seconds):
    """Numbers, each of which moves the clock."""

    def take(number):
        meter.work(seconds)
        return number

    numbers = tf.data.Dataset.range(10**6)
    return numbers.map(lambda x: tf.numpy_function(take, [x], tf.int64))


def test_time_is_told_for_an_element():
    meter = SimulatedMeter()
    reader = timed_reader.TimedReader(taking(meter, 0.25), 3, meter=meter)

    spent = reader.pull(2)

    assert spent.wall == pytest.approx(0.25)
    assert meter.now == pytest.approx(1000 + 6 * 0.25)


def test_records_are_really_read(tmp_path):
    """`skip` of a reader would not look at them."""
    path = tmp_path / "records"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(20):
            writer.write(b"x" * 100)
    content = bytearray(path.read_bytes())
    content[5 * 116 + 50] ^= 1
    path.write_bytes(content)

    with pytest.raises(tf.errors.DataLossError):
        timed_reader.TimedReader(tf.data.TFRecordDataset([str(path)]), 20).pull()


def test_an_empty_dataset_is_refused():
    with pytest.raises(ValueError, match="at least one element, got none"):
        timed_reader.TimedReader(tf.data.Dataset.range(0), 2).pull()


@pytest.mark.parametrize(("seconds", "num_read"), [(1.0, 5), (1e-4, 3000)])
def test_groups_grow_until_a_pull_takes_long_enough(seconds, num_read):
    """So that the time that Python needs for a pull is negligible."""
    meter = SimulatedMeter()

    found = timed_reader.calibrate(
        taking(meter, seconds), max(3 * seconds, 0.02), meter=meter
    )

    assert found == pytest.approx(seconds)
    assert (meter.now - 1000) / seconds < num_read
