"""tfpipe.tuner.space: what settings hold, and which caches fit."""

import types

import pytest

import tfpipe
from tests.support.data.artificial import Busy, Numbers, cost_of
from tfpipe.tuner import space
from tfpipe.tuner.placement import Placement
from tfpipe.tuner.space import Budget, Setting


def test_calls_batches_ahead_and_a_cache_in_ram_are_held():
    pipeline = tfpipe.Pipeline(
        Numbers(), [tfpipe.Map(Busy(1)), tfpipe.Batch(8), tfpipe.Prefetch()]
    )
    costs = [
        cost_of(0, 0, buffered_bytes=5),
        cost_of(1, 1, visit_ratio=8.0, bytes_out_per_output=80.0),
        cost_of(2, 1, bytes_out_per_output=80.0),
        cost_of(3, 1, bytes_out_per_output=80.0, buffered_bytes=999),
    ]
    profile = types.SimpleNamespace(stages=costs)
    in_ram = Placement(where="ram", num_ops=0)
    on_disk = Placement(where="disk", num_ops=0, directory="/d")
    cases = [
        ((4,), 3, None, 5 + 4 * 10 + 3 * 80),
        ((4,), 3, in_ram, 5 + 4 * 10 + 3 * 80 + 1000),
        ((4,), 3, on_disk, 5 + 4 * 10 + 3 * 80),
        (-1, -1, None, 5),  # AUTOTUNE keeps to its own budget
    ]
    for calls, depth, cache, held in cases:
        tuning = tfpipe.Tuning(num_parallel_maps=calls, prefetch_buffer_size=depth)
        setting = Setting(tuning=tuning, cache=cache)

        assert space.held_bytes(pipeline, setting, profile, {0: 1000}) == held

    assert space.held_bytes(pipeline, setting, None, {0: 1000}) == 0


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
