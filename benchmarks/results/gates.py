"""Gates: limits that a run must meet, given on the command line.

In: texts such as "stall<=3%", "au>=0.90", "real/synthetic>=0.97", "p99_step_ms<=50".
Out: for each gate, whether a result passes it, and the measured value. A gate does not
pass if the result lacks its metric.
"""

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from tfpipe import errors


class Verdict(NamedTuple):
    """The answer of a check, and a sentence with the measured values."""

    passed: bool
    text: str


class Metric(NamedTuple):
    """Place of a metric in a result.

    Attributes:
        key: Path in the result, with dots.
        scale: Factor from the value in the result to the metric, as 1e3 from s to ms.
        is_ratio: Whether the metric is a ratio, so that a limit may be in percent.
        at_most_one: Whether the metric is a share, 0 to 1.
        is_timed: Whether the metric is of the timed steps, so that it says nothing of a
            run that was not in a steady state.
        needs: What a run must have to measure the metric, one of `NEEDS`; empty if
            every run does.
    """

    key: str
    scale: float = 1.0
    is_ratio: bool = False
    at_most_one: bool = False
    is_timed: bool = True
    needs: str = ""


NEEDS: Mapping[str, str] = {
    "bars": "--bars, which also runs the input and the model alone",
    "repeats": "--repeat=2 or more",
    "records": "--data_dir: synthetic batches have no bytes",
    "learning": "a model that learns or is evaluated: --mode=train or eval, without an "
    "emulated accelerator",
    "gpu": "GPUs on every host that TensorFlow and NVML (nvidia-ml-py) see",
    "link": "--link_gbps, because the interfaces of a host tell no speed",
}


def _share(key: str, *, is_timed: bool = True, needs: str = "") -> Metric:
    return Metric(key, is_ratio=True, at_most_one=True, is_timed=is_timed, needs=needs)


_SLOWEST = Metric("stragglers.slowest_over_others", is_ratio=True)

