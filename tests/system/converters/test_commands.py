"""The converters as a user runs them: last lines, errors and exit codes."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import PIL.Image
import pytest

from converters import synthesize, verify
from tests.support.data.trees import SYNSETS, digests, make_jpeg, make_tree
from tests.support.faults.damage import flip
from tests.support.processes import commands
from tests.support.processes.warm_python import WarmPython
from tests.unit.converters.inputs.test_boxes import make_xml
from tfpipe.shards import index

SHARD = "train-00001-of-00003"
COUNTS = {"num_images": 23, "num_classes": 5, "num_validation_images": 7}


def _run(command: str, *arguments: object) -> commands.Ended:
    return commands.run(f"converters.{command}", *arguments)


def _refused(warm_python: WarmPython, command: str, *arguments: object) -> str:
    """Returns the one clear error of a command that is used wrongly."""
    done = warm_python.run("-m", f"converters.{command}", *arguments)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def _summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return dict(json.loads(done.stdout.splitlines()[-1]))


# imagenet


def test_imagenet_ends_with_its_summary(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "out"

    done = _run(
        "imagenet",
        f"--input_dir={raw_dir}",
        f"--output_dir={out}",
        "--num_train_shards=3",
    )

    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout.splitlines()[-1])
    size = sum(path.stat().st_size for path in out.glob("*-of-*"))
    expected = {
        "command": "converters.imagenet",
        "schema_version": 1,
        "splits": {"train": 24, "validation": 7},
        "num_records": 31,
        "num_shards": 4,
        "num_bytes": size,
        "decisions": {"kept": 31},
    }
    assert {key: summary[key] for key in expected} == expected
    assert summary["config"]["num_train_shards"] == 3
    assert summary["seconds"] > summary["write_seconds"] > 0
    assert summary["write_cpu_seconds"] > 0


_BY_WORKERS = """
import pathlib, sys
from tests.support.data.trees import convert
raw_dir, out = map(pathlib.Path, sys.argv[1:])
for workers in (1, 2, 5):
    convert(raw_dir, out / str(workers), num_train_shards=5, num_workers=workers)
