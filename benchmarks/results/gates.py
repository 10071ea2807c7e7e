"""Gates: limits that a run must meet, given on the command line.

In: texts such as "stall<=3%", "au>=0.90", "real/synthetic>=0.97", "p99_step_ms<=50".
Out: for each gate, whether a result passes it, and the measured value. A gate does not
pass if the result lacks its metric.
"""

import contextlib
import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from benchmarks.results.train_result import GateAnswer, TrainResult
from tfpipe import errors


class Metric(NamedTuple):
    """A metric of a result.

    Attributes:
        scale: Factor from the value in the result to the metric, as 1e3 from s to ms.
        is_ratio: Whether the metric is a ratio, and a limit may be in percent.
        at_most_one: Whether the metric is a share, 0 to 1.
        is_timed: Whether the metric is of the timed steps, and says nothing of a run
            without a steady state.
        needs: What a run must have for the metric, a key of `NEEDS`; empty for none.
    """

    get: Callable[[TrainResult], float | None]
    scale: float = 1.0
    is_ratio: bool = False
    at_most_one: bool = False
    is_timed: bool = True
    needs: str = ""

    def measured(self, result: TrainResult) -> float | None:
        """Returns the metric of a result; None for a result without its figure."""
        value = self.get(result)
        return None if value is None else value * self.scale


NEEDS: Mapping[str, str] = {
    "bars": "--bars, which also runs the input and the model alone",
    "repeats": "--repeat=2 or more",
    "records": "--data_dir: synthetic batches have no bytes",
    "learning": "a model that learns or is evaluated: --mode=train or eval, without an "
    "emulated accelerator",
    "gpu": "GPUs on every host that TensorFlow and NVML (nvidia-ml-py) see",
    "link": "--link_gbps, because the interfaces of a host tell no speed",
}


_ratio = functools.partial(Metric, is_ratio=True)
_share = functools.partial(_ratio, at_most_one=True)
_SLOWEST = _ratio(lambda r: r.critical_path.slowest.over_others)

METRICS: Mapping[str, Metric] = {
    "stall": _share(lambda r: r.stall_fraction),
    "sync": _share(lambda r: r.sync_fraction),
    "communication": _share(lambda r: r.critical_path.shares.get("communication")),
    "late": _share(lambda r: r.critical_path.shares.get("late")),
    "au": _share(lambda r: r.accelerator_utilization),
    "au_mlperf_storage": _share(lambda r: r.accelerator_utilization_mlperf_storage),
    "network": _share(lambda r: r.network_utilization, needs="link"),
    "gpu": _share(lambda r: r.gpu_utilization, needs="gpu"),
    "accuracy": _share(lambda r: r.accuracy, is_timed=False, needs="learning"),
    "host_cpu": _share(lambda r: r.telemetry.host_cpu_fraction),
    "others_cpu": _share(lambda r: r.host_load.others_cpu_fraction),
    "stolen": _share(lambda r: r.host_load.stolen_fraction),
    "run_queue": _share(lambda r: r.host_load.run_queue_wait_fraction),
    "real/synthetic": _ratio(lambda r: r.bars.real_over_synthetic, needs="bars"),
    "input/synthetic": _ratio(lambda r: r.bars.input_over_synthetic, needs="bars"),
    "drift": _ratio(lambda r: r.steady_state.drift),
    "spread": _ratio(lambda r: r.reproducibility.spread, needs="repeats"),
    "slowest/others": _SLOWEST,
    "slowest/median": _SLOWEST,  # the name of this gate in older scripts
    "examples_per_second": Metric(lambda r: r.examples_per_second),
    "consumed_mb_per_second": Metric(
        lambda r: r.consumed_megabytes_per_second, needs="records"
    ),
    "storage_mb_per_second": Metric(lambda r: r.storage_megabytes_per_second),
    "cpu_ms_per_example": Metric(lambda r: r.cpu_seconds_per_example, 1e3),
    "first_batch_seconds": Metric(
        lambda r: r.time_to_first_batch_seconds, is_timed=False
    ),
    "p50_step_ms": Metric(lambda r: r.step_seconds_p50, 1e3),
    "p90_step_ms": Metric(lambda r: r.step_seconds_p90, 1e3),
    "p95_step_ms": Metric(lambda r: r.step_seconds_p95, 1e3),
    "p99_step_ms": Metric(lambda r: r.step_seconds_p99, 1e3),
}

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM = re.compile(
    r"\s*(?P<metric>[a-z0-9_/]+)\s*(?P<comparison><=|>=|<|>)"
    r"\s*(?P<limit>\d+(\.\d*)?|\.\d+)\s*(?P<percent>%?)\s*"
)


