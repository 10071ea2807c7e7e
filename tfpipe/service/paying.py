"""Paying: whether a service would pay, and how many cores of other hosts it would need.

In: the rate of a pipeline on some cores, and the rate that a training step could take.
Out: a number of cores, and a sentence. Nothing is measured.
"""

import dataclasses
import math
from typing import Any, ClassVar

from tfpipe import errors

# If a pipeline uses less of the time of its cores, something else limits it.
_LEAST_BUSY = 0.7


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServicePayoff:
    """The rate that cores deliver, against the rate that a training step could take.

    Example:
        >>> payoff = tfpipe.ServicePayoff(rate=500, num_cores=2, demand=2000)
        >>> payoff.pays, payoff.cores_elsewhere
        (True, 9)

    Args:
        rate: Images per second that the pipeline delivers without a step, > 0.
        num_cores: Cores that give this rate, > 0.
        demand: Images per second that the step could take, > 0; None if unknown.
        cpu_seconds: CPU time of an image, > 0; None if the cores are known to be busy.
        bytes_per_image: Bytes of an image as it reaches the step, > 0; None if unknown.
        unit: Word for the images, such as "batches".

    Raises:
        ValueError: If a number is not positive.
    """

    # Rate a core with a service over that without it: what is sent between two
    # processes is copied, and costs CPU time on both sides.
    # studies/results/2026-11-23-service.json
    efficiency: ClassVar[float] = 0.90

    rate: float
    num_cores: float
    demand: float | None = None
    cpu_seconds: float | None = None
    bytes_per_image: float | None = None
    unit: str = "images"

    def __post_init__(self) -> None:
        errors.settle_numbers(self, ["rate", "num_cores"], above=0)
        names = ["demand", "cpu_seconds", "bytes_per_image"]
        errors.settle_numbers(self, names, above=0, or_none=True)
        errors.require_kind(self, "unit", self.unit, str)

    @property
    def busy_share(self) -> float:
        """Share of the time of the cores that is used, 0 to 1."""
        if self.cpu_seconds is None:
            return 1.0
        return min(1.0, self.rate * self.cpu_seconds / self.num_cores)

    @property
    def cores_elsewhere(self) -> int | None:
        """Cores of other hosts that meet the demand, of the speed of those here.

        0 if the cores here meet the demand; None if the demand is unknown, or if more
        cores may not help, as this pipeline does not use those here.
        """
        if self.demand is None:
            return None
        if self.rate >= self.demand:
            return 0
        if self.busy_share < _LEAST_BUSY:
            return None
        return math.ceil(self.demand / (self.rate / self.num_cores * self.efficiency))

    @property
    def pays(self) -> bool | None:
        """Whether a service would pay; None if `cores_elsewhere` is."""
        return None if self.cores_elsewhere is None else self.cores_elsewhere > 0

    @property
    def sentence(self) -> str:
        """The result in words."""
        each, cores = _number(self.rate / self.num_cores), f"{self.num_cores:,.10g}"
        supply = (
            f"{cores} core{'s' * (self.num_cores != 1)} at {each} {self.unit}/s a core "
            f"give {_number(self.rate)} {self.unit}/s"
        )
        if self.demand is None:
            return (
                f"{supply}: a tfpipe.Service pays only if the training step takes more."
            )
        asked = f"{supply}, and the step takes {_number(self.demand)}"
        if (needed := self.cores_elsewhere) is None:
            return (
                f"{asked}, but only {self.busy_share:.0%} of the time of these cores "
                "is used for that. Storage, other processes or a setting hold it back: "
                "mend that before a tfpipe.Service, which only adds cores."
            )
        if not needed:
            return f"{asked}: a tfpipe.Service would not pay."
        network = ""
        if self.bytes_per_image is not None:
            rate = self.demand * self.bytes_per_image / 1e9
            network = f", and {rate:,.2g} GB/s of the network"
        return (
            f"{asked}: a tfpipe.Service with {needed:,} cores of other hosts would "
            f"close the gap. It costs {1 - self.efficiency:.0%} of the {self.unit}/s a "
            f"core{network}."
        )

    def as_json(self) -> dict[str, Any]:
        """Returns the figures as plain values, units in the names; None is unknown."""
        return {
            "unit": self.unit,
            "rate_per_second": self.rate,
            "num_cores": self.num_cores,
            "rate_per_second_per_core": self.rate / self.num_cores,
            "busy_share": self.busy_share,
            "demand_per_second": self.demand,
            "pays": self.pays,
            "cores_elsewhere": self.cores_elsewhere,
            "sentence": self.sentence,
        }


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
