"""benchmarks.metrics: figures of a run from the traces of its ranks."""

import numpy as np
import pytest

from benchmarks import metrics
from benchmarks.metrics import Epoch, Step


def _trace(
    wait: list[float], compute: list[float], examples: int, **fields: object
) -> metrics.Trace:
    values = {
        "wait_seconds": wait,
        "compute_seconds": compute,
        "num_examples": examples,
        "cpu_seconds": 1.0,
        "storage_bytes": 1000,
        "losses": [2.0, 1.0],
        "epochs": [Epoch(0, 3.0, 1, 4)],
        "record_counts": np.array([1, 0, 1]),
    }
    return metrics.Trace(**{**values, **fields})


def test_total_is_all_work_over_the_time_of_the_slowest_rank() -> None:
    fast = _trace([0.0, 0.0], [1.0, 1.0], 80)
    slow = _trace([1.0, 1.0], [1.0, 1.0], 80)

    figures = metrics.summarize([fast, slow])

    assert figures["examples_per_second"] == 40.0  # 160 in 4 s, not 40 + 20
    assert figures["examples_per_second_per_rank"] == [40.0, 20.0]
    assert figures["accelerator_utilization"] == pytest.approx((1 + 0.5) / 2)
    assert figures["stall_fraction"] == pytest.approx(0.25)
    assert figures["wait_seconds_per_step"] == pytest.approx(0.5)
    assert figures["compute_seconds_per_step"] == 1.0
    assert figures["cpu_seconds_per_example"] == pytest.approx(2 / 160)
    assert figures["storage_bytes_read"] == 2000
    assert figures["num_timed_steps"] == 2
    assert figures["timed_seconds"] == 4.0


def test_unknown_storage_bytes_of_one_rank_are_unknown_in_all() -> None:
    traces = [_trace([0.0], [1.0], 8), _trace([0.0], [1.0], 8, storage_bytes=None)]

    assert metrics.summarize(traces)["storage_bytes_read"] is None


def test_deviation_is_that_of_the_steps() -> None:
    figures = metrics.summarize([_trace([0.0, 0.0], [1.0, 0.5], 20)])

    # 10 and 20 examples a second: standard deviation 5.
    assert figures["examples_per_second_deviation_per_rank"] == [pytest.approx(9.8)]
    assert metrics.speed_lines(figures)[:2] == [
        "Img/sec per rank: 13.3 +-9.8",
        "Total img/sec on 1 rank(s): 13.3 +-9.8",
    ]


def test_epochs_are_joined_over_ranks_by_examples() -> None:
    first = _trace([0.0], [1.0], 8, epochs=[Epoch(3, 4.0, 2, 4)], losses=[3.0, 2.0])
    second = _trace([0.0], [1.0], 8, epochs=[Epoch(3, 4.0, 4, 6)], losses=[1.0, 0.5])

    assert metrics.learning([first, second]) == {
        "loss_first": 2.0,
        "loss_last": 1.25,
        "accuracy": 0.6,
        "epochs": [{"epoch": 3, "loss": 0.8, "accuracy": 0.6, "num_examples": 10}],
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


def test_recorder_times_only_what_follows_the_warm_up() -> None:
    recorder = metrics.Recorder(num_records=3)
    warm_up = Step(5.0, 5.0, 4.0, 0, 2, np.array([0, 1]))
    timed = Step(1.0, 2.0, 1.0, 2, 2, np.array([2, 2]))

    recorder.add(warm_up, epoch=0)
    recorder.start_timing()
    recorder.add(timed, epoch=1)
    trace = recorder.trace()

    assert (trace.wait_seconds, trace.compute_seconds) == ([1.0], [2.0])
    assert trace.num_examples == 2
    assert trace.losses == [4.0, 1.0]
    assert trace.epochs == [Epoch(0, 8.0, 0, 2), Epoch(1, 2.0, 2, 2)]
    assert trace.record_counts.tolist() == [1, 1, 2]
    assert trace.cpu_seconds >= 0
