"""A process ends although a dataset that calls Python is still being read."""

import pathlib

import pytest

from tests.support.faults.torture import rounds
from tests.support.processes.warm_python import WHOLE_END, WarmPython


@pytest.fixture(autouse=True)
def _whole_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WHOLE_END, "1")


def test_a_process_ends_while_a_daemon_thread_waits(
    data_dir: pathlib.Path, warm_python: WarmPython
) -> None:
    script = f"""
import threading, tensorflow as tf, tfpipe
made = tfpipe.imagenet_train({str(data_dir)!r}, image_size=32, batch_size=4,
    cache=tfpipe.Cache("ram"), whole_batches=False)
def slow(example):
    matrix = tf.fill([1500, 1500], tf.cast(example["label"], tf.float32))
    return {{"product": tf.reduce_sum(matrix @ matrix @ matrix)}}
source, reading, cache = made.source, made.stages[0], made.stages[1]
pipeline = tfpipe.Pipeline(source, [reading, cache, made.stages[3], tfpipe.Map(slow)])
started = threading.Event()
def read():
    for _ in pipeline.build(num_epochs=None):
        started.set()
threading.Thread(target=read, daemon=True).start()
started.wait()
"""
    # Without waiting every fifth one was killed by a signal.
    for _ in range(rounds(few=2, many=20)):
        done = warm_python.run("-c", script)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr


def test_a_process_ends_in_the_middle_of_an_epoch(
    data_dir: pathlib.Path, warm_python: WarmPython
) -> None:
    script = f"""
import tfpipe
source = tfpipe.TFRecordSource({str(data_dir)!r}, "train", batch_size=4, shuffle="none")
pipeline = tfpipe.imagenet_train(source, image_size=32, cache=tfpipe.Cache("ram"))
batches = iter(pipeline.build(num_epochs=None))
next(batches)
"""
    # Without `at_exit` every third one hung.
    for _ in range(rounds(few=2, many=20)):
        done = warm_python.run("-c", script)
        assert done.returncode == 0, done.stderr
