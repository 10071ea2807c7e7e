"""benchmarks.training.steady_state: when timing may begin, what a rate is worth."""

import itertools
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.results import tree
from benchmarks.results.train_result import SteadyState
from benchmarks.training import steady_state
from benchmarks.training.steady_state import ReadAhead


@pytest.mark.parametrize(
    ("window", "batch", "num_batches", "expected"),
    [
        (1024, 32, 2, (2048, 64, 320)),
        (1024, 100, 2, (2048, 20, 103)),  # whole batches that need no third window
        (1024, 256, 4, (3072, 12, 40)),  # the batches have used up the first window
        (24, 4, 2, (48, 12, 60)),
        (24, 24, 2, (96, 4, 20)),  # the batches are more than a window
    ],
)
def test_two_windows_and_those_that_batches_used_up_are_read_ahead(
    window: int, batch: int, num_batches: int, expected: tuple[int, int, int]
) -> None:
    starts = itertools.count(0, window)

    found = steady_state.read_ahead(starts, batch, num_batches=num_batches)

    assert (
        found.num_examples,
        found.num_warmup_steps,
        found.num_timed_steps,
    ) == expected


def test_nothing_is_read_ahead_of_synthetic_data() -> None:
    assert steady_state.read_ahead(iter(()), 4, num_batches=2) == ReadAhead()
    begun = steady_state.windows_begun(iter(()), 4)
    assert list(itertools.islice(begun, 3)) == [0, 0, 0]


def test_steps_that_use_the_first_records_of_windows() -> None:
    begun = steady_state.windows_begun(iter([0, 8, 10, 11, 20]), 4)

    # Records 0 to 3, 4 to 7, 8 to 11 ...
    assert list(itertools.islice(begun, 7)) == [1, 0, 3, 0, 0, 1, 0]


def _describe(
    *, warmup: int = 16, ends: Sequence[float] = range(1, 11)
) -> dict[str, Any]:
    """Two ranks that read 32 and 64 examples ahead; the first one is twice as fast."""
    traces: list[Any] = [
        types.SimpleNamespace(
            read_ahead=ReadAhead(
                num_examples=4 * steps,
                num_warmup_steps=steps,
                num_timed_steps=steps // 2,
            ),
            num_warmup_steps=warmup,
            steps={"num_examples": np.full(warmup + len(ends), 4)},
            num_examples=4 * len(ends),
            timed=ends,
            end_seconds=np.multiply(ends, steps / 16),
        )
        for steps in (8, 16)
    ]
    return steady_state.describe(traces)


def test_a_long_run_that_is_timed_late_is_steady() -> None:
    assert _describe() == {
        "read_ahead_examples_per_rank": [32, 64],
        "num_examples_before_timing_per_rank": [64, 64],
        "reached": True,
        "drift": 1.0,
        "text": "In a steady state: the 64 examples that a rank reads ahead were used "
        "before timing began, and 10 steps were timed. Their rate is that of the input "
        "within 8.0%.",
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"warmup": 15}, "Timing began after step 15, but a rank may have read 64 ex"),
        ({"warmup": 15}, "which last for 16 steps"),
        (
            {"ends": range(1, 8)},
            "7 steps were timed, but 10 shuffle windows last for 8",
        ),
        ({"ends": range(1, 8)}, "give --num_steps=8 or more epochs."),
    ],
)
def test_a_run_is_as_steady_as_its_least_steady_rank(
    fields: dict[str, Any], words: str
) -> None:
    found = _describe(**fields)

    assert not found["reached"]
    assert found["text"].startswith("Not in a steady state: ")
    assert words in found["text"]


def test_a_rate_that_changed_is_not_called_steady() -> None:
    ends = [*range(1, 9), 8.5, 9.0, 9.5, 10.0]

    assert _describe(ends=ends)["text"].startswith("At an uneven rate: the 64 examp")


@pytest.mark.parametrize(
    ("ends", "drift"),
    [
        ((1.0, 2.0, 4.0, 5.0, 6.0, 6.5), 2 / 1.5),
        ((1.0, 2.0, 4.0), 0.5),
        ((1.0, 2.0), None),
    ],
)
def test_drift_is_the_rate_of_the_last_third_over_the_first(
    ends: tuple[float, ...], drift: float | None
) -> None:
    found = _describe(ends=ends)

    assert found["drift"] == pytest.approx(drift)
    sentence = f"The last third of the timed steps had {drift or 0:.2f} times"
    is_even = drift is None
    assert (sentence in found["text"]) is not is_even
    typed, _ = tree.decode(SteadyState, found)
    assert typed.is_even is is_even
