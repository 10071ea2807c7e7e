"""tfpipe.tuner.lanes: what is built, shared, filled and closed; nothing is timed."""

import dataclasses
import types

import pytest

import tfpipe
from tests.support.data.artificial import decoded_again_and_again
from tfpipe.tuner import lanes, race, space
from tfpipe.tuner.placement import Placement
from tfpipe.tuner.space import Setting

IN_RAM = Placement(where="ram", num_ops=3)


class Runner:
    """Counts what is pulled."""

    def __init__(self):
        self.pulled, self.is_open = 0, True

    def pull(self, num_elements):
        self.pulled += num_elements

    def close(self):
        self.is_open = False


@pytest.fixture
def built(monkeypatch):
    """The pipelines of all runners that were made, in order."""
    pipelines = []

    def made(pipeline, first):
        pipelines.append(pipeline)
        return Runner()

    monkeypatch.setattr(lanes, "open_runner", made)
    return pipelines


def of_given(given, *, time_left=lambda: 9.0):
    return lanes.Lanes(given, space.opened(given), time_left)


def test_settings_are_built_once_share_a_cache_and_fill_it(
    built, data_dir, monkeypatch
):
    closed = []
    monkeypatch.setattr(tfpipe.Cache, "close", lambda cache: closed.append(cache))
    own = tfpipe.Cache("ram")
    pipeline = decoded_again_and_again(data_dir)
    stages = [*pipeline.stages[:1], own, *pipeline.stages[1:]]
    given = dataclasses.replace(pipeline, stages=stages)
    tested = of_given(given)
    one = Setting(tuning=tfpipe.Tuning(num_parallel_reads=1), cache=IN_RAM)
    two = Setting(tuning=tfpipe.Tuning(num_parallel_reads=2), cache=IN_RAM)
    bare = Setting(tuning=tfpipe.Tuning())

    runners = [tested.runner(setting) for setting in (None, one, two, bare, one)]

    assert len(built) == 4
    assert runners[1] is runners[4]
    caches = [lanes.placement.caches(each) for each in built]
    assert caches[1][0] is caches[2][0]
    assert (caches[0], caches[3]) == ([own], [])
    # Eight batches of 4 records, and half of it again.
    assert [each.pulled for each in runners] == [12, 12, 12, 0, 12]
    tested.close_all_but({None, one})
    tested.close()
    tested._released.join()
    assert not any(each.is_open for each in runners)
    assert [each is caches[1][0] for each in closed] == [
        True
    ]  # that of the caller is not ours


def test_filling_ends_with_the_time(built, data_dir):
    left = iter([2.0, 1.0, 0.0])
    tested = of_given(
        decoded_again_and_again(data_dir), time_left=lambda: next(left, -1.0)
    )

    runner = tested.runner(Setting(tuning=tfpipe.Tuning(), cache=IN_RAM))

    assert runner.pulled == 2


def test_a_fast_pipeline_races_on_more_records(data_dir):
    pipeline = decoded_again_and_again(data_dir)
    cached = dataclasses.replace(
        pipeline, stages=[*pipeline.stages[:1], tfpipe.Cache("ram")]
    )
    tested = of_given(pipeline)
    for rate, num_batches in [(1.0, 8), (100.0, 75)]:
        tested.fill_for(types.SimpleNamespace(rate=types.SimpleNamespace(median=rate)))

        assert tested.num_batches == num_batches
        first = lanes.first_records(cached, tested.num_batches)
        assert first.window_size == min(1024, num_batches * 4)
    assert lanes.first_records(pipeline, 8) is None


def test_the_end_of_a_search_waits_for_no_blocked_element():
    thread = race.release([], None)

    assert thread.daemon
