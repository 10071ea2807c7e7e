"""tfpipe.location.system_reads: a read that returns fewer bytes goes on."""

import os
import pathlib

import pytest

from converters import verify
from tests.support.data.trees import convert, digests
from tfpipe.location import system_reads

CONTENT = bytes(range(200))


@pytest.fixture(autouse=True)
def _short_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mounts of other hosts may return some of the bytes."""
    pread, preadv = os.pread, os.preadv

    def read(descriptor: int, num_bytes: int, offset: int) -> bytes:
        return pread(descriptor, min(num_bytes, max(1, num_bytes // 3)), offset)

    def read_into(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        (buffer,) = buffers
        return preadv(descriptor, [buffer[: max(1, len(buffer) // 3)]], offset)

    monkeypatch.setattr(os, "pread", read)
    monkeypatch.setattr(os, "preadv", read_into)


@pytest.mark.parametrize(
    ("count", "offset"), [(0, 0), (1, 5), (100, 3), (200, 0), (50, 180), (9, 200)]
)
def test_all_bytes_to_the_end_of_the_file_are_read(
    count: int, offset: int, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    buffer = bytearray(count)
    with open(tmp_path / "file", "rb") as file:
        data = system_reads.pread(file.fileno(), count, offset)
        system_reads.pread_into(file.fileno(), memoryview(buffer), offset)

    assert data == CONTENT[offset : offset + count]
    assert buffer == data.ljust(count, b"\0")


def test_a_conversion_and_a_check_are_those_of_whole_reads(
    raw_dir: pathlib.Path, data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    convert(raw_dir, tmp_path / "out", num_train_shards=3, num_validation_shards=2)
    options = verify.VerifyOptions(data_dir=str(tmp_path / "out"), num_workers=1)

    assert verify.verify(options).faults == []
    assert digests(tmp_path / "out") == digests(data_dir)