"""


def test_same_bytes_for_any_number_of_workers(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path, warm_python: WarmPython
) -> None:
    done = warm_python.run("-c", _BY_WORKERS, raw_dir, tmp_path)

    assert done.returncode == 0, done.stderr
    written = [digests(tmp_path / workers) for workers in "125"]
    assert written[0] == written[1] == written[2]
    assert "catalog.parquet" in written[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input_dir={tmp}/nowhere"], "Error: --input_dir must be a folder"),
        (["--input_dir={tmp}"], "must hold a folder for each class"),
        (["--input_dir={raw}", "--num_train_shards=99"], "at most the 24 images"),
        (["--input_dir={raw}", "--num_workers=0"], "num_workers"),
        (
            ["--input_dir={raw}", "--task_index=2", "--num_tasks=2"],
            "--task_index must be 0 to --num_tasks - 1 = 1, got 2",
        ),
        (
            ["--input_dir={raw}", "--cmyk=maybe"],
            "must be one of convert, skip, fail, got maybe",
        ),
        (["--input_dir={raw}", "extra"], "as an argument"),
        ([], "--input_dir"),
    ],
)
def test_wrong_use_of_imagenet_is_one_clear_error_and_exit_code_1(
    warm_python: WarmPython,
    raw_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    arguments: list[str],
    message: str,
) -> None:
    filled = [text.format(raw=raw_dir, tmp=tmp_path) for text in arguments]
    out = f"--output_dir={tmp_path / 'out'}"

    assert message in _refused(warm_python, "imagenet", *filled, out)
    assert not (tmp_path / "out").exists()


def test_forks_workers_and_runs_without_tensorflow(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """An import of TensorFlow fails here, in the parent and in the workers.

    Nor may an import start a thread: workers would be new interpreters, not forks.
    """
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "tensorflow.py").write_text("raise RuntimeError('TensorFlow imported')")
    code = (
        "import os, sys; sys.path.insert(0, sys.argv.pop(1)); "
        "from converters.inputs.ilsvrc import IlsvrcReader; "
        "from converters.conversion import steps; from converters.options import job; "
        "assert os.listdir('/proc/self/task') == [str(os.getpid())]; "
        "options = job.ConvertOptions(name='x', num_workers=2, "
        "output_dir=sys.argv[2]); "
        "reader = IlsvrcReader(input_dir=sys.argv[1]); "
        "steps.convert('converters.imagenet', options, reader)"
    )
    script = tmp_path / "convert.py"
    script.write_text(f"if __name__ == '__main__':\n    {code}\n")

    subprocess.run(
        [sys.executable, script, blocked, raw_dir, tmp_path / "out"], check=True
    )

    assert (tmp_path / "out" / "index.json").exists()


_WITHOUT_PRIVILEGE = """
import ctypes, sys
from tfpipe import cli
from converters import imagenet
# Root may read everything by capabilities alone: version 3 of all sets, empty.
header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset(header, nothing) == 0
cli.run(*imagenet.COMMANDS)
"""


@pytest.mark.parametrize(
    ("closed", "output"),
    [
        (f"raw/train/{SYNSETS[0]}", "out"),
        (f"raw/bbox/{SYNSETS[0]}", "out"),
        ("raw", "out"),
        ("shut", "shut/out"),
    ],
)
def test_folder_that_may_not_be_searched_is_named(
    warm_python: WarmPython, tmp_path: pathlib.Path, closed: str, output: str
) -> None:
    root = make_tree(tmp_path / "raw", num_images=4)
    box = root / "bbox" / SYNSETS[0] / f"{SYNSETS[0]}_0.xml"
    box.parent.mkdir(parents=True)
    box.write_bytes(make_xml([]))
    (tmp_path / closed).mkdir(exist_ok=True)
    (tmp_path / closed).chmod(0)
    arguments = [f"--input_dir={root}", f"--output_dir={tmp_path / output}"]

    done = warm_python.run("-c", _WITHOUT_PRIVILEGE, *arguments, "--num_workers=1")

    (tmp_path / closed).chmod(0o700)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert "Permission denied" in done.stderr
    assert str(tmp_path / closed) in done.stderr


# folder


def test_folder_converts_and_says_so_in_its_last_line(
    tmp_path: pathlib.Path, warm_python: WarmPython
) -> None:
    root = tmp_path / "raw"
    for number, name in enumerate(f"{c}/{n}.jpg" for c in "ab" for n in range(5)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(make_jpeg(number))
    (root / "a" / "notes.txt").write_text("x")
    PIL.Image.new("RGB", (9, 8)).save(root / "b" / "6.png")
    out = tmp_path / "out"

    done = warm_python.run(
        *("-m", "converters.folder", f"--input_dir={root}"),
        *(f"--output_dir={out}", "--label_base=0", "--validation_fraction=0.2"),
        *("--num_train_shards=2", "--num_workers=2", "--drop_duplicates=all"),
    )

    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["command"] == "converters.folder"
    assert summary["splits"] == {"train": 9, "validation": 2}
    assert summary["num_records"] == 11
    assert sum(summary["decisions"].values()) == 12
    assert summary["decisions"]["ignored_other_name"] == 1
    assert summary["config"]["label_base"] == 0
    written = index.load(out)
    assert (written.label_base, written.classes) == (0, (("a", "a"), ("b", "b")))
    labels = index.load_catalog(out, "train", ["label"])["label"]
    assert set(labels.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input_dir={tmp}/nowhere"], "Error: --input_dir must be a folder"),
        (["--label_base=2"], "label_base"),
        ([], "--input_dir"),
        (["--input_dir={tmp}", "extra"], "as an argument"),
    ],
)
def test_wrong_use_of_folder_is_one_clear_error_and_exit_code_1(
    warm_python: WarmPython, tmp_path: pathlib.Path, arguments: list[str], message: str
) -> None:
    filled = [text.format(tmp=tmp_path) for text in arguments]
    out = f"--output_dir={tmp_path / 'out'}"

    assert message in _refused(warm_python, "folder", out, *filled)


# verify


def test_verify_ends_with_the_summary_of_a_clean_data_set(
    data_dir: pathlib.Path, raw_dir: pathlib.Path, warm_python: WarmPython
) -> None:
    words = (data_dir, "--level=source", f"--input_dir={raw_dir}")
    done = warm_python.run("-m", "converters.verify", *words)

    assert (done.returncode, done.stderr) == (0, "")
    summary = _summary(done)
    expected = {
        "command": "converters.verify",
        "schema_version": 1,
        "level": "source",
        "num_records": 31,
        "num_shards": 5,
        "num_bytes": sum(path.stat().st_size for path in data_dir.glob("*-of-*")),
        "num_not_comparable": 0,
        "faults": [],
        "num_faults": 0,
    }
    assert {key: summary[key] for key in expected} == expected
    assert summary["seconds"] > 0


def test_faults_are_printed_and_the_exit_code_is_1(
    copy_dir: pathlib.Path, warm_python: WarmPython
) -> None:
    flip(copy_dir / SHARD, 40, mask=1)
    (copy_dir / "validation-00000-of-00002").unlink()

    done = warm_python.run("-m", "converters.verify", copy_dir, "--num_workers=2")

    assert (done.returncode, done.stderr) == (1, "")
    summary = _summary(done)
    assert (summary["level"], summary["num_faults"]) == ("crc", 2)
    missing, damaged = summary["faults"]
    assert missing["shard"] == "validation-00000-of-00002"
    assert damaged.keys() == {"shard", "record", "byte_offset", "file", "fault"}
    assert (damaged["shard"], damaged["record"], damaged["byte_offset"]) == (
        SHARD,
        0,
        0,
    )
    assert f"Fault: {SHARD} record 0 at byte 0 ({damaged['file']}): " in done.stdout


def test_number_of_workers_does_not_change_what_is_found(
    copy_dir: pathlib.Path,
) -> None:
    for number in range(3):
        flip(copy_dir / f"train-{number:05d}-of-00003", 1000 * (number + 1), mask=1)

    found = [
        verify.verify(
            verify.VerifyOptions(data_dir=str(copy_dir), num_workers=num_workers)
        ).faults
        for num_workers in (1, 2)
    ]

    assert len(found[0]) == 3
    assert found[0] == found[1]


def test_names_that_standard_output_cannot_hold_are_printed(
    copy_dir: pathlib.Path,
) -> None:
    """In a Python of its own, which chooses how standard output writes a name."""
    (copy_dir / os.fsdecode(b"train-caf\xe9")).write_bytes(b"")

    done = _run("verify", copy_dir, "--level=quick")

    assert (done.returncode, done.stderr) == (1, "")
    assert r"Fault: train-caf\udce9: the index does not list it" in done.stdout
    (fault,) = _summary(done)["faults"]
    assert fault["shard"] == os.fsdecode(b"train-caf\xe9")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "DIR must be given"),
        (["{data}", "--level=all"], "level"),
        (["{data}", "--repair"], "Error: --repair needs the input that was converted"),
        (["{tmp}/nowhere"], "Error: DIR must be a folder"),
        ([""], "Error: DIR must be a path or a URL, got nothing"),
        (["{data}", "--overwrite"], "There is no flag --overwrite"),
        (["~nouser"], "Error: DIR must be a path, got ~nouser, whose user has no home"),
        (["{tmp}"], "Error: {tmp}/index.json is not a tfpipe index: 'classes' must be"),
    ],
)
def test_wrong_use_of_verify_is_one_clear_error_and_exit_code_1(
    warm_python: WarmPython,
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    arguments: list[str],
    message: str,
) -> None:
    filled = [text.format(data=data_dir, tmp=tmp_path) for text in arguments]
    (tmp_path / index.INDEX_NAME).write_text('{"format_version": 1, "classes": 3}')

    told = _refused(warm_python, "verify", *filled)

    assert message.format(tmp=tmp_path) in told


# synthesize


@pytest.fixture(scope="module")
def tree(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[pathlib.Path, synthesize.Totals]:
    """A small complete tree, and the number of its images, bytes and pixels."""
    root = tmp_path_factory.mktemp("synthesize") / "raw"
    config = synthesize.SynthesizeOptions(output_dir=root, size_scale=0.1, **COUNTS)
    return root, synthesize.synthesize(config)


def test_synthesize_ends_with_its_summary_and_makes_the_same_bytes_with_workers(
    tree: tuple[pathlib.Path, synthesize.Totals],
    tmp_path: pathlib.Path,
    warm_python: WarmPython,
) -> None:
    root, totals = tree
    counts = [f"--{name}={value}" for name, value in COUNTS.items()]
    options = [f"--output_dir={tmp_path}/raw", "--size_scale=0.1", "--num_workers=3"]

    done = warm_python.run("-m", "converters.synthesize", *options, *counts)

    assert (done.returncode, done.stderr) == (0, "")
    summary = _summary(done)
    assert summary["command"] == "converters.synthesize"
    assert summary["config"]["num_workers"] == 3
    assert summary.items() >= COUNTS.items()
    assert summary["num_bytes"] == totals.bytes
    assert summary["mean_width"] == pytest.approx(totals.width / 30, abs=0.01)
    assert digests(tmp_path / "raw") == digests(root)


def test_synthesize_reports_an_error_in_one_line(
    tmp_path: pathlib.Path, warm_python: WarmPython
) -> None:
    words = (f"--output_dir={tmp_path}/raw", "--num_images=2", "--num_classes=3")
    done = warm_python.run("-m", "converters.synthesize", *words)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: --num_images must be at least")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_failure_of_a_worker_ends_synthesize(tmp_path: pathlib.Path) -> None:
    """The worker cannot write, because the folder of the image is missing."""
    config = synthesize.SynthesizeOptions(output_dir=tmp_path, num_workers=2, **COUNTS)
    task = [synthesize.DrawnImage("train/missing/x.JPEG", 1, 0, 0)]

    with pytest.raises(OSError, match="missing"):
        synthesize._run(config, tmp_path, task * 20)
