"""Commands whose system calls fail: an error that says so, or the right output.

Each command runs with a fault at a call that concerns its files, or its connections to
a server: an errno, SIGKILL, SIGSTOP, SIGTERM or a delay. `attacked` says what must
hold. A failure is the command and an `Injection`; FAULTS=FILE keeps one line of JSON
for each fault, and REPLAY=LINE gives a line back:

    REPLAY='...' pytest tests/torture/test_system_calls.py
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.faults import system_calls
from tests.support.faults.attacked import ATTACKED, REMOTE, Attack, make_inputs
from tests.support.faults.system_calls import Injection
from tests.support.faults.torture import IS_LONG, RecordProperty, rounds
from tests.support.servers import web_server

SEED = 7
REPLAY = json.loads(os.environ.get("REPLAY", "null"))
FEW = ["imagenet", "verify of a URL"]
NAMES = [*ATTACKED, *REMOTE] if IS_LONG else FEW


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the inputs of all commands."""
    if why := system_calls.why_not():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("system_calls")
    make_inputs(folder)
    return folder


@pytest.fixture(scope="module")
def url(folder: pathlib.Path) -> Iterator[str]:
    """The URL of the data set."""
    with web_server.serve(folder / "set") as url:
        yield url


@pytest.mark.parametrize("name", [REPLAY["command"]] if REPLAY else NAMES)
def test_a_fault_is_said_and_the_same_command_goes_on(
    folder: pathlib.Path, url: str, name: str, record_property: RecordProperty
) -> None:
    attack = Attack(name, folder, url if name in REMOTE else "")
    chosen = attack.choose(rounds(4, 200), seed=SEED)
    if REPLAY:
        path = REPLAY["path"].replace("{}", str(folder)).replace("{url}", url)
        parts = {key: REPLAY[key] for key in ("name", "count", "action", "is_lasting")}
        chosen = [Injection(path=path, **parts)]

    failures, num_faults = [], 0
    for injection in chosen:
        wrong, came = attack.inject(injection)
        num_faults += came
        line = _line(name, injection, folder, url)
        _log(line | {"came": came, "wrong": wrong})
        if wrong:
            failures.append((json.dumps(line), wrong))

    assert failures == []
    assert num_faults > 0
    record_property("injections", num_faults)


def _line(
    name: str, injection: Injection, folder: pathlib.Path, url: str
) -> dict[str, Any]:
    line = {"command": name} | dataclasses.asdict(injection)
    path = injection.path.replace(str(folder), "{}").replace(url, "{url}")
    return line | {"path": path}


def _log(line: dict[str, Any]) -> None:
    if path := os.environ.get("FAULTS"):
        with open(path, "a") as file:
            file.write(json.dumps(line) + "\n")
