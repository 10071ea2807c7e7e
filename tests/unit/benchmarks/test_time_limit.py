"""Time limit of a command: shares of its parts, and the end of a long one."""

import math
import threading

import pytest

from benchmarks.input import TimeLimit, seconds_since_start
from tests.support.faults.clock import Clock

WEIGHTS = {"short": 1.0, "long": 3.0}


def test_parts_share_the_time_that_is_left() -> None:
    clock = Clock()
    limit = TimeLimit(50.0, used=10.0, clock=clock)

    assert limit.share(WEIGHTS, ["short", "long"]) == 10.0
    clock.now += 20.0
    assert limit.share(WEIGHTS, ["long"]) == 20.0


def test_without_a_limit_a_part_has_all_the_time() -> None:
    limit = TimeLimit(None)

    assert limit.share(WEIGHTS, ["short", "long"]) == math.inf
    assert limit.run(lambda: threading.current_thread()) is threading.main_thread()


def test_a_part_that_is_done_in_time_gives_its_result_or_its_error() -> None:
    limit = TimeLimit(60.0)

    assert limit.run(lambda: "text") == "text"
    with pytest.raises(ZeroDivisionError):
        limit.run(lambda: 1 / 0)


def test_a_part_that_takes_longer_is_cut_off() -> None:
    never = threading.Event()

    with pytest.raises(TimeoutError):
        TimeLimit(0.01).run(never.wait)
    never.set()


def test_a_part_does_not_begin_after_the_end() -> None:
    begun: list[int] = []

    with pytest.raises(TimeoutError):
        TimeLimit(5.0, used=6.0).run(lambda: begun.append(1))
    assert begun == []


def test_the_age_of_the_process_counts() -> None:
    assert 0.0 < seconds_since_start() < 24 * 3600
