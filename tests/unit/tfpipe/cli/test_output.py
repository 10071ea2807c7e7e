"""tfpipe.cli.output: what a terminal and a pipe get."""

import json
import os
import pty
import sys

import pytest

from tfpipe.cli import flags, output

LONG = "a sentence that is much longer than the narrow terminal of the test, and ends"


def _show() -> None:
    output.show({"a": 1}, ["head", LONG * 2], copied=["x" * 99], details=["detail"])


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
        printed = os.read(other, 9999).decode()
    os.close(other)

    head, long, copied, *rest = printed.splitlines()
    assert (head, copied, rest) == ("head", "x" * 99, more)
    assert (len(long) <= 80 and long.endswith(" ...")) is not bool(verbose)


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
