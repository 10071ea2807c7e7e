"""studies.loaders: choice of the loaders, comparison and table."""

import pathlib
import sys
from typing import Any

import pytest

from studies import figures, harness
from studies.loaders import __main__
from studies.loaders.images import Job
from studies.loaders.peers import PEERS
from tests.support.processes import commands


def test_table_has_the_cheapest_first_and_the_reasons() -> None:
    base = [{"cpu_seconds": 1.0, "seconds": 1.0, "num_images": 1000}]
    dear = [{"cpu_seconds": 2.0, "seconds": 4.0, "num_images": 1000}]
    rows = {
        "garden": figures.costs_and_rates(dear, base),
        "tfpipe": figures.costs_and_rates(base, base),
    }

    text = __main__.table({"uint8": rows}, {"ffcv": "it is not installed"})

    lines = text.splitlines()
    assert lines[0].startswith("peer, uint8")
    assert lines[1].split() == ["tfpipe", *["1.000", "(1.000-1.000)"] * 2, "1000"]
    assert lines[2].split()[:4] == ["garden", "2.000", "(2.000-2.000)", "2.000"]
    assert lines[-1] == "ffcv was skipped: it is not installed"


def test_peers_are_chosen_in_their_order() -> None:
    assert __main__.chosen(["grain_cv", "garden"]) == ["hand", "garden", "grain_cv"]
    assert __main__.chosen([]) == ["hand"]


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(__main__, "_is_installed", lambda module: module == "torch")

    assert __main__.missing("tfpipe") is None
    assert __main__.missing("torch_pil") is None
    assert __main__.missing("torch_cv") == (
        "not installed: simplejpeg, cv2 (pip install simplejpeg opencv-python-headless)"
    )
    assert __main__.missing("dali") == (
        "not installed: nvidia.dali (pip install nvidia-dali-cuda120)"
    )


def test_installed_is_what_can_be_found() -> None:
    assert __main__._is_installed("numpy")
    assert not __main__._is_installed("no_such_package.at_all")


def test_a_loader_runs_in_its_own_environment_where_one_exists(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The missing modules of such a loader are left to its own run."""
    python = tmp_path / "grain" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    site = tmp_path / "grain" / "lib" / f"python3.{sys.version_info.minor}"
    described = site / "site-packages" / "grain-9.8.dist-info" / "METADATA"
    described.parent.mkdir(parents=True)
    described.write_text("Metadata-Version: 2.1\nName: grain\nVersion: 9.8\n")
    used = {}

    def run(module: str, name: str, job: Job, **options: Any) -> figures.Run:
        if name in PEERS:
            used[name] = options["python"]
        return {"cpu_seconds": 1.0, "seconds": 1.0, "num_images": 100}

    monkeypatch.setattr(harness, "run", run)
    monkeypatch.setattr(__main__, "_is_installed", lambda module: False)
    names = ["hand", "dali", "grain_pil"]
    own = {"environments_dir": str(tmp_path)}

    _, skipped = __main__.compare([Job(data_dir="")], names, 1, **own)

    assert used == {
        "hand": str(pathlib.Path(sys.prefix, "bin", "python")),
        "grain_pil": str(python),
    }
    assert list(skipped) == ["dali"]
    assert __main__.versions(["grain_pil"], **own)["grain"] == "9.8"


def test_a_peer_that_fails_is_skipped_and_the_base_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = {"garden"}

    def run(module: str, name: str, job: Job, **options: Any) -> figures.Run:
        if name in failing:
            raise OSError(f"{name} ended with 1: Traceback\nValueError: too bad")
        return {"cpu_seconds": 1.0, "seconds": 1.0, "num_images": 100}

    monkeypatch.setattr(harness, "run", run)
    monkeypatch.setattr(__main__, "_is_installed", lambda module: module != "ffcv")
    jobs = [Job(data_dir="", dtype=dtype) for dtype in ("uint8", "float32")]

    measured, skipped = __main__.compare(
        jobs, ["hand", "garden", "ffcv", "grain_cv"], 2
    )

    assert {dtype: list(rows) for dtype, rows in measured.items()} == {
        "uint8": ["hand", "grain_cv"],
        "float32": ["hand", "grain_cv"],
    }
    assert skipped == {
        "garden": "its run failed: ValueError: too bad",
        "ffcv": "not installed: ffcv (pip install ffcv)",
    }
    failing = {"hand"}
    with pytest.raises(OSError, match="too bad"):
        __main__.compare(jobs, ["hand"], 1)


def test_readers_of_a_copy_that_cannot_be_made_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(module: str, kind: str, job: Job, **options: Any) -> figures.Run:
        if kind == "jpeg":
            raise OSError("jpeg ended with 1: Traceback\nOSError: disk full")
        return {"num_files": 3}

    monkeypatch.setattr(harness, "run", run)

    reasons = __main__.without_data(
        ["tfpipe", "torch_pil", "torch_cv", "webdataset_pil"], Job(data_dir="")
    )

    assert reasons == dict.fromkeys(
        ["torch_pil", "torch_cv"], "its data cannot be made: OSError: disk full"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data_dir": "x", "peers": "nonsense"}, "--peers must be one of hand, "),
        (
            {"data_dir": "x", "dtype": "float16"},
            "--dtype must be one of uint8, float32",
        ),
        ({}, "--data_dir must be given: Folder of a converted data set."),
    ],
)
def test_command_refuses(values: dict[str, Any], message: str) -> None:
    done = commands.answer(__main__.COMMANDS, **values)

    assert done.returncode == 1
    assert message in done.stderr
