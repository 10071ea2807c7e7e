"""Commands on a disk that loses power, tears a write, or reads short.

After a loss of power the same command ends with the same files. What a command has said
to be done is on the disk. `fuse_layer` says what is lost; a failure names the command
and the fault, whose seed gives the same choices.
"""

import pathlib
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.data.trees import convert, digests, make_tree
from tests.support.faults import fuse_layer
from tests.support.faults.fuse_layer import Fault, mounted
from tests.support.faults.torture import IS_LONG, RecordProperty, rounds
from tests.support.processes import telling_sync
from tests.support.processes.commands import ROOT

pytestmark = pytest.mark.skipif(
    bool(fuse_layer.why_not()), reason=str(fuse_layer.why_not())
)
# {} is the folder of the inputs; `run` adds the output.
COMMANDS = {
    "imagenet": "converters.imagenet --input_dir={}/raw --num_train_shards=2",
    "replicate": "converters.replicate {}/set --copies=2",
    "tree": "converters.export {}/set --format=tree",
    "parquet": "converters.export {}/set --format=parquet",
    "query": "converters.query {}/set label>=0",
}
NAMES = list(COMMANDS) if IS_LONG else list(COMMANDS)[:1]
SEED = 11


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A tree of images and a data set, on the usual disk."""
    folder = tmp_path_factory.mktemp("inputs")
    make_tree(folder / "raw", num_images=8)
    convert(folder / "raw", folder / "set", num_train_shards=2)
    return folder


def run(
    name: str, inputs: pathlib.Path, out: pathlib.Path
) -> "subprocess.CompletedProcess[str]":
    words = [word.replace("{}", str(inputs)) for word in COMMANDS[name].split()]
    flag = "--materialize" if name == "query" else "--output_dir"
    words = [telling_sync.__name__, str(out), *words, f"{flag}={out}/made"]
    return subprocess.run(
        [sys.executable, "-m", *words, "--num_workers=1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _on_layer(
    name: str, inputs: pathlib.Path, work: pathlib.Path, fault: Fault
) -> tuple["subprocess.CompletedProcess[str]", dict[str, int]]:
    with mounted(work / "disk", work / "mount", fault) as counts:
        done = run(name, inputs, work / "mount")
    return done, counts


def _emptied(work: pathlib.Path) -> None:
    for name in ("disk", "disk.trash"):
        shutil.rmtree(work / name, ignore_errors=True)
    (work / "disk").mkdir()


def _seen(work: pathlib.Path) -> dict[str, str]:
    """Returns the digests of the files that a reader sees."""
    found = digests(work / "disk")
    return {name: found[name] for name in found if "/." not in name}


def _faults(counts: dict[str, int], number: int) -> Iterator[Fault]:
    dice = random.Random(SEED)
    for seed in range(number):
        kind, most = dice.choice((("cut", "changes"), ("torn", "writes")))
        yield Fault(kind, dice.randint(1, counts[most]), seed)  # type: ignore[arg-type]
    # Nothing is cut off: what the command has not synced is lost afterwards.
    yield from (Fault("cut", 0, seed) for seed in range(max(2, number // 5)))


def _wrong(
    fault: Fault, name: str, inputs: pathlib.Path, work: pathlib.Path, expected: object
) -> Iterator[str]:
    """Yields what is wrong after a fault."""
    _emptied(work)
    done, _ = _on_layer(name, inputs, work, fault)
    if "Traceback" in done.stderr and fault.kind != "cut":
        yield f"a traceback: {done.stderr[-2000:]}"
    if done.returncode == 0 and _seen(work) != expected:
        yield f"done, and the disk has {sorted(_seen(work))}"
    again, _ = _on_layer(name, inputs, work, Fault())
    if again.returncode or _seen(work) != expected:
        yield f"the command again: {again.returncode} {again.stderr[-2000:]}"


@pytest.mark.parametrize("name", NAMES)
def test_the_same_command_goes_on_after_a_loss_of_power(
    name: str,
    inputs: pathlib.Path,
    tmp_path: pathlib.Path,
    record_property: RecordProperty,
) -> None:
    _emptied(tmp_path)
    done, counts = _on_layer(name, inputs, tmp_path, Fault())
    assert done.returncode == 0, done.stderr
    expected = _seen(tmp_path)
    faults = list(_faults(counts, rounds(3, 200)))

    wrong = {
        str(fault): found
        for fault in faults
        if (found := [*_wrong(fault, name, inputs, tmp_path, expected)])
    }

    assert wrong == {}
    record_property("injections", len(faults))


@pytest.mark.parametrize("name", NAMES)
def test_short_reads_change_nothing(
    name: str, inputs: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for kind in ("none", "short"):
        with mounted(inputs, tmp_path / "mount", Fault(kind)):
            done = run(name, tmp_path / "mount", tmp_path / kind)
        assert done.returncode == 0, done.stderr

    assert digests(tmp_path / "short") == digests(tmp_path / "none")
