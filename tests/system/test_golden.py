"""Help, last lines and errors of all commands stay as the golden files have them.

REWRITE_GOLDEN=1 writes the files; see CONTRIBUTING.md. As root benchmarks.storage drops
the page cache of this host.
"""

import pathlib
import re
import shlex
import signal
import subprocess

import pytest

from tests.support.data import golden
from tests.support.processes import commands, wheel
from tests.support.processes.commands import Ended
from tests.support.processes.warm_python import MAX_SECONDS, WarmPython
from tfpipe.cli import menu, names

_TRAIN = "--image_size=32 --num_steps=2 --num_warmup_steps=1"

# A run of each command whose last line has as many keys as it can have.
RUNS = {
    "converters.synthesize": (
        "--output_dir=drawn --num_images=4 --num_classes=2 --size_scale=0.1"
    ),
    "converters.imagenet": "--input_dir=raw --output_dir=imagenet --decode=header",
    "converters.folder": (
        "--input_dir=raw/train --output_dir=folder "
        "--split_fractions=train=0.5,test=0.5 --short_side=24"
    ),
    "converters.table": (
        "--input=photos.csv --image_column=file --label_column=label --output_dir=table"
    ),
    "converters.export": "records --format=webdataset --output_dir=tars",
    "converters.webdataset": "--input=tars/train-{000000..000002}.tar --output_dir=web",
    "converters.tfrecord": "--input=records/train-* --output_dir=tfrecord",
    "converters.merge": "a=records b=folder --output_dir=merged",
    "converters.stream": "raw/train grown --until_idle=0.1",
    "converters.verify": "damaged --level=decode",
    "converters.query": (
        "records 'height > 32' --sample=3 --limit=9 --sheet=sheet.png "
        "--report=data.html --save=subset.parquet --materialize=chosen"
    ),
    "converters.replicate": "records --copies=2 --identical --output_dir=copies",
    "benchmarks.train": (
        f"--data_dir=records --model=tiny --batch_size=4 {_TRAIN} --bars "
        "--report_dir=results --require='au>=0'"
    ),
    "benchmarks.input": (
        "--data_dir=records --model=tiny --image_size=32 --batch_size=4 --seconds=0.1 "
        "--do=throughput,profile,headspace"
    ),
    "benchmarks.sweep": (
        "--sweep_dir=sweep --data_dirs=records --models=tiny --batch_sizes=4 "
        f"-- {_TRAIN}"
    ),
    "benchmarks.report": "--results=results --output=page.html",
    "benchmarks.storage": "records --seconds=0.1 --max_parallel=2",
    "benchmarks.service": "local --workers=1",
    "benchmarks.advise": (
        "--results=results --num_accelerators=16 --what_if=storage=10GB/s,hosts=4"
    ),
}


class Scene:
    """A folder with inputs, in which commands run.

    Attributes:
        folder: The folder.

    Args:
        folder: The folder.
        python: Runs the commands.
        wheel_dir: Folder with the packages of the wheel, and bin/tfpipe.
    """

    def __init__(
        self, folder: pathlib.Path, python: WarmPython, wheel_dir: pathlib.Path
    ) -> None:
        self.folder = folder
        self._python = python.command
        self._wheel_dir = wheel_dir

    def run(self, line: str, *, from_wheel: bool = False) -> Ended:
        """Runs a command line that begins with its module.

        The servers of a service get Ctrl-C when they serve.

        Args:
            line: The module and its words.
            from_wheel: Whether the command is `tfpipe` of the wheel, in place of
                `python -m` in the checkout.
        """
        module, *words = shlex.split(line)
        environment = golden.environment()
        start = ["-m", module]
        if from_wheel:
            environment["PYTHONPATH"] = str(self._wheel_dir)
            start = [f"{self._wheel_dir}/bin/tfpipe", *names.BY_MODULE[module].split()]
        with subprocess.Popen(
            [*self._python, *start, *words],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            if line == f"benchmarks.service {RUNS['benchmarks.service']}":
                process.stdout.readline()
                process.send_signal(signal.SIGINT)
            texts = process.communicate(timeout=MAX_SECONDS)
        assert process.returncode is not None
        stdout, stderr = (golden.masked(text, self.folder) for text in texts)
        return Ended(process.returncode, stdout, stderr)


@pytest.fixture(scope="module")
def scene(
    raw_dir: pathlib.Path,
    data_dir: pathlib.Path,
    warm_python: WarmPython,
    wheel_dir: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Scene:
    folder = tmp_path_factory.mktemp("scene")
    golden.make_scene(folder, raw_dir, data_dir)
    return Scene(folder, warm_python, wheel_dir)


@pytest.mark.parametrize("command", [*RUNS, "tfpipe.native"])
def test_help(command: str, scene: Scene) -> None:
    done = scene.run(f"{command} --help")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == golden.stored(f"help/{command}.txt", done.stdout)


def test_errors(scene: Scene) -> None:
    """A check prints the faults of a data set on stdout, all else is on stderr."""

    def show(line: str) -> str:
        done = scene.run(line)
        faults = re.findall(r"^Fault: .*$", done.stdout, flags=re.M)
        text = done.stderr or "\n".join(faults)
        if done.returncode != 1 or not text:
            return golden.NO_ERROR
        return text.strip().split("\n\n")[-1]  # absl puts all of the help before it

    expected, now = golden.transcript("errors.txt", golden.COMMAND, show)

    assert now == expected
    assert golden.NO_ERROR not in now


def test_mistakes_of_a_new_user(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message says what must hold, what was got, and what to do."""

    def show(line: str) -> str:
        try:
            name, words = menu.command_of(shlex.split(line))
        except ValueError as error:
            return f"Error: {error}"
        own = [command for each, command in names.commands_of("") if each == name]
        done = commands.answer(own, *words, say=names.as_typed)
        text = golden.masked(done.stderr, scene.folder)
        assert "[Errno" not in text, line
        return text.strip() if done.returncode == 1 else golden.NO_ERROR

    monkeypatch.chdir(scene.folder)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    expected, now = golden.transcript("errors.txt", golden.MENU, show)

    assert now == expected
    assert golden.NO_ERROR not in now


def test_keys_of_the_last_lines(scene: Scene) -> None:
    """From the wheel, in a folder with packages of a user that have the same names.

    All paths are relative. A command takes what the commands before it have written.
    """
    changes = {}
    for command, arguments in RUNS.items():
        line = f"{golden.COMMAND}{command} {arguments}"
        with wheel.own_packages(scene.folder):
            done = scene.run(f"{command} {arguments}", from_wheel=True)
        assert done.stdout, (line, done.stderr)
        told = done.stdout.splitlines()[:-1]
        assert not [text for text in told if "python -m " in text], line
        types = golden.types(done.result)
        text = golden.stored(f"keys/{command}.txt", golden.text_of(line, types))
        golden_line, expected = golden.types_of(text)
        assert line == golden_line
        pair = golden.comparable(types, expected), golden.comparable(expected, types)
        if pair[0] != pair[1]:
            changes[command] = sorted(pair[0].items() ^ pair[1].items())

    assert changes == {}
