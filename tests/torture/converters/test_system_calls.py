"""Commands whose system calls fail: an error that says so, or the right output.

Each command runs with one fault at a call that concerns its files: an errno, a kill or
a delay. A command that says it is done has written the right files. The command without
a fault afterwards ends what the fault cut off, with equal bytes.
"""

import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.support.data.trees import digests, make_tree
from tests.support.faults import system_calls
from tests.support.faults.system_calls import Injection
from tests.support.faults.torture import RecordProperty, rounds

# Words after `python -m`; {} is the folder of the test.
COMMANDS: Mapping[str, str] = {
    "imagenet": "converters.imagenet --input_dir={}/raw --output_dir={}/out "
    "--num_train_shards=2 --num_workers=2",
    "replicate": "converters.replicate {}/set --output_dir={}/out --copies=2",
    "parquet": "converters.export {}/set --output_dir={}/out --format=parquet",
    "folder": "converters.folder --input_dir={}/raw/train --output_dir={}/out",
    "tree": "converters.export {}/set --output_dir={}/out --format=tree",
    "tars": "converters.export {}/set --output_dir={}/out --format=webdataset",
    "query": "converters.query {}/set label>=0 --materialize={}/out",
    "subset": "converters.query {}/set label>=0 --save={}/out/subset.parquet",
    "synthesize": "converters.synthesize --output_dir={}/out --num_images=4 "
    "--num_classes=2 --size_scale=0.02",
}
SEED = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with a tree of images and a data set."""
    if why := system_calls.why_not():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("system_calls")
    make_tree(folder / "raw", num_images=12)
    made = COMMANDS["imagenet"].replace("{}/out", "{}/set")
    subprocess.run(_words(made, folder), check=True, capture_output=True)
    return folder


def _words(command: str, folder: pathlib.Path) -> list[str]:
    words = [word.replace("{}", str(folder)) for word in command.split()]
    return [sys.executable, "-m", *words]


def _empty(out: pathlib.Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()


@pytest.mark.parametrize("name", list(COMMANDS)[: rounds(2, len(COMMANDS))])
def test_a_fault_is_said_and_the_same_command_goes_on(
    folder: pathlib.Path, name: str, record_property: RecordProperty
) -> None:
    words, out = _words(COMMANDS[name], folder), folder / "out"
    _empty(out)
    calls = system_calls.calls_of(words, folder)
    expected = digests(out)

    failures, count_of_faults = [], 0
    for injection in system_calls.choose(calls, rounds(4, 200), seed=SEED):
        _empty(out)
        done, came = system_calls.run(words, injection)
        count_of_faults += came
        why = _misdeed(done, injection)
        if not why and done.returncode == 0 and digests(out) != expected:
            why = "other files, and exit code 0"
        again = subprocess.run(words, capture_output=True, text=True, check=False)
        if not why and (again.returncode or digests(out) != expected):
            why = f"the command afterwards: {again.stderr}"
        if why:
            failures.append((injection, why))

    assert failures == []
    assert count_of_faults > 0
    record_property("injections", count_of_faults)


def _misdeed(
    done: "subprocess.CompletedProcess[str]", injection: Injection
) -> str | None:
    """Returns what a command did wrong that ended with or without an error."""
    if done.returncode == 0 or injection.action == "signal=SIGKILL":
        return None
    if done.returncode != 1 or "Traceback" in done.stderr:
        return f"exit code {done.returncode}: {done.stderr}"
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    return None if len(errors) == 1 else f"{len(errors)} lines of an error"
