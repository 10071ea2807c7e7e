"""tfpipe.profiling.measure: rates of tiny pipelines; what a profile refuses."""

import functools
import json

import pytest
import tensorflow as tf

import tfpipe
from tests.support.faults.clock import SimulatedHost
from tfpipe.profiling import measure
from tfpipe.profiling.host_share import HostWatch


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_elements": 0}, "num_elements must be .* >= 1 or None, got 0"),
        ({"seconds": 0}, "seconds must be a finite number > 0, got 0"),
        ({"repeats": 0}, "repeats must be a whole number >= 1, got 0"),
        ({"consumer_seconds": -1}, "consumer_seconds must be .* >= 0, got -1"),
        ({"storage_bytes_per_second": 0}, "storage_bytes_per_second must be .* got 0"),
    ],
)
def test_wrong_values_are_refused(values, message):
    pipeline = tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=1), [])

    with pytest.raises(ValueError, match=message):
        measure.profile(pipeline, **values)


@pytest.mark.parametrize(
    ("make", "examples"),
    [
        (lambda x: x, None),
        (lambda x: tf.fill([7], x), 7),
        (lambda x: {"image": tf.zeros([5, 3, 3]), "label": tf.fill([5], x)}, 5),
        (lambda x: {"image": tf.zeros([5, 3, 3]), "label": tf.fill([4], x)}, None),
        (lambda x: tf.zeros([5, 3]), None),  # may be one image
        (lambda x: tf.range(x), None),
    ],
)
def test_examples_are_counted_if_the_batch_size_is_static(make, examples):
    dataset = tf.data.Dataset.range(3, 9).map(make)

    assert measure.examples_in(dataset.element_spec) == examples


@pytest.mark.parametrize("examples", [None, 7])
def test_throughput_is_told_in_examples_if_they_are_known(examples):
    dataset = tf.data.Dataset.range(100)
    if examples:
        dataset = dataset.batch(examples, drop_remainder=True)

    result = measure.throughput(dataset, num_elements=40, repeats=2)

    assert result.num_elements == 40
    assert result.examples_per_element == examples
    least, most = result.elements_per_second_least, result.elements_per_second_most
    assert 0 < least <= result.elements_per_second <= most
    assert result.cpu_seconds_per_element > 0
    assert json.loads(json.dumps(result.as_json()))["seconds_to_first_element"] > 0
    assert ("examples/s" in str(result)) == (examples is not None)


@pytest.mark.parametrize(("threads", "lost"), [(1, 0.0), (2, 1.0), (None, 1.0)])
def test_throughput_says_what_others_took_of_its_cores(monkeypatch, threads, lost):
    class OneCoreTaken(SimulatedHost):
        def clock(self):
            self.now, self.others = self.now + 1, self.others + 1
            return self.now

    watch = functools.partial(HostWatch, meter=OneCoreTaken())
    monkeypatch.setattr(measure, "HostWatch", watch)
    options = tf.data.Options()
    if threads is not None:
        options.threading.private_threadpool_size = threads
    dataset = tf.data.Dataset.range(8).with_options(options)

    result = measure.throughput(dataset, num_elements=4, repeats=1)

    assert result.others_cores == lost
    assert ("the host was busy" in str(result)) == (lost > 0)


def test_throughput_reads_exactly_what_it_says():
    passed = tf.Variable(0)
    dataset = tf.data.Dataset.range(7).map(lambda x: passed.assign_add(1))

    measure.throughput(dataset, num_elements=20, num_warmup=10, repeats=3)

    assert passed.numpy() == 1 + 10 + 3 * 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "at least one element"),
        ({"num_elements": 0}, "num_elements must be .* >= 1 or None, got 0"),
        ({"seconds": 0}, "seconds must be a finite number > 0, got 0"),
        ({"repeats": 0}, "repeats must be a whole number >= 1, got 0"),
    ],
)
def test_throughput_of_nothing_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        measure.throughput(tf.data.Dataset.range(0), **options)
