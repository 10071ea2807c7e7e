"""tfpipe.tuner.verdict: who runs on, who leads and who wins, from made-up rates."""

import pytest
from hypothesis import given, strategies as st

from tfpipe.tuner import verdict
from tfpipe.tuner.race import Turns


def made(rates):
    return Turns(tuple(map(float, rates)), (1.0,) * len(rates))


def turns(best, given=None):
    """Rates of the last race, in which AUTOTUNE's is 100 in every round."""
    lanes = {"AUTOTUNE": made([100] * len(best)), "the best so far": made(best)}
    return lanes if given is None else lanes | {"as given": made(given)}


@pytest.mark.parametrize(
    ("best", "given", "winner"),
    [
        ([200, 200, 200], [50, 50, 50], "the best so far"),
        ([101, 101, 101], [50, 50, 50], "AUTOTUNE"),  # too little to be taken
        ([200, 200, 200], [900, 900, 900], "as given"),  # as with a cache of its own
        ([101, 101, 101], [101, 101, 101], "as given"),
        ([102, 102, 102], [98, 98, 98], "the best so far"),  # AUTOTUNE is 2 % faster
        ([200, 200, 200], [190, 190, 201], "as given"),  # faster by chance
        ([200, 200, 200], [198, 198, 198], "as given"),
        ([200, 200, 200], None, "the best so far"),
        ([90, 90, 90], None, "AUTOTUNE"),
    ],
)
def test_the_given_pipeline_stays_unless_a_setting_is_faster(best, given, winner):
    assert verdict.chosen(turns(best, given), may_stay=True) == winner
    if winner == "as given":
        assert verdict.chosen(turns(best, given), may_stay=False) != winner


RATES = st.lists(st.floats(1.0, 100.0), min_size=1, max_size=9)


@given(RATES, RATES, RATES)
def test_nothing_is_returned_that_did_not_beat_the_given_pipeline(auto, best, given):
    lanes = {name: made(r) for name, r in zip("xyz", (auto, best, given), strict=True)}
    lanes = {
        "AUTOTUNE": lanes["x"],
        "the best so far": lanes["y"],
        "as given": lanes["z"],
    }

    winner = verdict.chosen(lanes, may_stay=True)

    if winner != "as given":
        ratios = lanes[winner].ratios(lanes["as given"])
        assert lanes[winner].ratio(lanes["as given"]) >= verdict.GAIN
        assert sum(ratio > 1 for ratio in ratios) > len(ratios) / 2


def test_too_few_rounds_do_not_replace_the_given_pipeline():
    """On a busy host, five rounds that are all won, or three that are won by much."""
    cases = [
        ([3.0, 3.0], 0.0, False),
        ([1.04] * 3, 0.0, True),
        ([1.02] * 9, 0.0, False),
        ([3.0] * 4, 0.8, False),
        ([1.75, 1.87, 1.8], 0.15, True),
        ([1.5, 1.87, 1.8, 1.9], 0.15, False),
        ([1.75, 1.87], 0.15, False),
        ([1.3] * 5, 0.8, True),
        ([1.3] * 8 + [0.9], 0.8, False),
        ([1.06] * 9, 0.8, False),
    ]
    for ratios, taken, wins in cases:
        lanes = {"as given": made([1] * len(ratios)), "the best so far": made(ratios)}

        winner = verdict.chosen(lanes, may_stay=True, taken=taken)

        assert (winner == "the best so far") is wins, (ratios, taken)
        # One above the budget does not stay.
        assert verdict.chosen(lanes, may_stay=False, taken=taken) == "the best so far"


def test_a_setting_leaves_a_race_when_it_has_clearly_lost():
    cases = [
        ({"a": [10], "b": [9]}, ["a", "b"]),  # too early to say
        ({"a": [10], "b": [6]}, []),
        ({"a": [10, 10], "b": [8, 8]}, []),
        ({"a": [10] * 3, "b": [9.5] * 3}, ["a", "b"]),
        ({"a": [10] * 3, "b": [8, 8, 10.1]}, ["a", "b"]),  # won a round
        ({"a": [10, 10], "b": [9.9, 9.9], "c": [1]}, ["a", "b"]),  # c left before
        ({"a": [10]}, []),
    ]
    for rates, left in cases:
        lanes = {name: made(each) for name, each in rates.items()}

        assert verdict.still_open(lanes) == left, rates


def test_a_leader_is_faster_than_the_base():
    cases = [
        ({"b": [10.0] * 3, "x": [10.05] * 3}, "b"),
        ({"b": [10.0] * 3, "x": [10.2] * 3, "y": [10.3] * 3}, "y"),
        ({"b": [10.0], "x": [11.0]}, "b"),  # one round tells little
        ({"b": [10.0, 10.0], "x": [12.0]}, "b"),
        ({"b": [10.0]}, "b"),
    ]
    for rates, name in cases:
        lanes = {name: made(each) for name, each in rates.items()}

        assert verdict.leader(lanes, "b") == name, rates


def test_the_given_pipeline_runs_enough_rounds_to_be_replaced():
    lanes = {"a": made([10] * 4), "as given": made([1] * 4), "b": made([5] * 4)}

    assert verdict.still_open(lanes) == ["a", "as given"]
    lanes = {name: made([*mine.elements_per_second, 1]) for name, mine in lanes.items()}
    lanes["a"] = made([10] * 5)
    assert verdict.still_open(lanes) == []


def test_of_settings_that_run_to_the_end_the_fastest_wins():
    """A setting that left early has lost, whatever its ratio was until then."""
    auto = {"AUTOTUNE": made([10])}
    cases = [
        ({"costs": [20, 20, 20], "cache": [20.2] * 3}, "costs"),  # a cache must pay
        ({"costs": [20, 20, 20], "cache": [21] * 3}, "cache"),
        ({"costs": [20], "cache": [70] * 6, "more": [60] * 6}, "cache"),
        ({"costs": [20] * 5, "cache": [30] * 4}, "cache"),  # the time was over
    ]
    for rates, winner in cases:
        lanes = auto | {name: made(each) for name, each in rates.items()}

        assert verdict.chosen(lanes, may_stay=False) == winner, rates
