"""converters.engines.processes: results in order, in one process."""

import io
import sys
import time

import pytest

from converters.engines import processes
from tfpipe import host


def _square(number: int) -> int:
    processes.image_done()
    return number * number


def test_results_are_in_the_order_of_the_tasks() -> None:
    seen: list[int] = []

    result = processes.run(
        _square, range(9), num_workers=1, num_images=9, on_result=seen.append
    )

    assert result == seen == [number * number for number in range(9)]
    assert list(processes.stream(_square, range(9), num_workers=1)) == result


def test_spans_say_when_each_task_ran() -> None:
    spans: list[processes.Span] = []
    before = time.monotonic()

    processes.run(_square, range(5), num_workers=1, num_images=5, on_span=spans.append)

    assert len(spans) == 5
    for span in spans:
        assert before <= span.start <= span.end <= time.monotonic()
        assert span.cpu_seconds >= 0


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_counts_its_unit_and_the_tasks_that_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", _Terminal())
    monkeypatch.setenv("COLUMNS", "100")

    processes.run(
        _square, range(3), num_workers=1, num_images=3, unit="file", note="{} shards up"
    )

    last = sys.stderr.getvalue().split("\r")[-1]
    assert "3/3" in last
    assert "file" in last
    assert "3 shards up" in last


def test_a_small_job_has_one_process_unless_it_encodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "num_cores", lambda: 7)

    assert processes.default_workers(300, 31_000_000) == 1
    assert processes.default_workers(300, 31_000_000, encodes=True) == 7
    assert processes.default_workers(300, 60_000_000) == 7
    assert processes.default_workers(3000, 31_000_000) == 7
    assert processes.default_workers(300, 0) == 7
