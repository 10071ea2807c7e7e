"""Without a compiler: stock ops run and say so once, and the tests of crops pass."""

import os
import pathlib
import subprocess
from collections.abc import Callable

import pytest

from tests.support.processes.warm_python import WarmPython

ROOT = pathlib.Path(__file__).parents[3]

Run = Callable[..., "subprocess.CompletedProcess[str]"]

BATCHES = """
import sys
import tfpipe
train = tfpipe.imagenet_train(sys.argv[1], image_size=16, batch_size=4, crop_op="auto")
evaluate = tfpipe.imagenet_eval(sys.argv[1], image_size=16, batch_size=4)
shapes = [batch["image"].shape for p in (train, evaluate) for batch in p.to_numpy()]
print(set(shapes), len(shapes))
print(train)
print(evaluate)
try:
    tfpipe.imagenet_train(sys.argv[1], image_size=16, batch_size=4, crop_op="native")
except RuntimeError as error:
    print("RuntimeError:", error)
"""


@pytest.fixture
def run(warm_python: WarmPython, tmp_path: pathlib.Path) -> Run:
    """Runs python without programs on the PATH and without a native op."""
    nothing, built = tmp_path / "bin", tmp_path / "native"
    nothing.mkdir()
    built.mkdir()
    # Variables of the outer pytest would make the inner one its worker.
    left_out = ("CC", "CXX", "PYTEST_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    kept |= {"PATH": str(nothing), "TFPIPE_NATIVE_DIR": str(built)}

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*warm_python.command, *map(str, arguments)],
            env=kept | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert list(built.iterdir()) == []
        return done

    return run


def test_the_command_says_what_is_missing_in_one_line(run: Run) -> None:
    done = run("-m", "tfpipe.native")

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: no C++ compiler: install one (apt-get install")
    assert done.stdout == ""


def test_presets_run_on_stock_ops_and_say_so_once(
    run: Run, data_dir: pathlib.Path
) -> None:
    done = run("-c", BATCHES, data_dir)

    assert done.returncode == 0, done.stderr
    shapes, *printed = done.stdout.splitlines()
    assert shapes == "{(4, 16, 16, 3)} 8"
    assert sum("crop_op='stock'" in line for line in printed) == 2
    assert "is not built. Run: python -m tfpipe.native" in printed[-1]
    assert printed[-1].startswith('RuntimeError: crop_op="native" needs')
    said = [line for line in done.stderr.splitlines() if "stock ops" in line]
    (line,) = said
    assert line.startswith("tfpipe: stock ops decode and crop, since ")
    assert "less than half of the CPU time" in line
    assert "python -m tfpipe.native" in line


def test_the_tests_of_crops_pass(run: Run) -> None:
    """Tests of the native op are skipped because there is no compiler.

    Tests that take no notice of the op are left out.
    """
    tests = ROOT / "tests" / "unit" / "tfpipe"
    names = ("ops/test_crop.py", "native/test_native.py")

    done = run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"),
        *("-k", "native or exact_crop"),
        *(tests / name for name in names),
    )

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert skipped
    assert all("no C++ compiler" in line for line in skipped), skipped
    assert " passed" in done.stdout.splitlines()[-1]
