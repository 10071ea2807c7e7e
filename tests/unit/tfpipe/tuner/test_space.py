"""tfpipe.tuner.space: the settings that a tuner may choose."""

import dataclasses

import pytest
import tensorflow as tf

import tfpipe
from tfpipe.tuner import placement, space


def double(example):
    return example


MAP = tfpipe.Map(double)
BUDGET = space.Budget(num_threads=4, ram_bytes=1_000_000)


def pipeline(*stages, **options):
    return tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=1), stages, **options)


def test_a_pipeline_without_tuning_has_no_knob_set_and_ends_in_prefetch():
    given = pipeline(
        tfpipe.Interleave(num_parallel_reads=1, read_buffer_bytes=4),
        tfpipe.Cache("ram", num_parallel_reads=3),
        tfpipe.Map(double, num_parallel_calls=7),
        tfpipe.Batch(2),
    )

    stages = space.opened(given).stages

    assert stages == [
        tfpipe.Interleave(),
        tfpipe.Map(double),
        tfpipe.Batch(2),
        tfpipe.Prefetch(),
    ]
    assert space.opened(pipeline(tfpipe.Prefetch(buffer_size=9))).stages == [
        tfpipe.Prefetch()
    ]


def test_a_pipeline_that_does_not_prefetch_gets_the_one_of_tf_data():
    assert space.with_steady_buffers(pipeline(MAP)).stages[1:] == [
        tfpipe.Prefetch(buffer_size=2)
    ]


@pytest.mark.parametrize(
    ("depth", "tuning", "steady"),
    [
        (None, tfpipe.Tuning(), 2),
        (None, tfpipe.Tuning(prefetch_buffer_size=5), 5),
        (tf.data.AUTOTUNE, tfpipe.Tuning(prefetch_buffer_size=5), 2),
        (7, tfpipe.Tuning(), 7),
    ],
)
def test_steady_buffers_are_those_that_do_not_grow(depth, tuning, steady):
    given = pipeline(MAP, tfpipe.Prefetch(buffer_size=depth), tuning=tuning)

    found = space.with_steady_buffers(given)

    assert found.tuned_stages() == [
        MAP.with_tuning(tuning),
        tfpipe.Prefetch(buffer_size=steady),
    ]
    assert found.tuning == tuning


def test_most_calls_are_four_a_thread_and_of_batches_one():
    given = pipeline(MAP, tfpipe.Batch(1), MAP)
    place = placement.Placement(where="ram", num_ops=1)
    cases = [  # cache, bytes of a batch, batches ahead
        (None, 1000, 1),
        (place, 1000, 2),
        (place, 125_001, 1),  # more than an eighth of the memory
    ]
    for cache, size, depth in cases:
        found = space.with_most_calls(BUDGET, size, cache=cache)

        assert found.cache == cache
        assert found.tuning == dataclasses.replace(
            space.autotuned(BUDGET).tuning,
            num_parallel_maps=16,
            prefetch_buffer_size=depth,
        )
    tuned = dataclasses.replace(given, tuning=found.tuning).tuned_stages()
    assert [stage.num_parallel_calls for stage in tuned[::2]] == [16, 4]


def test_a_map_that_the_cache_parts_has_its_number_twice():
    given = pipeline(
        tfpipe.Interleave(),
        tfpipe.Map(tfpipe.Parse(label_base=1), tfpipe.Select("label"), double),
        tfpipe.Batch(2),
    )
    setting = space.Setting(
        tuning=tfpipe.Tuning(num_parallel_maps=(3,)),
        cache=placement.Placement(where="ram", num_ops=2),
    )

    made = setting.of(given)

    assert made.tuning.num_parallel_maps == (3, 3)
    assert "a cache of the result of 2 ops in RAM" in space.words(setting)
    assert "num_parallel_maps=(3,)" in space.words(setting)
    maps = [stage for stage in made.tuned_stages() if isinstance(stage, tfpipe.Map)]
    assert [len(stage.ops) for stage in maps] == [2, 1]
    assert [stage.num_parallel_calls for stage in maps] == [3, 3]


@pytest.mark.parametrize(
    ("num_ops", "calls"),
    [(0, [3, 5]), (1, [3, 3, 5]), (2, [3, 5]), (3, [3, 5, 5]), (None, [3, 5])],
)
def test_each_map_keeps_its_number_beside_a_cache(num_ops, calls):
    parse = tfpipe.Parse(label_base=1)
    given = pipeline(
        tfpipe.Interleave(),
        tfpipe.Map(parse, tfpipe.Select("label")),
        tfpipe.Map(double, double),
        tfpipe.Batch(2),
    )
    cache = num_ops is not None and placement.Placement(where="ram", num_ops=num_ops)

    def made(numbers):
        tuning = tfpipe.Tuning(num_parallel_maps=numbers)
        stages = space.Setting(tuning=tuning, cache=cache or None).of(given)
        return [s for s in stages.tuned_stages() if isinstance(s, tfpipe.Map)]

    assert [stage.num_parallel_calls for stage in made((3, 5))] == calls
    with pytest.raises(ValueError, match="must be one number or have one for each Map"):
        made((3,))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_threads": 0}, "num_threads must be a whole number >= 1, got 0"),
        ({"ram_bytes": 0}, "ram_bytes must be a whole number >= 1, got 0"),
        ({"disk_bytes": 1}, "both disk_bytes and cache_dir or neither"),
        ({"cache_dir": "x"}, "both disk_bytes and cache_dir or neither"),
    ],
)
def test_wrong_budgets_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        space.Budget(**{"num_threads": 1, "ram_bytes": 1, **values})


def test_autotune_keeps_to_the_budget():
    tuning = space.autotuned(BUDGET).tuning

    assert tuning.num_parallel_maps == tf.data.AUTOTUNE
    assert tuning.private_threadpool_size == 4
    assert tuning.ram_budget_bytes == 1_000_000
