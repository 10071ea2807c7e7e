"""Accelerators: the images a second of every model.

In: an accelerator, a model and a mode. Out: a `Figure`, with its source. published.py
has the figures. A model without a figure is left out: no figure is guessed.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from tfpipe import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """The rate of a model on an accelerator, also in place of the model of a run.

    Attributes:
        source: The publication; for a scaled figure, the publications of the ratio and
            of the figure `base`.
        ratio: Number that the figure of `base` is multiplied by; None if the figure is
            published itself.
        base: Name of what the figure is scaled from; None if it is published itself.
    """

    accelerator: str
    model: str
    images_per_second: float
    source: str
    date: str = "not stated"
    precision: str = "not stated"
    measurement: str = "not stated"
    ratio: float | None = None
    base: str | None = None

    def __post_init__(self) -> None:
        for factor in (self.images_per_second, self.ratio):
            if factor is not None and not 0 < factor < math.inf:
                raise ValueError(f"A rate or ratio must be above 0, got {factor}.")
        if not self.source:
            raise ValueError("The source of a figure must be given, got an empty text.")
        if (self.ratio is None) != (self.base is None):
            raise ValueError(
                "A scaled figure must have both ratio and base, got "
                f"{self.ratio} and {self.base}."
            )

    @property
    def basis(self) -> str:
        """Either "published" or "scaled"."""
        return "published" if self.ratio is None else "scaled"

    def step_seconds(self, batch_size: int) -> float:
        return batch_size / self.images_per_second

    def as_json(self) -> dict[str, Any]:
        fields = {**dataclasses.asdict(self), "basis": self.basis}
        return {"examples_per_second": fields.pop("images_per_second"), **fields}

    def __str__(self) -> str:
        how = self.basis
        if self.ratio is not None:
            how = f"scaled by {self.ratio:.2f} from {self.base}"
        return (
            f"Emulated: {self.model} on {self.accelerator}, "
            f"{self.images_per_second:,.0f} images/s, {how} ({self.source})"
        )


# The figures by accelerator, mode ("train" or "infer") and model.
Accelerators: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Figure]]]


def find(
    accelerators: Accelerators,
    name: str,
    model: str,
    mode: str,
    *,
    flag: str = "--emulate",
    remedy: str = "--step_time_ms or --accelerators_file",
) -> Figure:
    """Returns the figure of a model on an accelerator, by the names of `name_of`."""
    name = name_of(name, accelerators)
    if name not in accelerators:
        names = sorted(n for n, modes in accelerators.items() if any(modes.values()))
        raise ValueError(
            f"{flag} must be one of {', '.join(names)}, got {name}."
            f"{errors.did_you_mean(name, accelerators)} --accelerators_file adds "
            "others."
        )
    figures = accelerators[name][mode]
    if model not in figures:
        raise ValueError(
            f"{flag}={name} has figures of {', '.join(sorted(figures)) or 'no model'} "
            f"to {mode}, got --model={model}, for which no figure was found. "
            f"Give {remedy} instead."
        )
    return figures[model]


def name_of(text: str, accelerators: Collection[str]) -> str:
    """Returns the name of the accelerator for a text in any case, or the text.

    A space or "-" stands for "_".
    """

    def plain(name: str) -> str:
        return name.casefold().replace("-", "_").replace(" ", "_")

    by_plain = {plain(name): name for name in accelerators}
    return text if text in accelerators else by_plain.get(plain(text), text)
