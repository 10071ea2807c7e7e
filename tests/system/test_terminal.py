"""A real terminal gets at most seven lines of each command, the answer first."""

import fcntl
import os
import pathlib
import pty
import shlex
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence

import pytest

from tests.support.data import golden
from tests.support.processes import horovodrun
from tests.support.processes.warm_python import MAX_SECONDS, WarmPython
from tfpipe.cli import output

ROOT = pathlib.Path(__file__).parents[2]
COLUMNS = 80


def _terminal() -> tuple[int, int]:
    """Returns both ends of a terminal of 80 columns; programs get the second one."""
    other, own = pty.openpty()
    fcntl.ioctl(own, termios.TIOCSWINSZ, struct.pack("4H", 24, COLUMNS, 0, 0))
    return other, own


def _on_terminal(
    words: Sequence[str], environment: Mapping[str, str], folder: pathlib.Path
) -> tuple[int, list[str]]:
    """Returns the exit code, and the lines without those of a progress bar."""
    other, own = _terminal()
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=own,
        stderr=own,
    ) as process:
        os.close(own)
        timer = threading.Timer(MAX_SECONDS, process.kill)
        timer.start()
        text = _all_of(other)
        timer.cancel()
    lines = (line.rstrip("\r") for line in text.split("\n"))
    return process.returncode, [line for line in lines if line and "\r" not in line]


def _all_of(terminal: int) -> str:
    parts = []
    try:
        while part := os.read(terminal, 65536):
            parts.append(part)
    except OSError:
        pass  # the last program has closed the terminal
    os.close(terminal)
    return b"".join(parts).decode(errors="replace")


_TINY = "--model=tiny --image_size=32 --batch_size=4"
# A run of each command, and the begin of its first line.
RUNS = {
    "converters.synthesize --output_dir=drawn --num_images=4 --num_classes=2 "
    "--size_scale=0.1": "Wrote 4 images of 2 classes to drawn",
    "converters.imagenet --input_dir=raw --output_dir=imagenet": "imagenet: ",
    "converters.folder --input_dir=raw/train --output_dir=folder "
    "--split_fractions=train=0.5,validation=0.3,test=0.2": "folder: ",
    "converters.verify records": "records: no fault; ",
    "converters.verify damaged": "damaged: ",
    "converters.query records 'height > 32' --sample=3": "",
    "converters.export records --format=webdataset --output_dir=tars": "'tars' got ",
    "converters.replicate records --copies=2 --identical --output_dir=copies": "",
    f"benchmarks.input --data_dir=records {_TINY} --seconds=0.1 "
    "--do=throughput": "records: ",
    "benchmarks.sweep --sweep_dir=sweep --data_dirs=records --models=tiny "
    "--dry_run -- --num_steps=2": "sweep: 0 of 1 run done",
    "benchmarks.storage SCENE/records --seconds=0.1 --max_parallel=2": "",
    "benchmarks.advise --model=resnet50 --accelerator=v100 --storage_gbps=1": "8 V100 ",
}


@pytest.fixture(scope="module")
def scene(
    raw_dir: pathlib.Path,
    data_dir: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("scene")
    golden.make_scene(folder, raw_dir, data_dir)
    return folder


@pytest.mark.parametrize("line", RUNS)
def test_answer_has_seven_lines(
    line: str, scene: pathlib.Path, warm_python: WarmPython
) -> None:
    words = shlex.split(line.replace("SCENE", str(scene)))

    code, lines = _on_terminal(
        [*warm_python.command, "-m", *words], golden.environment(), scene
    )

    assert code == (1 if "damaged" in line else 0), lines
    notes = ("Warning: ", "Note: ", "records", "copies", "time", "room", "--copies")
    if "replicate" in line:  # the plan of the copies comes before the work
        lines = [text for text in lines if not text.startswith(notes)]
    assert 1 <= len(lines) <= output.MOST_LINES, lines
    assert max(map(len, lines[:-3])) <= COLUMNS if len(lines) > 3 else True
    assert lines[0].startswith(RUNS[line]), lines
    assert not any(text.startswith("{") for text in lines)


def test_two_ranks_answer_on_the_terminal_of_horovodrun(scene: pathlib.Path) -> None:
    words = f"-m benchmarks.train --data_dir=records {_TINY} --num_steps=4"
    environment = horovodrun.environment()
    environment.pop("TF_CPP_MIN_LOG_LEVEL")

    code, printed = _on_terminal(
        horovodrun.command(2, *words.split()), environment, scene
    )

    lines = [
        text.partition(":")[2] for text in printed if text.startswith("[0]<stdout>:")
    ]
    assert code == 0, printed
    assert lines[0].startswith("tiny, 2 ranks: "), printed
    assert lines[1].startswith("bound by  ")
    assert len(lines) <= output.MOST_LINES
    assert max(map(len, printed)) <= COLUMNS
    assert not [text for text in printed if "<stderr>" in text and "[ " not in text]


LAUNCHER = """
import subprocess, sys
rank = "from tfpipe.cli import output; print(output.has_terminal(), output.width())"
done = subprocess.run([sys.executable, "-c", rank], stdout=subprocess.PIPE)
print(done.stdout.decode(), end="")
"""


@pytest.mark.parametrize(
    ("name", "is_terminal", "expected"),
    [
        ("horovodrun", True, "True 68"),
        ("horovodrun", False, "False 80"),
        ("other", True, "False 80"),
    ],
)
def test_rank_has_the_terminal_of_its_launcher(
    name: str, is_terminal: bool, expected: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / name).write_text(LAUNCHER)
    other, own = _terminal()
    reader, pipe = os.pipe()
    environment = {**os.environ, "HOROVOD_RANK": "0", "PYTHONPATH": str(ROOT)}

    subprocess.run(
        [sys.executable, tmp_path / name],
        stdout=own if is_terminal else pipe,
        env=environment,
        check=True,
    )

    printed = os.read(other if is_terminal else reader, 999).decode().strip()
    for end in (other, own, reader, pipe):
        os.close(end)
    assert printed == expected


@pytest.mark.parametrize(
    "command", ["converters.verify records", "converters.query records"]
)
def test_closed_stdout_ends_quietly(
    command: str, scene: pathlib.Path, warm_python: WarmPython
) -> None:
    reader, pipe = os.pipe()
    os.close(reader)

    done = subprocess.run(
        [*warm_python.command, "-m", *command.split()],
        cwd=scene,
        env=golden.environment(),
        stdout=pipe,
        stderr=subprocess.PIPE,
        check=False,
    )

    os.close(pipe)
    assert (done.returncode, done.stderr) == (0, b"")
