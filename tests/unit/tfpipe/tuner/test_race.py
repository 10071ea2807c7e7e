"""tfpipe.tuner.race: rates of datasets, in turns."""

import pytest
import tensorflow as tf

from tests.support.faults.clock import SimulatedMeter
from tfpipe.tuner import race


def _counting(seen, name):
    """Numbers; notes the name of the dataset whenever one is read."""

    def count(number):
        seen.append(name)
        return number

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # it would read ahead
    numbers = tf.data.Dataset.range(10**9)
    return numbers.map(lambda x: tf.numpy_function(count, [x], tf.int64)).with_options(
        options
    )


def test_runners_read_as_many_elements_as_they_say():
    seen = []
    runner = race.Runner(_counting(seen, "a"))

    runner.pull(5)
    count = runner.pull_for(0.01)

    assert count >= 1
    assert len(seen) == 1 + 5 + count


class Producer(race.Runner):
    """Makes elements in simulated time and keeps up to `depth` of them ready.

    Args:
        meter: Shows the time and the CPU time that are simulated.
        seconds: That an element takes.
        depth: Elements that are made ahead.
        cores: Part of the time in which the producer computes; else it waits.
    """

    def __init__(self, meter, seconds, depth, *, cores=1.0, grows=False):
        self.meter, self.seconds, self.depth, self.cores = meter, seconds, depth, cores
        self.grows, self._clock = grows, meter.clock
        self.ready, self.done = depth, 0.0
        self.taken = []
        meter.producers.append(self)

    def work(self, seconds):
        while seconds > 0 and self.ready < self.depth:
            part = min(seconds, self.seconds - self.done)
            self.done, seconds = self.done + part, seconds - part
            self.meter.used["producer"] += self.cores * part
            if self.done > self.seconds - 1e-12:
                self.ready, self.done = self.ready + 1, 0.0

    def pull(self, num_elements):
        for _ in range(num_elements):
            while not self.ready:
                self.meter.work(self.seconds - self.done)
            self.ready -= 1
            self.taken.append(self.meter.now)
            self.meter.work(1e-5)
            if self.grows and not self.ready:
                self.depth *= 2


class Machine(SimulatedMeter):
    """Where producers fill their buffers while the time passes."""

    def __init__(self):
        super().__init__()
        self.used = {"producer": 0.0}
        self.producers = []

    def work(self, seconds):
        self.now += seconds
        for each in self.producers:
            each.work(seconds)
        is_busy = any(each.ready < each.depth for each in self.producers)
        self.runnable = {"producer"} if is_busy else set()


def test_a_race_has_as_many_rounds_as_are_wanted():
    meter = Machine()

    turns = race.run(
        {"a": Producer(meter, 0.01, 1)},
        seconds=0.1,
        num_rounds=4,
        goes_on=lambda turns: [n for n in turns if turns[n].num_rounds < 2],
        meter=meter,
    )

    assert turns["a"].num_rounds == 2
    assert len(turns["a"].cpu_seconds_per_element) == 2


def test_datasets_take_turns_and_the_slower_one_is_found():
    meter = Machine()
    runners = {"a": Producer(meter, 0.01, 1), "b": Producer(meter, 0.03, 1)}

    turns = race.run(runners, seconds=0.3, num_rounds=3, meter=meter)

    assert [mine.num_rounds for mine in turns.values()] == [3, 3]
    assert turns["a"].ratio(turns["b"]) == pytest.approx(3, rel=0.15)
    assert turns["b"].cost == pytest.approx(3 * turns["a"].cost, rel=0.15)
    taken = sorted((at, name) for name, each in runners.items() for at in each.taken)
    names = [name for _, name in taken]
    started = [name for name, before in zip(names, ["", *names]) if name != before]  # noqa: B905
    assert started == ["a", "b"] * 4  # a turn before all, then three rounds


@pytest.mark.parametrize("cores", [1.0, 0.02])
@pytest.mark.parametrize(("depth", "grows"), [(1, False), (64, False), (2, True)])
def test_an_element_that_was_ready_counts_with_the_time_of_its_making(
    depth, grows, cores
):
    """Elements take 5 ms, 20 of them a turn; the 64 that are ready are no speed."""
    meter = Machine()
    runner = Producer(meter, 0.005, depth, grows=grows, cores=cores)

    turns = race.run({"a": runner}, seconds=0.1, num_rounds=3, meter=meter)

    assert turns["a"].rate == pytest.approx(1 / 0.005, rel=0.15)
    assert turns["a"].cost == pytest.approx(cores * 0.005, rel=0.15)


def test_datasets_of_a_comparison_are_checked_first():
    with pytest.raises(ValueError, match="at least one dataset, got none"):
        race.compare({}, seconds=1, num_rounds=1)
    with pytest.raises(TypeError, match=r"datasets\['a'\] must be"):
        race.compare({"a": 3}, seconds=1, num_rounds=1)


