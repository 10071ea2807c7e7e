"""tfpipe.headspace: whether the input holds a step back."""

import dataclasses
import os
import threading

import pytest
import tensorflow as tf

import tfpipe
from tests.support.faults.clock import Clock
from tfpipe.training import headspace
from tfpipe.training.headspace import HeadspaceFigures, Rates


class Batches:
    """Gives batches that are ready a while after the one before was taken.

    As tf.data does, it makes one batch ahead while the step computes.
    """

    def __init__(self, clock, seconds):
        self.clock = clock
        self.seconds = seconds
        self.ready_at = clock.now

    def __iter__(self):
        return self

    def __next__(self):
        self.clock.now = max(self.clock.now, self.ready_at)
        self.ready_at = self.clock.now + self.seconds
        return 0


def bench(*, batch_seconds, step_seconds):
    """A bench whose batches and steps take made-up times."""
    clock = Clock()
    return headspace.Bench(
        cached=Batches(clock, 1e-6),
        pipeline=Batches(clock, batch_seconds),
        step=lambda batch: clock.move(step_seconds),
        seconds=10.0,
        num_rounds=3,
        clock=clock,
    )


def test_a_slow_input_holds_a_fast_step_back():
    found = bench(batch_seconds=0.2, step_seconds=0.1).rates(4)

    assert found.num_cores == 4
    assert found.with_cached_batch == pytest.approx(10, rel=0.02)
    assert found.with_pipeline == pytest.approx(5, rel=0.02)
    assert found.of_pipeline == pytest.approx(5, rel=0.02)
    assert found.ratio == pytest.approx(0.5, rel=0.02)


def test_a_fast_input_does_not_hold_a_slow_step_back():
    found = bench(batch_seconds=0.02, step_seconds=0.1).rates(1)

    assert found.ratio == pytest.approx(1, rel=0.02)
    assert found.of_pipeline == pytest.approx(50, rel=0.02)


def test_each_turn_begins_with_the_batches_that_were_ready():
    """The pipeline makes its next batch during the turns of the cached one."""
    seen = []
    made = bench(batch_seconds=0.5, step_seconds=1.0)
    made = dataclasses.replace(
        made, step=lambda batch: (seen.append(made.clock.now), made.clock.move(1.0))
    )

    made.warm_up()
    made.rates(1)

    # A step of each source, then 3 rounds of a third of a turn and a turn, of each.
    assert len(seen) == 2 + 3 * 2 * (4 + 10)


@pytest.mark.parametrize(
    ("ratios", "options", "tried"),
    [
        ({8: 1.0, 4: 1.0, 2: 0.98, 1: 0.9}, {}, [8, 4, 2, 1]),
        ({8: 1.0, 4: 0.9}, {}, [8, 4]),  # fewer cores would tell nothing
        ({8: 0.9}, {}, [8]),
        ({8: 1.0}, {"fewer_cores": False}, [8]),
        ({3: 1.0, 1: 1.0}, {}, [3, 1]),
        ({1: 1.0}, {}, [1]),
    ],
)
def test_cores_are_halved_until_the_input_holds_the_step_back(ratios, options, tried):
    found = headspace.with_fewer(
        lambda number: rates(number, ratios[number]), max(ratios), **options
    )

    assert [each.num_cores for each in found] == tried


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
    before = os.sched_getaffinity(0)

    found = headspace.headspace(pipeline, lambda _: None, seconds=0.01, num_rounds=1)

    assert found.rates[0].with_pipeline > 0
    assert os.sched_getaffinity(0) == before


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
    found = HeadspaceFigures(rates=[rates(*item) for item in ratios.items()])

    assert found.num_spare_cores == num_spare
    assert words in found.sentence
    assert found.as_json()["num_spare_cores"] == num_spare
    assert len(str(found).splitlines()) == 2 + len(ratios)


def test_cores_of_other_hosts_are_named_if_those_here_are_too_few():
    slow = dataclasses.replace(rates(8, 0.5), of_pipeline=5.0)

    found = HeadspaceFigures(rates=[slow])

    assert "a tfpipe.Service with 18 cores of other hosts would close" in found.sentence
    assert found.as_json()["service"]["cores_elsewhere"] == 18
    assert "would not pay" in HeadspaceFigures(rates=[rates(8, 0.5)]).sentence


@pytest.mark.parametrize("name", ["seconds", "num_rounds"])
def test_wrong_values_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be .*, got 0"):
        headspace.headspace(
            tfpipe.Pipeline(lambda *_: tf.data.Dataset.range(3), []),
            lambda _: None,
            **{name: 0},
        )
