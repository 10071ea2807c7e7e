"""benchmarks.training.metrics: figures of a run from the traces of its ranks."""

import json
import re
import statistics
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.results.train_result import SlowestRank
from benchmarks.training import critical_path, metrics
from benchmarks.training.critical_path import RankTimes
from benchmarks.training.recorder import ROW, Trace
from benchmarks.training.steady_state import ReadAhead


def _trace(
    wait: list[float],
    compute: list[float],
    examples: int,
    *,
    sync_seconds: list[float] | None = None,
    end_seconds: list[float] | None = None,
    epoch: int | list[int] = 0,
    windows_begun: int | list[int] = 0,
    **fields: object,
) -> Trace:
    sync = np.zeros(len(wait)) if sync_seconds is None else np.array(sync_seconds)
    ended = np.cumsum(np.add(wait, compute) + sync)
    if end_seconds is not None:
        ended = np.array(end_seconds)
    fed = ended - sync - compute
    steps = np.stack([fed - wait, fed, ended - sync, ended, ended], axis=1)
    steps[np.abs(steps) < 1e-12] = 0.0  # rounding errors
    rows = np.zeros(len(compute), ROW)
    rows["num_examples"] = examples // len(compute)
    rows["epoch"], rows["windows_begun"] = epoch, windows_begun
    values = {
        "steps": rows,
        "times": RankTimes(
            steps=np.maximum.accumulate(steps.ravel()).reshape(steps.shape),
            silences=np.empty((0, 2)),
        ),
        "num_warmup_steps": 0,
        "read_ahead": ReadAhead(),
        "cpu_seconds": 1.0,
        "storage_bytes": 1000,
        "run_storage_bytes": 1500,
        "record_counts": np.array([1, 0, 1]),
    }
    return Trace(**{**values, **fields})


def test_total_is_all_work_over_the_time_of_the_slowest_rank() -> None:
    fast = _trace([0.0, 0.0], [1.0, 1.0], 80)
    slow = _trace([1.0, 1.0], [1.0, 1.0], 80)

    figures = metrics.summarize([fast, slow])

    assert figures["examples_per_second"] == 40.0  # 160 in 4 s, not 40 + 20
    assert figures["examples_per_second_per_rank"] == [40.0, 20.0]
    assert figures["wait_seconds_per_step"] == pytest.approx(0.5)
    assert figures["compute_seconds_per_step"] == 1.0
    assert figures["cpu_seconds_per_example"] == pytest.approx(2 / 160)
    assert figures["storage_bytes_read"] == 2000
    assert figures["num_timed_steps"] == 2
    assert figures["timed_seconds"] == 4.0


def test_a_rank_half_as_fast_counts_for_its_own_steps_only() -> None:
    """Free-running ranks: 10 steps of 8 examples in 1 s, and in 2 s."""
    fast = _trace([0.0] * 10, [0.1] * 10, 80)
    slow = _trace([0.1] * 10, [0.1] * 10, 80)

    for traces in ([fast, slow], [slow, fast]):
        figures = metrics.summarize(traces)

        assert figures["examples_per_second"] == pytest.approx(80.0)  # 160 in 2 s
        assert sum(figures["examples_per_second_per_rank"]) == pytest.approx(120.0)
        # Each step of both is over when the slow one is: 16 examples in 0.2 s, always.
        assert figures["examples_per_second_deviation"] == pytest.approx(0, abs=1e-9)


def test_time_between_steps_counts() -> None:
    trace = _trace([0.0, 0.0], [1.0, 1.0], 8, end_seconds=[1.0, 4.0])

    figures = metrics.summarize([trace])

    assert figures["examples_per_second"] == 2.0
    assert figures["accelerator_utilization"] == 0.5
    assert figures["critical_path"]["shares"]["late"] == 0.5
    assert figures["late_seconds_per_step"] == 1.0


