"""Three bars: the input alone, the model alone, and both, run by the same loop.

In: the config of a run on real data. Out: the configs of all three runs, and a sentence
on the limit of the run. The input alone runs with an emulated accelerator of no step
time: records are still read, decoded and copied to the device.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.options.config import Config
from benchmarks.system.telemetry import OTHERS_LIMIT

NAMES = ("input", "synthetic", "real")

_WELL_FED = 0.97  # real over synthetic: the input does not limit the model
_SAME = 0.95  # ratio of equal rates: MLPerf Storage's limit for repeated runs
_FULL = 0.9  # busy share of the cores at which the cores are the limit
_OF_RECORDS: Mapping[str, Any] = dict.fromkeys(
    (
        *("data_dir", "shard_cache_dir", "shard_cache_max_gb", "shared_cache_dir"),
        *("shared_cache_max_gb", "ram_cache", "num_epochs", "tuning"),
    )
)


def configs(config: Config) -> dict[str, Config]:
    """Returns the configs of the bars, by name; the model's defaults are filled in."""
    single = dataclasses.replace(config, bars=False, repeat=1, require=())
    return {
        "input": dataclasses.replace(
            single, emulate=None, accelerators_file=None, step_time_ms=0.0
        ),
        "synthetic": dataclasses.replace(
            single, synthetic=True, read_from="auto", cache="as_is", **_OF_RECORDS
        ),
        "real": single,
    }


def compare(results: Mapping[str, Mapping[str, Any]], num_cores: int) -> dict[str, Any]:
    """Returns the figures of the three runs, and the conclusion.

    The figures are the rates of the bars in examples a second, the busy shares of the
    cores of all ranks, 0 to 1, the ratios of rates, `case`, a word, and `sentence`.
    """
    rates = {name: results[name]["examples_per_second"] for name in NAMES}
    # The busy shares of the cores.
    busy = {
        name: rates[name] * results[name]["cpu_seconds_per_example"] / num_cores
        for name in NAMES
    }
    load = results["real"].get("host_load", {})
    others = load.get("others_cpu_fraction") or 0.0
    case, sentence = _conclude([*rates.values()], [*busy.values()], others)
    if others > OTHERS_LIMIT and case in ("compete", "unexplained"):
        sentence += (
            f" Other processes took {others:.0%} of the cores: repeat the runs on a "
            "quiet host."
        )
    return {
        **{f"{name}_examples_per_second": rate for name, rate in rates.items()},
        **{f"{name}_cores_busy": share for name, share in busy.items()},
        "real_over_synthetic": rates["real"] / rates["synthetic"],
        "input_over_synthetic": rates["input"] / rates["synthetic"],
        "case": case,
        "sentence": sentence,
    }


def _conclude(
    rates: Sequence[float], busy: Sequence[float], others: float
) -> tuple[str, str]:
    """Returns the first case of docs/reference/results.md that is valid, in words."""
    feeds, takes, real = rates
    ratio = f"{feeds / takes:.1f} times what the model takes"
    reached = f"real data reaches {real / takes:.0%} of synthetic"
    if real >= _WELL_FED * takes:
        return "well_fed", (
            f"The model is well fed: {reached}, and the input alone feeds {ratio}. "
            "Nothing needs to be done."
        )
    if real < _SAME * min(feeds, takes):
        return _conclude_of_both(rates, busy, others)
    if feeds >= takes:
        return "model_binds", (
            f"The model binds: {reached}, although the input alone feeds {ratio}. "
            "Prefetch more batches, or repeat the run to see whether the difference is "
            "noise."
        )
    return "input_binds", (
        f"The input binds: {reached}; alone it feeds {feeds:,.0f} images/s, "
        f"{feeds / takes:.0%} of what the model takes. Tune the pipeline, or give it "
        "more cores or faster storage."
    )


def _conclude_of_both(
    rates: Sequence[float], busy: Sequence[float], others: float
) -> tuple[str, str]:
    """Returns the limit of a run that is slower than its input and its model."""
    feeds, takes, real = rates
    # The rates of both at the same time if they share nothing, and in turns.
    overlapped, in_turn = min(feeds, takes), 1 / (1 / feeds + 1 / takes)
    # The CPU-seconds of an example in both runs alone add up; this share may exceed 1.
    needed = overlapped * (busy[0] / feeds + busy[1] / takes)
    alone = (
        f"alone the input feeds {feeds:,.0f} images/s and the model takes "
        f"{takes:,.0f}, together they reach {real:,.0f}"
    )
    free = f"{max(0, 1 - busy[2] - others):.0%} of the cores are free"
    # The cores of other processes are not there for the run.
    if max(needed, busy[2]) + others >= _FULL:
        return "compete", (
            f"Input and model compete for cores: {alone}, as the work of both at "
            f"{overlapped:,.0f} would need {needed:.0%} of the cores. Add cores, or "
            "make the input cheaper."
        )
    if real >= _SAME * in_turn:
        return "compete", (
            "Input and model compete for memory or for the way to the device: "
            f"{alone}, although {free}. Look at the copies to the device, and bind "
            "ranks to NUMA nodes."
        )
    return "unexplained", (
        f"Neither input nor model explains the rate: {alone}, taking turns would reach "
        f"{in_turn:,.0f}, and {free}. Compare the states of the cache and the other "
        "load of the three runs, and repeat them."
    )


def lines(figures: Mapping[str, Any]) -> list[str]:
    """Returns the bars as lines of text; the longest bar has 40 characters."""
    rates = {name: figures[f"{name}_examples_per_second"] for name in NAMES}
    scale = 40 / max(rates.values())
    return [
        *(
            f"{name:9} {'█' * max(1, round(rate * scale)):40} {rate:10,.1f} images/s"
            for name, rate in rates.items()
        ),
        figures["sentence"],
    ]
