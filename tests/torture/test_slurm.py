"""The batch files of the documents, run by Slurm on two hosts. TORTURE=1 runs them."""

import os
import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.data.trees import JOB_X, JobDigests, digests
from tests.support.faults.torture import IS_LONG
from tests.support.processes import horovodrun
from tests.support.servers import cluster, slurm

pytestmark = pytest.mark.skipif(not IS_LONG, reason="TORTURE=1 runs them: a minute")

END_SECONDS = 200.0


@pytest.fixture
def first(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[cluster.Host]:
    """The first of two hosts with Slurm."""
    if (reason := slurm.why_not()) is not None:
        pytest.skip(reason)
    (tmp_path / "slurm").mkdir()
    with (
        cluster.cluster_or_skip(tmp_path / "cluster", num_hosts=2) as made,
        slurm.slurm(made, tmp_path / "slurm") as variables,
    ):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield made.hosts[0]


def _submit(host: cluster.Host, log: pathlib.Path, *words: object) -> str:
    """Submits a job, waits for its end and returns its output."""
    done = subprocess.run(
        host.command("sbatch", "--wait", f"--output={log}", *words),
        capture_output=True,
        text=True,
        check=False,
        timeout=END_SECONDS,
        env={**os.environ, **horovodrun.environment()},
    )
    text = log.read_text() if log.exists() else ""
    assert done.returncode == 0, done.stderr + text
    return text


def test_training_job_of_the_examples(
    first: cluster.Host,
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOROVODRUN_OPTIONS", "--network-interfaces eth0")
    script = shutil.copy(horovodrun.ROOT / "examples/train.sbatch", tmp_path)

    text = _submit(
        first,
        tmp_path / "job.log",
        *("--nodes=2", "--ntasks-per-node=1", script, f"--data_dir={data_dir}"),
        *("--model=tiny", "--image_size=32", "--batch_size=2", "--num_epochs=1"),
    )

    last = next(line for line in text.splitlines() if '"command"' in line)
    done = subprocess.CompletedProcess([], 0, last, "")
    result = horovodrun.result(done)
    assert [host["name"] for host in result["environment"]["hosts"]] == [
        "host1",
        "host2",
    ]
    records = result["records"]
    assert records["times_used_min"] == records["times_used_max"] == 1


def test_training_job_is_stopped_before_its_limit_and_goes_on(
    first: cluster.Host,
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The signal comes by `scancel`, as it comes before a time limit."""
    monkeypatch.setenv("HOROVODRUN_OPTIONS", "--network-interfaces eth0")
    script = shutil.copy(horovodrun.ROOT / "examples/train.sbatch", tmp_path)
    log, saved, num_epochs = tmp_path / "job.log", tmp_path / "saved", 100
    done = subprocess.run(
        first.command(
            *("sbatch", "--parsable", f"--output={log}"),
            *("--nodes=2", "--ntasks-per-node=1", script, f"--data_dir={data_dir}"),
            *("--model=tiny", "--image_size=32", "--batch_size=2"),
            *(f"--num_epochs={num_epochs}", f"--checkpoint_dir={saved}"),
        ),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **horovodrun.environment()},
    )
    job = done.stdout.strip()

    _wait_until(log, lambda: (saved / "checkpoint").exists())
    first.run("scancel", "--signal=TERM", "--batch", job)
    _wait_until(log, lambda: '"command"' in log.read_text())

    text = log.read_text()
    found = re.search(r"SIGTERM ended epoch (\d+) after step (\d+)\.", text)
    assert found is not None, text
    epoch, step = map(int, found.groups())
    last = next(line for line in text.splitlines() if '"command"' in line)
    result = horovodrun.result(subprocess.CompletedProcess([], 0, last, ""))
    assert result["resumed"]
    assert result["records"]["num_used"] == (num_epochs - epoch) * 24 - step * 4
    assert "Restarts=1" in first.run("scontrol", "show", "job", job)


def _wait_until(log: pathlib.Path, is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + END_SECONDS
    while not is_true():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)


def test_conversion_as_an_array_of_tasks(
    first: cluster.Host,
    raw_dir: pathlib.Path,
    job_digests: JobDigests,
    tmp_path: pathlib.Path,
) -> None:
    options = " ".join(f"--{name}={value}" for name, value in JOB_X.items())
    script = tmp_path / "convert.sbatch"
    script.write_text(
        "#!/bin/bash\n"
        "#SBATCH --array=0-1 --ntasks=1\n"
        f"srun python -m converters.imagenet --input_dir={raw_dir} "
        f"--output_dir={tmp_path}/out {options} "
        "--num_tasks=$SLURM_ARRAY_TASK_COUNT --task_index=$SLURM_ARRAY_TASK_ID\n"
    )

    _submit(first, tmp_path / "job.log", script)

    assert digests(tmp_path / "out") == job_digests["X"]