def test_waiting_for_others_is_neither_stall_nor_compute() -> None:
    trace = _trace(
        [0.1, 0.1], [0.6, 0.6], 8, sync_seconds=[0.3, 0.3], end_seconds=[1.0, 2.0]
    )

    figures = metrics.summarize([trace])

    assert figures["stall_fraction"] == pytest.approx(0.1)
    assert figures["accelerator_utilization"] == pytest.approx(0.6)
    assert figures["sync_fraction"] == pytest.approx(0.3)
    assert figures["sync_seconds_per_step"] == pytest.approx(0.3)


def test_the_run_is_as_bad_as_its_worst_rank() -> None:
    """Ranks that train together: all steps take 2 s, for three different reasons."""
    parts = {"wait": (0.0, 1.5, 0.25), "compute": (0.5, 0.5, 1.5)}
    traces = [
        _trace([wait], [compute], 8, sync_seconds=[2 - wait - compute])
        for wait, compute in zip(*parts.values(), strict=True)
    ]

    figures = metrics.summarize(traces)

    assert figures["stall_fraction_per_rank"] == [0.0, 0.75, 0.125]
    assert figures["accelerator_utilization_per_rank"] == [0.25, 0.25, 0.75]
    assert figures["stall_fraction"] == 0.75
    assert figures["accelerator_utilization"] == 0.25
    assert figures["wait_seconds_per_step_per_rank"] == [0.0, 1.5, 0.25]
    assert figures["compute_seconds_per_step_per_rank"] == [0.5, 0.5, 1.5]
    assert figures["sync_seconds_per_step_per_rank"] == [1.5, 0.0, 0.25]
    assert metrics.speed_lines(figures)[2] == (
        "Rank 1 waited for input 75.0% of the time (1500.0 ms wait, 500.0 ms compute, "
        "0.0 ms for other ranks a step)"
    )


def _random_trace(seed: int, num_steps: int, **fields: object) -> Trace:
    random = np.random.default_rng(seed)
    wait, compute, sync, other = random.uniform(0.01, 0.1, (4, num_steps))
    return _trace(
        wait.tolist(),
        compute.tolist(),
        8 * num_steps,
        end_seconds=np.cumsum(wait + compute + sync + other).tolist(),
        **{"sync_seconds": sync.tolist(), **fields},
    )


def test_utilization_is_compute_over_the_time_of_the_job() -> None:
    trace = _random_trace(0, 50, sync_seconds=[0.0] * 50)

    figures = metrics.summarize([trace])

    assert figures["accelerator_utilization"] == pytest.approx(
        sum(trace.compute_seconds) / trace.seconds, abs=1e-12
    )
    assert figures["stall_fraction"] == pytest.approx(
        sum(trace.wait_seconds) / trace.seconds, abs=1e-12
    )


def _dlio(trace: Trace, start: float, first: int, last: int) -> float:
    """Computes the utilization of a block of steps as statscounter.py of DLIO does."""
    load, compute = trace.wait_seconds, trace.compute_seconds
    proc = [load[step] + compute[step] for step in range(first, last + 1)]
    s, e = 1, last - first  # exclude_start_steps = 1, exclude_end_steps = 0
    total_time = trace.end_seconds[last] - start - sum(proc[:s]) - sum(proc[e + 1 :])
    return sum(compute[first : last + 1][s : e + 1]) / total_time


def test_mlperf_storage_utilization_equals_that_of_dlio() -> None:
    epochs = [0] * 7 + [1] * 9 + [2]  # an epoch of one step has no utilization
    traces = [_random_trace(seed, 17, epoch=epochs) for seed in (1, 2)]

    expected = [
        [_dlio(t, 0.0, 0, 6), _dlio(t, t.end_seconds[6], 7, 15)] for t in traces
    ]
    figures = metrics.summarize(traces)

    assert figures["accelerator_utilization_mlperf_storage"] == pytest.approx(
        np.mean(expected), rel=1e-12
    )


def test_mlperf_storage_utilization_by_hand() -> None:
    # The first step is left out: 3 s of compute in 5 s from its end on.
    trace = _trace([9.0, 1.0, 1.0], [5.0, 1.0, 2.0], 24)

    figures = metrics.summarize([trace])

    assert figures["accelerator_utilization_mlperf_storage"] == pytest.approx(3 / 5)
    assert figures["accelerator_utilization"] == pytest.approx(8 / 19)
    assert sum(figures["critical_path"]["shares"].values()) == pytest.approx(1)


