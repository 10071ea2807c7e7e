"""Commands on a host whose clock is wrong, runs too fast, stands still or steps.

Each command ends with exit code 0 and the output of a run with the right clock.
"""

import pathlib

import pytest

from tests.support.faults import wrong_clocks
from tests.support.faults.attacked import ATTACKED, Attack, make_inputs
from tests.support.faults.torture import IS_LONG, RecordProperty

pytestmark = pytest.mark.skipif(
    wrong_clocks.library() is None,
    reason="libfaketime is not installed: apt-get install -y faketime",
)
# libfaketime does not see how TensorFlow waits: a wait would take years.
NAMES = [name for name in ATTACKED if name not in ("input", "train")]
NAMES = NAMES if IS_LONG else NAMES[:1]
CLOCKS = list(wrong_clocks.CLOCKS) if IS_LONG else ["steps"]
SLEEPING = ("stream", "storage")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the inputs of all commands."""
    folder = tmp_path_factory.mktemp("wrong_clocks")
    make_inputs(folder)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_clock_changes_nothing(
    folder: pathlib.Path,
    tmp_path: pathlib.Path,
    name: str,
    record_property: RecordProperty,
) -> None:
    attack = Attack(name, folder)
    wrong = {}
    clocks = [
        each
        for each in CLOCKS
        if name not in SLEEPING or each not in wrong_clocks.WITHOUT_SLEEP
    ]
    for each in clocks:
        with wrong_clocks.clock(each, tmp_path) as variables:
            if found := attack.with_variables(variables):
                wrong[each] = found

    assert wrong == {}
    record_property("injections", len(clocks))
