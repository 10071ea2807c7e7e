"""benchmarks.training.caches: a shard cache that does not become warm."""

import types
from typing import Any

import pytest

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.training import caches
from tfpipe.shard_cache import settings


def _setting(num_bytes: int) -> Any:
    """A setting of a split of that size; nothing of it is read."""
    return types.SimpleNamespace(
        config=Config(data_dir="http://h/x", shard_cache_dir="c", cache="warm"),
        source=types.SimpleNamespace(split="train"),
        num_bytes=num_bytes,
        files=[],
        empty_caches=None,
    )


def _fill(monkeypatch: pytest.MonkeyPatch, there: int) -> list[tuple[str, str]]:
    """Lets every shard cache hold so many bytes; returns what is filled."""
    asked = []

    def fill(
        cache: tfpipe.ShardCache, data_dir: str, split: str
    ) -> settings.FillFigures:
        asked.append((data_dir, split))
        return settings.FillFigures(
            num_bytes_fetched=there,
            num_bytes_present=there,
            num_bytes_total=10**9,
            seconds=1.0,
        )

    monkeypatch.setattr(tfpipe.ShardCache, "fill", fill)
    return asked


def test_the_split_is_fetched_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _fill(monkeypatch, 10**9)

    assert caches.prepare(_setting(10**9), Ranks()) is None

    assert asked == [("http://h/x", "train")]


def test_a_cache_without_room_for_the_split_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _fill(monkeypatch, 4 * 10**8)

    with pytest.raises(
        ValueError, match=r"--cache=warm: the split has 1.000 GB, of wh"
    ):
        caches.prepare(_setting(10**9), Ranks())


def test_an_error_of_the_store_is_that_of_all_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise tfpipe.errors.RemoteError("http://h/x is gone.")

    monkeypatch.setattr(tfpipe.ShardCache, "fill", fail)

    with pytest.raises(ValueError, match=r"--cache=warm: http://h/x is gone\."):
        caches.prepare(_setting(10**9), Ranks())