def test_one_step_has_no_mlperf_storage_utilization() -> None:
    figures = metrics.summarize([_trace([1.0], [1.0], 8)])

    assert figures["accelerator_utilization_mlperf_storage"] is None


def test_percentiles_are_over_all_ranks_and_of_each() -> None:
    first = _trace([0.0] * 100, [float(n) for n in range(1, 101)], 800)
    second = _trace([0.5] * 100, [100.0 + n for n in range(1, 101)], 800)

    figures = metrics.summarize([first, second])
    seconds = [*range(1, 101), *(100.5 + n for n in range(1, 101))]
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")

    for percent in (50, 90, 95, 99):
        name = f"step_seconds_p{percent}"
        assert figures[name] == pytest.approx(cuts[percent - 1])
        own = figures[f"{name}_per_rank"]
        assert own[1] - own[0] == pytest.approx(100.5)
    assert figures["step_seconds_p50_per_rank"][0] == pytest.approx(50.5)


def _slowest(traces: Sequence[Trace]) -> SlowestRank:
    return critical_path.trace([trace.times for trace in traces]).slowest


def test_the_slowest_rank_by_its_own_time() -> None:
    waits = ([0.0] * 3, [0.0] * 3, [1.0] * 3)
    computes = ([1.0] * 3, [1.0, 1.0, 4.0], [1.0] * 3)
    syncs = ([1.0, 1.0, 3.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0])
    traces = [
        _trace(wait, compute, 24, sync_seconds=sync, end_seconds=[2.0, 4.0, 8.0])
        for wait, compute, sync in zip(waits, computes, syncs, strict=True)
    ]

    assert _slowest(traces) == SlowestRank(
        rank=1,
        over_others=2.0 / 1.5,  # the others take 1 s and 2 s
        own_seconds_per_step_per_rank=(1.0, 2.0, 2.0),
        cause="compute",
        text="Rank 1 holds the others back: its steps take 1.33 times as long as "
        "theirs (2000.0 ms), of which 100% is computing and averaging. It came last in "
        "1 of 3 steps.",
    )


@pytest.mark.parametrize(
    ("parts", "ratio", "cause", "text"),
    [
        # Two ranks: the median of both would be 1.5 times too near to the slow one.
        (
            [(0.0, 0.05), (0.096, 0.024)],
            2.4,
            "input",
            "Rank 1 holds the others back: its steps take 2.40 times as long as theirs "
            "(120.0 ms), of which 80% is waiting for input. It came last in 1 of 1 "
            "steps.",
        ),
        ([(0.3, 0.3), (0.3, 0.1), (0.3, 0.1)], 1.5, "compute", "Rank 0 holds.*50% is"),
        ([(0.1, 1.0), (0.14, 1.0)], 1.14 / 1.1, None, "No rank.*is rank 1, with 1.04"),
        ([(0.5, 0.5)], 1.0, None, "One rank alone waits for no other."),
    ],
)
def test_slowest_rank_against_the_median_of_the_others(
    parts: list[tuple[float, float]], ratio: float, cause: str | None, text: str
) -> None:
    traces = [_trace([wait], [compute], 8) for wait, compute in parts]

    found = _slowest(traces)

    assert found.over_others == pytest.approx(ratio)
    assert found.cause == cause
    assert re.match(text.replace("(", r"\(").replace(")", r"\)"), found.text)


def test_communication_belongs_to_the_step_of_every_rank() -> None:
    """Rank 1 comes last and communicates for 0.1 s; rank 0 waits for it before."""
    parts = [(0.0, 0.1, 0.3), (0.2, 0.1, 0.1)]
    traces = [
        _trace([wait], [compute], 8, sync_seconds=[sync])
        for wait, compute, sync in parts
    ]

    found = _slowest(traces)

    assert found.own_seconds_per_step_per_rank == pytest.approx([0.2, 0.4])
    assert found.over_others == pytest.approx(2.0)