def test_an_empty_dataset_is_refused():
    with pytest.raises(ValueError, match="must have at least one element, got none"):
        race.Runner(tf.data.Dataset.range(0))


def test_a_full_buffer_does_not_make_a_turn_long(monkeypatch):
    """64 elements are ready, each of the next takes 20 ms."""
    now = [0.0]
    runner = race.Runner(tf.data.Dataset.range(1), clock=lambda: now[0])
    ready = [64]

    def pull(num_elements):
        for _ in range(num_elements):
            now[0] += 1e-5 if ready[0] > 0 else 20e-3
            ready[0] -= 1

    monkeypatch.setattr(runner, "pull", pull)

    count = runner.pull_for(0.1)

    assert 64 < count < 64 + 5 + 64 / 8
    assert now[0] < 0.1 + 64 / 8 * 20e-3


@pytest.mark.parametrize(
    ("datasets", "grows"),
    [
        (lambda d: d.prefetch(tf.data.AUTOTUNE).batch(2), True),
        (lambda d: d.batch(2).prefetch(2), False),
        (lambda d: d.prefetch(2).with_options(tf.data.Options()), False),
        (lambda d: d.prefetch(2).batch(2), True),  # tf.data adds one
    ],
)
def test_only_what_ends_in_a_fixed_prefetch_has_no_growing_buffer(datasets, grows):
    dataset = datasets(tf.data.Dataset.range(10**9))

    assert race.Runner(dataset).grows is grows


@pytest.mark.parametrize(
    ("rates", "others", "ratio"),
    [
        ([2.0], [1.0], 2.0),
        ([1, 20, 3], [1, 10, 1], 2.0),  # round by round, not of the medians
    ],
)
def test_ratios_compare_neighbors_in_time(rates, others, ratio):
    turns = race.Turns(tuple(rates), tuple(rates))

    assert turns.ratio(race.Turns(tuple(others), tuple(others))) == ratio


@pytest.mark.parametrize(
    ("rates", "beats"),
    [
        ([1.1, 1.1, 1.1], True),
        ([1.1, 1.02, 1.02], False),  # too little
        ([1.2, 1.2, 0.9], False),  # by chance
        ([1.2, 1.2, 1.2, 1.2, 0.9], True),  # one of five may be
        ([1.2, 1.2, 1.2, 0.9, 0.9], False),
        ([1.2, 1.2, 1.2, 1.2, 1.2, 0.9, 0.9], True),  # two of seven
        ([1.2, 1.2, 1.2, 1.2, 0.9, 0.9, 0.9], False),
    ],
)
def test_the_faster_one_is_so_in_nearly_every_round(rates, beats):
    ones = (1.0,) * len(rates)

    assert race.Turns(tuple(rates), ones).beats(race.Turns(ones, ones), 1.03) is beats


def test_an_element_of_any_structure_is_read():
    ragged = tf.ragged.constant([[1, 2], [3]])
    dataset = tf.data.Dataset.from_tensors({"a": (ragged, "text")}).repeat()

    runner = race.Runner(dataset)
    runner.pull(3)

    # Three values and three bounds of rows of 4 and 8 bytes, four characters.
    assert runner.num_bytes() == 3 * 4 + 3 * 8 + 4
    assert runner.num_examples is None
    assert race.Runner(tf.data.Dataset.range(9).batch(3, True)).num_examples == 3


def test_released_datasets_end_before_their_caches():
    ended = []

    class Cache:
        def close(self):
            ended.append(not hasattr(runner, "_iterator"))

    runner = race.Runner(tf.data.Dataset.range(10**9))

    race.release([runner], [Cache()]).join()

    assert ended == [True]


def test_a_race_ends_with_the_turn_in_which_the_time_is_over():
    meter = Machine()
    runners = {"a": Producer(meter, 0.01, 1), "b": Producer(meter, 0.01, 1)}
    end = meter.now + 1.0

    turns = race.run(
        runners,
        seconds=0.1,
        num_rounds=100,
        time_left=lambda: end - meter.now,
        meter=meter,
    )

    assert meter.now <= end + 0.1
    assert turns["a"].num_rounds - turns["b"].num_rounds in (0, 1)
    assert turns["a"].num_rounds > 2
    assert turns["a"].ratio(turns["b"]) == pytest.approx(1)


def test_a_dataset_that_left_does_not_run_again():
    meter = Machine()
    runners = {n: Producer(meter, 0.01, 1) for n in ("a", "b", "c")}

    turns = race.run(
        runners,
        seconds=0.1,
        num_rounds=3,
        goes_on=lambda turns: ["a", "b"],
        meter=meter,
    )

    assert [mine.num_rounds for mine in turns.values()] == [3, 3, 1]
