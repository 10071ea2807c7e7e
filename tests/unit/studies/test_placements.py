"""studies.placements: what the cases must show."""

from typing import Any

from studies import placements

EQUAL = "placement does not matter within 3%. What binds everywhere: accelerator."
OTHER = "placement matters: of the rate of 1 x 4, 2 x 2 170.0%."


def _answer(verdict: str, *bindings: str) -> dict[str, Any]:
    figures = {
        f"{hosts} x 4": {
            "binding": binding,
            "examples_per_second": 100.0,
            "accelerator_utilization": 0.5,
        }
        for hosts, binding in enumerate(bindings, 1)
    }
    return {"verdict": verdict, "placements": figures}


def test_all_cases_show_what_binds() -> None:
    answers = {
        "link": _answer(OTHER, "network", "host"),
        "cores": _answer(OTHER, "cores", "cores"),
        "accelerator": _answer(EQUAL, "accelerator", "accelerator"),
    }

    assert placements.misses(answers) == []
    assert placements.table(answers).splitlines()[1].split() == [
        *("link", "1", "x", "4", "100", "50.0%", "network")
    ]


def test_a_case_that_shows_something_else_is_a_miss() -> None:
    answers = {
        "link": _answer(OTHER, "host", "host"),
        "cores": _answer(OTHER, "cores", "cores"),
        "accelerator": _answer(OTHER, "accelerator", "accelerator"),
    }

    assert placements.misses(answers) == [
        "link: network must bind, got host.",
        "accelerator: placements must be equal within 3%.",
    ]
