"""A child process calls functions, and its errors say what the functions know."""

import os

import pytest

from benchmarks.page_cache import states
from benchmarks.system import child_process


def test_an_error_of_an_open_file_names_the_file() -> None:
    """read(2) of the first page of a process fails, and knows no path."""
    with pytest.raises(OSError, match=r"Input/output error: '/proc/self/mem'"):
        child_process.call(states.fill, ["/proc/self/mem"], seconds=60.0)


def test_a_process_that_ends_too_early_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An import that fails is on stderr; a process that is ended says nothing."""
    with pytest.raises(OSError, match=r"ended before its answer: exit code 3$"):
        child_process.call(os._exit, 3, seconds=60.0)

    monkeypatch.setattr(child_process, "__name__", "benchmarks.no_such_module")
    with pytest.raises(
        OSError, match=r"ended before its answer: .*No module .*no_such"
    ):
        child_process.call(os.getpid, seconds=60.0)
