"""converters.engines.processes: results in order, in one process."""

import time

from converters.engines import processes


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
