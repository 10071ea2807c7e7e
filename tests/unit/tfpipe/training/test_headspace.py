"""tfpipe.headspace: whether the input holds a step back."""

import os
import threading
import time

import pytest
import tensorflow as tf

import tfpipe
from tfpipe.training import headspace
from tfpipe.training.headspace import Headspace, Rates


def _pipeline(seconds_per_batch):
    """Batches that each take so long, one after the other."""

    def slow(state, num_epochs):
        def wait(number):
            time.sleep(seconds_per_batch)
            return number

        numbers = tf.data.Dataset.range(10**9)
        return numbers.map(lambda x: tf.numpy_function(wait, [x], tf.int64))

    return tfpipe.Pipeline(slow, [tfpipe.Prefetch(buffer_size=1)])


def _step(seconds):
    def step(batch):
        time.sleep(seconds)
        return tf.cast(batch, tf.float32)

    return step


def test_a_slow_input_holds_a_fast_step_back():
    found = headspace.headspace(
        _pipeline(0.02), _step(0.001), seconds=0.15, num_rounds=1
    )

    assert found.ratio < 0.3
    assert found.times_faster < 0.3
    assert found.num_spare_cores == 0
    assert len(found.rates) == 1  # fewer cores would tell nothing
    assert "holds the step back" in found.sentence


def test_a_fast_input_does_not_hold_a_slow_step_back():
    before = os.sched_getaffinity(0)

    found = headspace.headspace(
        _pipeline(0.001), _step(0.03), seconds=0.2, num_rounds=2
    )

    assert found.ratio > 0.8
    assert found.times_faster > 3
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    "pipeline",
    [
        tfpipe.Pipeline(lambda *_: tf.data.Dataset.range(3), []),  # knows no epochs
        tfpipe.Pipeline(
            tfpipe.SyntheticSource(batch_size=2, image_size=8),
            [tfpipe.Take(3), tfpipe.Prefetch()],
        ),
    ],
)
def test_a_pipeline_that_ends_begins_again(pipeline):
    found = headspace.headspace(pipeline, lambda _: None, seconds=0.05, num_rounds=1)

    assert found.rates[0].with_pipeline > 0


def test_an_empty_pipeline_is_refused():
    empty = tfpipe.Pipeline(lambda *_: tf.data.Dataset.range(0), [])

    with pytest.raises(ValueError, match="must have at least one element, got none"):
        headspace.headspace(empty, lambda _: None)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_each_thread_keeps_its_own_cores():
    """One is pinned to a core that is taken away, one to a core that is left."""
    mine = os.sched_getaffinity(0)
    first, last = min(mine), max(mine)
    end, ready, threads = threading.Event(), threading.Barrier(3), {}

    def pinned(core):
        os.sched_setaffinity(0, {core})
        ready.wait()
        end.wait()

    def cores():
        return {n: os.sched_getaffinity(t.native_id) for n, t in threads.items()}

    for core in (first, last):
        threads[core] = threading.Thread(target=pinned, args=[core])
        threads[core].start()
    ready.wait()
    try:
        with headspace._only([first]):
            within, mine_within = cores(), os.sched_getaffinity(0)
            threads["born"] = threading.Thread(target=end.wait)
            threads["born"].start()
        after = cores()
    finally:
        end.set()
        for thread in threads.values():
            thread.join()

    assert within == {first: {first}, last: {last}}
    assert mine_within == {first}
    assert after == within | {"born": mine}
    assert os.sched_getaffinity(0) == mine


def rates(num_cores, ratio):
    return Rates(
        num_cores=num_cores,
        with_cached_batch=10.0,
        with_pipeline=10.0 * ratio,
        of_pipeline=40.0,
        ratio=ratio,
    )


@pytest.mark.parametrize(
    ("ratios", "num_spare", "words"),
    [
        ({8: 0.99, 4: 0.98, 2: 0.5}, 4, "4 of 8 cores can be taken away"),
        ({8: 0.99, 4: 0.5}, 0, "none of 8 cores can be taken away"),
        ({8: 0.5}, 0, "holds the step back: 5.0 steps/s of 10.0"),
        ({1: 1.0}, 0, "4.0 times as fast as the step"),
    ],
)
def test_spare_cores_are_those_that_can_go_before_input_matters(
    ratios, num_spare, words
):
    found = Headspace(rates=[rates(*item) for item in ratios.items()])

    assert found.num_spare_cores == num_spare
    assert words in found.sentence
    assert found.as_json()["num_spare_cores"] == num_spare
    assert len(str(found).splitlines()) == 2 + len(ratios)


@pytest.mark.parametrize("name", ["seconds", "num_rounds"])
def test_wrong_values_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be .*, got 0"):
        headspace.headspace(_pipeline(0.0), _step(0.0), **{name: 0})
