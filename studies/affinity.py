"""How random is an order by host, and is the order of 1,024 ranks cheap?

  python -m studies.affinity --num_rounds=3

Question: does the affinity of hosts cost randomness? The study computes the order of
16,384 records in 64 shards on 4 hosts with 2 ranks each, for 64 epochs: without
affinity, and with 1, 4, 16 and 64 epochs. The first table has for each affinity

- the batches of all ranks with both of two random records, over the epochs, and the
  variance of the count over its mean: 1 for pairs by chance;
- the same for the batch of a rank;
- the hosts of a record, and its companions in batches of a rank, over the epochs;
- the distance on disk of two records of a rank's batch, over the size of the split.

The second table has 16 to 1,024 ranks, 8 on a host, on 10,000 shards of 1,000 records:
CPU-seconds and memory of the first windows of all ranks, in a whole epoch and in the
rest of an epoch begun by a quarter more ranks; and the shards of a host, over its
share. No image is read. The last line on stdout is a JSON object.
"""

from __future__ import annotations

import dataclasses
import math
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from studies import harness
from studies.figures import Run, summary
from tfpipe import cli
from tfpipe.reading.order import EpochPosition, Order, Phase
from tfpipe.shards.records import Ints

NUM_EPOCHS, NUM_PAIRS = 64, 20_000
RANKS_PER_HOST = 8
_SHARDS, _RECORDS_PER_SHARD = 10_000, 1000
_SEED = 0


@cli.options
class Options(harness.StudyOptions):
    """Options of the study."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """The epochs for which a host keeps its part; 0 is no affinity."""

    affinity: int

    def order(self) -> Order:
        """Returns the order of 4 hosts with 2 ranks each."""
        return Order(
            shard_sizes=np.full(64, 256, np.int64),
            seed=_SEED,
            window_size=512,
            num_ranks=8,
            batch_size=32,
            **_of_hosts(self.affinity, 8, 2),
        )


def _of_hosts(affinity: int, num_ranks: int, each: int) -> dict[str, Any]:
    if not affinity:
        return {}
    hosts = tuple(rank // each for rank in range(num_ranks))
    return {"affinity": affinity, "hosts": hosts}


def positions(order: Order, epoch: int) -> tuple[Ints, Ints]:
    """Returns the rank and the step of every record in an epoch.

    Returns:
        rank: int64 [num_records].
        step: int64 [num_records].
    """
    rank, step = (np.empty(order.num_records, np.int64) for _ in range(2))
    begin = EpochPosition(epoch)
    for reader in range(order.num_ranks):
        windows = order.windows(reader, begin)
        records = np.concatenate(
            [order.window(reader, begin, index).records() for index in windows]
        )
        rank[records] = reader
        step[records] = np.arange(len(records)) // order.batch_size
    return rank, step


def randomness(job: Job) -> dict[str, float]:
    """Returns the figures of the first table."""
    order = job.order()
    random = np.random.default_rng(_SEED)
    pairs = random.integers(order.num_records, size=(2, NUM_PAIRS))
    pairs = pairs[:, pairs[0] != pairs[1]]
    of_all, of_rank = (np.zeros(pairs.shape[1]) for _ in range(2))
    watched = random.integers(order.num_records, size=64)
    met: list[set[int]] = [set() for _ in watched]
    hosts = np.zeros((order.num_records, 4), bool)
    distances = []
    for epoch in range(NUM_EPOCHS):
        rank, step = positions(order, epoch)
        same_step = step[pairs[0]] == step[pairs[1]]
        of_all += same_step
        of_rank += same_step & (rank[pairs[0]] == rank[pairs[1]])
        hosts[np.arange(len(rank)), rank // 2] = True
        batch = step * order.num_ranks + rank
        for companions, record in zip(met, watched, strict=True):
            companions |= set(np.flatnonzero(batch == batch[record]).tolist())
        neighbors = np.argsort(batch, kind="stable").reshape(-1, order.batch_size)
        random.permuted(neighbors, axis=1, out=neighbors)
        distances.append(np.abs(np.diff(neighbors, axis=1)).mean())
    return {
        "together_in_all": of_all.mean(),
        "dispersion_in_all": of_all.var() / of_all.mean(),
        "together_in_rank": of_rank.mean(),
        "dispersion_in_rank": of_rank.var() / of_rank.mean(),
        "hosts_of_a_record": hosts.sum(1).mean(),
        "records_met": float(np.mean([len(companions) - 1 for companions in met])),
        "distance": float(np.mean(distances)) / order.num_records,
    }


def cost_of_ranks(num_ranks: int) -> dict[str, float]:
    """Returns the figures of the second table."""

    def order(count: int) -> Order:
        return Order(
            shard_sizes=np.full(_SHARDS, _RECORDS_PER_SHARD, np.int64),
            seed=_SEED,
            num_ranks=count,
            batch_size=8,
            **_of_hosts(4, count, RANKS_PER_HOST),
        )

    before = order(num_ranks * 5 // 4)
    phase = Phase(before.num_ranks, before.num_steps() // 2 * 8, before.ranks_per_host)
    begins = {"whole": EpochPosition(5), "resumed": EpochPosition(5, (phase,))}
    figures = {}
    for name, begin in begins.items():
        own = order(num_ranks)
        tracemalloc.start()
        start = time.process_time()
        windows = [own.window(rank, begin, 0) for rank in range(num_ranks)]
        figures[f"{name}_cpu_seconds"] = time.process_time() - start
        figures[f"{name}_mb"] = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        assert sum(window.take for window in windows) > 0
    return figures | {"shards_kept": _shards_kept(order(num_ranks))}


def _shards_kept(order: Order) -> float:
    """Returns the most shards of a host in an epoch, over its share of the shards."""
    num_hosts = order.num_ranks // RANKS_PER_HOST
    most = 0
    # The first and the last host and some between; a host costs a second.
    for host in {0, num_hosts // 2, num_hosts - 1}:
        shards: set[int] = set()
        for rank in range(host * RANKS_PER_HOST, (host + 1) * RANKS_PER_HOST):
            for index in order.windows(rank, EpochPosition()):
                first = order.window(rank, EpochPosition(), index).ranges.first
                shards |= set((first // _RECORDS_PER_SHARD).tolist())
        most = max(most, len(shards))
    return most / math.ceil(_SHARDS / num_hosts)


def _summaries(runs: Sequence[Run]) -> dict[str, Any]:
    return {key: summary(each[key] for each in runs) for key in runs[0]}


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns rows of figures as a table, a line for a row."""
    names = list(next(iter(rows.values())))
    lines = [" " * 10 + "".join(f"{name:>20}" for name in names)]
    for label, row in rows.items():
        values = (v["median"] if isinstance(v, dict) else v for v in row.values())
        lines.append(f"{label:10}" + "".join(f"{value:20.4g}" for value in values))
    return "\n".join(lines)


def _study(options: Options) -> harness.Outcome:
    epochs = (0, 1, 4, 16, NUM_EPOCHS)
    chance = {
        ("none" if not count else str(count)): randomness(Job(affinity=count))
        for count in epochs
    }
    counts = [str(2**power) for power in (4, 6, 8, 10)]
    runs = harness.turns(
        counts, lambda count, _: cost_of_ranks(int(count)), options.num_rounds
    )
    ranks = {count: _summaries(own) for count, own in runs.items()}
    config = {"num_epochs": NUM_EPOCHS, "num_rounds": options.num_rounds}
    return harness.Outcome(
        figures={"config": config, "affinity": chance, "ranks": ranks},
        table=f"{table(chance)}\n{table(ranks)}",
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.affinity", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
