"""tfpipe.profiling.profile_runs: what passes each step, counted."""

import math

import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.artificial import Busy, Numbers, keep_even
from tests.support.faults.clock import SimulatedMeter
from tfpipe.profiling import profile_runs


def planned(*stages, source=None, num_elements=40):
    """A profile that counted its elements; nothing is timed."""
    pipeline = tfpipe.Pipeline(source or Numbers(), stages)
    runs = profile_runs.ProfileRuns(pipeline)
    runs.plan(num_elements)
    return runs


def test_visits_and_bytes_are_counted():
    def widen(dataset):
        return dataset.map(lambda x: {"x": tf.fill([6], x), "name": "abc"})

    plan = planned(keep_even, widen, tfpipe.Batch(4), tfpipe.Prefetch())

    assert plan.visits == [8, 4, 4, 1, 1]
    assert plan.num_bytes == [64, 32, 4 * (48 + 3), 4 * (48 + 3), 4 * (48 + 3)]


@pytest.mark.parametrize(
    ("make", "num_bytes"),
    [
        (lambda x: (x, (x + 1, {"a": x})), 24),
        (lambda x: tf.RaggedTensor.from_row_lengths(tf.range(2), [2]), None),
        (lambda x: tf.sparse.from_dense([x]), None),
        (lambda x: tf.strings.as_string(x % 10), 1),
        (lambda x: tf.data.Dataset.range(x), 0),  # a dataset counts as nothing
    ],
    ids=["nested", "ragged", "sparse", "string", "dataset"],
)
def test_elements_may_have_any_structure(make, num_bytes):
    plan = planned(lambda dataset: dataset.map(make), num_elements=10)

    assert plan.visits[1] == 1
    if num_bytes is not None:
        assert plan.num_bytes[1] == num_bytes


def test_pipeline_that_ends_begins_again():
    def source(state, num_epochs):
        return tf.data.Dataset.range(7)

    plan = planned(tfpipe.Batch(3), source=source, num_elements=100)

    assert plan.num_elements == 100
    assert plan.visits[0] == pytest.approx(3.5, abs=0.1)


def test_a_pipeline_may_have_no_stages():
    assert planned(num_elements=10).visits == [1]


def test_source_without_elements_is_refused():
    with pytest.raises(ValueError, match="at least one element, got none"):
        planned(source=lambda state, num_epochs: tf.data.Dataset.range(0))


@pytest.fixture(scope="module")
def plan_with_cache(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=4)
    stages = [tfpipe.Interleave(), tfpipe.Cache("ram"), tfpipe.Batch(4)]
    return planned(*stages, source=source, num_elements=4)


def test_nothing_is_known_of_stages_before_a_full_cache(plan_with_cache):
    plan = plan_with_cache

    assert math.isnan(plan.visits[1])
    assert plan.visits[2:] == [4, 1]
    assert plan.reader == 2


def test_the_reader_runs_in_whole_windows(data_dir):
    """24 records, 20 of them in batches: a window is an epoch, of 4 batches."""
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=5)

    plan = planned(tfpipe.Interleave(), tfpipe.Batch(5), source=source, num_elements=5)

    assert plan.visits[:2] == [1 / 4, 5]
    assert plan.reader == 1
    assert plan.num_for_reader == 3 * 4


@pytest.mark.parametrize(
    ("limit", "num_rounds"), [(math.inf, 3), (40, 3), (39, 2), (30, 2), (29, 1), (5, 1)]
)
def test_another_round_begins_only_if_there_is_time(monkeypatch, limit, num_rounds):
    """A round takes 10 s, and the whole pipeline as long."""
    meter = SimulatedMeter(1000.0 + limit)
    pipeline = tfpipe.Pipeline(Numbers(), [tfpipe.Batch(4)])
    runs = profile_runs.ProfileRuns(pipeline, repeats=3, meter=meter)
    monkeypatch.setattr(runs, "_run", lambda position: meter.work(5.0))
    shown = []

    spent = runs.make_rounds(lambda: shown.append(1))

    assert [len(each) for each in spent] == [num_rounds, num_rounds]
    assert len(shown) == 2 * num_rounds


@pytest.mark.parametrize(("threads", "calls"), [(None, [1, 2, 1]), (7, [1, 7, 1])])
def test_autotune_counts_as_a_call_for_each_thread(monkeypatch, threads, calls):
    monkeypatch.setattr(tfpipe.host, "num_cores", lambda: 2)
    tuning = tfpipe.Tuning(private_threadpool_size=threads)
    stages = [tfpipe.Map(Busy(1)), tfpipe.Prefetch(buffer_size=1)]
    pipeline = tfpipe.Pipeline(Numbers(), stages, tuning=tuning)
    runs = profile_runs.ProfileRuns(pipeline)

    runs.make(1, is_shown=False)

    assert [how.calls for how in runs.concurrency] == calls
    # With two threads or more on two cores it uses all cores already.
    assert runs.on_all_cores is runs.whole
