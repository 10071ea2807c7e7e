"""benchmarks.training.bars: the configs of three runs, and what they say together."""

from typing import Any

import pytest

from benchmarks.options.config import Config
from benchmarks.training import bars


def test_configs_of_the_three_runs() -> None:
    config = Config(data_dir="x", bars=True, repeat=3, cache="cold", num_epochs=2)

    runs = bars.configs(config)

    assert list(runs) == ["input", "synthetic", "real"]
    assert [run.is_emulated for run in runs.values()] == [True, False, False]
    assert [run.synthetic for run in runs.values()] == [False, True, False]
    assert [run.cache for run in runs.values()] == ["cold", "as_is", "cold"]
    assert {(run.bars, run.repeat) for run in runs.values()} == {(False, 1)}


def test_input_alone_has_no_emulated_accelerator() -> None:
    config = Config(data_dir="x", emulate="h100", accelerators_file="own.json")

    runs = bars.configs(config)

    assert (runs["input"].emulate, runs["input"].step_time_ms) == (None, 0.0)
    assert runs["real"].emulate == runs["synthetic"].emulate == "h100"


def _compare(
    rates: tuple[float, float, float], busy: tuple[float, float, float]
) -> dict[str, Any]:
    """Compares bars of such rates, which kept such shares of eight cores busy."""
    results = {
        name: {"examples_per_second": rate, "cpu_seconds_per_example": 8 * share / rate}
        for name, rate, share in zip(bars.NAMES, rates, busy, strict=True)
    }
    return bars.compare(results, 8)


# Shares of the cores that are busy: with input, model, and both together.
ON_A_GPU = (0.8, 0.1, 0.3)
ON_CPUS = (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("rates", "busy", "case"),
    [
        ((500, 100, 99), ON_A_GPU, "well_fed"),
        ((500, 100, 97), ON_A_GPU, "well_fed"),
        ((500, 100, 96.9), ON_A_GPU, "model_binds"),
        ((500, 100, 95), ON_A_GPU, "model_binds"),
        ((98, 100, 97), ON_A_GPU, "well_fed"),  # the gate is met
        ((100, 100, 96), ON_A_GPU, "model_binds"),
        ((80, 100, 80), ON_A_GPU, "input_binds"),
        ((80, 100, 76), ON_A_GPU, "input_binds"),
        ((80, 100, 75.9), ON_A_GPU, "compete"),  # for the way to the device
        ((500, 100, 94.9), ON_A_GPU, "compete"),
        ((300, 100, 71.3), ON_A_GPU, "compete"),  # 0.95 of taking turns: 75
        ((300, 100, 71.2), ON_A_GPU, "unexplained"),
        ((80, 100, 10), ON_A_GPU, "unexplained"),
        ((100, 100, 96), ON_CPUS, "model_binds"),
        ((100, 100, 50), ON_CPUS, "compete"),  # taking turns explains it
        ((100, 100, 30), ON_CPUS, "compete"),  # they also slow each other down
        ((600, 500, 270), ON_CPUS, "compete"),
        # Alone, each leaves cores free: both together need 0.4 + 0.51 of them.
        ((100, 100, 40), (0.4, 0.51, 0.7), "compete"),
        ((100, 100, 40), (0.4, 0.49, 0.91), "compete"),
        ((100, 100, 40), (0.4, 0.49, 0.89), "unexplained"),
    ],
)
def test_case(
    rates: tuple[float, float, float], busy: tuple[float, float, float], case: str
) -> None:
    figures = _compare(rates, busy)

    assert figures["case"] == case
    assert figures["real_over_synthetic"] == rates[2] / rates[1]
    shares = [figures[f"{name}_cores_busy"] for name in bars.NAMES]
    assert shares == pytest.approx(list(busy))


@pytest.mark.parametrize(
    ("rates", "busy", "sentence"),
    [
        (
            (500, 100, 99),
            ON_A_GPU,
            "The model is well fed: real data reaches 99% of synthetic, and the input "
            "alone feeds 5.0 times what the model takes. Nothing needs to be done.",
        ),
        (
            (500, 100, 96),
            ON_A_GPU,
            "The model binds: real data reaches 96% of synthetic, although the input "
            "alone feeds 5.0 times what the model takes. Prefetch more batches, or "
            "repeat the run to see whether the difference is noise.",
        ),
        (
            (80, 100, 78),
            ON_A_GPU,
            "The input binds: real data reaches 78% of synthetic; alone it feeds 80 "
            "images/s, 80% of what the model takes. Tune the pipeline, or give it more "
            "cores or faster storage.",
        ),
        (
            (600, 500, 270),
            ON_CPUS,
            "Input and model compete for cores: alone the input feeds 600 images/s and "
            "the model takes 500, together they reach 270, as the work of both at 500 "
            "would need 183% of the cores. Add cores, or make the input cheaper.",
        ),
        (
            (300, 100, 90),
            ON_A_GPU,
            "Input and model compete for memory or for the way to the device: alone "
            "the input feeds 300 images/s and the model takes 100, together they reach "
            "90, although 70% of the cores are free. Look at the copies to the device, "
            "and bind ranks to NUMA nodes.",
        ),
        (
            (300, 100, 60),
            ON_A_GPU,
            "Neither input nor model explains the rate: alone the input feeds 300 "
            "images/s and the model takes 100, together they reach 60, taking turns "
            "would reach 75, and 70% of the cores are free. Compare the states of the "
            "cache and the other load of the three runs, and repeat them.",
        ),
    ],
)
def test_sentence_has_the_figures_and_says_what_to_do(
    rates: tuple[float, float, float], busy: tuple[float, float, float], sentence: str
) -> None:
    assert _compare(rates, busy)["sentence"] == sentence


def test_longest_bar_has_forty_characters() -> None:
    figures = _compare((80, 100, 50), ON_CPUS)

    *drawn, last = bars.lines(figures)

    assert [line.count("█") for line in drawn] == [32, 40, 20]
    assert last == figures["sentence"]


def test_cores_that_others_take_are_not_free() -> None:
    results: dict[str, dict[str, Any]] = {
        "input": {"examples_per_second": 600.0, "cpu_seconds_per_example": 1e-3},
        "synthetic": {"examples_per_second": 600.0, "cpu_seconds_per_example": 1e-3},
        "real": {"examples_per_second": 500.0, "cpu_seconds_per_example": 2e-3},
    }
    alone = bars.compare(results, 2)
    results["real"]["host_load"] = {"others_cpu_fraction": 0.4}
    beside_others = bars.compare(results, 2)

    # 600 images/s of 2 ms need 60 % of two cores, and 500 images/s keep 50 % busy.
    assert "compete for memory" in alone["sentence"]
    assert "although 50% of the cores are free" in alone["sentence"]
    assert "compete for cores" in beside_others["sentence"]
    assert "Other processes took 40% of the cores" in beside_others["sentence"]
