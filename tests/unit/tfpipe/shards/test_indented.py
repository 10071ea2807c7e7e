"""JSON with an indent of 1 is that of json.dumps."""

import json

import pytest

from tfpipe.shards import indented


@pytest.mark.parametrize(
    "value",
    [
        *({}, [], (), "", 0, None, True, 1.5, -7, 'é\n"\\', "\ud800"),
        {"a": {}, "b": [], "c": [[], [1, "x"]], "": None},
        {"a": {"b": {"c": [{"d": 1}, {"e": [2.5, False]}]}}, "é": (1, (2,))},
        [[[[]]], [{}], [{"a": [{}]}]],
    ],
)
def test_the_text_is_that_of_the_standard_library(value: object) -> None:
    assert indented.text_of(value) == json.dumps(value, indent=1, ensure_ascii=False)
