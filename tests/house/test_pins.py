"""The pinned packages fit each Python that setup.cfg, Makefile and documents name."""

import configparser
import re
import subprocess
import sys

import pytest

from tests.house.code import ROOT

PYTHONS = ("3.11.0", "3.12.0")
EXTRAS = ("test", "tfds", "s3", "report")  # of `make venv`


def test_setup_makefile_and_documents_name_these_pythons() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")

    assert settings["options"]["python_requires"] == ">=3.11,<3.13"
    assert "(3, 11) <= v < (3, 13)" in (ROOT / "Makefile").read_text()
    for name in ("README.md", "BUILD.md", "docs/start.md"):
        found = re.findall(r"3\.\d+ (?:to|or) 3\.\d+", (ROOT / name).read_text())
        assert {*found} == {"3.11 or 3.12"}


@pytest.mark.parametrize("python", PYTHONS)
def test_the_pins_fit(python: str) -> None:
    """A pin of a newer Python ended `make venv` on Debian's own."""
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    wanted = ["--quiet", "--python-version", python, "--constraint", "constraints.txt"]
    done = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "compile", *wanted, *extras, "setup.cfg"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "No solution found" not in done.stderr:
        pytest.skip(f"no package index can be asked: {done.stderr[-200:]}")

    assert done.returncode == 0, done.stderr
    assert "tensorflow==" in done.stdout