@dataclasses.dataclass(frozen=True)
class Gate:
    """A limit that a metric must meet, in the unit of the metric; a share is 0 to 1."""

    metric: str
    comparison: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> "Gate":
        """Reads a metric, a comparison and a limit; for ratios, 3% means 0.03."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(
                "--require must be a metric, one of <= >= < >, and a number, such as "
                f"stall<=3%, au>=0.90 or p99_step_ms<=50; got {text!r}. The metrics "
                f"are {', '.join(METRICS)}."
            )
        name, limit = match["metric"], float(match["limit"])
        if (metric := METRICS.get(name)) is None:
            raise ValueError(
                f"A gate's metric must be one of {', '.join(METRICS)}; got {name!r}."
                f"{errors.did_you_mean(name, METRICS)}"
            )
        if match["percent"]:
            if not metric.is_ratio:
                raise ValueError(f"{name} is no ratio: give no % in {text!r}.")
            limit /= 100
        if metric.at_most_one and limit > 1:
            raise ValueError(
                f"{name} is a share: its limit must be 0 to 1, or 0% to 100%; got "
                f"{limit:g}."
            )
        return cls(name, match["comparison"], limit)

    def __str__(self) -> str:
        return f"{self.metric}{self.comparison}{self._show(self.limit)}"

    def check(self, result: TrainResult) -> GateAnswer:
        """Returns whether a result passes; a result without the metric does not.

        No metric of the timed steps passes if the run did not reach a steady state, and
        no metric at all if a loss was not finite. measured, limit and margin are in the
        unit of the metric. margin is below 0 on the wrong side of the limit. measured
        and margin are None if the result has no such number.
        """
        metric = METRICS[self.metric]
        measured, sign = metric.measured(result), 1 if ">" in self.comparison else -1
        steady, broken = result.steady_state, result.not_finite_loss
        passed = False
        if broken:
            why = broken.text
        elif measured is None:
            why = (
                "the result has no such figure: a run of this kind does not measure "
                "the metric, or the figure was not finite."
            )
        elif metric.is_timed and steady.reached is False:
            unsteady = f"{steady.text[:1].lower()}{steady.text[1:]}"
            why = f"got {self._show(measured)}, {unsteady}"
        else:
            passed = _COMPARISONS[self.comparison](measured, self.limit)
            why = f"got {self._show(measured)}."
        return GateAnswer(
            gate=str(self),
            passed=passed,
            text=f"{self} {'is met' if passed else 'is not met'}: {why}",
            measured=measured,
            limit=self.limit,
            margin=None if measured is None else sign * (measured - self.limit),
        )

    def _show(self, value: float) -> str:
        if METRICS[self.metric].at_most_one:
            return f"{value * 100:.6g}%"
        return f"{value:.6g}"


def refuse_unmeasured(gates: Sequence[Gate], has: Collection[str]) -> None:
    """Checks before a run that the run can measure the metrics of its gates."""
    for gate in gates:
        needs = METRICS[gate.metric].needs
        if needs and needs not in has:
            raise ValueError(
                f"--require={gate} cannot be measured in this run: it needs "
                f"{NEEDS[needs]}."
            )


def again(result: TrainResult) -> list[GateAnswer]:
    """Returns the gates of a stored result, with the verdicts that its figures give.

    A gate of an older version, and a metric without a figure, keep the stored verdict.
    """
    answers = list(result.gates)
    for index, stored in enumerate(answers):
        with contextlib.suppress(ValueError):
            now = Gate.parse(stored.gate).check(result)
            is_other = now.measured is not None and now.passed != stored.passed
            answers[index] = now if is_other else stored
    return answers
