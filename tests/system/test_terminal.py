"""A real terminal gets at most seven lines of each command, the answer first."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence

import PIL.ExifTags
import PIL.Image
import pytest

from tests.support.data import golden
from tests.support.processes import horovodrun
from tests.support.processes.terminal import COLUMNS, on_terminal, terminal
from tests.support.processes.warm_python import WarmPython
from tfpipe.cli import output

ROOT = pathlib.Path(__file__).parents[2]
_TINY = "--model=tiny --image_size=32 --batch_size=4"
_ADVISE = "benchmarks.advise --model=resnet50 --accelerator=v100 --storage_gbps=1"
_EXPORT = "converters.export records --format=webdataset --output_dir="
_SWEEP = (
    "benchmarks.sweep --data_dirs=records --models=tiny --batch_sizes=4 "
    "--sweep_dir=sweep"
)
# Runs of each command, and the begin of the first line of the last one. The runs before
# a semicolon make what the last one needs.
RUNS = {
    "converters.synthesize --output_dir=drawn --num_images=4 --num_classes=2 "
    "--size_scale=0.1": "Wrote 4 images of 2 classes to drawn",
    "converters.imagenet --input_dir=raw --output_dir=imagenet": "imagenet: ",
    "converters.folder --input_dir=raw/train --output_dir=folder "
    "--split_fractions=train=0.5,validation=0.3,test=0.2": "folder: ",
    "converters.folder turned upright --exif_orientation=keep "
    "--split_fractions=train=0.5,validation=0.3,test=0.2": "upright: ",
    "converters.table photos.csv table --image_column=file": "table: ",
    f"{_EXPORT}web; converters.webdataset web/train-*.tar from_tars": "from_tars: ",
    "converters.tfrecord records/train-* from_records": "from_records: ",
    "converters.merge a=records b=photos --output_dir=merged": "merged: ",
    "converters.verify records": "records: no fault; ",
    "converters.verify damaged": "damaged: ",
    "converters.query records 'height > 32' --sample=3": "",
    "converters.query records \"split = 'trian'\"": "0 of ",
    f"{_EXPORT}tars": "tars got ",
    "converters.replicate records --copies=2 --output_dir=copies": "copies: 2 copies",
    "converters.replicate records --copies=2 --output_dir=no --dry_run": "",
    f"benchmarks.train --data_dir=records {_TINY} --num_steps=4": "tiny, 1 rank: ",
    f"benchmarks.input --data_dir=records {_TINY} --seconds=0.1 "
    "--do=throughput": "records: ",
    f"{_SWEEP} --dry_run -- --num_steps=2": "sweep: 0 of 1 run done",
    f"{_SWEEP} -- --image_size=32 --num_steps=2": "sweep: 1 of 1 run ",
    "benchmarks.storage SCENE/records --seconds=0.1 --max_parallel=2": "",
    "benchmarks.service local --workers=1": "service: TensorFlow's servers listen",
    _ADVISE: "8 V100 ",
    f"{_ADVISE} --report_dir=out; benchmarks.report out photos.csv "
    "--output=page.html": "page.html",
}


@pytest.fixture(scope="module")
def scene(
    raw_dir: pathlib.Path,
    data_dir: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("scene")
    golden.make_scene(folder, raw_dir, data_dir)
    for path in (folder / "raw/train").rglob("*.JPEG"):
        turned = folder / "turned" / path.relative_to(folder / "raw/train")
        turned.parent.mkdir(parents=True, exist_ok=True)
        exif = PIL.Image.Exif()
        exif[PIL.ExifTags.Base.Orientation] = 6
        PIL.Image.open(path).save(turned, exif=exif)
    return folder


@pytest.mark.parametrize("line", RUNS)
def test_answer_has_seven_lines(
    line: str, scene: pathlib.Path, warm_python: WarmPython
) -> None:
    """And nothing is told of a stdout that nobody reads, as behind `| head`."""
    *earlier, last = line.replace("SCENE", str(scene)).split("; ")
    command = [*warm_python.command, "-m", *shlex.split(last)]
    for each in earlier:
        _without_reader([*warm_python.command, "-m", *shlex.split(each)], scene)

    code, lines = on_terminal(command, golden.environment(), scene)
    closed_code, told = _without_reader(command, scene)

    assert code == closed_code == (1 if "damaged" in line else 0), (lines, told)
    assert 1 <= len(lines) <= output.MOST_LINES, lines
    assert lines[0].startswith(RUNS[line]), lines
    assert max(map(len, lines[:-3])) <= COLUMNS if len(lines) > 3 else True
    assert not any(text.startswith("{") for text in lines)
    assert not re.search("Traceback|Broken ?pipe", told, re.IGNORECASE), told


def _without_reader(words: Sequence[str], folder: pathlib.Path) -> tuple[int, str]:
    """Returns the exit code, and what a program without a reader of stdout tells."""
    reader, pipe = os.pipe()
    os.close(reader)
    with subprocess.Popen(
        words,
        cwd=folder,
        env=golden.environment(),
        stdout=pipe,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(pipe)
        assert process.stderr is not None
        told = ""
        for text in process.stderr:
            told += text
            if "A worker serves" in text:
                process.send_signal(signal.SIGINT)
    return process.returncode, told


def test_two_ranks_answer_on_the_terminal_of_horovodrun(scene: pathlib.Path) -> None:
    words = f"-m benchmarks.train --data_dir=records {_TINY} --num_steps=4"
    environment = horovodrun.environment()
    environment.pop("TF_CPP_MIN_LOG_LEVEL")

    code, printed = on_terminal(
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
    other, own = terminal()
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
