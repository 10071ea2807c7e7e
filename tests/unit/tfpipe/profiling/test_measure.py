"""tfpipe.profiling.measure: artificial stages of known cost, and what is said of them."""

import dataclasses
import json
import math
import time

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe import host
from tfpipe.profiling import dataset_nodes, limits, measure, timed_reader
from tfpipe.profiling.limits import Host, StageCost
from tfpipe.profiling.profile import Profile, Rate, Storage

QUICK = {"num_elements": 20, "progress": False}


@dataclasses.dataclass(frozen=True)
class Numbers:
    """A source of so many numbers an epoch."""

    count: int = 1000

    def __call__(self, state, num_epochs):
        return tf.data.Dataset.range(self.count).repeat(num_epochs)


@dataclasses.dataclass(frozen=True)
class Busy:
    """CPU work in proportion to `work`; passes the element on."""

    work: int

    def __call__(self, x):
        # Its square is itself.
        matrix = tf.fill([256, 256], 1 / 256 + 0 * tf.cast(x, tf.float32))
        for _ in range(self.work):
            matrix = tf.linalg.matmul(matrix, matrix)
        return x + tf.cast(matrix[0, 0] * 0, tf.int64)


@dataclasses.dataclass(frozen=True)
class Sleep:
    """Waits, as for a disk; passes the element on."""

    seconds: float

    def __call__(self, x):
        def wait(x):
            time.sleep(self.seconds)
            return x

        y = tf.numpy_function(wait, [x], tf.int64)
        y.set_shape([])
        return y


def large(state, num_epochs):
    """The same 8 MB again and again, for nothing."""
    return tf.data.Dataset.from_tensors(tf.zeros([1 << 20], tf.int64)).repeat()


def busy_function(dataset):
    return dataset.map(Busy(3))


def keep_even(dataset):
    return dataset.filter(lambda x: x % 2 == 0)


def profile(*stages, source=Numbers(), tuning=None, **options):
    pipeline = tfpipe.Pipeline(source, stages, tuning=tuning or tfpipe.Tuning())
    return measure.profile(pipeline, **(QUICK | options))


def eventually(measured, *, attempts=10):
    """The first of a few runs that fits, or the last: the host may be busy."""
    for _ in range(attempts):
        value, expected = measured()
        if value == expected:
            break
    return value


# What is measured.


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


def test_visits_and_bytes_are_counted():
    def widen(dataset):
        return dataset.map(lambda x: {"x": tf.fill([6], x), "name": "abc"})

    result = profile(
        keep_even,
        widen,
        tfpipe.Batch(4),
        tfpipe.Prefetch(),
        num_elements=40,
        repeats=1,
    )

    visits = [cost.visit_ratio for cost in result.stages]
    assert visits == [8, 4, 4, 1, 1]
    sizes = [cost.bytes_out_per_output for cost in result.stages]
    assert sizes == [64, 32, 4 * (48 + 3), 4 * (48 + 3), 4 * (48 + 3)]
    assert [cost.bytes_in_per_output for cost in result.stages] == [0, *sizes[:-1]]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: (x, (x + 1, {"a": x})),
        lambda x: tf.RaggedTensor.from_row_lengths(tf.range(x % 3), [x % 3]),
        lambda x: tf.sparse.from_dense([x]),
        lambda x: tf.strings.as_string(x),
        lambda x: tf.data.Dataset.range(x),
    ],
    ids=["nested", "ragged", "sparse", "string", "dataset"],
)
def test_elements_may_have_any_structure(make):
    result = profile(lambda dataset: dataset.map(make), num_elements=10, repeats=1)

    assert result.stages[1].visit_ratio == 1


def test_pipeline_that_ends_begins_again():
    def source(state, num_epochs):
        return tf.data.Dataset.range(7)

    result = profile(tfpipe.Batch(3), source=source, num_elements=100, repeats=1)

    assert result.num_elements == 100
    assert result.stages[0].visit_ratio == pytest.approx(3.5, abs=0.1)


def test_a_pipeline_may_have_no_stages():
    result = profile(num_elements=100, repeats=1)

    assert [row.visit_ratio for row in result.stages] == [1]
    assert result.rate.median > 0


def test_source_without_elements_is_refused():
    with pytest.raises(ValueError, match="at least one element, got none"):
        profile(source=lambda state, num_epochs: tf.data.Dataset.range(0))


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


