"""tfpipe.location.parts: parts of files by URL, and jobs in threads."""

import os
import pathlib
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from tfpipe.location import parts
from tfpipe.location.files import Files
from tfpipe.location.location import Location


@pytest.mark.parametrize(
    ("url", "server", "name"),
    [
        ("s3://b/c/d%20e.jpg", "s3://b", "c/d%20e.jpg"),
        ("s3://b/a#?.jpg", "s3://b", "a#?.jpg"),
        ("https://h:80/c/d%20e.jpg", "https://h:80", "c/d e.jpg"),
    ],
)
def test_a_file_by_url_is_read_at_its_server(
    url: str, server: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def read_range(files: Files, name: str, start: int, stop: int) -> bytes:
        asked.append((files.location.text, name, start, stop))
        return b""

    monkeypatch.setattr(Files, "read_range", read_range)

    parts.read(Location("/data"), url, 2, 3)

    assert asked == [(server, name, 2, 5)]


@pytest.mark.parametrize("slow_seconds", [-1.0, 60.0])
def test_quick_jobs_run_here_and_slow_jobs_in_threads_in_one_order(
    slow_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_SLOW_SECONDS", slow_seconds)
    here = threading.get_ident()

    def job(number: int) -> tuple[int, bool]:
        return number, threading.get_ident() == here

    for count in (0, 1, 2, 40):
        results = [*parts.in_threads(job, range(count))]
        assert [number for number, _ in results] == [*range(count)]
        # The first job says how long a job takes.
        assert all(is_here == (slow_seconds > 0) for _, is_here in results[1:])


@given(
    size=st.integers(1, 200_000),
    spans=st.lists(st.tuples(st.integers(0, 210_000), st.integers(0, 40_000))),
)
def test_pieces_of_a_file_by_url_give_its_bytes(
    size: int, spans: Sequence[tuple[int, int]]
) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    data = data[:size]

    def fetch(offset: int, count: int) -> bytes:
        assert 0 < count <= size - offset
        return data[offset : offset + count]

    pieces = parts.GrowingPieces(fetch, size)

    assert [pieces.read(*span) for span in spans] == [
        data[start : start + count] for start, count in spans
    ]


def test_a_part_may_begin_in_a_piece_and_end_after_it() -> None:
    data = bytes(range(251)) * 400
    for start in range(0, 70_000, 1 << 13):
        pieces = parts.GrowingPieces(lambda at, n: data[at : at + n], len(data))
        assert pieces.read(0, 1) == data[:1]
        assert pieces.read(start - 1, 3) == data[start - 1 : start + 2] or not start


def test_only_a_pipe_that_is_asked_for_is_opened(tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, is_asked, kind in (
        (tmp_path, False, "a folder"),
        (tmp_path, True, "a folder"),
        (pipe, False, "a pipe or a device"),
        (pathlib.Path("/dev/null"), True, "a pipe or a device"),
    ):
        with pytest.raises(ValueError, match=f"must be a file, got {kind}"):
            parts.open_file(path, pipe=is_asked)

    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"list")
    os.close(parts.open_file(pipe, pipe=True))
    os.close(writer)
