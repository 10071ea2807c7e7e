"""Three bars: the input alone, the model alone, and both, run by the same loop.

In: the config of a run on real data. Out: the configs of all three runs, and a sentence
on the limit of the run. The input alone runs with an emulated accelerator of no step
time: records are still read, decoded and copied to the device.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from benchmarks.options.config import Config
from benchmarks.system.host_load import OTHERS_LIMIT

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
    """Returns the configs of the bars: input, synthetic and real.

    Args:
        config: A config with the model's defaults filled in.
    """
    single = dataclasses.replace(config, bars=False, repeat=1, require=())
    return {
        "input": dataclasses.replace(
            single, emulate=None, accelerators_file=None, step_time_ms=0.0
        ),
        "synthetic": dataclasses.replace(
            single,
            synthetic=True,
            read_from="auto",
            cache="as_is",
            **_OF_RECORDS,
        ),
        "real": single,
    }


def compare(results: Mapping[str, Mapping[str, Any]], num_cores: int) -> dict[str, Any]:
    """Returns the figures of the three runs, and the conclusion.

    Args:
        num_cores: Cores of all ranks together.

    Returns:
        The rates of the bars in examples a second and the busy shares of the cores, 0
        to 1; the ratios of rates; `case`, a word, and `sentence`.
    """
    rates = {name: results[name]["examples_per_second"] for name in NAMES}
    cpu = {name: results[name]["cpu_seconds_per_example"] for name in NAMES}
    load = results["real"].get("host_load", {})
    others = load.get("others_cpu_fraction") or 0.0
    bars = _Bars(rates=rates, cpu_seconds=cpu, num_cores=num_cores, others_busy=others)
    return {
        **{f"{name}_examples_per_second": rate for name, rate in rates.items()},
        **{f"{name}_cores_busy": bars.cores_busy(name) for name in NAMES},
        "real_over_synthetic": rates["real"] / rates["synthetic"],
        "input_over_synthetic": rates["input"] / rates["synthetic"],
        "case": bars.case,
        "sentence": _sentence(bars),
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Bars:
    """The three runs: "input" alone, the model alone on "synthetic" data, and "real".

    Attributes:
        num_cores: Cores of all ranks together.
        others_busy: Share of the cores for processes outside the real run, 0 to 1.
    """

    rates: Mapping[str, float]
    cpu_seconds: Mapping[str, float]
    num_cores: int
    others_busy: float

    def cores_busy(self, name: str) -> float:
        return self.rates[name] * self.cpu_seconds[name] / self.num_cores

    @property
    def overlapped(self) -> float:
        """Rate of input and model if both work at the same time and share nothing."""
        return min(self.rates["input"], self.rates["synthetic"])

    @property
    def in_turn(self) -> float:
        """Rate of input and model in turns: the times of an example add up."""
        return 1 / (1 / self.rates["input"] + 1 / self.rates["synthetic"])

    @property
    def cores_needed(self) -> float:
        """Share of the cores for both at the overlapped rate; the share may exceed 1.

        The CPU seconds of an example in both runs alone add up.
        """
        cost = self.cpu_seconds["input"] + self.cpu_seconds["synthetic"]
        return self.overlapped * cost / self.num_cores

    @property
    def lacks_cores(self) -> bool:
        """Whether the cores explain a rate below the overlapped rate.

        The cores of other processes are not there for the run.
        """
        used = max(self.cores_needed, self.cores_busy("real"))
        return used + self.others_busy >= _FULL

    @property
    def case(self) -> str:
        """The limit of the run, as a word.

        docs/reference/results.md has the rules, of which the first valid one decides.
        """
        real = self.rates["real"]
        if real >= _WELL_FED * self.rates["synthetic"]:
            return "well_fed"
        if real >= _SAME * self.overlapped:
            is_slower = self.rates["input"] < self.rates["synthetic"]
            return "input_binds" if is_slower else "model_binds"
        if self.lacks_cores or real >= _SAME * self.in_turn:
            return "compete"
        return "unexplained"


def _sentence(bars: _Bars) -> str:
    """Returns the case in words, with figures and advice."""
    feeds, takes, real = (bars.rates[name] for name in NAMES)
    reached = f"real data reaches {real / takes:.0%} of synthetic"
    alone = (
        f"alone the input feeds {feeds:,.0f} images/s and the model takes "
        f"{takes:,.0f}, together they reach {real:,.0f}"
    )
    left = 1 - bars.cores_busy("real") - bars.others_busy
    free = f"{max(0, left):.0%} of the cores are free"
    others = (
        f" Other processes took {bars.others_busy:.0%} of the cores: repeat the runs "
        "on a quiet host."
        if bars.others_busy > OTHERS_LIMIT
        else ""
    )
    resource = (
        f"cores: {alone}, as the work of both at {bars.overlapped:,.0f} would need "
        f"{bars.cores_needed:.0%} of the cores. Add cores, or make the input cheaper."
        if bars.lacks_cores
        else f"memory or for the way to the device: {alone}, although {free}. Look at "
        "the copies to the device, and bind ranks to NUMA nodes."
    )
    return {
        "well_fed": f"The model is well fed: {reached}, and the input alone feeds "
        f"{feeds / takes:.1f} times what the model takes. Nothing needs to be done.",
        "model_binds": f"The model binds: {reached}, although the input alone feeds "
        f"{feeds / takes:.1f} times what the model takes. Prefetch more batches, or "
        "repeat the run to see whether the difference is noise.",
        "input_binds": f"The input binds: {reached}; alone it feeds {feeds:,.0f} "
        f"images/s, {feeds / takes:.0%} of what the model takes. Tune the pipeline, or "
        "give it more cores or faster storage.",
        "compete": f"Input and model compete for {resource}{others}",
        "unexplained": f"Neither input nor model explains the rate: {alone}, taking "
        f"turns would reach {bars.in_turn:,.0f}, and {free}. Compare the states of the "
        "cache and the other load of the three runs, and repeat them." + others,
    }[bars.case]


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
