import os

import pytest
import tensorflow as tf

import tfpipe
from tfpipe.tuning import AUTOTUNE


def test_options_carry_the_values():
    tuning = tfpipe.Tuning(
        private_threadpool_size=3,
        max_intra_op_parallelism=2,
        ram_budget_bytes=10_000_000,
        deterministic=False,
    )

    options = tuning.options()

    assert options.threading.private_threadpool_size == 3
    assert options.threading.max_intra_op_parallelism == 2
    assert options.autotune.ram_budget == 10_000_000
    assert options.deterministic is False


def test_default_is_deterministic_and_leaves_pool_and_budget_to_tensorflow():
    untouched = tf.data.Options()

    options = tfpipe.Tuning().options()

    assert options.deterministic is True
    assert options.threading.max_intra_op_parallelism == 1
    threads = options.threading.private_threadpool_size
    assert threads == untouched.threading.private_threadpool_size
    assert options.autotune.ram_budget == untouched.autotune.ram_budget


def test_tensorflow_does_not_share_the_records_once_more():
    policy = tfpipe.Tuning().options().experimental_distribute.auto_shard_policy

    assert policy == tf.data.experimental.AutoShardPolicy.OFF


def test_autotune_is_that_of_tensorflow():
    assert AUTOTUNE == tf.data.AUTOTUNE


@pytest.mark.parametrize(
    ("num_local_ranks", "num_threads"),
    [
        (1, lambda cores: cores),
        (2, lambda cores: max(1, cores // 2)),
        (10_000, lambda _: 1),  # never none
    ],
)
def test_local_ranks_share_the_cores(num_local_ranks, num_threads):
    tuning = tfpipe.Tuning.for_local_ranks(num_local_ranks)

    cores = len(os.sched_getaffinity(0))
    assert tuning == tfpipe.Tuning(private_threadpool_size=num_threads(cores))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_parallel_reads", 0, "must be >= 1, got 0"),
        ("num_parallel_reads", AUTOTUNE, "must be >= 1, got -1"),
        ("num_parallel_maps", 0, "must be >= 1 or -1, got 0"),
        ("num_parallel_maps", -2, "must be >= 1 or -1, got -2"),
        ("prefetch_buffer_size", 0, "must be >= 1 or -1, got 0"),
        ("read_buffer_bytes", 0, "must be >= 1, got 0"),
        ("private_threadpool_size", 0, "must be >= 1 or None, got 0"),
        ("max_intra_op_parallelism", 0, "must be >= 1, got 0"),
        ("ram_budget_bytes", -1, "must be >= 1 or None, got -1"),
    ],
)
def test_wrong_values_are_refused(name, value, message):
    with pytest.raises(ValueError, match=f"Tuning.{name} {message}"):
        tfpipe.Tuning(**{name: value})


def test_no_local_ranks_are_refused():
    with pytest.raises(ValueError, match="num_local_ranks must be >= 1, got 0"):
        tfpipe.Tuning.for_local_ranks(0)
