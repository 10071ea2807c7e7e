"""benchmarks.reporting.compare: changes, and whether they are noise."""

from typing import Any

import pytest

from benchmarks.reporting import compare, tables
from benchmarks.reporting.compare import FIGURES, Estimate
from benchmarks.results import collection as results
from benchmarks.results.collection import Group, Result

RATE, UTILIZATION, STALL = FIGURES[:3]


def _groups(*rates: float, **document: Any) -> list[Group]:
    base = {"command": "benchmarks.train", "num_ranks": 1} | document
    return list(
        results.collect(
            [
                Result(str(place), base | {"examples_per_second": rate})
                for place, rate in enumerate(rates)
            ]
        ).groups
    )


def _verdict(old: list[Group], new: list[Group]) -> tuple[str, str]:
    (pair,), _, _ = compare.pairs(old, new)
    return pair.changes[RATE].verdict, pair.changes[RATE].basis


def test_repeats_say_whether_a_change_is_noise() -> None:
    old = _groups(100.0, 102.0, 98.0)

    assert _verdict(old, _groups(101.0, 103.0, 99.0)) == ("within the noise", "repeats")
    assert _verdict(old, _groups(120.0, 122.0, 118.0)) == ("better", "repeats")
    assert _verdict(old, _groups(80.0, 82.0, 78.0)) == ("worse", "repeats")


def test_noise_is_the_interval_of_welch() -> None:
    # Two samples with the variance 4 of three values each: t(4) * sqrt(8 / 3).
    (pair,), _, _ = compare.pairs(_groups(98.0, 100, 102), _groups(108.0, 110, 112))

    assert pair.changes[RATE].noise == pytest.approx(2.776 * (8 / 3) ** 0.5)
    assert pair.changes[RATE].difference == pytest.approx(10.0)


def test_steps_of_single_runs_say_it_where_there_are_no_repeats() -> None:
    steps = {"examples_per_second_deviation": 19.6, "num_timed_steps": 100}
    old = _groups(100.0, **steps)

    assert compare.rate(old[0]) == Estimate(100.0, pytest.approx(1.0), 99, "steps")
    assert _verdict(old, _groups(102.0, **steps)) == ("within the noise", "steps")
    assert _verdict(old, _groups(104.0, **steps)) == ("better", "steps")
    assert _verdict(old, _groups(104.0)) == ("unknown", "")


def test_less_is_better_for_a_stall() -> None:
    old, new = Estimate(0.10, 1e-6, 4, "repeats"), Estimate(0.05, 1e-6, 4, "repeats")

    assert compare.Change(STALL, old, new).verdict == "better"
    assert compare.Change(UTILIZATION, old, new).verdict == "worse"


def test_runs_are_paired_by_what_they_are() -> None:
    def run(number: int, **config: Any) -> Group:
        document = {"command": "benchmarks.train", "num_ranks": 1, "config": config}
        document["examples_per_second"] = 1.0
        return Group(number, str(number), [Result(str(number), document)])

    old = [run(1, model="a"), run(2, model="b", tuning="t"), run(3, model="c")]
    new = [
        run(4, model="b"),
        run(5, model="b", tuning="t"),
        run(6, model="a", xla=True),
    ]

    pairs, only_old, only_new = compare.pairs(old, new)

    assert [(p.old.index, p.new.index, list(p.differing)) for p in pairs] == [
        (2, 5, []),
        (1, 6, ["xla: None → True"]),
    ]
    assert [group.index for group in only_old] == [3]
    assert [group.index for group in only_new] == [4]


def test_table_of_changes_says_them_in_per_cent() -> None:
    pairs, _, _ = compare.pairs(_groups(98.0, 100, 102), _groups(108.0, 110, 112))

    table = tables.changes(pairs)

    assert table.columns == ["Run", "Images/s"]
    cell = table.rows[0][1]
    assert (cell.text, cell.mark) == ("+10.0%, better", "good")
    assert cell.note == "100 → 110, noise ± 4.5% of repeats"
    assert not tables.changes([])
