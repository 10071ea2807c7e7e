"""studies.interleaved: figures of variants, round by round."""

import types

import pytest

from studies import interleaved


def test_figures_are_of_rounds() -> None:
    def run(cpu_seconds: float, seconds: float) -> interleaved.Run:
        return {"cpu_seconds": cpu_seconds, "seconds": seconds, "num_images": 500}

    base = [run(1, 1), run(2, 2), run(1.5, 1)]
    figures = interleaved.figures([run(2, 1), run(2, 1), run(6, 2)], base)

    assert figures["cpu_seconds_per_1000_images"] == 4
    assert figures["cpu_seconds_per_1000_images_max"] == 12
    assert figures["cpu_ratio"] == 2
    assert (figures["cpu_ratio_min"], figures["cpu_ratio_max"]) == (1, 4)
    assert figures["images_per_second"] == 500
    assert figures["images_per_second_min"] == 250


def test_a_base_without_cpu_time_is_an_error() -> None:
    run = {"cpu_seconds": 0.0, "seconds": 1.0, "num_images": 2}

    with pytest.raises(ValueError, match="Raise --num_timed_images"):
        interleaved.figures([run], [run])


def test_measure_times_whole_batches_after_the_warm_up() -> None:
    read: list[int] = []

    def batches():
        while True:
            read.append(1)
            yield

    job = types.SimpleNamespace(batch_size=4, num_warmup_images=5, num_timed_images=9)
    # This clock counts the batches.
    run = interleaved.measure(batches(), job, lambda: float(len(read)))

    assert len(read) == 5
    assert run["cpu_seconds"] == 3
    assert run["num_images"] == 12
    assert run["seconds"] > 0
