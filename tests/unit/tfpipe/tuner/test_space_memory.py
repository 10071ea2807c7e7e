"""tfpipe.tuner.space: what settings hold, and which caches fit."""

import dataclasses

import pytest

import tfpipe
from tests.support.data.artificial import Numbers, decoded_again_and_again
from tfpipe.tuner import space
from tfpipe.tuner.space import Budget


def test_windows_calls_and_batches_ahead_are_held(data_dir):
    pipeline = decoded_again_and_again(data_dir)
    num_records = pipeline.source.order.num_records
    budget = Budget(num_threads=2, ram_bytes=1)

    def held(pipeline, sizes):
        in_all = {num_ops: size * num_records for num_ops, size in sizes.items()}
        return space.held_bytes(pipeline, budget, in_all, batch_bytes=400, batch_size=4)

    # Two windows of the records, two batches, eight calls of each of the two maps.
    records = 2 * num_records
    assert held(pipeline, {0: 10}) == records * 10 + 800 + 16 * 100
    assert held(pipeline, {0: 10, 3: 300}) == records * 10 + 800 + 16 * 300
    source = dataclasses.replace(pipeline.source, window_size=num_records // 2)
    short = dataclasses.replace(pipeline, source=source)
    assert held(short, {0: 10}) == num_records * 10 + 800 + 16 * 100
    # After Batch a call of a map holds a batch, two calls are made.
    stages = [*pipeline.stages, tfpipe.Map(tfpipe.Flip())]
    after = dataclasses.replace(pipeline, stages=stages)
    assert held(after, {0: 10}) == held(pipeline, {0: 10}) + 2 * 400
    # Two groups of a Shuffle: of records, of examples, of batches.
    front, *rest = pipeline.stages
    for shuffled, more in [
        ([front, tfpipe.Shuffle(3), *rest], 2 * 3 * 10),
        ([front, tfpipe.Shuffle(10**9), *rest], records * 10),
        ([front, *rest[:-1], tfpipe.Shuffle(3), rest[-1]], 2 * 3 * 100),
        ([front, *rest, tfpipe.Shuffle(3)], 2 * 3 * 400),
    ]:
        with_groups = dataclasses.replace(pipeline, stages=shuffled)
        assert held(with_groups, {0: 10}) == held(pipeline, {0: 10}) + more, shuffled
    # Without a place for a cache nothing need fit beside it.
    assert held(pipeline, {}) == held(tfpipe.Pipeline(Numbers(), []), {0: 1}) == 0


@pytest.mark.parametrize(
    ("ram", "disk", "held", "admitted"),
    [
        (1000, 0, 0, ["ram 3", "ram 0"]),
        (1000, 0, 600, ["ram 0"]),  # buffers are memory too
        (1000, 0, 2000, []),
        (1, 2000, 0, ["disk 3", "disk 0"]),
        (1, 1000, 0, ["disk 3"]),  # both are there at the same time
        (1, 400, 0, ["disk 0"]),
        (1, 399, 0, []),
    ],
)
def test_caches_are_admitted_to_the_byte(ram, disk, held, admitted):
    budget = Budget(
        num_threads=1,
        ram_bytes=ram,
        disk_bytes=disk,
        cache_dir="/d" if disk else None,
    )

    found, refused = space.admitted({0: 400, 3: 1000}, budget, held)

    assert [f"{each.where} {each.num_ops}" for each in found] == admitted
    assert len(found) + len(refused) == (4 if disk else 2)
    assert all("are allowed" in reason for reason in refused.values())