METRICS: Mapping[str, Metric] = {
    "stall": _share("stall_fraction"),
    "sync": _share("sync_fraction"),
    "communication": _share("critical_path.shares.communication"),
    "late": _share("critical_path.shares.late"),
    "au": _share("accelerator_utilization"),
    "au_mlperf_storage": _share("accelerator_utilization_mlperf_storage"),
    "network": _share("network_utilization", needs="link"),
    "gpu": _share("gpu_utilization", needs="gpu"),
    "accuracy": _share("accuracy", is_timed=False, needs="learning"),
    "host_cpu": _share("telemetry.host_cpu_fraction"),
    "others_cpu": _share("host_load.others_cpu_fraction"),
    "stolen": _share("host_load.stolen_fraction"),
    "run_queue": _share("host_load.run_queue_wait_fraction"),
    "real/synthetic": Metric("bars.real_over_synthetic", is_ratio=True, needs="bars"),
    "input/synthetic": Metric("bars.input_over_synthetic", is_ratio=True, needs="bars"),
    "drift": Metric("steady_state.drift", is_ratio=True),
    "spread": Metric("reproducibility.spread", is_ratio=True, needs="repeats"),
    "slowest/others": _SLOWEST,
    "slowest/median": _SLOWEST,  # the name of this gate in older scripts
    "examples_per_second": Metric("examples_per_second"),
    "consumed_mb_per_second": Metric("consumed_megabytes_per_second", needs="records"),
    "storage_mb_per_second": Metric("storage_megabytes_per_second"),
    "cpu_ms_per_example": Metric("cpu_seconds_per_example", 1e3),
    "first_batch_seconds": Metric("time_to_first_batch_seconds", is_timed=False),
    **{f"p{p}_step_ms": Metric(f"step_seconds_p{p}", 1e3) for p in (50, 90, 95, 99)},
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
    """A limit that a metric must meet.

    Attributes:
        metric: One of `METRICS`.
        comparison: One of <=, >=, < and >.
        limit: The limit, in the unit of the metric; a share is 0 to 1.

    Raises:
        ValueError: If a field is not one of these.
    """

    metric: str
    comparison: str
    limit: float

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(
                f"A gate's metric must be one of {', '.join(METRICS)}; got "
                f"{self.metric!r}.{errors.did_you_mean(self.metric, METRICS)}"
            )
        if self.comparison not in _COMPARISONS:
            raise ValueError(
                f"A gate's comparison must be one of {' '.join(_COMPARISONS)}, got "
                f"{self.comparison!r}."
            )
        if METRICS[self.metric].at_most_one and not 0 <= self.limit <= 1:
            raise ValueError(
                f"{self.metric} is a share: its limit must be 0 to 1, or 0% to 100%; "
                f"got {self.limit:g}."
            )

    @classmethod
    def parse(cls, text: str) -> "Gate":
        """Reads a metric, a comparison and a limit; for ratios, 3% means 0.03.

        Raises:
            ValueError: If the text has another form, or the metric is not known.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(
                "--require must be a metric, one of <= >= < >, and a number, such as "
                f"stall<=3%, au>=0.90 or p99_step_ms<=50; got {text!r}. The metrics "
                f"are {', '.join(METRICS)}."
            )
        metric, limit = match["metric"], float(match["limit"])
        if match["percent"]:
            if metric in METRICS and not METRICS[metric].is_ratio:
                raise ValueError(f"{metric} is no ratio: give no % in {text!r}.")
            limit /= 100
        return cls(metric, match["comparison"], limit)

    def __str__(self) -> str:
        return f"{self.metric}{self.comparison}{self._show(self.limit)}"

    def measured(self, result: Mapping[str, Any]) -> float | None:
        """Returns the metric of a result, in its unit; None if the result has none.

        A value that is not a number is NaN.
        """
        metric = METRICS[self.metric]
        value: Any = result
        for part in metric.key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value * metric.scale

    def margin(self, measured: float) -> float:
        """Returns by how much a value is on the good side of the limit, in its unit."""
        distance = measured - self.limit
        return distance if self.comparison.startswith(">") else -distance

    def check(self, result: Mapping[str, Any]) -> Verdict:
        """Checks whether a result passes; a result without the metric does not.

        No metric of the timed steps passes if the run did not reach a steady state.
        """
        metric, measured = METRICS[self.metric], self.measured(result)
        if measured is None:
            return Verdict(
                False,
                f"{self} is not met: the result has no {metric.key}, which "
                "such a run does not measure.",
            )
        if math.isnan(measured):
            return Verdict(False, f"{self} is not met: {metric.key} is not a number.")
        steady = result.get("steady_state", {"reached": True})
        if metric.is_timed and not steady["reached"]:
            text = steady["text"]
            return Verdict(
                False,
                f"{self} is not met: got {self._show(measured)}, "
                f"{text[0].lower()}{text[1:]}",
            )
        passed = _COMPARISONS[self.comparison](measured, self.limit)
        met = "is met" if passed else "is not met"
        return Verdict(passed, f"{self} {met}: got {self._show(measured)}.")

    def _show(self, value: float) -> str:
        if METRICS[self.metric].at_most_one:
            return f"{value * 100:.6g}%"
        return f"{value:.6g}"


def refuse_unmeasured(gates: Sequence[Gate], has: Collection[str]) -> None:
    """Checks before a run that the run can measure the metrics of its gates.

    Args:
        gates: The gates.
        has: What the run has of `NEEDS`.

    Raises:
        ValueError: If a gate needs something that the run does not have.
    """
    for gate in gates:
        needs = METRICS[gate.metric].needs
        if needs and needs not in has:
            raise ValueError(
                f"--require={gate} cannot be measured in this run: it needs "
                f"{NEEDS[needs]}."
            )


def check(gates: Sequence[Gate], result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the verdict of each gate on a result, for JSON.

    The keys are gate, passed, text, measured, limit and margin; the last three are in
    the unit of the metric. margin is below 0 on the wrong side of the limit. measured
    and margin are None if the result has no such number. A run whose loss was not
    finite meets no gate.
    """
    return [_document(gate, result) for gate in gates]


def again(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the gates of a stored result, with the verdicts that its figures give.

    A gate of an older version, and a metric without a figure, keep the stored verdict.
    """
    return [_again(gate, result) for gate in stored(result)]


def stored(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the gates of a stored result, with the stored verdicts."""
    listed = result.get("gates")
    listed = listed if isinstance(listed, list | tuple) else ()
    return [gate for gate in listed if isinstance(gate, Mapping)]


def _again(stored: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    try:
        now = _document(Gate.parse(str(stored.get("gate"))), result)
    except (ValueError, TypeError, KeyError):
        return dict(stored)
    is_same = now["passed"] == (stored.get("passed") is True)
    return dict(stored) if is_same or now["measured"] is None else {**stored, **now}


def _document(gate: Gate, result: Mapping[str, Any]) -> dict[str, Any]:
    verdict, measured = gate.check(result), gate.measured(result)
    if broken := result.get("not_finite_loss"):
        verdict = Verdict(False, f"{gate} is not met: {broken['text']}")
    if measured is not None and not math.isfinite(measured):
        measured = None
    return {
        "gate": str(gate),
        **verdict._asdict(),
        "measured": measured,
        "limit": gate.limit,
        "margin": None if measured is None else gate.margin(measured),
    }
