"""tfpipe.preflight on real Horovod ranks: all end with the same error, none hangs."""

import pathlib
import shutil
from typing import Any

import pytest

import tfpipe
from benchmarks.distributed.ranks import Ranks
from tests.support.processes.rank_pool import RankPool


def _preflight(ranks: Ranks, data_dirs: list[pathlib.Path], seeds: list[int]) -> str:
    """Returns what the ranks do not agree on, as this rank was told of it."""
    fields: dict[str, Any] = {"rank": ranks.rank, "num_ranks": ranks.num_ranks}
    pipeline = tfpipe.imagenet_train(
        data_dirs[ranks.rank], batch_size=4, seed=seeds[ranks.rank], **fields
    )
    try:
        tfpipe.preflight(pipeline, ranks.gather)
    except tfpipe.errors.TfpipeError as error:
        return str(error)
    return "agreed"


@pytest.mark.parametrize(
    ("other", "seed", "message"),
    [
        (False, 0, "agreed"),
        (False, 7, "seed must be the same on every rank, got 0 on rank 0, 7 on"),
        (True, 0, "shards must be the same on every rank, got 24 records"),
    ],
)
def test_real_ranks_end_with_the_error_and_none_hangs(
    rank_pool: RankPool,
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    other: bool,
    seed: int,
    message: str,
) -> None:
    copy = shutil.copytree(data_dir, tmp_path / "copy")
    if other:  # an index of other shards
        path = copy / "index.json"
        path.write_text(path.read_text().replace('"digest": "', '"digest": "0', 1))

    first, second = rank_pool.run(_preflight, [data_dir, copy], [0, seed])

    assert message in first
    assert first == second
