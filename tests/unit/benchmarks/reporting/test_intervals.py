"""benchmarks.reporting.compare: Student's t and the interval of a mean."""

import math

import pytest

from benchmarks.reporting import compare


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.706), (1.9, 12.706), (2, 4.303), (30, 2.042), (39, 2.042), (1e6, 1.980)],
)
def test_t_is_never_too_small(degrees: float, expected: float) -> None:
    assert compare.t_95(degrees) == expected


def test_interval_of_a_mean() -> None:
    # Deviation 1, three values: 4.303 / sqrt(3).
    several, single = (compare.of_repeats(v) for v in ([99, 100, 101], [100.0]))
    assert several is not None
    assert single is not None
    assert several.interval == pytest.approx(4.303 / math.sqrt(3))
    assert single.interval is None
    assert compare.of_repeats([]) is None
