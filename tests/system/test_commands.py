"""All commands: their --help, and the installed wheel away from the checkout."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]

COMMANDS = (
    "converters.folder",
    "converters.imagenet",
    "converters.synthesize",
    "converters.verify",
    "benchmarks.studies.conversion",
    "benchmarks.train",
    "benchmarks.report",
    "benchmarks.studies.realism",
)

# Each command runs in a fork: TensorFlow is imported once for all of them.
_HELP = """
import os, pathlib, runpy, sys
import tensorflow, keras
folder, *modules = sys.argv[1:]
for module in modules:
    if os.fork() == 0:
        out = os.open(f"{folder}/{module}", os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1)
        sys.argv = [module, "--help"]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        raise SystemExit("--help must end the program")
    os.wait()
"""


def _run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )


@pytest.fixture(scope="module")
def helps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The help of each command, by its module."""
    folder = tmp_path_factory.mktemp("help")
    done = _run(sys.executable, "-c", _HELP, folder, *COMMANDS, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return {module: (folder / module).read_text() for module in COMMANDS}


@pytest.mark.parametrize("module", COMMANDS)
def test_help_teaches(helps: dict[str, str], module: str) -> None:
    text = helps[module]

    assert f"python -m {module} " in text, "an example"
    assert "JSON object" in " ".join(text.split()), "what the last line is"
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
    for flag in re.findall(r'flags\.DEFINE_\w+\(\s*"(\w+)"', source):
        assert f"--{flag}: " in text or f"--[no]{flag}: " in text


def test_installed_packages_work_from_any_folder(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The wheel holds all three packages and their data, and needs no checkout."""
    source = tmp_path / "source"
    tracked = _run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).stdout
    for name in tracked.splitlines():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    installed = tmp_path / "installed"
    done = _run(
        sys.executable,
        *("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--target", installed, source),
    )
    assert done.returncode == 0, done.stderr

    done = _run(
        sys.executable,
        *("-m", "converters.imagenet"),
        *(f"--input_dir={raw_dir}", f"--output_dir={tmp_path / 'out'}"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["num_records"] == 31
