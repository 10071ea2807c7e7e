"""Fixtures that all system tests of a session share, because they start slowly."""

from collections.abc import Iterator

import pytest

from tests.support.rank_pool import RankPool


@pytest.fixture(scope="session")
def rank_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    """Two Horovod ranks: `rank_pool.run(function, ...)` calls a function on both."""
    pool = RankPool(tmp_path_factory.mktemp("rank_pool"))
    yield pool
    pool.close()
