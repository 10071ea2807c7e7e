"""ArrayRecord shards: a file that the package cannot write is an error."""

import pathlib
import types
from collections.abc import Iterator
from typing import Any

import pytest

from converters.exports import array_record
from tfpipe import errors


def test_a_file_that_cannot_be_written_is_an_error() -> None:
    pytest.importorskip("array_record")
    items: list[Any] = [types.SimpleNamespace(data=b"x")] * 3

    with pytest.raises(OSError, match=r"/dev/full cannot be written: .*No space left"):
        array_record.write_part(items, pathlib.Path("/dev/full"))


def test_a_file_that_cannot_be_closed_hides_no_error_of_the_records() -> None:
    pytest.importorskip("array_record")

    def damaged() -> Iterator[Any]:
        yield types.SimpleNamespace(data=b"record")
        raise errors.BadRecordError("The record is damaged.")

    with pytest.raises(errors.BadRecordError, match=r"The record is damaged\."):
        array_record.write_part(damaged(), pathlib.Path("/dev/full"))
