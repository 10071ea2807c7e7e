"""tfpipe.profiling.stage_costs: from made-up runs to the cost of each stage."""

import math
import types

import pytest

import tfpipe
from tfpipe.profiling import stage_costs
from tfpipe.profiling.dataset_nodes import Concurrency
from tfpipe.profiling.prefixes import Step
from tfpipe.profiling.process_usage import Spent
from tfpipe.profiling.profile import Rate, StorageRead
from tfpipe.tuning import AUTOTUNE


def ms(cpu, wall=None, **values):
    return Spent(cpu * 1e-3, (wall or cpu) * 1e-3, **values)


@pytest.fixture(autouse=True)
def _cores(monkeypatch):
    monkeypatch.setattr(tfpipe.host, "num_cores", lambda: 4)


def judge(spent, *, reader=0, on_all=None, **others):
    """The rows and the host of steps that made these runs; 8 bytes an element."""
    count = len(spent)
    runs = types.SimpleNamespace(
        steps=[
            Step(number, f"step{number}", is_measured=bool(runs))
            for number, runs in enumerate(spent)
        ],
        reader=reader,
        visits=[2.0] * count,
        num_bytes=[16.0] * count,
        rounds=spent,
        buffered_bytes=range(5, 5 + count),
        concurrency=[Concurrency(number, "serial") for number in range(count)],
        num_threads=3,
        on_all_cores=[on_all or ms(1)],
    )
    vars(runs).update(others)
    return stage_costs.judge(runs, copy_bytes_per_second=1e9)


def test_a_stage_costs_more_than_the_one_before_in_the_same_round():
    """The second round is a slow spell of the host."""
    rows, _ = judge([[ms(1), ms(10), ms(1)], [ms(4), ms(13), ms(4)]])

    assert [row.cpu_seconds_per_output for row in rows] == pytest.approx([1e-3, 3e-3])
    assert [row.share for row in rows] == pytest.approx([0.25, 0.75])
    assert [row.bytes_in_per_output for row in rows] == [0, 16]
    assert [row.buffered_bytes for row in rows] == [5, 6]
    assert [row.parallelism for row in rows] == [0, 1]


def test_a_step_that_is_not_run_costs_nothing():
    rows, _ = judge([[ms(1)], [], [ms(3)]])

    costs = [row.cpu_seconds_per_output for row in rows]
    assert costs == pytest.approx([1e-3, 0, 2e-3])


def test_a_cost_below_zero_counts_as_nothing_and_is_noted():
    rows, _ = judge([[ms(3)], [ms(2)]])

    assert rows[1].cpu_seconds_per_output == 0
    assert rows[1].note == "-1.000 ms: below the measurement noise"
    rate = Rate(median=1.0, least=1.0, most=1.0, cpu_seconds_per_element=1.0)
    (note,) = stage_costs.notes(rows, rate, None, None)
    assert note.startswith("A cost below zero counts as 0")


@pytest.mark.parametrize(("wait", "counted"), [(30, 30), (3, 3), (1, 0)])
def test_a_wait_counts_if_it_is_more_than_noise(wait, counted):
    rows, _ = judge([[ms(1)], [ms(9, 9 + wait)]])

    assert rows[1].wait_seconds_per_output == pytest.approx(counted * 1e-3)


def test_costs_are_corrected_by_what_a_run_read_more_or_less():
    """Reading costs 1 us a kB; the run of the second step read twice as much."""
    reader = [ms(10, bytes_read=1e4)]
    later = [ms(25, bytes_read=2e4)]

    rows, _ = judge([reader, later], on_all=ms(30, bytes_read=2e4))

    assert [row.cpu_seconds_per_output for row in rows] == pytest.approx([0.01, 0.005])


def test_reading_takes_at_most_the_cpu_time_of_a_run():
    """A run read ten times the bytes of an output in the time of two outputs."""
    reader = [ms(10, bytes_read=1e4)]

    _, host = judge([reader, reader], on_all=ms(20, bytes_read=1e5))

    assert host.slowdown == pytest.approx(1)


def test_the_host_is_slower_with_all_cores():
    _, host = judge([[ms(2)], [ms(4)]], on_all=ms(5))

    assert (host.num_cores, host.num_threads) == (4, 3)
    assert host.slowdown == pytest.approx(1.25)
    assert host.copy_bytes_per_second == 1e9


@pytest.mark.parametrize(
    ("stage", "held"),
    [
        (tfpipe.Shuffle(10), 10 * 8),
        (tfpipe.Map(abs, num_parallel_calls=3), 3 * 8),
        (tfpipe.Batch(4), 0),
        (tfpipe.Prefetch(buffer_size=5), 5 * 8),
        (tfpipe.Prefetch(buffer_size=AUTOTUNE), 2 * 8),
        (tfpipe.Interleave(), 2 * 8),
    ],
)
def test_buffers_are_estimated_where_tensorflow_does_not_tell(stage, held):
    how = [Concurrency(1, "serial"), Concurrency(3, "parallel")]
    runs = [[ms(1)], [ms(2)]]
    stages = {"buffered_bytes": None, "stages": [None, stage], "concurrency": how}

    rows, _ = judge(runs, **stages)
    full, _ = judge(runs, **stages, visits=[2.0, math.nan], num_bytes=[16.0, math.nan])

    assert [row.buffered_bytes for row in rows] == [0, held]
    assert full[1].buffered_bytes == 0


@pytest.mark.parametrize(
    ("read", "bandwidth", "expected"),
    [
        (1e4, (1e6, 0.5), (1e4, 1e6, 0.5)),
        (1e4, None, None),
        (100, (1e6, 0.5), None),  # the process only measured itself
    ],
)
def test_storage_is_told_where_files_are_read(read, bandwidth, expected):
    # The reader says where records are; the step after it reads them.
    steps = [[ms(1, bytes_read=8)], [ms(1, bytes_read=read)], [ms(1, bytes_read=2e4)]]
    found = stage_costs.storage(steps[:2] if read < 1e3 else steps, bandwidth)

    if expected is None:
        assert found is None
    else:
        values = found.bytes_per_output, found.bytes_per_second, found.device_fraction
        assert values == expected


@pytest.mark.parametrize(
    ("bandwidth", "fraction", "is_told"),
    [(1e3, math.nan, True), (1e12, math.nan, False), (1e3, 0.0, False)],
)
def test_reading_faster_than_the_storage_came_from_the_page_cache(
    bandwidth, fraction, is_told
):
    rate = Rate(median=10.0, least=9.0, most=11.0, cpu_seconds_per_element=0.1)
    storage = StorageRead(
        bytes_per_output=1e4, bytes_per_second=bandwidth, device_fraction=fraction
    )

    notes = stage_costs.notes([], rate, storage, None)

    assert any("in the page cache by then" in note for note in notes) is is_told
