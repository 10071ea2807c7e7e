"""tfpipe.profiling.measure by real clocks: stages of known cost."""

import json

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.artificial import Busy, Numbers, Sleep, busy_function, keep_even
from tfpipe.profiling import dataset_nodes, measure, timed_reader

QUICK = {"num_elements": 20, "progress": False}


def large(state, num_epochs):
    """The same 8 MB again and again, for nothing."""
    return tf.data.Dataset.from_tensors(tf.zeros([1 << 20], tf.int64)).repeat()


def profile(*stages, source=None, tuning=None, **options):
    pipeline = tfpipe.Pipeline(
        source or Numbers(), stages, tuning=tuning or tfpipe.Tuning()
    )
    return measure.profile(pipeline, **(QUICK | options))


def eventually(measured, *, attempts=10):
    """The first of a few runs that fits, or the last: the host may be busy."""
    for _ in range(attempts):
        value, expected = measured()
        if value == expected:
            break
    return value


@pytest.mark.parametrize(
    ("stages", "shares"),
    [
        pytest.param(
            [tfpipe.Map(Busy(1)), tfpipe.Map(Busy(3))],
            [0, 0.25, 0.75],
            id="in proportion",
        ),
        pytest.param(
            [
                tfpipe.Map(Busy(3), num_parallel_calls=7),
                tfpipe.Shuffle(10),
                tfpipe.Map(Busy(1), num_parallel_calls=1),
                tfpipe.Prefetch(buffer_size=3),
            ],
            [0, 0.75, 0, 0.25, 0],
            id="calls of their own",
        ),
        pytest.param(
            [tfpipe.Map(Busy(1)), busy_function],
            [0, 0.25, 0.75],
            id="plain function",
        ),
        pytest.param(
            # The second works on every other element only.
            [tfpipe.Map(Busy(1)), keep_even, tfpipe.Map(Busy(2))],
            [0, 0.5, 0, 0.5],
            id="visit ratio",
        ),
    ],
)
def test_cpu_time_goes_to_the_stage_that_takes_it(stages, shares):
    expected = pytest.approx(shares, abs=0.1)

    def measured():
        result = profile(*stages, num_elements=40)
        return [cost.share for cost in result.stages], expected

    assert eventually(measured) == expected


def test_ops_of_a_map_are_rows_of_their_own():
    ops = tfpipe.Map(Busy(1), Busy(3))

    expected = pytest.approx([0, 0.2, 0.2, 0.6], abs=0.1)
    results = []

    def measured():
        result = profile(tfpipe.Map(Busy(1)), ops, per_op=True, num_elements=40)
        results.append(result)
        return [cost.share for cost in result.stages], expected

    assert eventually(measured) == expected
    assert [cost.number for cost in results[-1].stages] == [0, 1, 2, 2]
    assert results[-1].bottleneck.stage == 2
    assert "Map(Busy, Busy)" in results[-1].bottleneck.sentence


def test_cost_of_a_known_op_is_that_of_the_op_alone():
    dataset = tf.data.Dataset.range(10).map(Busy(4))
    alone = timed_reader.TimedReader(dataset, 20)
    alone.pull()

    def measured():
        expected = np.median([alone.pull().cpu for _ in range(5)])
        cost = profile(tfpipe.Map(Busy(4))).stages[1].cpu_seconds_per_element
        return cost / expected, pytest.approx(1, abs=0.15)

    assert eventually(measured) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(
    ("stages", "options", "resource", "stage", "text"),
    [
        pytest.param(
            [tfpipe.Map(Busy(3)), tfpipe.Batch(2)],
            {},
            "CPU",
            1,
            "of the CPU",
            id="busy CPU",
        ),
        pytest.param(
            [tfpipe.Map(Busy(1)), tfpipe.Map(Sleep(5e-3), num_parallel_calls=2)],
            {},
            "latency",
            2,
            "elements at a time",
            id="sleeping I/O",
        ),
        pytest.param(
            [tfpipe.Map(Busy(1)), lambda dataset: dataset.map(Sleep(5e-3))],
            {},
            "latency",
            2,
            "put a Prefetch before it",
            id="sleeping in a plain function",
        ),
        pytest.param(
            [tfpipe.Map(Busy(1)), tfpipe.Map(Busy(3), num_parallel_calls=1)],
            {},
            "sequential stage",
            2,
            "1 call at a time",
            id="sequential",
        ),
        pytest.param(
            [tfpipe.Map(Busy(1))],
            {"consumer_seconds": 10.0},
            "consumer",
            None,
            "the input is fast enough",
            id="consumer",
        ),
        pytest.param(
            [tfpipe.Batch(4)],
            {"num_elements": 4, "repeats": 1, "source": large},
            "memory",
            1,
            "GB in a CPU-second",
            id="copies",
        ),
    ],
)
def test_what_binds_is_named(stages, options, resource, stage, text):
    results = []

    def measured():
        results.append(profile(*stages, **options))
        return results[-1].bottleneck.resource, resource

    assert eventually(measured) == resource, str(results[-1])
    found = results[-1].bottleneck
    assert found.stage == stage
    assert text in found.sentence
    assert found.rate == results[-1].bound


