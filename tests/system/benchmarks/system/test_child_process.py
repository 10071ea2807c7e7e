"""A child process calls functions, and its errors say what the functions know."""

import pytest

from benchmarks.page_cache import states
from benchmarks.system import child_process


def test_an_error_of_an_open_file_names_the_file() -> None:
    """read(2) of the first page of a process fails, and knows no path."""
    with pytest.raises(OSError, match=r"Input/output error: '/proc/self/mem'"):
        child_process.call(states.fill, ["/proc/self/mem"], seconds=60.0)
