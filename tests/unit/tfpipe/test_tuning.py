import os

import pytest
import tensorflow as tf

import tfpipe
from tfpipe.location import atomic
from tfpipe.tuning import AUTOTUNE, made_for, read_saved


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
        ("num_parallel_reads", 0, "must be a whole number >= 1, got 0"),
        ("num_parallel_reads", AUTOTUNE, "must be a whole number >= 1, got -1"),
        ("num_parallel_maps", 0, "must be a whole number >= 1 or -1, got 0"),
        ("num_parallel_maps", -2, "must be a whole number >= 1 or -1, got -2"),
        ("prefetch_buffer_size", 0, "must be a whole number >= 1 or -1, got 0"),
        ("read_buffer_bytes", 0, "must be a whole number >= 1, got 0"),
        ("private_threadpool_size", 0, "must be .* or None, got 0"),
        ("max_intra_op_parallelism", 0, "must be .* from 1 to .*, got 0"),
        ("ram_budget_bytes", -1, "must be a whole number >= 1 or None, got -1"),
    ],
)
def test_wrong_values_are_refused(name, value, message):
    with pytest.raises(ValueError, match=f"Tuning.{name} {message}"):
        tfpipe.Tuning(**{name: value})


def test_no_local_ranks_are_refused():
    with pytest.raises(
        ValueError, match="num_local_ranks must be a whole number >= 1, got 0"
    ):
        tfpipe.Tuning.for_local_ranks(0)


def test_every_map_gets_its_own_number():
    def stage(calls):
        return tfpipe.Map(tfpipe.Flip(), num_parallel_calls=calls)

    pipeline = tfpipe.Pipeline(
        tfpipe.SyntheticSource(batch_size=1),
        [stage(None), tfpipe.Prefetch(), stage(7), stage(None)],
        tuning=tfpipe.Tuning(num_parallel_maps=(1, 2, 3)),
    )

    calls = [line for line in str(pipeline).splitlines() if "Map(" in line]

    assert [line.split("calls=")[1].rstrip(")") for line in calls] == ["1", "7", "3"]


def test_too_few_numbers_for_the_maps_are_refused():
    tuning = tfpipe.Tuning(num_parallel_maps=(1, 2))

    assert [tuning.num_parallel_calls(number) for number in (0, 1)] == [1, 2]
    with pytest.raises(ValueError, match="got 2 and at least 3 Maps"):
        tuning.num_parallel_calls(2)
    with pytest.raises(
        ValueError, match="num_parallel_maps must be a whole number >= 1 or -1, got 0"
    ):
        tfpipe.Tuning(num_parallel_maps=(1, 0))


def test_a_saved_tuning_is_loaded_on_the_same_host(tmp_path):
    tuning = tfpipe.Tuning(num_parallel_maps=(4, 2), deterministic=False)
    path = tmp_path / "tuning.json"

    tuning.save(path, made_for=made_for("abc"), evidence={"ratio": 1.5})

    assert tfpipe.Tuning.load(path) == tuning
    assert tfpipe.Tuning.load(path, fingerprint="abc") == tuning
    assert read_saved(path)["evidence"] == {"ratio": 1.5}


def test_ranks_save_their_tunings_at_the_same_time(tmp_path, monkeypatch):
    path, sync = tmp_path / "tuning.json", atomic.sync
    first, second = tfpipe.Tuning(num_parallel_reads=2), tfpipe.Tuning()

    def while_another_writes(part):
        monkeypatch.setattr(atomic, "sync", sync)
        second.save(path, made_for=made_for("abc"))
        sync(part)

    monkeypatch.setattr(atomic, "sync", while_another_writes)
    first.save(path, made_for=made_for("abc"))

    assert tfpipe.Tuning.load(path) == first
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("name", "value"),
    [("tensorflow", "1.15"), ("num_cores", 9999), ("pipeline", "other")],
)
def test_a_stale_tuning_is_noticed_and_not_used(tmp_path, name, value):
    path = tmp_path / "tuning.json"
    tfpipe.Tuning(num_parallel_reads=9).save(
        path, made_for=made_for("abc") | {name: value}
    )

    with pytest.warns(UserWarning, match=f"made for {name} {value} not"):
        loaded = tfpipe.Tuning.load(path, fingerprint="abc")

    assert loaded == tfpipe.Tuning()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 2}'])
def test_another_file_is_refused(tmp_path, text):
    path = tmp_path / "tuning.json"
    path.write_text(text)

    with pytest.raises(ValueError, match=r"tuning.json must be a tuning in format 1"):
        tfpipe.Tuning.load(path)
