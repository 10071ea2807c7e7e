"""benchmarks.training.bars: the configs of three runs, and the sentence about them."""

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
    runs = bars.configs(Config(data_dir="x", emulate="h100"))

    assert (runs["input"].emulate, runs["input"].step_time_ms) == (None, 0.0)
    assert runs["real"].emulate == runs["synthetic"].emulate == "h100"


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ((500, 100, 99), "The model binds: real data reaches 99% of synthetic, and"),
        ((500, 100, 99), "could feed 5.0 times as many images"),
        ((80, 100, 75), "The input binds: real data reaches 75% of synthetic;"),
        ((80, 100, 75), "feeds 80 images/s, 80% of what the model takes in"),
        ((300, 100, 90), "Input and model hold each other back: real data reaches"),
    ],
)
def test_sentence_names_the_limit(
    rates: tuple[float, float, float], words: str
) -> None:
    results = {
        name: {"examples_per_second": rate}
        for name, rate in zip(("input", "synthetic", "real"), rates, strict=True)
    }

    figures = bars.compare(results)

    assert words in figures["sentence"]
    assert figures["real_over_synthetic"] == rates[2] / rates[1]
    lines = bars.lines(figures)
    longest = max(rates)
    assert [line.count("█") for line in lines[:3]] == [
        round(40 * rate / longest) for rate in rates
    ]