def test_stages_before_a_full_cache_cost_nothing(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=4)
    stages = [
        tfpipe.Interleave(),
        tfpipe.Cache("ram"),
        tfpipe.Map(tfpipe.Parse(label_base=1), tfpipe.Select("label")),
        tfpipe.Batch(4),
    ]

    result = profile(*stages, source=source, num_elements=20)

    costs = [cost.cpu_seconds_per_output for cost in result.stages]
    assert costs[:2] == [0, 0]
    assert costs[2] > 0
    assert result.stages[1].note == "nothing once Cache(where='ram') is full"
    visits = [cost.visit_ratio for cost in result.stages]
    assert visits[2:] == [4, 4, 1]
    assert result.storage is None


def test_reading_is_measured_in_whole_windows(data_dir):
    """24 records, 20 of them in batches; the storage is read for each."""
    pipeline = tfpipe.imagenet_train(
        data_dir, batch_size=5, image_size=16, tuning=tfpipe.Tuning(num_parallel_maps=2)
    )

    result = measure.profile(pipeline, num_elements=2, repeats=1, progress=False)

    assert result.stages[0].visit_ratio == 1 / 4  # a window is an epoch: 4 batches
    assert result.stages[1].visit_ratio == 5
    assert result.examples_per_output == 5
    records = result.stages[1].bytes_out_per_output
    assert result.storage.bytes_per_output > 0.5 * records
    assert result.storage.state in ("warm", "partly warm", "cold")
    decoding = next(cost for cost in result.stages if "RandomCrop" in cost.name)
    assert decoding.parallelism == 2


@pytest.mark.parametrize(("bandwidth", "is_told"), [(1e3, True), (1e12, False)])
def test_what_was_faster_than_the_storage_came_from_the_page_cache(
    data_dir, bandwidth, is_told
):
    pipeline = tfpipe.imagenet_train(data_dir, batch_size=5, image_size=16)

    result = measure.profile(
        pipeline,
        num_elements=2,
        repeats=1,
        storage_bytes_per_second=bandwidth,
        progress=False,
    )

    assert any("in the page cache by then" in note for note in result.notes) is is_told


# What is concluded.


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


def test_buffers_that_do_not_fit_are_named(monkeypatch):
    monkeypatch.setattr(host, "ram_left", lambda: 10**6)

    result = profile(
        lambda dataset: dataset.map(lambda x: tf.fill([1 << 12], x)),
        tfpipe.Prefetch(buffer_size=100),
        num_elements=200,
        repeats=1,
    )

    assert result.bottleneck.resource == "memory"
    assert result.bottleneck.stage == 2
    assert "make its buffer shorter" in result.bottleneck.sentence


def test_buffers_are_estimated_where_tensorflow_does_not_tell(monkeypatch):
    monkeypatch.setattr(dataset_nodes, "can_tell_buffers", lambda: False)

    result = profile(
        tfpipe.Shuffle(10),
        tfpipe.Map(Busy(1), num_parallel_calls=3),
        tfpipe.Batch(4),
        tfpipe.Prefetch(buffer_size=5),
        num_elements=10,
        repeats=1,
    )

    held = [cost.buffered_bytes for cost in result.stages]
    assert held == [0, 10 * 8, 3 * 8, 0, 5 * 4 * 8]


def cost_of(number, cpu, *, wait=0.0, calls=1, kind="parallel", **values):
    """What a stage costs, in ms for an output."""
    return StageCost(
        **{
            "number": number,
            "name": f"stage{number}",
            "visit_ratio": 1.0,
            "cpu_seconds_per_output": cpu * 1e-3,
            "wall_seconds_per_output": (cpu + wait) * 1e-3,
            "bytes_in_per_output": 0.0,
            "bytes_out_per_output": 0.0,
            "buffered_bytes": 0,
            "parallelism": calls,
            "kind": kind,
            "share": 0.0,
            "max_rate": 0.0,
            **values,
        }
    )


