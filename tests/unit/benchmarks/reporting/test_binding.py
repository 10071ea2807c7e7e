"""benchmarks.reporting.binding: a word for what held a run back, by its evidence."""

from typing import Any

import pytest

from benchmarks.reporting import binding
from benchmarks.results import tree
from benchmarks.results.train_result import TrainResult

_DISK = {"consumed_bytes": 1e9, "bytes_from_disk": 9e8, "bytes_from_server": 0.0}
_SERVER = {"consumed_bytes": 1e9, "bytes_from_disk": 1e8, "bytes_from_server": 9e8}
_MEMORY = {"consumed_bytes": 1e9, "bytes_from_disk": 0.0, "bytes_from_server": 0.0}


def _load(wanted: float | None, others: float | None) -> dict[str, Any]:
    return {"wanted_cpu_fraction": wanted, "others_cpu_fraction": others}


@pytest.mark.parametrize(
    ("storage", "wanted", "others", "host", "word"),
    [
        # A quiet host.
        (_DISK, 0.1, 0.0, 0.1, "storage"),
        (_SERVER, 0.1, 0.0, 0.1, "network"),
        (_MEMORY, 0.1, 0.0, 0.1, "input"),
        (None, 0.1, 0.0, 0.1, "input"),
        (_DISK, 0.95, 0.0, 0.95, "cores"),
        (_MEMORY, 0.95, 0.0, 0.95, "cores"),
        # Bursts: threads wait for each other, and the cores are free in between.
        (_SERVER, 1.0, 0.1, 0.6, "network"),
        (_MEMORY, 1.0, 0.1, 0.6, "input"),
        # Others take the cores: a disk that is slower than the rest still binds.
        (_DISK, 0.1, 0.9, 1.0, "storage"),
        (_SERVER, 0.1, 0.9, 1.0, "network"),
        (_DISK, 1.0, 0.9, 1.0, "host"),
        (_MEMORY, 1.0, 0.9, 1.0, "host"),
        (_MEMORY, 1.0, 0.2, 1.0, "cores"),
        # Results of older versions do not know the cores that a run wanted.
        (_DISK, None, 0.9, 1.0, "host"),
        (_DISK, None, 0.0, 0.95, "cores"),
        (_DISK, None, 0.0, None, "storage"),
    ],
)
def test_a_wait_for_input_is_explained(
    storage: dict[str, float] | None,
    wanted: float | None,
    others: float,
    host: float | None,
    word: str,
) -> None:
    document = {
        "critical_path": {"shares": {"input": 0.6, "compute": 0.4}},
        "host_load": _load(wanted, others),
        "telemetry": {"host_cpu_fraction": host},
        "storage": storage,
    }

    assert binding.of_run(tree.read(TrainResult, document)) == word


@pytest.mark.parametrize(
    ("shares", "word"),
    [
        ({"input": 0.04, "communication": 0.05, "late": 0.01}, "accelerator"),
        ({"input": 0.1, "communication": 0.2, "late": 0.1}, "communication"),
        ({"input": 0.1, "communication": 0.1, "late": 0.3}, "host"),
    ],
)
def test_the_largest_loss_decides(shares: dict[str, float], word: str) -> None:
    document = {"critical_path": {"shares": shares}, "storage": _DISK}

    assert binding.of_run(tree.read(TrainResult, document)) == word


@pytest.mark.parametrize(
    ("host", "wanted", "queue", "others", "word"),
    [
        (1.0, 0.9, 0.6, 0.1, "cores"),
        (1.0, 0.9, 0.6, 0.9, "host"),
        (1.0, 0.9, 0.2, 0.1, "communication"),
        # Bursts: the cores are free between them.
        (0.6, 1.0, 0.7, 0.1, "communication"),
        # Others take the cores: a slow network still binds.
        (1.0, 0.3, 0.6, 0.9, "communication"),
        # Results of older versions.
        (1.0, None, 0.6, 0.1, "cores"),
        (0.5, None, 0.6, 0.1, "communication"),
    ],
)
def test_averages_whose_threads_wait_for_a_core_are_bound_by_cores(
    host: float, wanted: float | None, queue: float, others: float, word: str
) -> None:
    load = _load(wanted, others) | {"run_queue_wait_fraction": queue}
    document = {
        "critical_path": {"shares": {"communication": 0.5, "compute": 0.5}},
        "host_load": load,
        "telemetry": {"host_cpu_fraction": host},
    }

    assert binding.of_run(tree.read(TrainResult, document)) == word
