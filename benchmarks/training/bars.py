"""Three bars: the input alone, the model alone, and both, run by the same loop.

In: the config of a run on real data. Out: the configs of all three runs, and a sentence
on what holds the run back. The run of the input alone has an emulated accelerator that
takes no time: records are still read, decoded and copied to the device.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from benchmarks.options.config import Config

# Real data at this share of the synthetic rate: the input does not limit the model.
_WELL_FED = 0.97


def configs(config: Config) -> dict[str, Config]:
    """Returns the config of each bar: input, synthetic and real.

    Args:
        config: A config with the model's defaults filled in.
    """
    one = dataclasses.replace(config, bars=False, repeat=1, require=())
    return {
        "input": dataclasses.replace(one, emulate=None, step_time_ms=0.0),
        "synthetic": dataclasses.replace(
            one,
            data_dir=None,
            synthetic=True,
            num_epochs=None,
            cache="as_is",
            tuning=None,
        ),
        "real": one,
    }


def compare(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the rates of the three runs, their ratios, and a sentence about them.

    Args:
        results: The figures of each run, by the name of its bar.
    """
    rates = {name: result["examples_per_second"] for name, result in results.items()}
    return {
        **{f"{name}_examples_per_second": rate for name, rate in rates.items()},
        "real_over_synthetic": rates["real"] / rates["synthetic"],
        "input_over_synthetic": rates["input"] / rates["synthetic"],
        "sentence": _sentence(rates["input"], rates["synthetic"], rates["real"]),
    }


def _sentence(feeds: float, takes: float, real: float) -> str:
    """Returns what limits the run, in words.

    Args:
        feeds: Images a second of the input alone.
        takes: Images a second of the model on synthetic data.
        real: Images a second of both together.
    """
    reached = f"real data reaches {real / takes:.0%} of synthetic"
    if real / takes >= _WELL_FED:
        return (
            f"The model binds: {reached}, and the input alone could feed "
            f"{feeds / takes:.1f} times as many images."
        )
    if feeds < takes:
        return (
            f"The input binds: {reached}; alone it feeds {feeds:,.0f} images/s, "
            f"{feeds / takes:.0%} of what the model takes in."
        )
    return (
        f"Input and model hold each other back: {reached}, although the input alone "
        f"feeds {feeds / takes:.1f} times what the model takes in. They compete for "
        "cores, for memory or for the way to the device."
    )


def lines(figures: Mapping[str, Any]) -> list[str]:
    """Returns the bars as lines of text; the longest bar has 40 characters."""
    rates = {
        name: figures[f"{name}_examples_per_second"]
        for name in ("input", "synthetic", "real")
    }
    scale = 40 / max(rates.values())
    return [
        *(
            f"{name:9} {'█' * max(1, round(rate * scale)):40} {rate:10,.1f} images/s"
            for name, rate in rates.items()
        ),
        figures["sentence"],
    ]
