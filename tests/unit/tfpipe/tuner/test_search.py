"""tfpipe.tuner.search: what is tried and chosen, from made-up races."""

import dataclasses
import functools
import json
import math
import types

import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.artificial import decoded_again_and_again
from tests.support.faults.clock import Clock, SimulatedHost
from tfpipe import tuning
from tfpipe.profiling.host_share import HostWatch
from tfpipe.profiling.process_usage import ProcessMeter
from tfpipe.tuner import lanes, placement, race, search, space, verdict
from tfpipe.tuner.time_limit import Deadline
from tfpipe.tuning import AUTOTUNE


class Races:
    """Stands for real races: a function of the pipeline is its rate.

    A turn takes its seconds, and a quarter for filling the buffers, by a clock that
    nothing else moves. The first round comes after half a turn of each.
    """

    def __init__(self, rate):
        self.rate = rate
        self.clock = Clock()
        self.sizes = []

    def runner(self, lanes, setting):
        pipeline = setting.of(lanes._bare) if setting else lanes._original
        return types.SimpleNamespace(
            rate=self.rate(pipeline, setting is not None),
            pull_for=lambda seconds: 9,
            num_bytes=lambda: 400,
            num_examples=4,
        )

    def run(self, runners, *, seconds, num_rounds, ignored, goes_on, time_left):
        turns = dict.fromkeys(runners, race.Turns((), ()))
        self.sizes.append(turns)
        self.clock.move(len(runners) * seconds / 2)
        for number in range(num_rounds):
            for name in goes_on(turns) if number else runners:
                if time_left() <= seconds:
                    return turns
                self.clock.move(1.25 * seconds)
                rate = runners[name].rate
                turns[name] = turns[name].and_one(rate, 1 / rate)
        return turns

    def rounds(self):
        """The rounds of each setting, race by race."""
        return [{n: mine.num_rounds for n, mine in t.items()} for t in self.sizes]


@pytest.fixture
def races(monkeypatch):
    """Makes a search by made-up rates; returns the races."""

    def install(rate):
        made = Races(rate)
        deadline = functools.partial(Deadline, clock=made.clock)
        monkeypatch.setattr(lanes.Lanes, "runner", lambda *args: made.runner(*args))
        monkeypatch.setattr(
            search.host_share, "wait_until_quiet", lambda *_, **__: True
        )
        watch = functools.partial(HostWatch, meter=SimulatedHost())
        monkeypatch.setattr(search, "HostWatch", watch)
        # In bytes, for no op and for all that are not random.
        sizes = {0: 10_000, 3: 5_000}
        monkeypatch.setattr(
            placement,
            "sizes",
            lambda pipeline: sizes if reads_records(pipeline) else {},
        )
        monkeypatch.setattr(search, "Deadline", deadline)
        monkeypatch.setattr(race, "run", made.run)
        monkeypatch.setattr(race, "release", lambda runners, caches: None)
        monkeypatch.setattr(ProcessMeter, "busy_threads", lambda meter: [])
        return made

    return install


def reads_records(pipeline):
    return isinstance(pipeline.source, tfpipe.TFRecordSource)


def rate_by_cache(pipeline, is_ours):
    """A cache of decoded images is worth most, one of records little."""
    if not is_ours:
        return 50.0
    if pipeline.tuning.num_parallel_maps == AUTOTUNE:
        return 100.0
    cache = placement.of_pipeline(pipeline)
    return 100.0 if cache is None else {0: 110.0, 3: 800.0}[cache.num_ops]


def test_a_cache_of_costly_results_is_found_kept_and_loaded(races, data_dir, tmp_path):
    races(rate_by_cache)
    pipeline = decoded_again_and_again(data_dir)

    found = tfpipe.search_tuning(
        pipeline, time_limit=40, ram_budget_bytes=10**9, cpu_budget=1, demand=5000.0
    )

    assert found.setting.cache == placement.Placement(where="ram", num_ops=3)
    assert (found.ratio, found.given_ratio) == (8.0, 16.0)
    names = [trial.name for trial in found.trials]
    assert {"as given", "AUTOTUNE", "most calls"} <= set(names)
    assert "8.00 times AUTOTUNE" in str(found)
    # The winner makes 800 batches of 4 images a second with 1 core, each in 1 / 800 s.
    told = found.as_json()["service"]
    assert (told["rate_per_second"], told["num_cores"]) == (3200, 1)
    assert (told["busy_share"], told["cores_elsewhere"]) == (1, 2)
    assert str(found).endswith(f"\n{told['sentence']}")
    path = tmp_path / "tuning.json"
    found.save(path)
    assert str(tfpipe.load_tuned(path, pipeline)) == str(found.pipeline)
    assert json.loads(path.read_text())["evidence"]["ratio_to_autotune"] == 8.0


