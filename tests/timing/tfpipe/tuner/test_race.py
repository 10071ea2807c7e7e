"""tfpipe.tuner.race by real clocks."""

import time

import pytest
import tensorflow as tf

from tfpipe.tuner import race


def test_datasets_take_turns_and_the_slower_one_is_found():
    seen = []

    def counting(name):
        def count(number):
            seen.append(name)
            return number

        options = tf.data.Options()
        # A prefetch would read ahead of the turn.
        options.experimental_optimization.inject_prefetch = False
        return (
            tf.data.Dataset.range(10**9)
            .map(lambda x: tf.numpy_function(count, [x], tf.int64))
            .with_options(options)
        )

    def work(number):
        """Some milliseconds, that depend on the element."""
        matrix = tf.fill([800, 800], tf.cast(number, tf.float32))
        return tf.reduce_sum(tf.linalg.matmul(matrix, tf.linalg.matmul(matrix, matrix)))

    datasets = {"a": counting("a"), "b": counting("b").map(work)}
    turns = race.compare(datasets, seconds=0.05, num_rounds=3)

    assert [mine.num_rounds for mine in turns.values()] == [3, 3]
    assert turns["a"].ratio(turns["b"]) > 2
    assert turns["b"].cost > 2 * turns["a"].cost
    started = [name for name, before in zip(seen, ["", *seen]) if name != before]  # noqa: B905
    # The first element, a turn before all, three rounds.
    assert started == ["a", "b"] * 5


def test_a_dataset_that_ends_begins_again_and_an_empty_one_is_refused():
    three, none = tf.data.Dataset.range(3), tf.data.Dataset.range(0)

    turns = race.compare(
        {"a": three, "b": three.prefetch(2)}, seconds=0.01, num_rounds=1
    )

    assert min(mine.rate for mine in turns.values()) > 0
    with pytest.raises(ValueError, match="must have at least one element, got none"):
        race.compare({"a": none}, seconds=0.01, num_rounds=1)


@pytest.mark.parametrize("depth", [64, tf.data.AUTOTUNE])
def test_an_element_that_was_ready_counts_with_the_time_of_its_making(depth):
    """Elements take 5 ms, 20 of them a turn; the 64 that are ready are no speed."""

    def wait(number):
        time.sleep(0.005)
        return number

    dataset = tf.data.Dataset.range(10**9).map(
        lambda x: tf.numpy_function(wait, [x], tf.int64)
    )

    turns = race.compare({"a": dataset.prefetch(depth)}, seconds=0.1, num_rounds=3)

    assert turns["a"].rate < 2 / 0.005