@pytest.mark.parametrize(
    ("costs", "host_", "rate", "resource", "stage"),
    [
        pytest.param(
            [cost_of(0, 1, calls=8), cost_of(1, 9, calls=8)],
            Host(num_cores=4, num_threads=8),
            400,
            "CPU",
            1,
            id="all cores",
        ),
        pytest.param(
            [cost_of(0, 1, calls=8), cost_of(1, 9, calls=2)],
            Host(num_cores=4, num_threads=4),
            222.2,
            "sequential stage",
            1,
            id="too few calls",
        ),
        pytest.param(
            [cost_of(0, 1, kind="serial"), cost_of(1, 9, calls=8)],
            Host(num_cores=16, num_threads=2),
            222.2,
            "CPU",
            1,
            id="too few threads",
        ),
        pytest.param(
            [cost_of(0, 4, kind="serial"), cost_of(1, 6, kind="serial")],
            Host(num_cores=4, num_threads=4),
            100,
            "sequential stage",
            1,
            id="stages in one thread",
        ),
        pytest.param(
            [cost_of(0, 4, kind="buffered"), cost_of(1, 6, kind="serial")],
            Host(num_cores=4, num_threads=4),
            166.7,
            "sequential stage",
            1,
            id="a buffer between them",
        ),
        pytest.param(
            [
                cost_of(0, 4, kind="serial"),
                cost_of(1, 1, calls=4),
                cost_of(2, 6, kind="serial"),
            ],
            Host(num_cores=4, num_threads=4),
            166.7,
            "sequential stage",
            2,
            id="a parallel stage between them",
        ),
        pytest.param(
            [cost_of(0, 1, wait=19, calls=4)],
            Host(num_cores=2, num_threads=16),
            200,
            "latency",
            0,
            id="waiting",
        ),
        pytest.param(
            [cost_of(0, 10, calls=4)],
            Host(num_cores=4, num_threads=4, slowdown=1.25),
            320,
            "CPU",
            0,
            id="slower together",
        ),
    ],
)
def test_least_limit_is_the_closed_form(costs, host_, rate, resource, stage):
    least = limits.limits(costs, host_)[0]

    assert least.rate == pytest.approx(rate, rel=1e-3)
    assert (least.resource, least.stage) == (resource, stage)


def test_ops_of_a_stage_are_taken_together():
    ops = [cost_of(1, 2, name="Parse()"), cost_of(1, 3, name="Flip()"), cost_of(2, 1)]

    first, second = limits.merged(ops)

    assert first.name == "Map(Parse, Flip)"
    assert first.cpu_seconds_per_output == pytest.approx(5e-3)
    assert second is ops[2]


def made_profile(*costs, num_cores=2, **values):
    """A profile of Map, Map, Prefetch with figures that are given."""
    stages = [tfpipe.Map(Busy(1)), tfpipe.Map(Busy(3)), tfpipe.Prefetch()]
    rate = Rate(median=90.0, least=80.0, most=95.0, cpu_seconds_per_element=0.02)
    host_ = Host(num_cores=num_cores, num_threads=num_cores)
    return Profile(
        **{
            "stages": costs,
            "rate": rate,
            "examples_per_output": 10,
            "num_elements": 5,
            "host": host_,
            "storage": None,
            "consumer_seconds": 0.0,
            "ram_left_bytes": 10**9,
            "memory_bytes": 10**6,
            "notes": (),
            "pipeline": tfpipe.Pipeline(Numbers(), stages),
            **values,
        }
    )


FIGURES = [
    cost_of(0, 0, kind="serial"),
    cost_of(1, 5, calls=2, share=0.25),
    cost_of(2, 15, calls=2, share=0.75),
    cost_of(3, 0, kind="buffered"),
]


@pytest.mark.parametrize(
    ("tuning", "num_cores", "rate"),
    [
        # The two cores could give 100, and gave 90.
        ({}, None, 90),
        ({}, 8, 360),
        ({"num_parallel_maps": 1}, None, 1 / 0.015),
        ({"num_parallel_maps": (1, 2)}, None, 90),
        ({"num_parallel_maps": (1, 4)}, 8, 200),
        ({"private_threadpool_size": 1}, None, 50),
        ({"prefetch_buffer_size": 9}, None, 90),
    ],
)
def test_rate_of_another_tuning_is_predicted(tuning, num_cores, rate):
    predicted = made_profile(*FIGURES).predict(
        tfpipe.Tuning(**tuning), num_cores=num_cores
    )

    assert predicted == pytest.approx(rate)


def test_sentence_says_what_to_change_and_what_comes_next():
    storage = Storage(
        bytes_per_output=1e6, bytes_per_second=5e8, device_fraction=math.nan
    )

    found = made_profile(*FIGURES, storage=storage).bottleneck

    assert (found.resource, found.stage, found.rate) == ("CPU", 2, pytest.approx(100))
    assert found.sentence == (
        "stage2 takes 75% of the CPU, which allows 1,000 examples/s: 8 more cores "
        "would give 5,000 examples/s, where storage at 500 MB/s (as given) is the "
        "next limit."
    )


