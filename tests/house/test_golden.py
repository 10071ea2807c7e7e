"""Errors of the library stay as the golden file has them.

REWRITE_GOLDEN=1 writes the file; see CONTRIBUTING.md.
"""

import pathlib
import re

import pytest
import tensorflow as tf

import tfpipe
from tests.support.data import golden
from tfpipe.cli import help as help_texts, names

_REFERENCE = """\
# Flags

All flags of all commands, made of the options in the code: `make golden` writes this
page again. `--help` of a command shows the most useful ones, `--helpfull` all.
"""


def test_reference_of_flags() -> None:
    """The reference of flags has each flag of each command."""
    text = _REFERENCE
    for name, command in names.commands_of(""):
        title = f"tfpipe {name} {command.form}".strip()
        parts = help_texts.parts_of(command.flags, command.groups)
        text += f"\n## {title}\n\n`python -m {command.module}`\n\n"
        text += f"{help_texts.table(parts)}\n"

    assert golden.stored("../../../docs/reference/flags.md", text) == text


def _read(source: tfpipe.TFRecordSource) -> None:
    """Reads all records. TensorFlow puts tfpipe's error between lines of its own."""
    dataset = tfpipe.Pipeline(source, [tfpipe.Interleave()]).build()
    try:
        for _ in dataset.as_numpy_iterator():
            pass
    except tf.errors.UnknownError as error:
        name, text = re.findall(r"(\w+Error): (.*)", str(error))[-1]
        raise getattr(tfpipe.errors, name)(text) from None


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