def test_waiting_is_attributed_to_the_stage_that_waits():
    # So long that what a busy host adds, some milliseconds, is little beside it.
    stages = [tfpipe.Map(Busy(1)), tfpipe.Map(Sleep(20e-3)), tfpipe.Batch(4)]

    expected = pytest.approx([0, 0, 4 * 20e-3, 0], rel=0.1, abs=8e-3)

    def measured():
        result = profile(*stages, num_elements=4)
        return [cost.wait_seconds_per_output for cost in result.stages], expected

    assert eventually(measured) == expected


def test_throughput_finds_how_many_elements_to_read():
    dataset = tf.data.Dataset.range(7).map(Sleep(1e-3))

    result = measure.throughput(dataset, seconds=0.2, repeats=2)

    assert 1 < result.num_elements < 200


@pytest.fixture(scope="module")
def read_profile(data_dir):
    """The profile of a pipeline that reads 24 records, 20 of them in batches."""
    pipeline = tfpipe.Pipeline(
        tfpipe.TFRecordSource(data_dir, "train", batch_size=5),
        [
            tfpipe.Interleave(),
            tfpipe.Map(
                tfpipe.Parse(label_base=1),
                tfpipe.Select("label"),
                num_parallel_calls=2,
            ),
            tfpipe.Batch(5),
            tfpipe.Prefetch(buffer_size=3),
        ],
    )
    return measure.profile(
        pipeline, num_elements=2, repeats=1, per_op=True, progress=False
    )


def test_every_stage_and_op_has_a_row(read_profile):
    assert [row.number for row in read_profile.stages] == [0, 1, 2, 2, 3, 4]
    assert [row.visit_ratio for row in read_profile.stages] == [1 / 4, 5, 5, 5, 1, 1]
    kinds = [row.kind for row in read_profile.stages[1:]]
    assert kinds == ["reader", "parallel", "parallel", "serial", "buffered"]
    assert read_profile.stages[2].parallelism == 2
    assert read_profile.examples_per_output == 5
    assert read_profile.num_elements == 2


def test_reading_is_measured(read_profile):
    records = read_profile.stages[1].bytes_out_per_output

    assert read_profile.storage.bytes_per_output > 0.5 * records
    assert read_profile.storage.state in ("warm", "partly warm", "cold")


def test_rates_are_of_the_pipeline_as_it_is(read_profile):
    rate = read_profile.rate

    assert 0 < rate.least <= rate.median <= rate.most
    assert rate.cpu_seconds_per_element > 0
    assert read_profile.cpu_seconds_per_output > 0
    assert read_profile.host.slowdown > 0
    assert read_profile.ram_left_bytes > 0
    assert json.loads(json.dumps(read_profile.as_json(), allow_nan=False))["stages"]


def test_a_filled_buffer_is_seen(read_profile):
    if not dataset_nodes.can_tell_buffers():
        pytest.skip("TensorFlow 2.16 has no get_model_proto")

    assert read_profile.stages[-1].buffered_bytes > 0
