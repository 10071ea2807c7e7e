"""The first pipeline of a process imports what it uses."""

import pathlib

from tests.support.processes.warm_python import WarmPython


def test_training_imports_nothing_for_prediction(
    data_dir: pathlib.Path, warm_python: WarmPython
) -> None:
    script = f"""
import sys, tfpipe
pipeline = tfpipe.imagenet_train({str(data_dir)!r}, image_size=8, batch_size=4)
next(iter(pipeline.build()))
for name in ("consumers.preprocess", "tuner", "training", "cache"):
    print(name, f"tfpipe.{{name}}" in sys.modules)
"""
    done = warm_python.run("-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1::2] == ["False"] * 4, done.stdout
