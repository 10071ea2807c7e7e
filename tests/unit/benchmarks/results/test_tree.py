"""tree: typed values of JSON, and the schema of a result in the docs."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.results import train_result, tree
from tests.support.data import result_schema, sample_results

SCHEMA = pathlib.Path(__file__).parents[4] / "docs/reference/results.schema.json"


@dataclasses.dataclass(frozen=True)
class Leaf:
    name: str
    size: float | None = None


@dataclasses.dataclass(frozen=True)
class Branch:
    leaves: tuple[Leaf, ...] = ()
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
    rest: Any = None


def test_json_becomes_typed_values() -> None:
    value = {"leaves": [{"name": "a", "size": 2, "new": 1}], "shares": {"x": 1}}

    assert tree.read(Branch, value) == Branch((Leaf("a", 2.0),), {"x": 1.0})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "the result must be an object"),
        ({"leaves": {}}, "leaves must be a list"),
        ({"leaves": [{}]}, r"leaves\[0\].name must be there"),
        ({"leaves": [{"name": 1}]}, r"leaves\[0\].name must be a text, got 1"),
        ({"leaves": [{"name": "", "size": True}]}, r"size must be a number, got True"),
        ({"shares": {"x": "y"}}, "shares.x must be a number, got 'y'"),
        ({"shares": [1]}, "shares must be an object"),
    ],
)
def test_a_wrong_value_is_named(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tree.read(Branch, value)


def test_a_wrong_value_takes_the_default_and_the_others_stay() -> None:
    value = {"leaves": [{"name": "a", "size": "far"}, {}], "shares": {"x": 1, "y": []}}

    typed, problems = tree.decode(Branch, value)

    assert typed == Branch((Leaf("a", None),), {"x": 1.0})
    assert problems == [
        "leaves[0].size must be a number, got 'far'.",
        "leaves[1].name must be there, got None.",
        "shares.y must be a number, got [].",
    ]


def test_null_is_a_missing_value() -> None:
    assert tree.read(Branch, {"leaves": None, "shares": None}) == Branch()


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        (0.5, 0.5),
        (True, None),
        ("3", None),
        (None, None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
    ],
)
def test_a_number_is_a_finite_number(value: Any, number: float | None) -> None:
    assert tree.as_number(value) == number


def test_a_result_is_read_as_typed_values() -> None:
    result = tree.read(train_result.TrainResult, sample_results.train(num_ranks=2))

    assert (result.num_ranks, result.config.model) == (2, "resnet50")
    assert result.environment.hosts[0].name == "node-a"
    assert [gate.gate for gate in result.gates] == ["au>=90%", "stall<=5%"]


def test_the_schema_in_the_docs_is_that_of_the_types() -> None:
    text = json.dumps(result_schema.json_schema(), indent=1) + "\n"
    if os.environ.get("REWRITE_GOLDEN"):
        SCHEMA.write_text(text, encoding="utf-8")

    assert SCHEMA.read_text(encoding="utf-8") == text
