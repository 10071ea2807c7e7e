"""tfpipe.native.libraries: the command that builds the libraries on this host."""

import importlib.util
import os
import pathlib
import sys

import pytest

from tfpipe.native import libraries


@pytest.fixture
def host(monkeypatch, tmp_path):
    """A host with nothing on its PATH but what the test puts into its folder."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    return tmp_path


def _install(folder: pathlib.Path, *names: str) -> None:
    for name in names:
        (folder / name).touch(mode=0o755)


def _lack_tensorflow(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def _lack_libjpeg(monkeypatch, folder):
    monkeypatch.setattr(libraries.PIL, "__file__", str(folder / "PIL" / "__init__.py"))


def test_a_host_with_all_requirements_needs_one_command(host):
    _install(host, "python", "c++")

    assert libraries.remedy() == "Run: python -m tfpipe.native"


def test_a_python_that_the_shell_does_not_find_is_named_by_its_path(host, monkeypatch):
    _install(host, "python", "c++")
    monkeypatch.setattr(sys, "executable", "/my venv/bin/python")

    assert libraries.remedy() == "Run: '/my venv/bin/python' -m tfpipe.native"


@pytest.mark.parametrize(
    ("manager", "user", "command"),
    [
        ("apt-get", 0, "apt-get install -y g++"),
        ("apt-get", 1000, "sudo apt-get install -y g++"),
        ("dnf", 0, "dnf install -y gcc-c++"),
    ],
)
def test_a_compiler_is_installed_as_this_host_does_it(
    host, monkeypatch, manager, user, command
):
    _install(host, "python", manager)
    monkeypatch.setattr(os, "geteuid", lambda: user)

    assert libraries.remedy() == f"Run: {command} && python -m tfpipe.native"
    with pytest.raises(OSError, match=command.replace("+", r"\+")):
        libraries.find_compiler()


def test_without_tensorflow_and_compiler_each_is_installed_first(host, monkeypatch):
    _install(host, "python", "apt-get")
    _lack_tensorflow(monkeypatch)

    assert libraries.remedy() == (
        "Run: apt-get install -y g++ && "
        "python -m pip install 'tensorflow>=2.16,<2.22' && python -m tfpipe.native"
    )


def test_a_pillow_without_libjpeg_is_replaced_by_its_wheel(host, monkeypatch):
    _install(host, "python", "c++")
    _lack_libjpeg(monkeypatch, host)

    assert "--only-binary=:all: pillow && python -m" in libraries.remedy()


def test_another_platform_has_no_command(host, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")

    assert libraries.remedy() == "It can be built on Linux only"
