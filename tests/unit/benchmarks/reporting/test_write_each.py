"""benchmarks.reporting.output.write_each: one file that fails costs no other file."""

import errno
import json
import os
import pathlib
from typing import NoReturn

import pytest

from benchmarks.reporting import output


def _full(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_files_beside_one_that_fails_are_written(tmp_path: pathlib.Path) -> None:
    picture, result = tmp_path / "a.png", tmp_path / "a.json"

    def draw() -> None:
        raise RuntimeError("no such font")

    picture.write_bytes(b"of an earlier run")

    with pytest.raises(
        OSError, match=r"a\.png could not be written: no such font\."
    ) as error:
        output.write_each(
            {picture: draw, result: lambda: output.write({"a": 1}, result)}
        )

    assert "The result is complete on stdout." in str(error.value)
    assert picture.read_bytes() == b"of an earlier run"
    assert json.loads(result.read_text()) == {"a": 1}


def test_every_problem_is_named(tmp_path: pathlib.Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]

    with pytest.raises(OSError, match=r"/a could not .*/b could not"):
        output.write_each(dict.fromkeys(paths, _full))


def test_result_that_does_not_fit_leaves_no_part(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", _full)

    with pytest.raises(OSError, match="No space left"):
        output.write({"a": 1}, tmp_path / "a.json")

    assert list(tmp_path.iterdir()) == []
