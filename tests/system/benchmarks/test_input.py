"""python -m benchmarks.input as a user runs it, and its search on two ranks."""

import json
import pathlib
import time
from unittest import mock

import markupsafe
import psutil

import tfpipe
from benchmarks import input as input_command
from benchmarks.distributed.ranks import Ranks
from benchmarks.reporting import page
from benchmarks.results.collection import read
from tests.support.processes.rank_pool import RankPool
from tests.support.processes.warm_python import WarmPython
from tfpipe.tuner import lanes

# Enough that CPU time, which is counted in ticks of 10 ms, tells the threads apart.
NUM_BATCHES = 200

# Which setting is found does not matter here, so that races may be short.
TURN_SECONDS = 0.02
QUICK_COMMAND = f"""
from benchmarks import input
from tfpipe import cli
from tfpipe.tuner import lanes, search
search._UNTIL_QUIET = 0.0
lanes._TURN_SECONDS = {TURN_SECONDS}
input._TUNE_SECONDS = 60.0
cli.run(*input.COMMANDS)
"""


def test_all_four_answers_and_their_page(
    data_dir: pathlib.Path, tmp_path: pathlib.Path, warm_python: WarmPython
) -> None:
    tuning, results = tmp_path / "tuning.json", tmp_path / "results"

    done = warm_python.run(
        *("-c", QUICK_COMMAND, f"--data_dir={data_dir}"),
        *("--model=tiny", "--image_size=32", "--batch_size=4", "--seconds=0.1"),
        *(f"--tuning={tuning}", f"--report_dir={results}", "--demand=1e6"),
    )

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    result = json.loads(lines[-1])
    assert result["command"] == "benchmarks.input"
    assert result["examples_per_second"] > 0
    assert result["examples_per_second_per_rank"] == [result["examples_per_second"]]
    assert result["profile"]["bottleneck"]["sentence"] in done.stdout
    assert result["tune"]["sentence"] in done.stdout
    assert result["tune"]["service"]["demand_per_second"] == 1e6
    assert f", and the step takes {10**6:,}" in result["tune"]["service"]["sentence"]
    assert result["tune"]["service"]["sentence"] in lines
    assert result["headspace"]["rates"][0]["num_cores"] >= 1
    parts = [line for line in lines if line in input_command.PARTS]
    assert parts == ["throughput", "profile", "tune", "headspace"]
    pipeline = tfpipe.imagenet_train(
        data_dir, image_size=32, batch_size=4, with_record_id=True
    )
    tuned = tfpipe.load_tuned(tuning, pipeline)
    assert tuned.build().element_spec == pipeline.build().element_spec
    text = page.make_page(read([results]), library="")
    assert str(markupsafe.escape(result["tune"]["sentence"])) in text


def _cpu_by_thread(process: psutil.Process) -> dict[int, float]:
    return {one.id: one.user_time + one.system_time for one in process.threads()}


def _use_tuned(ranks: Ranks, data_dir: pathlib.Path) -> tuple[int, int, int]:
    """Tunes with the budgets of the host and reads on.

    Returns:
        Number of busy threads, bytes of memory that were added, bytes of the budget.
    """
    place = {"rank": ranks.rank, "num_ranks": ranks.num_ranks}
    source = tfpipe.TFRecordSource(
        data_dir, "train", batch_size=4, shuffle="none", **place
    )
    pipeline = tfpipe.imagenet_train(source, image_size=96)
    with mock.patch.object(lanes, "_TURN_SECONDS", TURN_SECONDS):
        found = tfpipe.search_tuning(
            pipeline,
            cpu_budget=2,
            ram_budget_bytes=400_000_000,
            num_local_ranks=ranks.num_local_ranks,
            time_limit=1,
        )
    batches = iter(found.pipeline.build(num_epochs=None))
    next(batches)
    ranks.gather(None)
    process = psutil.Process()
    at_rest = _cpu_by_thread(process)
    time.sleep(0.5)
    before, memory = _cpu_by_thread(process), process.memory_info().rss
    # Horovod's thread polls, also while no batch is made.
    polling = {
        name for name, now in before.items() if now - at_rest.get(name, 0) > 0.05
    }
    for _ in range(NUM_BATCHES):
        next(batches)
    spent = {
        name: now - before.get(name, 0)
        for name, now in _cpu_by_thread(process).items()
        if name not in polling and name != process.pid
    }
    total = sum(spent.values())
    busy = sum(seconds > 0.3 * total for seconds in spent.values())
    budget = found.setting.tuning.ram_budget_bytes
    return busy, process.memory_info().rss - memory, budget


def test_the_time_limit_bounds_the_whole_command(
    data_dir: pathlib.Path, warm_python: WarmPython
) -> None:
    # Building ResNet-50 alone takes longer.
    done = warm_python.run(
        *("-m", "benchmarks.input", f"--data_dir={data_dir}", "--time_limit=4"),
        *("--model=resnet50", "--image_size=32", "--batch_size=2"),
        "--do=throughput,headspace",
    )

    assert done.returncode == 0, done.stderr
    assert "--time_limit=4 leaves no result of " in done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["cut_off"][-1] == "headspace"


def test_two_ranks_share_the_budgets(
    data_dir: pathlib.Path, rank_pool: RankPool
) -> None:
    """Both ranks together use no more threads and memory, as the kernel counts them."""
    told = rank_pool.run(_use_tuned, data_dir)

    busy, memory, budget = zip(*told, strict=True)
    assert sum(budget) == 400_000_000
    assert 1 <= sum(busy) <= 2
    assert sum(memory) <= 400_000_000
