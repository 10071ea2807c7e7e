"""studies.loaders: choice of the loaders, comparison and table."""

from typing import Any

import pytest

from studies import figures, harness
from studies.loaders import __main__
from studies.loaders.images import Job
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
    assert __main__.chosen(["grain_cv", "garden"]) == ["tfpipe", "garden", "grain_cv"]
    assert __main__.chosen([]) == ["tfpipe"]


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


def test_a_peer_that_fails_is_skipped_and_tfpipe_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = {"garden"}

    def run(
        module: str, name: str, job: Job, *, time_limit: float | None
    ) -> figures.Run:
        if name in failing:
            raise OSError(f"{name} ended with 1: Traceback\nValueError: too bad")
        return {"cpu_seconds": 1.0, "seconds": 1.0, "num_images": 100}

    monkeypatch.setattr(harness, "run", run)
    monkeypatch.setattr(__main__, "_is_installed", lambda module: module != "ffcv")
    jobs = [Job(data_dir="", dtype=dtype) for dtype in ("uint8", "float32")]

    measured, skipped = __main__.compare(
        jobs, ["tfpipe", "garden", "ffcv", "grain_cv"], 2
    )

    assert {dtype: list(rows) for dtype, rows in measured.items()} == {
        "uint8": ["tfpipe", "grain_cv"],
        "float32": ["tfpipe", "grain_cv"],
    }
    assert skipped == {
        "garden": "its run failed: ValueError: too bad",
        "ffcv": "not installed: ffcv (pip install ffcv)",
    }
    failing = {"tfpipe"}
    with pytest.raises(OSError, match="too bad"):
        __main__.compare(jobs, ["tfpipe"], 1)


def test_readers_of_a_copy_that_cannot_be_made_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(
        module: str, kind: str, job: Job, *, time_limit: float | None
    ) -> figures.Run:
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
        ({"data_dir": "x", "peers": "nonsense"}, "--peers must be one of tfpipe, "),
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
