"""ArrayRecord shards: a record that the package cannot write is an error."""

import pathlib
import sys
import types
from typing import Any

import pytest

from converters.exports import array_record


class Writer:
    """The package's writer; writing fails from one record on, as on a full disk."""

    num_good = 0
    closed = 0

    def __init__(self, path: str, options: str) -> None:
        self._written = 0

    def write(self, data: bytes) -> bool:
        self._written += 1
        return self.ok()

    def ok(self) -> bool:
        return self._written <= self.num_good

    def close(self) -> None:
        type(self).closed += 1


def test_a_record_that_cannot_be_written_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module: Any = types.SimpleNamespace(ArrayRecordWriter=Writer)
    package = types.SimpleNamespace(array_record_module=module)
    monkeypatch.setitem(sys.modules, "array_record.python", package)
    items: list[Any] = [types.SimpleNamespace(data=b"x")] * 3

    Writer.num_good = 3
    array_record.write_part(items, pathlib.Path("a.array_record"))
    Writer.num_good = 2
    with pytest.raises(OSError, match=r"a\.array_record cannot be written\. Is there"):
        array_record.write_part(items, pathlib.Path("a.array_record"))

    assert Writer.closed == 2
