"""Fixtures that all system tests of a session share, because they start slowly."""

from collections.abc import Iterator

import pytest

from tests.support.rank_pool import RankPool
from tests.support.warm_python import WarmPython


@pytest.fixture(scope="session")
def rank_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    """Two Horovod ranks: `rank_pool.run(function, ...)` calls a function on both."""
    pool = RankPool(tmp_path_factory.mktemp("rank_pool"))
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmPython]:
    """A Python with TensorFlow: `warm_python.run("-m", module, ...)` runs a command."""
    python = WarmPython(tmp_path_factory.mktemp("warm_python"))
    yield python
    python.close()
