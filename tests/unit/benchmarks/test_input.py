"""python -m benchmarks.input: as a user runs it, and its errors."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from absl import flags
from absl.testing import flagsaver

import tfpipe
from benchmarks import input as benchmark, report
from benchmarks.distributed.ranks import Ranks
from benchmarks.options import input_flags
from benchmarks.options.input_flags import InputConfig

ROOT = pathlib.Path(__file__).parents[3]

MODULE = """
import tfpipe

def make(rank):
    source = tfpipe.SyntheticSource(batch_size=4, image_size=32 + rank)
    return tfpipe.Pipeline(source, [tfpipe.Prefetch()])

def wrong():
    return [1, 2]
"""


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


@pytest.mark.slow
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
    assert tfpipe.load_tuned(tuning, pipeline).tuning.private_threadpool_size
    page = report.make_page(report.read_results(results), results)
    assert "what each stage costs" in page
    assert page.count("data:image/png;base64,") == 1


@pytest.mark.slow
def test_two_ranks_share_the_budgets(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Together they use no more threads and memory, as the kernel counts them."""
    script = f"""
import json, os, pathlib, sys
import tfpipe
from benchmarks import ranks

def cpu_by_thread():
    times = {{}}
    for task in pathlib.Path("/proc/self/task").iterdir():
        try:
            fields = (task / "stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue  # a thread that has ended
        times[task.name] = int(fields[11]) + int(fields[12])
    return times

def resident():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

world = ranks.connect()
pipeline = tfpipe.imagenet_train({str(data_dir)!r}, image_size=224, batch_size=4,
    rank=world.rank, num_ranks=world.num_ranks, shuffle="none")
found = tfpipe.search_tuning(pipeline, cpu_budget=2, ram_budget_bytes=400_000_000,
    num_local_ranks=world.num_local_ranks, time_limit=10)
batches = iter(found.pipeline.build(num_epochs=None))
next(batches)
world.gather(None)
before, memory = cpu_by_thread(), resident()
for _ in range(150):
    next(batches)
spent = {{name: now - before.get(name, 0) for name, now in cpu_by_thread().items()}}
total = sum(spent.values())
busy = sum(ticks > 0.3 * total for ticks in spent.values())
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


def test_a_pipeline_of_ones_own_is_measured(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_pipeline.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    config = InputConfig(pipeline="own_pipeline:make", do=("throughput",), seconds=0.2)

    result = benchmark.run(config, Ranks())

    assert result["throughput"]["examples_per_element"] == 4
    assert "image_size=32" in result["pipeline"][0]
    for name, message in (
        ("own_pipeline:none", "cannot be imported"),
        ("no_such_module:make", "cannot be imported"),
        ("own_pipeline:wrong", r"must return a tfpipe.Pipeline, got \[1, 2\]"),
    ):
        with pytest.raises(ValueError, match=message):
            benchmark.run(InputConfig(pipeline=name), Ranks())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "One of --data_dir and --pipeline must be given"),
        ({"data_dir": "x", "pipeline": "a:b"}, "One of --data_dir and --pipeline"),
        ({"pipeline": "a"}, "--pipeline must be module:function, got 'a'"),
        ({"data_dir": "x", "do": ["tune", "cook"]}, "--do must be of throughput"),
        ({"data_dir": "x", "disk_budget_gb": 1.0}, "must be given together"),
        ({"data_dir": "/nonexistent"}, "index.json is missing"),
    ],
)
def test_wrong_flags_are_one_line(
    capsys: pytest.CaptureFixture[str], values: dict[str, object], message: str
) -> None:
    flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(model="tiny", **values):
        code = benchmark.main(["input"])

    assert code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Error: ")
    assert message in line