def test_ranks_that_average_nothing_have_a_slowest_rank() -> None:
    traces = [_trace([0.0], [1.0], 8), _trace([0.0], [3.0], 8)]

    figures = metrics.summarize(traces)

    slowest = figures["critical_path"]["slowest"]
    assert figures["critical_path"]["num_times_last_per_rank"] == [0, 1]
    assert slowest["over_others"] == 3.0
    assert metrics.speed_lines(figures)[-1] == slowest["text"]


def test_steps_that_begin_a_window_are_told_apart() -> None:
    first = _trace([9.0, 1.0, 1.0], [1.0] * 3, 24, windows_begun=[2, 0, 0])
    second = _trace([7.0, 3.0, 3.0], [1.0] * 3, 24, windows_begun=[1, 0, 0])

    figures = metrics.summarize([first, second])

    assert figures["window_steps"] == {
        "num_steps": 2,
        "wait_seconds_p50": 8.0,
        "wait_seconds_p99": pytest.approx(8.98),
    }
    assert figures["other_steps"]["num_steps"] == 4
    assert figures["other_steps"]["wait_seconds_p50"] == 2.0
    none = metrics.summarize([_trace([1.0], [1.0], 8)])["window_steps"]
    assert set(none.values()) == {0, None}


def test_histogram_holds_every_step_of_every_rank() -> None:
    traces = [_trace([0.0] * 3, [0.1, 1.0, 10.0], 24), _trace([0.0] * 3, [1.0] * 3, 24)]

    found = metrics.summarize(traces)["step_histogram"]

    edges, counts = found["edges_seconds"], found["counts"]
    assert (len(edges), len(counts), sum(counts)) == (41, 40, 6)
    assert (counts[0], max(counts), counts[-1]) == (1, 4, 1)
    assert (edges[0], edges[-1]) == pytest.approx((0.1, 10.0), rel=1e-5)
    ratios = np.divide(edges[1:], edges[:-1])
    assert ratios == pytest.approx(ratios[0])
    same = metrics.summarize([_trace([0.0] * 3, [2.0] * 3, 24)])["step_histogram"]
    assert sum(same["counts"]) == 3


def test_bytes_of_records_and_of_storage_are_told_apart() -> None:
    traces = [
        _trace([0.0], [2.0], 30, record_counts=np.array(counts))
        for counts in ([3, 0, 1], [0, 0, 9])
    ]

    figures = metrics.summarize(traces, record_bytes=1e5)

    assert figures["consumed_bytes"] == 6e6
    assert figures["consumed_megabytes_per_second"] == 3.0
    assert figures["storage_megabytes_per_second"] == pytest.approx(0.001)
    assert figures["run_storage_bytes_read"] == 3000
    assert metrics.speed_lines(figures)[-1] == (
        "Consumed 3.0 MB/s; storage gave 0.0 MB/s meanwhile"
    )


def test_synthetic_input_consumes_no_bytes() -> None:
    trace = _trace([0.0], [2.0], 30, record_counts=np.empty(0, np.int64))

    figures = metrics.summarize([trace])

    assert figures["consumed_bytes"] is None
    assert figures["consumed_megabytes_per_second"] is None


def test_figures_are_for_json() -> None:
    figures = metrics.summarize([_random_trace(seed, 5) for seed in range(3)])

    assert json.loads(json.dumps(figures)) == figures


@pytest.mark.parametrize(
    ("rates", "spread", "passed"),
    [
        ([100.0, 100.0], 0.0, True),
        ([97.5, 100.0, 102.5], 0.05, True),
        ([97.4, 100.0, 102.6], 0.052, False),
        ([50.0, 150.0, 100.0, 100.0], 1.0, False),
    ],
)
def test_reproducible_is_within_5_percent(
    rates: list[float], spread: float, passed: bool
) -> None:
    found = metrics.reproducibility([{"examples_per_second": rate} for rate in rates])

    assert found["spread"] == pytest.approx(spread)
    assert found["reproducible"] is passed
    assert found["examples_per_second_per_run"] == rates


