"""Parsers of files that others write: a thousand changed inputs each, or a million.

`python -m tests.support.faults.fuzz NAME --last=FILE --replay=INPUT` shows a failure.
"""

import json
import pathlib
import subprocess
import sys

import pytest

from tests.support.faults import fuzz
from tests.support.faults.parsers import PARSERS
from tests.support.faults.torture import IS_LONG, RecordProperty, rounds

ROOT = pathlib.Path(__file__).parents[2]


def _executions(name: str) -> int:
    return rounds(few=40, many=100_000 if PARSERS[name].is_slow else 1_000_000)


@pytest.mark.parametrize("names", [[n] for n in PARSERS] if IS_LONG else [[*PARSERS]])
def test_no_input_makes_a_parser_fail(
    names: list[str], tmp_path: pathlib.Path, record_property: RecordProperty
) -> None:
    last = tmp_path / "last"
    done = subprocess.run(
        [
            *(sys.executable, "-m", fuzz.__name__, *names, f"--last={last}"),
            f"--executions={_executions(names[0])}",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )

    figures = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, _input_of(last).hex()
    assert [each["parser"] for each in figures] == names
    assert [each for each in figures if each["failures"]] == []
    assert all(each["accepted"] > 0 for each in figures)
    record_property("injections", sum(each["executions"] for each in figures))


def _input_of(last: pathlib.Path) -> bytes:
    """Returns the input that ended the process."""
    content = last.read_bytes()
    return content[8 : 8 + int.from_bytes(content[:8], "little")]
