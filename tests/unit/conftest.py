"""The limits of a unit test: no process, no connection, no sleep, two seconds of CPU.

A test that needs more belongs in tests/system, tests/timing or tests/torture.
"""

import functools
import importlib
import multiprocessing.process
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy.testing  # noqa: F401  # Its import starts a process.
import pytest

from tfpipe import host

REVISION = "0" * 40
# Parts of TensorFlow and tfpipe are off, unless this variable is set; see quick.py.
IS_WHOLE = bool(os.environ.get("UNIT_TESTS_WITH_GRAPPLER"))
# Grappler and the reminder make graphs dearer: some tests take 2.2 s with all parts.
MAX_CPU_SECONDS = 2.0 * (1.5 if IS_WHOLE else 1)
# Two threads share a core of a busy machine: each then takes more CPU time for the same
# work. Only a test above twice the limit is certainly too dear.
MAX_CPU_SECONDS_BUSY = 2 * MAX_CPU_SECONDS
# CPU time of `_slowness` on the machine that the limits are made for.
FIXED_WORK_STEPS = 1_000_000
FIXED_WORK_SECONDS = 0.15
MAX_SLEEP_SECONDS = 0.01

FORBIDDEN: list[tuple[Any, str, str]] = [
    (subprocess.Popen, "__init__", "start a process"),
    (multiprocessing.process.BaseProcess, "start", "start a process"),
    (os, "fork", "fork"),
    (socket.socket, "connect", "open a connection"),
    (socket.socket, "listen", "listen on a port"),
]

_is_armed = False


class NotAUnitTestError(BaseException):
    """No `except Exception` of the code under test may swallow it."""


def pytest_pycollect_makemodule() -> None:
    """Sets TensorFlow up before a test file imports it."""
    if "tests.unit.quick" in sys.modules:
        return
    with pytest.MonkeyPatch.context() as patch:
        # TensorFlow looks among all its kernels for those of oneDNN, for each node of a
        # function: a seventh of the CPU time. It reads this while it is imported.
        if not IS_WHOLE:
            patch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
        importlib.import_module("tests.unit.quick")


def _guarded(call: Callable[..., Any], what: str) -> Callable[..., Any]:
    def refuse(*arguments: Any, **options: Any) -> Any:
        if _is_armed and threading.current_thread() is threading.main_thread():
            raise NotAUnitTestError(f"a unit test must not {what}: see {__file__}")
        return call(*arguments, **options)

    return refuse


def _sleep(seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
    wait = sleep
    if seconds > MAX_SLEEP_SECONDS:
        wait = _guarded(sleep, f"sleep for {seconds} s")
    wait(seconds)


@functools.wraps(host.git_revision)
def _git_revision() -> str:
    return REVISION  # git is a process


def _slowness() -> float:
    """How many times as long as the usual machine this one works on Python code now."""
    before = time.thread_time()
    sum(len(str(number)) for number in range(FIXED_WORK_STEPS))
    return (time.thread_time() - before) / FIXED_WORK_SECONDS


@pytest.fixture(autouse=True, scope="session")
def _guard() -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, what in FORBIDDEN:
            patch.setattr(owner, name, _guarded(getattr(owner, name), what))
        patch.setattr(time, "sleep", _sleep)
        patch.setattr(host, "git_revision", _git_revision)
        importlib.import_module("tests.unit.quick").set_up(patch)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Arms the guard for the test itself: shared fixtures may do more, once."""
    global _is_armed
    _is_armed, before = True, time.thread_time()
    try:
        result = yield
    finally:
        _is_armed = False
    # CPU time of this thread: TensorFlow's own threads wait for work in a loop.
    used = time.thread_time() - before
    if used > MAX_CPU_SECONDS_BUSY and used > MAX_CPU_SECONDS_BUSY * _slowness():
        pytest.fail(
            f"a unit test must take at most {MAX_CPU_SECONDS:g} s of CPU time, took "
            f"{used:.1f} s"
        )
    return result
