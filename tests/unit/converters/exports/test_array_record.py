"""ArrayRecord shards: a file that the package cannot write is an error."""

import pathlib
import types
from typing import Any

import pytest

from converters.exports import array_record


def test_a_file_that_cannot_be_written_is_an_error() -> None:
    pytest.importorskip("array_record")
    items: list[Any] = [types.SimpleNamespace(data=b"x")] * 3

    with pytest.raises(OSError, match=r"/dev/full cannot be written: .*No space left"):
        array_record.write_part(items, pathlib.Path("/dev/full"))
