"""tfpipe.tuner.space: the settings that a tuner may choose."""

import dataclasses
import math

import pytest
import tensorflow as tf

import tfpipe
from tfpipe.profiling.limits import StageCost
from tfpipe.tuner import placement, space


@dataclasses.dataclass(frozen=True)
class FakeProfile:
    """Has the part of a profile that `space` reads."""

    stages: list


def cost(number, seconds, *, wall=None, size=1000.0):
    return StageCost(
        number=number,
        name=f"stage {number}",
        visit_ratio=1.0,
        cpu_seconds_per_output=seconds,
        wall_seconds_per_output=wall or seconds,
        bytes_in_per_output=size,
        bytes_out_per_output=size,
        buffered_bytes=0,
        parallelism=1,
        kind="parallel",
        share=0.0,
        max_rate=1.0,
    )


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


@pytest.mark.parametrize(
    ("seconds", "calls"),
    [
        # 4 threads, 0.4 s of CPU: 10 a second; twice that times the time in flight
        ({1: 0.1, 2: 0.3}, (2, 6)),
        ({1: 0.4, 2: 0.0}, (8, 1)),
        ({1: 0.0, 2: 0.0}, (1, 1)),
    ],
)
def test_the_closed_form_gives_each_map_the_calls_it_keeps_busy(seconds, calls):
    profile = FakeProfile([cost(0, 0.0), *(cost(*item) for item in seconds.items())])

    setting = space.closed_form(pipeline(MAP, MAP), profile, BUDGET)

    assert setting.tuning.num_parallel_maps == calls
    assert setting.tuning.private_threadpool_size == 4
    assert setting.tuning.ram_budget_bytes == 1_000_000


def test_without_costs_the_calls_keep_all_threads_busy():
    place = placement.Placement(where="ram", num_ops=1)
    given = pipeline(MAP, tfpipe.Batch(1), MAP)

    bare = space.closed_form(given, None, BUDGET).tuning
    cached = space.closed_form(given, None, BUDGET, cache=place).tuning

    assert (bare.num_parallel_maps, bare.prefetch_buffer_size) == ((8, 4), 1)
    assert cached.num_parallel_maps == (4, 4)


@pytest.mark.parametrize(
    ("num_ops", "calls"),
    [
        (0, (16, 16)),
        (1, (4, 16)),  # once it is full the second map is all there is
        (2, (4, 4)),
    ],
)
def test_maps_before_a_cache_fill_it_and_maps_after_it_keep_all_threads_busy(
    num_ops, calls
):
    profile = FakeProfile([cost(0, 0.0), cost(1, 0.39), cost(2, 0.01)])
    place = placement.Placement(where="ram", num_ops=num_ops)

    setting = space.closed_form(pipeline(MAP, MAP), profile, BUDGET, cache=place)

    assert setting.tuning.num_parallel_maps == calls
    assert setting.cache == place


def test_a_map_that_waits_gets_more_calls_than_threads_but_not_without_limit():
    profile = FakeProfile([cost(0, 0.0), cost(1, 0.1, wall=0.2), cost(2, 0.1, wall=99)])

    setting = space.closed_form(pipeline(MAP, MAP), profile, BUDGET)

    assert setting.tuning.num_parallel_maps == (8, 16)


def test_maps_of_batches_get_at_most_a_call_a_thread():
    profile = FakeProfile([cost(number, 0.1, wall=9) for number in range(4)])
    place = placement.Placement(where="ram", num_ops=0)
    given = pipeline(MAP, tfpipe.Batch(1), MAP)
    one_number = tfpipe.Tuning(num_parallel_maps=64, private_threadpool_size=4)

    found = space.closed_form(given, profile, BUDGET, cache=place)
    more = space.with_more_calls(found, given, BUDGET)
    grid = space.grid(given, BUDGET, [None])

    assert found.tuning.num_parallel_maps == (16, 4)
    settings = [more, *grid]
    assert max(s.tuning.num_parallel_maps[1] for s in settings) == 4
    assert {s.tuning.num_parallel_maps for s in grid} == {
        (1, 1),
        (1, 4),
        (8, 1),
        (8, 4),
    }
    tuned = dataclasses.replace(given, tuning=one_number).tuned_stages()
    assert [stage.num_parallel_calls for stage in tuned[::2]] == [64, 4]
    as_given = dataclasses.replace(one_number, num_parallel_maps=(64, 64))
    tuned = dataclasses.replace(given, tuning=as_given).tuned_stages()
    assert [stage.num_parallel_calls for stage in tuned[::2]] == [64, 64]


@pytest.mark.parametrize(
    ("size", "depth"), [(1000.0, 250), (200_000.0, 1), (10e6, 1), (math.nan, 2)]
)
def test_batches_ahead_take_at_most_a_quarter_of_the_memory(size, depth):
    assert space.most_batches(FakeProfile([cost(1, 0.1, size=size)]), BUDGET) == depth


def test_elements_of_microseconds_get_twice_the_calls_and_a_batch_ahead():
    profile = FakeProfile([cost(number, 0.1) for number in range(3)])
    given = pipeline(MAP, MAP)
    start = space.closed_form(given, profile, BUDGET)

    more = space.with_more_calls(start, given, BUDGET)

    assert start.tuning.num_parallel_maps == (3, 3)
    expected = {"num_parallel_maps": (6, 6), "prefetch_buffer_size": 1}
    assert more.tuning == dataclasses.replace(start.tuning, **expected)
    again = space.with_more_calls(
        space.with_more_calls(more, given, BUDGET), given, BUDGET
    )
    assert again.tuning.num_parallel_maps == (16, 16)  # four for a thread
    nothing = pipeline()
    start = space.closed_form(nothing, profile, BUDGET)
    assert space.with_more_calls(start, nothing, BUDGET).tuning.num_parallel_maps == 1


def test_the_grid_has_every_combination_once():
    place = placement.Placement(where="ram", num_ops=0)

    given = pipeline(tfpipe.Interleave(), MAP, tfpipe.Batch(2))

    found = space.grid(given, BUDGET, [None, place])

    # reads, calls of the map, batches ahead, fused or not, cached or not
    assert len(found) == 2 * 3 * 2 * 2 * 2
    assert len(set(map(str, found))) == len(found)


@pytest.mark.parametrize(
    ("stages", "can"),
    [
        ([MAP, tfpipe.Batch(2)], True),
        ([MAP, tfpipe.Prefetch(), tfpipe.Batch(2)], False),
        ([tfpipe.Batch(2), MAP], False),
    ],
)
def test_a_map_and_a_batch_fuse_only_as_neighbors(stages, can):
    assert space.can_fuse(pipeline(*stages)) is can


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
