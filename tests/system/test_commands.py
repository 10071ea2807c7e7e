"""All commands: their --help, and the installed wheel away from the checkout."""

import pathlib
import resource
import subprocess
import sys

import pytest

from tests.support.processes.warm_python import WarmPython

ROOT = pathlib.Path(__file__).parents[2]

COMMANDS = (
    "converters.folder",
    "converters.imagenet",
    "converters.synthesize",
    "converters.tfrecord",
    "converters.verify",
    "converters.webdataset",
    "studies.conversion",
    "benchmarks.train",
    "benchmarks.input",
    "benchmarks.sweep",
    "benchmarks.report",
    "benchmarks.service",
)


def _run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )


@pytest.mark.parametrize("module", COMMANDS)
def test_help_teaches(warm_python: WarmPython, module: str) -> None:
    done = warm_python.run("-m", module, "--help")
    text = done.stdout

    assert (done.returncode, done.stderr) == (0, "")
    assert f"python -m {module} " in text, "an example"
    whole = warm_python.run("-m", module, "--helpfull").stdout
    assert "JSON object" in " ".join(whole.split()), "what the last line is"


def test_help_of_training_takes_less_than_two_seconds_of_cpu() -> None:
    """A new Python; the CPU time, because the machine may be busy."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = _run(sys.executable, "-m", "benchmarks.train", "--help", cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    assert done.returncode == 0
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2


def test_flag_of_another_command_names_that_command(warm_python: WarmPython) -> None:
    flags = ("--data_dir=x", "--cache=cold", "--require=au>=0.99")

    done = warm_python.run("-m", "benchmarks.input", *flags)

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "There is no flag --cache." in line
    assert "It is a flag of benchmarks.train." in line


@pytest.mark.parametrize(
    "words",
    [
        ("converters.folder", "--output_dir=x", "--label_map=s3://bucket/x"),
        ("benchmarks.sweep", "--sweep_dir=s3://bucket/x"),
    ],
)
def test_url_is_refused_before_a_folder_is_made(
    warm_python: WarmPython, words: tuple[str, ...]
) -> None:
    done = warm_python.run("-m", *words)

    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith("Error: ")
    assert "must be a path on this machine, got s3://bucket/x. A URL" in line
    assert not (ROOT / "s3:").exists()


def test_unknown_model_lists_the_known_ones(warm_python: WarmPython) -> None:
    done = warm_python.run("-m", "benchmarks.train", "--model=alexnet")

    assert done.returncode == 1
    assert "--model must be one of googlenet, " in done.stderr


def test_the_menu_starts_without_absl() -> None:
    code = "import sys; from tfpipe.cli import menu; menu.text(); print(*sys.modules)"
    done = _run(sys.executable, "-c", code, cwd=ROOT)

    assert not {"absl", "numpy", "tensorflow"} & set(done.stdout.split())


def test_a_closed_stdout_leaves_the_exit_code(data_dir: pathlib.Path) -> None:
    """As `| head` does: nobody reads, and nothing is printed on stderr."""
    words = ("benchmarks.storage", str(data_dir), "--seconds=0.1", "--max_parallel=1")
    with subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        errors = process.communicate()[1]

    assert (process.returncode, errors) == (0, b"")