@pytest.mark.parametrize(
    ("values", "resource", "text"),
    [
        (
            {
                "storage": Storage(
                    bytes_per_output=1e6, bytes_per_second=5e7, device_fraction=1.0
                )
            },
            "storage",
            "storage at 50 MB/s (cold) allows 500 examples/s: cache the records",
        ),
        (
            {"consumer_seconds": 0.1},
            "consumer",
            "the CPU with 2 cores allows 1,000 examples/s",
        ),
        ({"ram_left_bytes": -1}, "memory", "of memory are left"),
    ],
)
def test_other_limits_than_the_stages_are_named(values, resource, text):
    found = made_profile(*FIGURES, **values).bottleneck

    assert found.resource == resource
    assert text in found.sentence


def test_profile_prints_a_line_a_stage_and_goes_into_json():
    result = made_profile(*FIGURES)

    lines = str(result).splitlines()
    values = json.loads(json.dumps(result.as_json(), allow_nan=False))

    assert [line.split()[1] for line in lines[1:5]] == [
        f"stage{number}" for number in range(4)
    ]
    assert lines[-1] == result.bottleneck.sentence
    assert values["stages"][2]["cpu_seconds_per_output"] == 0.015
    assert values["bottleneck"]["resource"] == "CPU"
    assert values["bound_outputs_per_second"] == pytest.approx(100)
    assert "pipeline" not in values


# Rates of whole datasets.


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
def test_throughput_counts_examples_if_the_batch_size_is_static(make, examples):
    dataset = tf.data.Dataset.range(3, 9).map(make)

    result = measure.throughput(dataset, num_elements=40, repeats=2)

    assert result.num_elements == 40
    assert result.examples_per_element == examples
    least, most = result.elements_per_second_least, result.elements_per_second_most
    assert 0 < least <= result.elements_per_second <= most
    assert result.cpu_seconds_per_element > 0
    assert json.loads(json.dumps(result.as_json()))["seconds_to_first_element"] > 0
    assert ("examples/s" in str(result)) == (examples is not None)


def test_throughput_reads_exactly_what_it_says():
    passed = tf.Variable(0)
    dataset = tf.data.Dataset.range(7).map(lambda x: passed.assign_add(1))

    measure.throughput(dataset, num_elements=20, num_warmup=10, repeats=3)

    assert passed.numpy() == 1 + 10 + 3 * 20


def test_throughput_finds_how_many_elements_to_read():
    dataset = tf.data.Dataset.range(7).map(Sleep(1e-3))

    result = measure.throughput(dataset, seconds=0.2, repeats=2)

    assert 1 < result.num_elements < 200


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


# What AUTOTUNE chose.


def chosen_iterator(**options):
    dataset = tf.data.Dataset.range(100).map(Busy(1), num_parallel_calls=-1)
    options_ = tf.data.Options()
    for name, value in options.items():
        setattr(options_.autotune, name, value)
    iterator = iter(dataset.prefetch(3).with_options(options_))
    next(iterator)
    return iterator


@pytest.mark.skipif(
    not dataset_nodes.can_tell_buffers(),
    reason="TensorFlow 2.16 has no get_model_proto",
)
def test_chosen_parallelism_is_told():
    chosen = dataset_nodes.chosen_parallelism(chosen_iterator())

    knobs = {name.partition("(")[0]: values for name, values in chosen.items()}
    assert knobs["Prefetch"]["buffer_size"] == 3
    assert knobs["ParallelMapV2"]["parallelism"] >= 1
    with pytest.raises(ValueError, match="autotune"):
        dataset_nodes.chosen_parallelism(chosen_iterator(enabled=False))


def test_chosen_parallelism_says_which_tensorflow_tells(monkeypatch):
    monkeypatch.delattr(tf.data.experimental, "get_model_proto", raising=False)

    with pytest.raises(NotImplementedError, match=r"from TensorFlow 2\.17 on, this is"):
        dataset_nodes.chosen_parallelism(chosen_iterator())


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (tfpipe.Map(Busy(1), num_parallel_calls=3), (3, "parallel")),
        (tfpipe.Batch(2), (1, "serial")),
        (tfpipe.Prefetch(buffer_size=2), (1, "buffered")),
        (lambda d: d.map(Busy(1), num_parallel_calls=5), (5, "parallel")),
        (lambda d: d.map(Busy(1)), (-1, "parallel")),  # tf.data makes it parallel
        (lambda d: d.map(Sleep(1)), (1, "serial")),
        (lambda d: d.map(Sleep(1)).prefetch(1), (1, "buffered")),
        (keep_even, (1, "serial")),
    ],
)
def test_how_a_stage_runs_is_seen(stage, expected):
    before = tf.data.Dataset.range(10)

    how = dataset_nodes.concurrency(stage, dataset_nodes.added(before, stage(before)))

    assert dataclasses.astuple(how) == expected
