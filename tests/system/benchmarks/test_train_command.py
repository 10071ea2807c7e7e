"""python -m benchmarks.train as a user runs it: on one rank, on two, with errors."""

import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from benchmarks import train
from benchmarks.distributed.ranks import Ranks
from benchmarks.models import catalog
from benchmarks.options.config import Config
from benchmarks.training import run
from tests.support.data.trees import convert, make_tree
from tests.support.processes import commands, horovodrun
from tests.support.processes.rank_pool import RankPool, RanksFailedError
from tests.support.processes.warm_python import WarmPython

NUM_CLASSES = 10
CHANCE = 1 / NUM_CLASSES


def _run(ranks: Ranks, data_dir: pathlib.Path, **fields: Any) -> dict[str, Any]:
    config = Config(data_dir=str(data_dir), model="tiny", **fields)
    return run.run(config, ranks)


PROGRESS = re.compile(
    r"\[0\]<stderr>:\[ *\d+ s\] (?P<phase>[a-z -]+)"
    r"(: step \d+ of \d+(, [\d.]+ images/s, waited [\d.]+%)?(, \d+ s left)?)?"
)


def test_two_ranks_share_each_epoch_and_report_it(records_dir: pathlib.Path) -> None:
    """Their stderr has lines of rank 0 about the progress, and nothing else."""
    environment = horovodrun.environment(TFPIPE_PROGRESS_SECONDS="0.2")
    del environment["TF_CPP_MIN_LOG_LEVEL"]
    done = subprocess.run(
        horovodrun.command(
            2,
            *("-m", "benchmarks.train", f"--data_dir={records_dir}", "--model=tiny"),
            *("--image_size=32", "--batch_size=25", "--num_epochs=2"),
        ),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )

    result = horovodrun.result(done)
    # Lines of horovodrun itself have no rank.
    told = [line for line in done.stderr.splitlines() if line.startswith("[")]
    found = [PROGRESS.fullmatch(line) for line in told]
    assert all(found), told
    phases = {match["phase"] for match in found if match}
    assert phases >= {"building the model", "compiling the step"}
    assert "Img/sec per rank: " in done.stdout
    assert "Total img/sec on 2 rank(s): " in done.stdout
    assert result["num_ranks"] == 2
    assert result["records"] == {
        "num_in_split": 500,
        "num_used": 1000,
        "num_distinct": 500,
        "times_used_min": 2,
        "times_used_max": 2,
        "num_on_several_ranks": result["records"]["num_on_several_ranks"],
    }
    assert len(result["examples_per_second_per_rank"]) == 2
    assert result["loss_last"] < result["loss_first"]


def test_wrong_arguments_end_all_ranks(
    records_dir: pathlib.Path, rank_pool: RankPool
) -> None:
    with pytest.raises(RanksFailedError) as caught:
        rank_pool.run(_run, records_dir, batch_size=251)

    for error in caught.value.errors:
        assert error is not None
        assert "500 records cannot give 2 ranks a batch of 251 each" in error


def test_two_ranks_share_three_uneven_shards_with_a_prime_number_of_records(
    rank_pool: RankPool, tmp_path: pathlib.Path
) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=101)
    convert(raw_dir, tmp_path / "records", num_train_shards=3)

    fields = {"image_size": 32, "batch_size": 4, "num_epochs": 1, "step_time_ms": 1.0}
    results = rank_pool.run(_run, tmp_path / "records", **fields)

    # 12 steps of 4 on each rank; records that do not fill a step on both are left out.
    for result in results:
        records = result["records"]
        assert (records["num_used"], records["num_distinct"]) == (96, 96)
        assert records["num_on_several_ranks"] == 0


def test_evaluation_is_the_same_on_one_two_and_three_ranks(
    records_dir: pathlib.Path,
    rank_pool: RankPool,
    warm_python: WarmPython,
    tmp_path: pathlib.Path,
) -> None:
    """100 records in batches of 7: the last batches of each rank are padded."""
    folder = str(tmp_path)
    fields = {"image_size": 32, "checkpoint_dir": folder}
    _run(Ranks(), records_dir, batch_size=50, num_steps=2, **fields)
    fields |= {"mode": "eval", "batch_size": 7}

    one = _run(Ranks(), records_dir, **fields)
    two, _ = rank_pool.run(_run, records_dir, **fields)
    three = horovodrun.result(
        horovodrun.run(
            3,
            *("-m", "benchmarks.train", f"--data_dir={records_dir}", "--model=tiny"),
            *("--mode=eval", "--batch_size=7", f"--checkpoint_dir={folder}"),
            "--image_size=32",
            python=warm_python.command,
        )
    )

    results = (one, two, three)
    assert [result["num_ranks"] for result in results] == [1, 2, 3]
    for result in results:  # a remedy that this mode takes
        assert (
            "steady state: time the steps with --mode=infer"
            in result["steady_state"]["text"]
        )
    assert [result["num_evaluated"] for result in results] == [100, 100, 100]
    assert one["accuracy"] == two["accuracy"] == three["accuracy"]
    assert one["loss"] == pytest.approx(two["loss"], rel=1e-5)
    assert one["loss"] == pytest.approx(three["loss"], rel=1e-5)