def slow_to_build(races, seconds):
    """Races by `rate_by_cache` in which each setting takes that long to build."""
    built = set()

    def rate(pipeline, is_ours):
        if str(pipeline) not in built:
            built.add(str(pipeline))
            made.clock.move(seconds)
        return rate_by_cache(pipeline, is_ours)

    made = races(rate)
    return made


def test_a_cache_is_tried_where_building_takes_most_of_the_time(races, data_dir):
    """Each of five settings takes 6 s to build, of 40 s."""
    made = slow_to_build(races, 6.0)

    found = tfpipe.search_tuning(
        decoded_again_and_again(data_dir),
        time_limit=40,
        ram_budget_bytes=10**9,
        cpu_budget=1,
    )

    assert [len(turns) for turns in made.sizes] == [5]
    assert found.setting.cache == placement.Placement(where="ram", num_ops=3)


def test_a_cache_that_does_not_fit_is_told_and_not_used(races, data_dir, tmp_path):
    races(rate_by_cache)

    found = tfpipe.search_tuning(
        decoded_again_and_again(data_dir),
        time_limit=20,
        ram_budget_bytes=100,
        disk_budget_bytes=10**9,
        cache_dir=tmp_path,
    )

    told = {trial.name: trial.error for trial in found.trials if trial.error}
    assert set(told) == {
        "cache of encoded records in RAM",
        "cache of the result of 3 ops in RAM",
    }
    assert all("0 MB are allowed" in error for error in told.values())
    assert found.setting.cache.where == "disk"


def test_a_pipeline_that_cannot_be_run_as_given_is_tuned_all_the_same(races, data_dir):
    def rate(pipeline, is_ours):
        if not is_ours:
            raise ValueError("max_bytes must be >= 9\nand more")
        return rate_by_cache(pipeline, is_ours)

    races(rate)

    found = tfpipe.search_tuning(decoded_again_and_again(data_dir), time_limit=20)

    assert found.given_ratio is None
    assert "could not be run" in found.sentence
    (trial,) = [trial for trial in found.trials if trial.name == "as given"]
    assert trial.error == "max_bytes must be >= 9"


def test_a_single_round_of_autotune_alone_decides_nothing(races, data_dir, monkeypatch):
    def rate(pipeline, is_ours):
        if not is_ours:
            raise ValueError("no such file")
        return 100.0

    def run(runners, **others):
        turns = dict.fromkeys(runners, race.Turns((), ()))
        return turns | {"AUTOTUNE": race.Turns((100.0,), (0.01,))}

    races(rate)
    monkeypatch.setattr(race, "run", run)

    found = tfpipe.search_tuning(decoded_again_and_again(data_dir), time_limit=20)

    assert found.ratio is None
    assert found.sentence.endswith("too short for a race: the pipeline gets AUTOTUNE.")


def test_an_error_with_the_setting_of_autotune_is_raised(races, data_dir):
    def rate(pipeline, is_ours):
        raise ValueError("no such file")

    races(rate)

    with pytest.raises(ValueError, match="no such file"):
        tfpipe.search_tuning(decoded_again_and_again(data_dir), time_limit=20)


def test_a_pipeline_whose_own_cache_makes_it_fastest_stays(races, data_dir, tmp_path):
    """No other one may have a cache, so each would read its files in every epoch."""
    races(lambda pipeline, is_ours: 100.0 if is_ours else 300.0)
    cache = tfpipe.Cache("disk", tmp_path)
    given = cached_pipeline(decoded_again_and_again(data_dir), cache)

    found = tfpipe.search_tuning(given, time_limit=15, ram_budget_bytes=100)

    assert found.pipeline is given
    assert found.is_as_given
    assert found.ratio == 3.0
    assert "The pipeline as it was is the fastest" in found.sentence
    assert found.setting.cache == placement.of_pipeline(given)


