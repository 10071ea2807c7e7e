"""The wheel of the product, and folders in which it is installed.

In: an empty folder, as `made_once` gives it. Out: the folder with the wheel, with all
packages of the wheel, or with an environment that has no TensorFlow.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[3]
# Packages of a user, which have the names of packages of the wheel.
OWN_PACKAGES = ("benchmarks", "converters")


def install(folder: pathlib.Path) -> None:
    """Fills a folder for PYTHONPATH with the packages of the wheel, and `bin/tfpipe`.

    The wheel is made of a copy: a build leaves files where it runs.
    """
    with tempfile.TemporaryDirectory() as name:
        source = pathlib.Path(name)
        listed = ["git", "ls-files", "-co", "--exclude-standard"]
        tracked = _run(*listed, cwd=ROOT).stdout
        for path in tracked.splitlines():
            if (ROOT / path).exists():
                (source / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, source / path)
        own = ("--quiet", "--no-deps", "--no-build-isolation", "--target", folder)
        _run(sys.executable, "-m", "pip", "install", *own, source)


def install_converters(folder: pathlib.Path, wheel_dir: pathlib.Path) -> None:
    """Makes an environment as BUILD.md does for a host that only converts.

    Args:
        folder: An empty folder.
        wheel_dir: What `install` has filled.
    """
    pip = (sys.executable, "-m", "pip")
    with tempfile.TemporaryDirectory() as name:
        download = (*pip, "download", "--quiet", "--no-deps", "--dest", name, "xxhash")
        done = subprocess.run(download, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"No package registry can be reached: {done.stderr[-200:]}")
    _run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin/python"
    what = ("-r", ROOT / "requirements-converters.txt", "-c", ROOT / "constraints.txt")
    _run(*pip, "--python", python, "install", "--quiet", *what)
    packages = _run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"
    ).stdout.strip()
    shutil.copytree(wheel_dir, packages, dirs_exist_ok=True)


@contextlib.contextmanager
def own_packages(folder: pathlib.Path) -> Iterator[None]:
    """Adds packages of a user that cannot be imported, for a while."""
    for name in OWN_PACKAGES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise ImportError('own')\n")
    yield
    for name in OWN_PACKAGES:
        shutil.rmtree(folder / name)


def _run(*command: object, **options: object) -> "subprocess.CompletedProcess[str]":
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        **{"env": environment} | options,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done
