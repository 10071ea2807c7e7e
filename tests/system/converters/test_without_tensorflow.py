"""The converters on a host without TensorFlow, installed as BUILD.md says."""

import pathlib
import shlex
import subprocess

import pytest

from tests.support.data import golden
from tests.support.data.made_once import made_once
from tests.support.processes import wheel
from tests.system.test_golden import RUNS
from tfpipe.cli import names


@pytest.fixture(scope="module")
def environment(
    wheel_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    def make(folder: pathlib.Path) -> None:
        wheel.install_converters(folder, wheel_dir)

    return made_once(tmp_path_factory, "converters_only", make)


def test_all_converters_run(
    environment: pathlib.Path,
    raw_dir: pathlib.Path,
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    """In a folder that has packages of their names, with relative paths."""
    golden.make_scene(tmp_path, raw_dir, data_dir)
    variables = golden.environment()
    del variables["PYTHONPATH"]
    failed = {}
    for module, arguments in RUNS.items():
        if not module.startswith("converters."):
            continue
        words = shlex.split(arguments.replace("--report=data.html", ""))  # wants Jinja2
        name = names.BY_MODULE[module]
        with wheel.own_packages(tmp_path):
            done = subprocess.run(
                [environment / "bin/python", "-m", "tfpipe", *name.split(), *words],
                cwd=tmp_path,
                env={**variables, "PYTHONSAFEPATH": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode != int(name == "check"):
            failed[name] = done.stderr

    assert failed == {}  # a check finds the fault of the damaged data set
    assert not list(environment.rglob("tensorflow"))
