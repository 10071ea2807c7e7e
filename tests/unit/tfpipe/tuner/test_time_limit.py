"""tfpipe.tuner.time_limit: the time that is left, and work that does not end."""

import math
import threading

import pytest

from tests.support.faults.clock import Clock
from tfpipe.tuner.time_limit import Deadline


def test_time_is_left_by_parts_of_the_limit():
    clock = Clock()
    deadline = Deadline(100.0, clock=clock)

    clock.move(40.0)

    assert deadline.left(0.5) == pytest.approx(8)  # a reserve is kept
    assert deadline.left() == pytest.approx(56)


def test_work_that_ends_is_done_and_its_error_is_raised():
    deadline = Deadline(10.0)
    done = []

    assert deadline.keep(lambda: done.append(1))
    assert done == [1]
    with pytest.raises(ZeroDivisionError):
        deadline.keep(lambda: 1 / 0)


def test_work_that_blocks_is_left_alone_and_told():
    clock, end = Clock(), threading.Event()
    deadline = Deadline(10.0, clock=clock)
    clock.move(11.0)

    try:
        assert not deadline.keep(end.wait)
        assert deadline.left() == -math.inf
    finally:
        end.set()


def test_a_huge_limit_is_a_limit():
    assert Deadline(1e300).keep(lambda: None)
