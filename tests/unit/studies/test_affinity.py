"""studies.affinity: which records come together."""

import numpy as np

from studies import affinity
from studies.affinity import Job


def test_each_record_has_a_rank_and_a_step() -> None:
    order = Job(affinity=4).order()

    rank, step = affinity.positions(order, 2)

    batches = np.bincount(step * order.num_ranks + rank)
    assert batches.tolist() == [order.batch_size] * order.num_steps() * 8


def test_a_host_keeps_its_records() -> None:
    order = Job(affinity=4).order()

    hosts = [affinity.positions(order, epoch)[0] // 2 for epoch in (4, 7, 8)]

    assert (hosts[0] == hosts[1]).all()
    assert (hosts[0] == hosts[2]).mean() < 0.5
