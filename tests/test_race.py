"""tfpipe.race: rates of datasets, in turns."""

import math

import pytest
import tensorflow as tf

from tfpipe import race


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

    assert [len(mine.elements_per_second) for mine in turns.values()] == [3, 3]
    assert turns["a"].ratio(turns["b"]) > 2
    assert turns["a"].rate > 2 * turns["b"].rate
    assert turns["b"].cost > 2 * turns["a"].cost
    started = [name for name, before in zip(seen, ["", *seen]) if name != before]  # noqa: B905
    assert started == ["a", "b"] * 4  # the first element, then three rounds


@pytest.mark.parametrize(("end", "num_rounds"), [(0.0, 3), (math.inf, 4)])
def test_no_round_begins_after_the_end_but_three(end, num_rounds):
    runners = {"a": race.Runner(tf.data.Dataset.range(10**9))}

    turns = race.run(runners, seconds=0.01, num_rounds=4, end=end)

    assert len(turns["a"].elements_per_second) == num_rounds


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
