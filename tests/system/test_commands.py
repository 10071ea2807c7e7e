"""New processes of commands: how they start, and how they end without a reader."""

import pathlib
import resource
import subprocess
import sys

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
