"""Errors of the library stay as the golden file has them.

REWRITE_GOLDEN=1 writes the file; see CONTRIBUTING.md.
"""

import pathlib
import re

import pytest
import tensorflow as tf

import tfpipe
from tests.support.data import golden


def _read(source: tfpipe.TFRecordSource) -> None:
    """Reads all records. TensorFlow puts tfpipe's error between lines of its own."""
    dataset = tfpipe.Pipeline(source, [tfpipe.Interleave()]).build()
    try:
        for _ in dataset.as_numpy_iterator():
            pass
    except tf.errors.UnknownError as error:
        name, text = re.findall(r"(\w+Error): (.*)", str(error))[-1]
        raise getattr(tfpipe, name)(text) from None


def test_errors_of_the_library(
    raw_dir: pathlib.Path,
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    golden.make_scene(tmp_path, raw_dir, data_dir)
    pipeline = tfpipe.imagenet_train(data_dir, batch_size=4, image_size=32)
    names = {"tfpipe": tfpipe, "pipeline": pipeline, "read": _read}

    def show(call: str) -> str:
        try:
            eval(call, names)
        except Exception as error:
            return golden.masked(f"{type(error).__name__}: {error}", tmp_path)
        return golden.NO_ERROR

    monkeypatch.chdir(tmp_path)
    expected, now = golden.transcript("errors.txt", golden.CALL, show)

    assert now == expected
    assert golden.NO_ERROR not in now
