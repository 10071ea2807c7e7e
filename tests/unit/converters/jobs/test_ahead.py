"""converters.jobs.at_url: any bytes of a file, in pieces, and few of them at once."""

import pathlib
import random

import pytest

from converters.jobs.at_url import Ahead, describe
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shards import index

CONTENT = random.Random(0).randbytes(1000)


@pytest.fixture
def files(tmp_path: pathlib.Path) -> Files:
    (tmp_path / "shard").write_bytes(CONTENT)
    return Files(str(tmp_path))


@pytest.mark.parametrize("piece_bytes", [1, 7, 250, 999, 1000, 4096])
def test_bytes_are_those_of_the_file(files: Files, piece_bytes: int) -> None:
    choice = random.Random(piece_bytes)
    with Ahead(files, "shard", 1000, piece_bytes=piece_bytes) as ahead:
        offset = 0
        while offset < 1100:  # past the end
            num_bytes = choice.randrange(1, 60)
            wanted = CONTENT[offset : offset + num_bytes]
            assert ahead.pread(num_bytes, offset) == wanted
            offset += choice.randrange(num_bytes)
        assert ahead.pread(2000, 0) == CONTENT  # further back


class _Counted(Files):
    """Files that count the bytes that are asked for."""

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        asked.append((start, stop))
        return super().read_range(name, start, stop)


asked: list[tuple[int, int]] = []


def test_each_piece_is_asked_for_once_and_two_are_ahead(tmp_path: pathlib.Path) -> None:
    (tmp_path / "shard").write_bytes(CONTENT)
    asked.clear()
    with Ahead(_Counted(str(tmp_path)), "shard", 1000, piece_bytes=100) as ahead:
        ahead.pread(10, 0)
        ahead.pread(10, 90)
        ahead.pread(200, 100)
        kept = len(ahead._pieces)
    pieces = [(n, n + 100) for n in range(0, 500, 100)]
    assert sorted(asked) == pieces[: len(asked)]  # each once, from the first on
    assert 3 <= len(asked) <= 5
    assert kept == 4


def test_a_file_is_described_as_on_a_disk(files: Files, tmp_path: pathlib.Path) -> None:
    assert describe(files, "shard", 1000) == index.describe(CONTENT)
    (tmp_path / "empty").write_bytes(b"")
    assert describe(files, "empty", 0) == index.describe(b"")
    with pytest.raises(errors.MissingFileError):
        describe(files, "missing", 1)
