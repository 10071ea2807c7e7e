"""Accelerators: the images a second of every model.

In: an accelerator, a model and a mode. Out: a `Figure`, with its source. published.py
has the figures. A model without a figure is left out: no figure is guessed.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any

from tfpipe import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """The rate of a model on an accelerator.

    Attributes:
        source: The publication; for a scaled figure, the publications of the ratio and
            of the figure `base`.
        ratio: Number that the figure of `base` is multiplied by; None if the figure is
            published itself.
        base: Name of what the figure is scaled from; None if it is published itself.
    """

    images_per_second: float
    source: str
    date: str = "not stated"
    precision: str = "not stated"
    kind: str = "not stated"
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

    def __str__(self) -> str:
        how = self.basis
        if self.ratio is not None:
            how = f"scaled by {self.ratio:.2f} from {self.base}"
        return f"{self.images_per_second:,.0f} images/s, {how} ({self.source})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accelerator:
    """The figures of an accelerator."""

    train: Mapping[str, Figure]
    infer: Mapping[str, Figure] = dataclasses.field(default_factory=dict)

    def of_mode(self, mode: str) -> Mapping[str, Figure]:
        return self.infer if mode == "infer" else self.train


@dataclasses.dataclass(frozen=True, kw_only=True)
class Emulation:
    """The accelerator in place of the model of a run, by its name in the result."""

    accelerator: str
    model: str
    figure: Figure

    def step_seconds(self, batch_size: int) -> float:
        return batch_size / self.figure.images_per_second

    def as_json(self) -> dict[str, Any]:
        return {
            "accelerator": self.accelerator,
            "model": self.model,
            "examples_per_second": self.figure.images_per_second,
            "basis": self.figure.basis,
            "ratio": self.figure.ratio,
            "base": self.figure.base,
            "source": self.figure.source,
            "date": self.figure.date,
            "precision": self.figure.precision,
            "measurement": self.figure.kind,
        }

    def __str__(self) -> str:
        return f"Emulated: {self.model} on {self.accelerator}, {self.figure}"


def find(
    accelerators: Mapping[str, Accelerator],
    name: str,
    model: str,
    mode: str,
    *,
    flag: str = "--emulate",
    remedy: str = "--step_time_ms or --accelerators_file",
) -> Emulation:
    """Returns the emulation of a model on an accelerator.

    Args:
        name: The accelerator, in any case; a space or "-" stands for "_".
    """
    name = name_of(name, accelerators)
    if name not in accelerators:
        names = sorted(n for n, a in accelerators.items() if a.train or a.infer)
        raise ValueError(
            f"{flag} must be one of {', '.join(names)}, got {name}."
            f"{errors.did_you_mean(name, accelerators)} --accelerators_file adds "
            "others."
        )
    figures = accelerators[name].of_mode(mode)
    if model not in figures:
        raise ValueError(
            f"{flag}={name} has figures of {', '.join(sorted(figures)) or 'no model'} "
            f"with --mode={mode}, got --model={model}, for which no figure was found. "
            f"Give {remedy} instead."
        )
    return Emulation(accelerator=name, model=model, figure=figures[model])


def name_of(text: str, accelerators: Collection[str]) -> str:
    """Returns the name of the accelerator for a text in any case, or the text."""

    def plain(name: str) -> str:
        return name.casefold().replace("-", "_").replace(" ", "_")

    by_plain = {plain(name): name for name in accelerators}
    return text if text in accelerators else by_plain.get(plain(text), text)
