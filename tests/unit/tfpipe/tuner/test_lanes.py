"""tfpipe.tuner.lanes: what is built, shared, filled and closed; nothing is timed."""

import dataclasses
import types

import pytest

import tfpipe
from tests.support.data.artificial import decoded_again_and_again
from tests.support.faults.clock import Clock
from tfpipe.tuner import lanes, race, space
from tfpipe.tuner.placement import Placement
from tfpipe.tuner.space import Setting
from tfpipe.tuner.time_limit import Deadline

IN_RAM = Placement(where="ram", num_ops=3)


class Runner:
    """Counts what is pulled."""

    def __init__(self):
        self.pulled, self.is_open = 0, True

    def pull(self, num_elements):
        self.pulled += num_elements

    def pull_for(self, seconds):
        return int(100 * seconds)

    def close(self):
        self.is_open = False


@pytest.fixture
def built(monkeypatch):
    """The pipelines of all runners that were made, in order."""
    pipelines = []

    def endless(pipeline):
        pipelines.append(pipeline)
        return types.SimpleNamespace(build=lambda num_epochs: None)

    monkeypatch.setattr(lanes.prefixes, "endless", endless)
    monkeypatch.setattr(lanes, "Runner", lambda dataset: Runner())
    return pipelines


def of_given(given, *, limit=100.0, clock=None):
    deadline = Deadline(limit, clock=clock or Clock())
    return lanes.Lanes(given, space.opened(given), deadline)


def test_caches_are_filled_and_those_of_the_search_are_closed(
    built, data_dir, monkeypatch
):
    closed, released = [], []
    monkeypatch.setattr(tfpipe.Cache, "close", lambda cache: closed.append(cache))
    release = race.release
    monkeypatch.setattr(race, "release", lambda *all_: released.append(release(*all_)))
    own = tfpipe.Cache("ram")
    pipeline = decoded_again_and_again(data_dir)
    stages = [*pipeline.stages[:1], own, *pipeline.stages[1:]]
    tested = of_given(dataclasses.replace(pipeline, stages=stages))
    cached = Setting(tuning=tfpipe.Tuning(num_parallel_reads=1), cache=IN_RAM)
    bare = Setting(tuning=tfpipe.Tuning())

    runners = [
        tested.add(name, setting)
        for name, setting in {"given": None, "cached": cached, "bare": bare}.items()
    ]

    stores = [[c._stores for c in lanes.placement.caches(each)] for each in built]
    assert stores[0][0] is own._stores
    assert stores[2] == []
    # Eight batches of 4 records, and half of it again.
    assert [each.pulled for each in runners] == [12, 12, 0]
    tested.close()
    released[0].join()
    assert not any(each.is_open for each in runners)
    assert [cache._stores is stores[1][0] for cache in closed] == [True]


def test_filling_ends_with_the_time(built, data_dir, monkeypatch):
    clock, pull = Clock(), Runner.pull

    def pull_in_a_second(runner, num_elements):
        clock.move(1.0)
        pull(runner, num_elements)

    monkeypatch.setattr(Runner, "pull", pull_in_a_second)
    tested = of_given(decoded_again_and_again(data_dir), limit=2.0, clock=clock)

    runner = tested.add("a", Setting(tuning=tfpipe.Tuning(), cache=IN_RAM))

    assert runner.pulled == 2


def test_the_original_pipeline_races_though_another_took_most_of_the_time(
    built, data_dir, monkeypatch
):
    clock = Clock()

    def build_in_five_seconds(dataset):
        clock.move(5.0)
        return Runner()

    monkeypatch.setattr(lanes, "Runner", build_in_five_seconds)
    tested = of_given(decoded_again_and_again(data_dir), limit=9.0, clock=clock)
    bare = Setting(tuning=tfpipe.Tuning())

    added = [
        tested.add(name, setting) is not None
        for name, setting in {"AUTOTUNE": bare, "x": bare, "as given": None}.items()
    ]

    assert added == [True, False, True]


def test_a_fast_pipeline_races_on_more_records(built, data_dir):
    tested = of_given(decoded_again_and_again(data_dir))
    cached = Setting(tuning=tfpipe.Tuning(), cache=IN_RAM)
    for num_batches in (8, 75):
        runner = tested.add("a", cached)

        assert built[-1].source.window_size == num_batches * 4
        assert runner.pulled == 1.5 * num_batches + num_batches % 2 / 2
        tested.fill_for(runner)


def test_the_end_of_a_search_waits_for_no_blocked_element():
    thread = race.release([], [])

    assert thread.daemon