def numbers_pipeline():
    def numbers(state, num_epochs):
        return tf.data.Dataset.range(10**9).map(lambda x: {"x": x})

    return tfpipe.Pipeline(numbers, [tfpipe.Batch(8)])


def test_a_setting_with_more_calls_than_threads_races(races):
    def rate(pipeline, is_ours):
        return 150.0 if pipeline.tuning.num_parallel_maps == 4 else 100.0

    made = races(rate)

    found = tfpipe.search_tuning(numbers_pipeline(), time_limit=100, cpu_budget=1)

    assert found.setting.tuning.num_parallel_maps == 4
    (rounds,) = made.rounds()
    assert set(rounds) == {"as given", "AUTOTUNE", "most calls"}
    assert rounds["as given"] >= verdict.ENOUGH_BUSY


def test_another_order_races_if_it_is_allowed(races):
    def rate(pipeline, is_ours):
        return 100.0 if pipeline.tuning.deterministic else 150.0

    races(rate)

    for any_order in (False, True):
        found = tfpipe.search_tuning(
            numbers_pipeline(), time_limit=60, any_order=any_order
        )
        assert found.setting.tuning.deterministic is not any_order


def test_the_given_pipeline_wins_a_tie(races):
    races(lambda pipeline, is_ours: 100.0)

    found = tfpipe.search_tuning(numbers_pipeline(), time_limit=100)

    assert found.is_as_given


def test_turns_are_shorter_where_little_time_is_left(races, data_dir):
    """Building five settings takes half of the time."""
    made = slow_to_build(races, 4.0)

    tfpipe.search_tuning(
        decoded_again_and_again(data_dir),
        time_limit=40,
        ram_budget_bytes=10**9,
        cpu_budget=4,
    )

    (rounds,) = made.rounds()
    assert min(rounds.values()) == 1
    assert rounds["as given"] >= verdict.ENOUGH_BUSY


@pytest.mark.parametrize("time_limit", [1, 20, 60])
def test_a_search_ends_in_time(races, time_limit):
    made = races(lambda pipeline, is_ours: 120.0 if is_ours else 100.0)

    tfpipe.search_tuning(numbers_pipeline(), time_limit=time_limit, cpu_budget=1)

    assert made.clock.now - 1000 <= time_limit


def test_a_pipeline_that_ends_begins_again():
    source = tfpipe.SyntheticSource(batch_size=2, image_size=8)
    pipeline = tfpipe.Pipeline(source, [tfpipe.Take(3)])

    runner = lanes.Lanes(pipeline, pipeline, Deadline(9.0)).runner(None)

    runner.pull(10)


def test_a_tuning_for_something_else_is_not_used(data_dir, tmp_path):
    pipeline = tfpipe.imagenet_train(data_dir, image_size=8, batch_size=2)
    other = tfpipe.imagenet_train(data_dir, image_size=16, batch_size=2)
    path = tmp_path / "tuning.json"
    tfpipe.Tuning(num_parallel_maps=3).save(
        path, made_for=tuning.made_for(pipeline.fingerprint)
    )

    assert tfpipe.load_tuned(path, pipeline).tuning.num_parallel_maps == 3
    with pytest.warns(UserWarning, match="made for pipeline"):
        loaded = tfpipe.load_tuned(path, other)
    assert str(loaded) == str(other)


def cached_pipeline(pipeline, cache, *, at=1):
    stages = [*pipeline.stages[:at], cache, *pipeline.stages[at:]]
    return dataclasses.replace(pipeline, stages=stages)


def test_excess_over_a_budget_is_told(data_dir, tmp_path):
    pipeline = decoded_again_and_again(data_dir)
    in_ram = cached_pipeline(pipeline, tfpipe.Cache("ram"))
    on_disk = cached_pipeline(pipeline, tfpipe.Cache("disk", tmp_path))
    tuning_of_four = tfpipe.Tuning(private_threadpool_size=4)
    four = dataclasses.replace(pipeline, tuning=tuning_of_four)

    def excess(pipeline, **values):
        values = {"num_threads": 64, "ram_bytes": 10**9} | values
        return space.excess(pipeline, space.Budget(**values))

    assert excess(pipeline) == excess(in_ram) == excess(four) == ""
    assert excess(four, num_threads=3) == "it has 4 threads, at most 3 allowed"
    assert "its cache needs 0 MB, at most 0 allowed" in excess(in_ram, ram_bytes=99)
    # In a folder that its owner chose, unless a budget says less.
    assert excess(on_disk, ram_bytes=99) == ""
    assert "its cache" in excess(on_disk, disk_bytes=99, cache_dir=tmp_path)