def _accuracy(data_dir: pathlib.Path, folder: pathlib.Path) -> float:
    """Returns the validation accuracy after a short training of the tiny model."""
    fields = {"batch_size": 16, "image_size": 32, "checkpoint_dir": str(folder)}
    _run(Ranks(), data_dir, num_epochs=5, **fields)
    result = _run(Ranks(), data_dir, mode="eval", **fields)
    assert result["num_evaluated"] == 100
    accuracy: float = result["accuracy"]
    return accuracy


def test_classes_are_learned_and_shuffled_labels_are_not(
    synthesized_dir: pathlib.Path, records_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    shuffled = tmp_path / "raw"
    shutil.copytree(synthesized_dir, shuffled)
    files = sorted(shuffled.glob("train/*/*.JPEG"))
    places = [path.parent for path in files]
    random.Random(0).shuffle(places)
    for path, place in zip(files, places, strict=True):
        path.rename(place / f"moved_{path.name}")
    convert(shuffled, tmp_path / "records", num_train_shards=3)

    learned = _accuracy(records_dir, tmp_path / "learned")
    by_chance = _accuracy(tmp_path / "records", tmp_path / "chance")

    assert learned >= 5 * CHANCE
    # 100 images: 3 standard deviations above chance are 0.19.
    assert by_chance < CHANCE + 0.1


def _train_resnet50(ranks: Ranks, data_dir: pathlib.Path) -> dict[str, Any]:
    """Trains eagerly: to trace and to optimize the graph takes much longer."""
    fields = {"num_steps": 2, "num_warmup_steps": 0, "batch_size": 2}
    config = Config(data_dir=str(data_dir), model="resnet50", image_size=32, **fields)
    tf.config.run_functions_eagerly(True)
    try:
        return run.run(config, ranks)
    finally:
        tf.config.run_functions_eagerly(False)


def test_resnet50_trains_on_two_ranks(
    rank_pool: RankPool, records_dir: pathlib.Path
) -> None:
    first, second = rank_pool.run(_train_resnet50, records_dir, timeout=600)

    published = catalog.MODELS["resnet50"].num_parameters
    assert first["num_parameters"] == second["num_parameters"] == published
    assert first["num_timed_steps"] == 2
    assert first["epochs"] == second["epochs"]


def test_three_bars(data_dir: pathlib.Path) -> None:
    fields = {"image_size": 32, "batch_size": 4, "num_steps": 5, "step_time_ms": 40.0}

    result = _run(Ranks(), data_dir, bars=True, **fields)

    figures = result["bars"]
    assert figures["synthetic_examples_per_second"] <= 4 / 0.04
    assert figures["real_over_synthetic"] == pytest.approx(
        result["examples_per_second"] / figures["synthetic_examples_per_second"]
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mode": "eval"}, "must hold a checkpoint to evaluate"),
        ({"elastic": True}, "must run under elastic Horovod"),
    ],
)
def test_model_without_what_its_mode_needs_is_an_error(
    data_dir: pathlib.Path, tmp_path: pathlib.Path, fields: dict[str, Any], message: str
) -> None:
    fields |= {"image_size": 32, "batch_size": 4, "checkpoint_dir": str(tmp_path)}

    with pytest.raises(ValueError, match=message):
        _run(Ranks(), data_dir, **fields)


KILLED_RANK = """
import os, signal
from benchmarks.distributed import ranks
from benchmarks.options.config import Config
from benchmarks.training import loop, run

def train(setting, world):
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    world.gather(None)

run._LOOPS["train"] = train
config = Config(data_dir={data_dir!r}, model="tiny", batch_size=2, image_size=32)
run.run(config, ranks.connect())
"""


def test_rank_killed_before_the_first_step_is_named(
    data_dir: pathlib.Path, warm_python: WarmPython
) -> None:
    code = KILLED_RANK.format(data_dir=str(data_dir))

    done = horovodrun.run(2, "-c", code, python=warm_python.command)

    assert done.returncode != 0
    words = f"Error: Rank 1 ({socket.gethostname()}) of 2 ended without an error"
    assert f"[0]<stderr>:{words}" in done.stderr
    assert "its last report was before the first step." in done.stderr


@pytest.fixture
def full_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file system of one page, which is full."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("mounting a file system is not permitted here")
    try:
        (folder / "filler").write_bytes(bytes(4096))
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_costs_the_files_and_no_figure(
    data_dir: pathlib.Path,
    full_disk: pathlib.Path,
) -> None:
    fields = {"image_size": 32, "batch_size": 4, "num_steps": 2, "num_warmup_steps": 1}
    folders = {f"{name}_dir": str(full_disk) for name in ("report", "checkpoint")}
    values = {"data_dir": str(data_dir), "model": "tiny", **folders, **fields}
    done = commands.answer(train.COMMANDS, **values)

    assert done.returncode == 1
    assert done.result["num_timed_steps"] == 2
    errors = [line for line in done.stderr.splitlines() if "Error: " in line]
    checkpoint, report = errors
    assert "must hold checkpoint 1, which could not be written" in checkpoint
    assert ".png could not be written: [Errno 28]" in report
    assert ".json could not be written: [Errno 28]" in report
