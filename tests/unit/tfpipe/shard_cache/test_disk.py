"""Writes to the disk under a cache: each byte at its offset, by either way."""

import errno
import fcntl
import os
import threading

import numpy as np
import pytest

from tfpipe import errors
from tfpipe.cli import system_errors
from tfpipe.location import answers
from tfpipe.shard_cache import disk

BLOCK = disk.BLOCK_BYTES
LARGE = 4 * BLOCK
BEFORE = b"\xff" * (5 * LARGE)


@pytest.fixture(autouse=True)
def _small_buffer(monkeypatch):
    monkeypatch.setattr(disk, "_DIRECT_BYTES", LARGE)
    monkeypatch.setattr(disk, "_of_thread", threading.local())


def _refused(monkeypatch):
    """A file system without such writes."""
    set_flags = fcntl.fcntl

    def refuse(descriptor, command, flags=0):
        if command == fcntl.F_SETFL and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return set_flags(descriptor, command, flags)

    monkeypatch.setattr(disk.fcntl, "fcntl", refuse)


def _short(monkeypatch):
    """A disk that takes a part of each write."""
    pwrite = os.pwrite

    def write_part(descriptor, content, offset):
        return pwrite(descriptor, memoryview(content)[:5_000], offset)

    monkeypatch.setattr(disk.os, "pwrite", write_part)


def _usual(monkeypatch):
    pass


@pytest.mark.parametrize("disk_under", [_usual, _refused, _short])
def test_bytes_are_at_their_offset_and_no_others_change(
    tmp_path, monkeypatch, disk_under
):
    content = memoryview(np.random.default_rng(0).bytes(2 * LARGE + 3 * BLOCK))
    path = tmp_path / "shard"
    disk_under(monkeypatch)
    for offset in (0, 1, BLOCK - 1, BLOCK, 5 * BLOCK + 17):
        for size in (0, 1, LARGE - 1, LARGE, LARGE + BLOCK - 1, len(content)):
            for is_direct in (False, True):
                path.write_bytes(BEFORE)
                with open(path, "r+b", buffering=0) as file:
                    disk.write(
                        file.fileno(), content[:size], offset, is_direct=is_direct
                    )
                    assert not fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT
                whole = path.read_bytes()
                case = (offset, size, is_direct)
                assert whole[:offset] == BEFORE[:offset], case
                assert whole[offset : offset + size] == content[:size], case
                assert whole[offset + size :] == BEFORE[offset + size :], case


def test_only_whole_blocks_go_past_the_page_cache(tmp_path, monkeypatch):
    written, pwrite = [], os.pwrite

    def watch(descriptor, content, offset):
        is_direct = bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)
        written.append((is_direct, offset, len(content)))
        return pwrite(descriptor, content, offset)

    monkeypatch.setattr(disk.os, "pwrite", watch)
    content = memoryview(bytes(LARGE + 100))
    with open(tmp_path / "shard", "wb", buffering=0) as file:
        disk.write(file.fileno(), content, 4000)
        assert written == [(False, 4000, LARGE + 100)]
        written.clear()
        disk.write(file.fileno(), content, 4000, is_direct=True)
        disk.write(file.fileno(), content[: LARGE - 1], 0, is_direct=True)
    assert written == [
        (True, BLOCK, LARGE),
        (False, 4000, 96),
        (False, BLOCK + LARGE, 4),
        (False, 0, LARGE - 1),
    ]


def test_too_many_open_files_have_the_same_remedy_everywhere():
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    assert disk.remedy(errno.EMFILE) == errors.OPEN_FILES
    assert answers.remedy_in(str(error)) == errors.OPEN_FILES
    assert system_errors.text(error, [], None).endswith(errors.OPEN_FILES)


def test_an_error_of_the_disk_is_raised(tmp_path, monkeypatch):
    def fail(descriptor, content, offset):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk.os, "pwrite", fail)
    with (
        open(tmp_path / "shard", "wb") as file,
        pytest.raises(OSError, match="No space left on device"),
    ):
        disk.write(file.fileno(), memoryview(bytes(LARGE)), 0, is_direct=True)