def test_unknown_storage_bytes_of_one_rank_are_unknown_in_all() -> None:
    traces = [_trace([0.0], [1.0], 8), _trace([0.0], [1.0], 8, storage_bytes=None)]

    assert metrics.summarize(traces)["storage_bytes_read"] is None
    assert metrics.summarize(traces)["storage_megabytes_per_second"] is None
    rate = metrics.summarize([_trace([0.0], [1.0], 8, storage_bytes=0)])
    assert repr(rate["storage_megabytes_per_second"]) == "0.0"  # known, and a float


def test_deviation_is_over_steps() -> None:
    figures = metrics.summarize([_trace([0.0, 0.0], [1.0, 0.5], 20)])

    # 10 and 20 examples a second: standard deviation 5.
    assert figures["examples_per_second_deviation_per_rank"] == [pytest.approx(9.8)]
    assert metrics.speed_lines(figures)[:2] == [
        "Img/sec per rank: 13.3 +-9.8",
        "Total img/sec on 1 rank(s): 13.3 +-9.8",
    ]
    (line, *_) = metrics.speed_lines(metrics.summarize([_trace([0.0], [1.0], 8)]))
    assert line == "Img/sec per rank: 8.0"  # no interval of one step


def _learned(steps: list[tuple[int, float, int, int]]) -> Trace:
    """Takes for each step: epoch, loss, correct predictions, examples."""
    rows = [([0.0] * 5, *step, 0) for step in steps]
    # The first step is a warm-up step, and counts.
    return _trace([0.0], [1.0], 1, steps=np.array(rows, ROW), num_warmup_steps=1)


def test_epochs_are_joined_over_ranks_by_examples() -> None:
    first = _learned([(2, 4.0, 0, 1), (3, 2.0, 1, 2), (3, 0.0, 1, 2)])
    second = _learned([(2, 0.0, 1, 1), (3, 1.0, 2, 4), (3, 0.0, 2, 2)])

    assert metrics.learning([first, second]) == {
        "loss_first": 2.0,
        "loss_last": 0.0,
        "accuracy": 0.6,
        "epochs": [
            {"epoch": 2, "loss": 2.0, "accuracy": 0.5, "num_examples": 2},
            {"epoch": 3, "loss": 0.8, "accuracy": 0.6, "num_examples": 10},
        ],
    }


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([[1, 1, 0, 0], [0, 0, 1, 1]], (4, 4, 4, 1, 1, 0)),  # exactly once
        ([[1, 1, 0, 0], [0, 0, 1, 0]], (4, 3, 3, 0, 1, 0)),  # one dropped
        ([[1, 1, 1, 0], [0, 0, 2, 1]], (4, 6, 4, 1, 3, 1)),  # one on both ranks
    ],
)
def test_coverage(counts: list[list[int]], expected: tuple[int, ...]) -> None:
    result = metrics.coverage([np.array(count) for count in counts])

    assert result is not None
    assert tuple(result.values()) == expected


def test_synthetic_input_has_no_coverage() -> None:
    assert metrics.coverage([np.empty(0, np.int64)]) is None


def test_first_loss_that_is_not_finite_is_named() -> None:
    nan, inf = float("nan"), float("inf")
    sound, later, first = (
        _learned([(0, loss, 0, 4) for loss in losses])
        for losses in ([1.0, 2.0, 3.0], [1.0, 2.0, inf], [1.0, nan, nan])
    )

    assert metrics.not_finite_loss([sound, sound]) is None
    found = metrics.not_finite_loss([sound, later, first, first])

    assert found == {
        "step": 2,
        "ranks": [2, 3],
        "text": "The loss must stay finite, got nan at step 2 on rank 2, 3 of 4. Lower "
        "--learning_rate, or train with --precision=float32; --allow_nan goes on.",
    }
    assert (
        "got inf at step 3 on rank 1 of 2"
        in (metrics.not_finite_loss([sound, later]) or {})["text"]
    )