@pytest.mark.parametrize("is_as_given", [True, False])
def test_a_pipeline_that_stays_says_so_and_is_loaded(data_dir, tmp_path, is_as_given):
    given = dataclasses.replace(
        decoded_again_and_again(data_dir), tuning=tfpipe.Tuning(num_parallel_reads=2)
    )
    found = tfpipe.Search(
        pipeline=given,
        setting=space.of_pipeline(given),
        autotuned=space.Setting(tuning=tfpipe.Tuning()),
        trials=[],
        ratio=1.5,
        given_ratio=1.0,
        fingerprint=given.fingerprint,
        is_as_given=is_as_given,
        given_excess="" if is_as_given else "it has 4 threads, at most 3 allowed",
    )
    path = tmp_path / "tuning.json"

    found.save(path)

    said = json.loads(path.read_text())["evidence"]
    assert said["is_as_given"] is is_as_given
    assert said["given_excess"] == found.given_excess
    assert said["sentence"] == found.sentence
    loaded = tfpipe.load_tuned(path, given)
    if is_as_given:
        assert "The pipeline as it was is the fastest" in found.sentence
        slower = dataclasses.replace(found, ratio=0.79).sentence
        assert "leave open which setting is the fastest" in slower
        assert loaded is given
    else:
        assert "exceeds the budget (it has 4 threads, at most" in found.sentence
        assert loaded.stages != given.stages  # no knob of a stage is set
        assert loaded.tuning == given.tuning


def test_an_empty_pipeline_is_refused(monkeypatch):
    monkeypatch.setattr(ProcessMeter, "busy_threads", lambda meter: [])
    empty = tfpipe.Pipeline(lambda *_: tf.data.Dataset.range(3), [tfpipe.Batch(4)])

    with pytest.raises(ValueError, match="must have at least one element, got none"):
        tfpipe.tune(empty, time_limit=4)


def test_a_place_in_a_folder_can_be_saved(tmp_path):
    placed = placement.Placement(where="disk", num_ops=0, directory=tmp_path)

    saved = json.loads(json.dumps(dataclasses.asdict(placed)))

    assert placement.Placement(**saved) == placed


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"time_limit": 0}, "time_limit must be a finite number > 0, got 0"),
        ({"num_local_ranks": 0}, "num_local_ranks must be .* >= 1, got 0"),
        ({"cpu_budget": 0}, "cpu_budget must be .* from 1 to 4096 or None, got 0"),
        ({"ram_budget_bytes": 0}, "ram_budget_bytes must be .* >= 1 or None, got 0"),
        (
            {"ram_budget_bytes": 3, "num_local_ranks": 4},
            "ram_budget_bytes must be .* >= 4 or None, got 3",  # a byte a rank
        ),
        ({"disk_budget_bytes": 0}, "disk_budget_bytes must be .* >= 1 or None, got 0"),
        ({"disk_budget_bytes": -1}, "disk_budget_bytes must be .* >= 1 or None, got"),
        ({"time_limit": -1.0}, "time_limit must be a finite number > 0, got -1"),
        ({"time_limit": math.nan}, "time_limit must be a finite number > 0, got nan"),
        ({"time_limit": True}, "time_limit must be a finite number > 0, got True"),
        ({"cpu_budget": True}, "cpu_budget must be .* got True"),
        ({"cpu_budget": 10**12}, "cpu_budget must be .* from 1 to 4096"),
        ({"ram_budget_bytes": math.nan}, "ram_budget_bytes must be .* got nan"),
        ({"ram_budget_bytes": True}, "ram_budget_bytes must be .* got True"),
        ({"disk_budget_bytes": 9}, "both disk_bytes and cache_dir or neither"),
    ],
)
def test_wrong_values_are_refused_before_any_work(values, said):
    pipeline = tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=1), [])

    with pytest.raises(ValueError, match=said):
        tfpipe.tune(pipeline, **values)
