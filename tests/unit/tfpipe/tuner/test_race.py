"""tfpipe.tuner.race: rates of datasets, in turns."""

import threading
import time

import pytest
import tensorflow as tf

from tfpipe.profiling import timed_reader
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


def test_datasets_take_turns_and_the_slower_one_is_found():
    seen = []

    def work(number):
        """Some milliseconds, that depend on the element."""
        matrix = tf.fill([800, 800], tf.cast(number, tf.float32))
        return tf.reduce_sum(tf.linalg.matmul(matrix, tf.linalg.matmul(matrix, matrix)))

    datasets = {"a": _counting(seen, "a"), "b": _counting(seen, "b").map(work)}
    turns = race.compare(datasets, seconds=0.05, num_rounds=3)

    assert [mine.num_rounds for mine in turns.values()] == [3, 3]
    assert turns["a"].ratio(turns["b"]) > 2
    assert turns["a"].rate > 2 * turns["b"].rate
    assert turns["b"].cost > 2 * turns["a"].cost
    started = [name for name, before in zip(seen, ["", *seen]) if name != before]  # noqa: B905
    assert (
        started == ["a", "b"] * 5
    )  # the first element, a turn before all, three rounds


def test_what_ends_begins_again_and_what_is_empty_is_refused():
    three, none = tf.data.Dataset.range(3), tf.data.Dataset.range(0)

    turns = race.compare(
        {"a": three, "b": three.prefetch(2)}, seconds=0.01, num_rounds=1
    )

    assert min(mine.rate for mine in turns.values()) > 0
    with pytest.raises(ValueError, match="must have at least one element, got none"):
        race.compare({"a": none}, seconds=0.01, num_rounds=1)


def test_a_race_has_as_many_rounds_as_are_wanted():
    runners = {"a": race.Runner(tf.data.Dataset.range(10**9))}

    turns = race.run(
        runners,
        seconds=0.01,
        num_rounds=4,
        goes_on=lambda turns: turns["a"].num_rounds < 2,
    )

    assert turns["a"].num_rounds == 2
    assert len(turns["a"].cpu_seconds_per_element) == 2


def test_a_full_buffer_does_not_make_a_turn_long(monkeypatch):
    """64 elements are ready, each of the next takes 20 ms."""
    runner = race.Runner(tf.data.Dataset.range(1))
    now = [0.0]
    ready = [64]

    def pull(num_elements):
        for _ in range(num_elements):
            now[0] += 1e-5 if ready[0] > 0 else 20e-3
            ready[0] -= 1

    monkeypatch.setattr(runner, "pull", pull)
    monkeypatch.setattr(race.time, "perf_counter", lambda: now[0])

    count = runner.pull_for(0.1)

    assert 64 < count < 64 + 5 + 64 / 8
    assert now[0] < 0.1 + 64 / 8 * 20e-3


@pytest.mark.parametrize("depth", [1, 64, tf.data.AUTOTUNE])
def test_what_was_ready_counts_with_the_time_of_its_making(depth):
    """Elements take 5 ms, 20 of them a turn; the 64 that are ready are no speed."""

    def wait(number):
        time.sleep(0.005)
        return number

    dataset = tf.data.Dataset.range(10**9).map(
        lambda x: tf.numpy_function(wait, [x], tf.int64)
    )

    turns = race.compare({"a": dataset.prefetch(depth)}, seconds=0.1, num_rounds=3)

    assert turns["a"].rate < 1.3 / 0.005


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

    race.Runner(dataset).pull(3)


def test_released_datasets_end_before_their_caches():
    ended = []

    class Cache:
        def close(self):
            ended.append(not hasattr(runner, "_iterator"))

    runner = race.Runner(tf.data.Dataset.range(10**9), caches=[Cache()])

    first = race.release({"a": runner}, None)
    race.release({}, first).join()

    assert not first.is_alive()
    assert ended == [True]


def test_threads_that_are_never_idle_are_known_and_not_waited_for():
    end = threading.Event()

    def poll():
        while not end.wait(0.001):
            sum(range(10_000))

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        found = timed_reader.busy_threads()
        start = time.perf_counter()
        since = timed_reader.rest(ignored=found)
    finally:
        end.set()
        thread.join()

    assert str(thread.native_id) in found
    assert str(threading.get_native_id()) not in found
    assert since - start < 5  # of 10 that it waits at most
