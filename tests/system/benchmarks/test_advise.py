"""python -m benchmarks.advise as its users call it, and its page."""

import json
import pathlib

import pytest

from tests.support.data import sample_results
from tests.support.processes import commands

ROOT = pathlib.Path(__file__).parents[3]


def test_results_flags_a_change_and_a_page(tmp_path: pathlib.Path) -> None:
    reports = sample_results.write(
        tmp_path / "reports",
        {"storage": sample_results.storage() | {"megabytes_per_second": 900.0}},
    )
    (reports / "other.json").write_text("{}")
    done = commands.run(
        "benchmarks.advise",
        f"--results={reports}",
        "--accelerator=v100",
        "--num_accelerators=16",
        "--cached=0",
        "--what_if=storage=10GB/s,hosts=4",
        f"--report_dir={tmp_path / 'advice'}",
    )

    assert done.returncode == 0, done.stderr
    assert "other.json is left out" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        "16 V100 on 2 hosts with 8 each, training resnet50 at 224 pixels with 0% of "
        "the bytes cached, are bound by the storage: 7,816 images/s, 38% busy"
    )
    result = json.loads(lines[-1])
    assert result["command"] == "benchmarks.advise"
    assert result["examples_per_second"] == pytest.approx(9e8 / 115_154)
    assert result["facts"]["storage"]["source"] == "benchmarks.storage, storage"
    assert result["config"]["num_accelerators"] == "16"
    after = result["what_if"]
    assert (after["binding"], after["num_ranks"]) == ("accelerator", 32)
    (changed,) = (line for line in lines if line.startswith("With storage=10GB/s"))
    assert "hosts=4: 32 V100 on 4 hosts with 8 each" in changed
    assert "are bound by the accelerators" in changed

    (stored,) = (tmp_path / "advice").iterdir()
    assert json.loads(stored.read_text()) == result
    page = tmp_path / "page.html"
    done = commands.run(
        "benchmarks.report", f"--results={stored.parent}", f"--output={page}"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["num_results"] == 1
    text = page.read_text()
    assert "Predicted: resnet50 on v100" in text
    assert "python -m benchmarks.advise" in text


def test_wrong_flags_are_one_line() -> None:
    for flag, problem in (
        ("--storage=10", "such as 10GB/s"),
        (
            "--data_dir=/data",
            "There is no flag --data_dir. It is a flag of benchmarks.train",
        ),
        ("--what_if=cores", "cores=128"),
    ):
        done = commands.run("benchmarks.advise", flag)
        assert done.returncode == 1, flag
        assert not done.stdout, flag
        (line,) = done.stderr.splitlines()
        assert line.startswith("Error: "), flag
        assert problem in line, flag
