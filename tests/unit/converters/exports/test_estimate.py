"""converters.exports.estimate: the speed of a disk, and the time that copies take."""

import itertools
import os
import pathlib
import types

import pytest

from converters.exports import estimate, sizing
from tfpipe import errors

MEBIBYTE = 1 << 20


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is RAM and takes files without names; few bytes measure its speed."""

    open_file = os.open

    def open_in_ram(path: pathlib.Path, flags: int, *arguments: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            return os.memfd_create("speed")
        return open_file(path, flags, *arguments)

    monkeypatch.setattr(os, "open", open_in_ram)
    monkeypatch.setattr(estimate, "_WRITTEN_BYTES", 2 * MEBIBYTE)


def test_the_speed_of_a_disk_is_bytes_by_seconds(
    small_disk: None, tmp_path: pathlib.Path
) -> None:
    for seconds, speed in ((0.5, 4 * MEBIBYTE), (4.0, MEBIBYTE // 2)):
        clock = iter([10.0, 10.0 + seconds]).__next__
        measured = estimate.disk_speed(tmp_path, 8 * MEBIBYTE, clock=clock)
        assert measured == speed


def test_a_disk_that_is_nearly_full_is_not_measured(
    small_disk: None, tmp_path: pathlib.Path
) -> None:
    assert estimate.disk_speed(tmp_path, 8 * MEBIBYTE - 1) is None


def test_a_trial_counts_sound_records_and_all_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def change(data: bytes, size: tuple[int, int], seed: str) -> object:
        if data == b"bad":
            raise errors.BadRecordError("no image")
        return types.SimpleNamespace(data=[data, data])

    def trial(*data: bytes) -> estimate.TrialCopies:
        monkeypatch.setattr(estimate, "_spread", lambda _: ((d, (1, 1)) for d in data))
        clock = itertools.count(5.0).__next__
        return estimate.sample(object(), change, clock=clock)

    of_three = trial(b"abc", b"bad", b"abcde")
    # A frame adds 16 bytes.
    assert of_three == estimate.TrialCopies(
        num_records=2, growth=(6 + 16 + 10 + 16) / 8, seconds_per_byte=3 / 8
    )
    assert trial(b"bad") == estimate.NOTHING


@pytest.mark.parametrize(
    ("how", "room_bytes", "disk_seconds"),
    [("copy", 4500, 9.0), ("link", 2 * 3 * 8192, 2 * 3 * 8192 / 500)],
)
def test_an_estimate_of_two_copies(
    how: str,
    room_bytes: int,
    disk_seconds: float,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(estimate, "disk_speed", lambda folder, free_bytes: 500.0)

    copies = estimate.estimate(
        types.SimpleNamespace(num_shards=3, num_bytes=lambda: 1500),
        estimate.TrialCopies(num_records=3, growth=1.5, seconds_per_byte=0.25),
        copies=2,
        num_workers=5,
        output_dir=tmp_path / "not yet",
        how=how,
    )

    assert copies.num_bytes == 4500
    assert copies.room_bytes == room_bytes
    assert copies.cpu_seconds == 2 * 1500 * 0.25 / 5
    assert copies.disk_bytes_per_second == 500
    assert copies.disk_seconds == disk_seconds
    assert copies.seconds == max(copies.cpu_seconds, disk_seconds)


@pytest.mark.parametrize(
    ("cost", "time", "room"),
    [
        (
            {"cpu_seconds": 7200.0, "disk_seconds": 90.0, "free_bytes": 9000},
            "time: about 2.0 hours (the workers need 2.0 hours, "
            "the disk 90 s at 50 MB/s)",
            "room: 8 kB of 9 kB free",
        ),
        (
            {"cpu_seconds": 0.0, "disk_seconds": 172_800.0, "free_bytes": 7999},
            "time: about 2.0 days (the disk 2.0 days at 50 MB/s)",
            "room: 8 kB of 7.999 kB free; THIS IS TOO LITTLE",
        ),
        (
            {"cpu_seconds": 0.2, "disk_seconds": None, "free_bytes": None},
            "time: about 1 s (the workers need 1 s)",
            "room: 8 kB at the URL",
        ),
        (
            {"cpu_seconds": 0.0, "disk_seconds": None, "free_bytes": 8000},
            "time: not known before the first shards",
            "room: 8 kB of 8 kB free",
        ),
    ],
)
def test_an_estimate_in_words(
    cost: dict[str, float | None], time: str, room: str
) -> None:
    source = types.SimpleNamespace(
        known=types.SimpleNamespace(splits={"train": ()}),
        name="photos",
        num_records=4,
        num_shards=1,
        num_bytes=lambda *splits: 2500,
    )
    speed = None if cost["disk_seconds"] is None else 50e6
    measured = estimate.Estimate(
        num_bytes=5000, room_bytes=8000, disk_bytes_per_second=speed, **cost
    )
    copies = sizing.Sizing(copies=2, needed_bytes=None, lines=("why",))

    assert estimate.lines(source, copies, measured) == [
        "photos: 4 records in 1 shard, 2.5 kB (train 2.5 kB)",
        "why",
        "2 copies: 8 records in 2 shards, about 5 kB",
        time,
        room,
    ]
