"""New processes of commands: how they start, and how they end without a reader."""

import os
import pathlib
import resource
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def _run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )


def test_help_of_training_takes_less_than_two_seconds_of_cpu() -> None:
    """A new Python; the CPU time, because the machine may be busy."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = _run(sys.executable, "-m", "benchmarks.train", "--help", cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    assert done.returncode == 0
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2


def test_the_menu_starts_with_few_modules() -> None:
    """85 modules take 0.07 s; a count of modules does not depend on the host."""
    code = "import sys; from tfpipe.cli import menu; menu.main(); print(*sys.modules)"
    done = _run(sys.executable, "-c", code, cwd=ROOT)

    modules = done.stdout.splitlines()[-1].split()
    assert not {"absl", "numpy", "tensorflow"} & set(modules)
    assert len(modules) <= 100


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


_NOTICES = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1764.046763   31011 cudart_stub.cc:31] Could not find cuda drivers
E0000 00:00:1764.046763   31011 cuda_platform.cc:51] failed call to cuInit: INTERNAL
"""
_OTHER = "E0000 00:00:1764.046763   31011 loader.cc:9] A library is damaged.\n"
_IMPORT = """\
from absl import flags
from tfpipe.cli import messages
flags.FLAGS.mark_as_parsed()
messages.hide()
import tensorflow
"""


@pytest.mark.parametrize(
    ("level", "end", "shown"),
    [
        (None, "", _OTHER),
        ("3", "os.abort()", _OTHER),
        ("3", "raise ImportError('no AVX')", f"{_OTHER}ImportError: no AVX\n"),
        ("2", "", _NOTICES + _OTHER),
    ],
)
def test_an_import_of_tensorflow_shows_errors_alone(
    level: str | None, end: str, shown: str, tmp_path: pathlib.Path
) -> None:
    """Also where the import ends the process; a level of the user shows all."""
    text = f"import os\nos.write(2, {(_NOTICES + _OTHER).encode()})\n{end}\n"
    (tmp_path / "tensorflow.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    environment |= {} if level is None else {"TF_CPP_MIN_LOG_LEVEL": level}

    done = _run(sys.executable, "-c", _IMPORT, env=environment)

    lines = done.stderr.splitlines(keepends=True)
    told = "".join(line for line in lines if line[0] != " " and "Traceback" not in line)
    assert told == shown
    assert (done.returncode == 0) == (not end)


def test_commands_hide_the_messages_of_this_tensorflow(
    data_dir: pathlib.Path,
) -> None:
    """The start-up messages differ between 2.16 and 2.21; each has this test."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    words = ("--model=tiny", "--image_size=32", "--batch_size=4")

    done = _run(
        sys.executable,
        *("-m", "benchmarks.input", f"--data_dir={data_dir}", *words),
        *("--do=throughput", "--seconds=0.1"),
        env=environment,
    )

    assert (done.returncode, done.stderr) == (0, "")
