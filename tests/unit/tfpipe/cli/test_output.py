"""tfpipe.cli.output: what a terminal and a pipe get."""

import contextlib
import json
import pty
import sys

import pytest

from tfpipe.cli import flags, output

LONG = "a line that is much longer than the narrow terminal of the test, " * 8


def _show() -> None:
    output.show({"a": 1}, ["head", LONG], copied=["x" * 99], details=["detail"])


DETAIL, JSON = "detail", '{"a":1}'


@pytest.mark.parametrize(
    ("verbose", "json", "more"),
    [
        (None, None, []),
        (True, None, [DETAIL]),
        (None, True, [JSON]),
        (True, True, [DETAIL, JSON]),
    ],
)
def test_terminal_gets_json_and_details_if_asked(
    verbose: bool | None,
    json: bool | None,
    more: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flags.VERBOSE, "value", verbose)
    monkeypatch.setattr(flags.JSON, "value", json)

    other, own = pty.openpty()  # a terminal without a width
    with open(own, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        _show()
    printed = ""
    with open(other, "rb", buffering=0) as terminal, contextlib.suppress(OSError):
        while part := terminal.read(9999):  # until the closed end is an error
            printed += part.decode()

    head, *long = printed.splitlines()
    copied, *rest = long[len(long) - len(more) - 1 :]
    long = long[: len(long) - len(more) - 1]
    assert (head, copied, rest) == ("head", "x" * 99, more)
    assert long == [LONG] if verbose else len(long) == output.MOST_LINES - 2


@pytest.mark.parametrize(
    ("verbose", "json", "more"),
    [(None, None, [DETAIL, JSON]), (False, None, [JSON]), (False, False, [])],
)
def test_pipe_gets_json_and_details_unless_refused(
    verbose: bool | None,
    json: bool | None,
    more: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(flags.VERBOSE, "value", verbose)
    monkeypatch.setattr(flags.JSON, "value", json)

    _show()

    assert capsys.readouterr().out.splitlines()[3:] == more


def test_rows_have_labels_and_no_gaps() -> None:
    lines = output.rows(bound_by="storage", gate=None, next="--num_steps=400")

    assert lines == ["bound by  storage", "next      --num_steps=400"]


def test_json_of_names_that_no_encoding_has(capsys: pytest.CaptureFixture[str]) -> None:
    output.show({"name": "\udcff"}, [])

    assert json.loads(capsys.readouterr().out) == {"name": "\udcff"}


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (2, ["speed     one two ...", "x"]),
        (3, ["speed     one two three", "          four five ...", "x"]),
        (
            4,
            [
                "speed     one two three",
                "          four five six",
                "          seven",
                "x",
            ],
        ),
    ],
)
def test_long_line_goes_on_where_there_is_room(most: int, expected: list[str]) -> None:
    lines = ["speed     one two three four five six seven", "x"]

    assert output.fit(lines, 24, most) == expected
