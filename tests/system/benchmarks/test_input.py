"""python -m benchmarks.input as a user runs it, alone and under horovodrun."""

import json
import os
import pathlib
import subprocess
import sys

import tfpipe
from benchmarks.options import input_flags
from benchmarks.reporting import page

ROOT = pathlib.Path(__file__).parents[3]


def _run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    program = pathlib.Path(sys.executable)
    path = f"{program.parent}:{os.environ['PATH']}"
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": str(ROOT),
            "PATH": path,
            **environment,
        },
    )


def test_all_four_answers_and_their_page(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    tuning, results = tmp_path / "tuning.json", tmp_path / "results"

    done = _run(
        [
            *(sys.executable, "-m", "benchmarks.input", f"--data_dir={data_dir}"),
            *("--model=tiny", "--image_size=32", "--batch_size=4", "--seconds=0.3"),
            *("--time_limit=15", f"--tuning={tuning}", f"--report_dir={results}"),
        ]
    )

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    result = json.loads(lines[-1])
    assert result["command"] == "benchmarks.input"
    assert result["examples_per_second"] > 0
    assert result["examples_per_second_per_rank"] == [result["examples_per_second"]]
    assert result["profile"]["bottleneck"]["sentence"] in done.stdout
    assert result["tune"]["sentence"] in done.stdout
    assert result["headspace"]["rates"][0]["num_cores"] >= 1
    parts = [line for line in lines if line in input_flags.PARTS]
    assert parts == ["throughput", "profile", "tune", "headspace"]
    pipeline = tfpipe.imagenet_train(
        data_dir, image_size=32, batch_size=4, with_record_id=True
    )
    tuned = tfpipe.load_tuned(tuning, pipeline)
    assert tuned.build().element_spec == pipeline.build().element_spec
    text = page.make_page(page.read_results(results), results)
    assert "what each stage costs" in text
    assert text.count("data:image/png;base64,") == 1


def test_two_ranks_share_the_budgets(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Both ranks together use no more threads and memory, as the kernel counts them."""
    script = f"""
import json
import time
import psutil
import tfpipe
from benchmarks.distributed import ranks

process = psutil.Process()

def cpu_by_thread():
    return {{one.id: one.user_time + one.system_time for one in process.threads()}}

def resident():
    return process.memory_info().rss

world = ranks.connect()
pipeline = tfpipe.imagenet_train({str(data_dir)!r}, image_size=224, batch_size=4,
    rank=world.rank, num_ranks=world.num_ranks, shuffle="none")
found = tfpipe.search_tuning(pipeline, cpu_budget=2, ram_budget_bytes=400_000_000,
    num_local_ranks=world.num_local_ranks, time_limit=10)
batches = iter(found.pipeline.build(num_epochs=None))
next(batches)
world.gather(None)
at_rest = cpu_by_thread()
time.sleep(0.5)
before, memory = cpu_by_thread(), resident()
# Horovod's thread polls, also while no batch is made.
polling = {{name for name, now in before.items() if now - at_rest.get(name, 0) > 0.05}}
for _ in range(150):
    next(batches)
spent = {{name: now - before.get(name, 0) for name, now in cpu_by_thread().items()
         if name not in polling and name != process.pid}}
total = sum(spent.values())
busy = sum(seconds > 0.3 * total for seconds in spent.values())
told = world.gather([busy, resident() - memory, found.setting.tuning.ram_budget_bytes])
if world.is_first:
    print("TOLD" + json.dumps(told))
"""
    program = str(pathlib.Path(sys.executable).with_name("horovodrun"))

    done = _run([program, "-np", "2", sys.executable, "-c", script])

    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "TOLD" in line]
    told = json.loads(line.partition("TOLD")[2])
    busy, memory, budget = zip(*told, strict=True)
    assert sum(budget) == 400_000_000
    assert 1 <= sum(busy) <= 2
    assert sum(memory) <= 400_000_000
