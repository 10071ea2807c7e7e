"""Inputs and outputs without the right to read and write, over all commands."""

import json
import pathlib
import subprocess

import pytest

from tests.support.data import golden
from tests.support.processes.warm_python import WarmPython
from tfpipe.cli import names

# Each line has a place in the folder `shut`, which nobody may read.
LINES = (
    "convert folder shut/photos out",
    "convert folder photos shut/out",
    "convert folder photos out --label_map=shut/photos.csv",
    "convert imagenet shut/raw out",
    "convert table shut/photos.csv out",
    "convert webdataset shut/a.tar out",
    "convert tfrecord shut/part-0.tfrecord out",
    "convert merge a=shut/photos --output_dir=out",
    "convert merge a=shut/photos.csv --output_dir=out",
    "convert stream shut/photos out --until_idle=1",
    "convert stream photos shut/out --until_idle=1",
    "synthesize shut/out --num_images=2 --num_classes=2",
    "check shut/records",
    "query shut/records",
    "export shut/records out --format=tree",
    "replicate shut/records out --copies=2",
    "train shut/records --model=tiny",
    "input shut/records --model=tiny",
    "sweep --sweep_dir=shut/sweep --data_dirs=records --models=tiny --batch_sizes=4",
    "sweep --sweep_dir=sweep --data_dirs=shut/records --models=tiny",
    "storage shut/records",
    "storage warm records --cache_dir=shut/cache",
    "service worker --dispatcher=localhost:1 --flagfile=shut/flags",
    "report shut/result.json --output=page.html",
    "advise shut/result.json --num_accelerators=8",
)

# Root may read everything by capabilities alone: version 3 of all sets, empty.
RUN_ALL = """
import ctypes, json, shlex, sys
from tests.support.processes import commands
from tfpipe.cli import menu, names
header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset(header, nothing) == 0
for line in sys.argv[1:]:
    name, words = menu.command_of(shlex.split(line))
    own = [command for each, command in names.commands_of("") if each == name]
    done = commands.answer(own, *words, say=names.as_typed)
    print(json.dumps([done.returncode, done.stderr]), flush=True)
"""


def test_each_command_has_a_line() -> None:
    named = {name for name in names.MODULES for line in LINES if line.startswith(name)}
    assert named == {*names.MODULES}


@pytest.fixture(scope="module")
def answers(
    raw_dir: pathlib.Path,
    data_dir: pathlib.Path,
    warm_python: WarmPython,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[int, str]]:
    folder = tmp_path_factory.mktemp("scene")
    golden.make_scene(folder, raw_dir, data_dir)
    (folder / "shut").mkdir(mode=0)

    done = subprocess.run(
        [*warm_python.command, "-c", RUN_ALL, *LINES],
        cwd=folder,
        env=golden.environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    lines = map(json.loads, done.stdout.splitlines())
    return {line: (code, told) for line, (code, told) in zip(LINES, lines, strict=True)}


@pytest.mark.parametrize("line", LINES)
def test_a_place_without_rights_is_named(
    line: str, answers: dict[str, tuple[int, str]]
) -> None:
    code, told = answers[line]

    assert code == 1, told
    assert told.startswith("Error: ")
    assert told.count("\n") == 1
    assert "shut" in told
    assert "Permission denied" in told
    assert "[Errno" not in told
