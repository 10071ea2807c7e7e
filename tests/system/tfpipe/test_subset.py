"""A subset on real Horovod ranks, through a shard cache, with a change of ranks."""

import pathlib
from typing import Any

import tfpipe
from benchmarks.distributed.ranks import Ranks
from tests.support.faults.damage import flip
from tests.support.processes.rank_pool import RankPool
from tfpipe.shards import index, subset

CHOSEN = [0, 1, 2, 5, 7, 8, 9, 10, 12, 14, 15]  # of 3 shards of 8, none of the third
DAMAGED = 9
BATCH = 2


def _epochs(
    ranks: Ranks,
    data_dir: pathlib.Path,
    path: pathlib.Path,
    cache: pathlib.Path,
    state: tfpipe.State,
    num_steps: int | None,
) -> tuple[list[int], tfpipe.State, list[int]]:
    """Reads some steps; returns the records, the next state and the faults."""
    pipeline = tfpipe.imagenet_eval(
        _source(data_dir, path, cache, ranks.rank, ranks.num_ranks),
        image_size=8,
        with_record_id=True,
    )
    tfpipe.preflight(pipeline, ranks.gather, state=state)
    real = []
    for batch in pipeline.build(state=state).take(num_steps or 100):
        real += batch["record_id"].numpy()[batch["mask"].numpy() == 1].tolist()
        state = pipeline.source.advance(state)
    faults = [fault.record_id for fault in pipeline.faults.faults]
    pipeline.source.close_cache()
    return real, state, faults


def _source(
    data_dir: pathlib.Path,
    path: pathlib.Path,
    cache: pathlib.Path,
    rank: int,
    num_ranks: int,
) -> tfpipe.TFRecordSource:
    return tfpipe.TFRecordSource(
        data_dir,
        "train",
        subset=path,
        shard_cache=tfpipe.ShardCache(cache),
        remainder="pad",
        batch_size=BATCH,
        window_size=4,
        block_length=2,
        seed=5,
        rank=rank,
        num_ranks=num_ranks,
        on_error="skip",
    )


class _OneRank:
    """The rank that is left after the other one has gone."""

    rank, num_ranks = 0, 1

    def gather(self, value: Any) -> list[Any]:
        return [value]


def test_two_ranks_then_one_then_two_cover_the_subset_exactly(
    rank_pool: RankPool, copy_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A record is damaged, and a shard without chosen records is never fetched."""
    path, cache = tmp_path / "subset.parquet", tmp_path / "cache"
    known = index.load(copy_dir)
    subset.write(tfpipe.Subset.of_records(known, "train", CHOSEN), path)
    places = index.load_catalog(copy_dir, "train", ["byte_offset"])
    flip(copy_dir / known.splits["train"][1].name, places["byte_offset"][DAMAGED] + 99)
    (copy_dir / known.splits["train"][2].name).write_bytes(
        bytes(known.splits["train"][2].num_bytes)
    )

    given = (copy_dir, path, cache)
    both = rank_pool.run(_epochs, *given, tfpipe.State(epoch=3), 1)
    (first, state, _), (second, same, _) = both
    assert state == same
    one: Any = _OneRank()
    alone, state, _ = _epochs(one, *given, state, 1)
    rest = rank_pool.run(_epochs, *given, state, None)

    assert len(first) + len(second) >= 2 * BATCH - 1
    assert len(alone) >= BATCH - 1
    records = first + second + alone + rest[0][0] + rest[1][0]
    assert sorted(records) == sorted({*CHOSEN} - {DAMAGED})
    answers = [*both, *rest]
    assert {n for _, _, faults in answers for n in faults} <= {DAMAGED}
    filled = {p.name for p in cache.glob("*/shards/*") if p.stat().st_blocks}
    have = [shard.name in filled for shard in known.splits["train"]]
    assert have == [True, True, False]
    assert rest[0][1].epoch == 4
