"""The result of a search of settings: the winner, all trials, and their file.

In: trials, from the races of `search`. Out: a table, a sentence, and a JSON file that
`load_tuned` reads.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from tfpipe import errors, tuning
from tfpipe.pages import page
from tfpipe.pipeline import Pipeline
from tfpipe.profiling.host_share import HostShare
from tfpipe.service.paying import ServicePayoff
from tfpipe.tuner import space
from tfpipe.tuner.placement import Placement
from tfpipe.tuner.space import Setting
from tfpipe.tuner.verdict import GAIN
from tfpipe.tuning import Tuning


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """The figures of a setting in a race.

    Attributes:
        name: Name of the setting.
        setting: The setting; None for the original pipeline.
        elements_per_second: The median of the rounds.
        cpu_seconds_per_element: CPU-seconds of the whole process, the median of the
            rounds.
        against: Name of the trial to compare with in `ratio`.
        ratio: The median of the ratios of elements_per_second, by round.
        error: Why the setting could not be run; the figures are 0 then.
    """

    name: str
    setting: Setting | None
    elements_per_second: float = 0.0
    cpu_seconds_per_element: float = 0.0
    against: str = ""
    ratio: float = 0.0
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"{self.name[:50]:50} not possible: {self.error}"
        return (
            f"{self.name[:50]:50} {self.elements_per_second:9.1f} "
            f"{self.cpu_seconds_per_element * 1e3:9.2f}  {self.ratio:5.2f} of "
            f"{self.against}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """The best setting, and the evidence for it.

    Example:
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4)
        >>> search = tfpipe.search_tuning(pipeline, time_limit=0.5)
        >>> isinstance(search, tfpipe.Search)
        True
        >>> search.save("tuned.json")

    Attributes:
        pipeline: The pipeline with the best setting.
        setting: The best setting. If the original pipeline stays, its tuning and its
            cache.
        autotuned: The setting of AUTOTUNE, within the same budgets.
        trials: All trials, in order.
        ratio: Rate of the winner divided by the rate of AUTOTUNE in the race; 1 if
            AUTOTUNE wins; None if the time was too short for a race of both.
        given_ratio: Rate of the winner divided by the rate of the original pipeline;
            None if the original pipeline could not be run in time.
        fingerprint: Fingerprint of the original pipeline.
        is_as_given: Whether the pipeline is the original pipeline, unchanged.
        given_excess: How the original pipeline exceeds the budget; empty if it does
            not.
        service: Whether a `Service` would pay, from the rate of the winner and the
            demand; None if unknown.
        host_share: The part of the host in use by others during the search.
        notes: Remarks about the figures.
    """

    pipeline: Pipeline
    setting: Setting
    autotuned: Setting
    trials: Sequence[Trial]
    ratio: float | None
    given_ratio: float | None
    fingerprint: str
    is_as_given: bool = False
    given_excess: str = ""
    service: ServicePayoff | None = None
    host_share: HostShare | None = None
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        head = f"{'tried':50} {'elements/s':>10} {'CPU ms':>8}  ratio"
        lines = [head, *map(str, self.trials), *self.notes, self.sentence]
        return "\n".join([*lines, self.service.sentence] if self.service else lines)

    def _repr_html_(self) -> str:
        return page.printed(str(self))

    @property
    def sentence(self) -> str:
        """The result in words."""
        if self.ratio is None:
            kept = "stays as it was given" if self.is_as_given else "gets AUTOTUNE"
            return f"The time limit was too short for a race: the pipeline {kept}."
        if self.is_as_given and self.ratio * GAIN < 1:
            return (
                "Too few rounds, or other processes, leave open which setting is the "
                f"fastest: the pipeline stays as it was, at {self.ratio:.2f} times "
                "AUTOTUNE. Tune again on a quiet host, or for longer."
            )
        if self.is_as_given:
            return (
                "The pipeline as it was is the fastest, as no setting is "
                f"{GAIN - 1:.0%} faster: it stays, at {self.ratio:.2f} times AUTOTUNE."
            )
        versus = "the pipeline as it was could not be run"
        if self.given_ratio is not None:
            versus = f"{self.given_ratio:.2f} times the pipeline as it was"
        if self.given_excess:
            versus += f", which exceeds the budget ({self.given_excess})"
        if self.ratio < GAIN:
            return f"AUTOTUNE is as good as all that was tried; {versus}."
        chosen = space.words(self.setting)
        return f"{self.ratio:.2f} times AUTOTUNE, {versus}: {chosen}."

    def as_json(self) -> dict[str, Any]:
        """Returns the result without the pipeline as plain values."""
        return {
            "setting": dataclasses.asdict(self.setting),
            "ratio_to_autotune": self.ratio,
            "ratio_to_given": self.given_ratio,
            "is_as_given": self.is_as_given,
            "given_excess": self.given_excess,
            "sentence": self.sentence,
            "service": self.service and self.service.as_json(),
            "host_share": self.host_share and dataclasses.asdict(self.host_share),
            "notes": list(self.notes),
            "trials": [dataclasses.asdict(trial) for trial in self.trials],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the setting and the evidence to a file, for `load_tuned`.

        Raises:
            OSError: If the file cannot be written.
        """
        self.setting.tuning.save(
            path,
            made_for=tuning.made_for(self.fingerprint),
            cache=self.as_json()["setting"]["cache"],
            is_as_given=self.is_as_given,
            evidence=self.as_json(),
        )


def load_tuned(path: str | os.PathLike[str], pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline with the setting in a file of `Search.save`.

    If the original pipeline was the fastest in the search, the pipeline is returned
    unchanged. If the file was made for another host, TensorFlow or pipeline, a warning
    says so, and the pipeline is returned with the default tuning.

    Example:
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4)
        >>> tfpipe.search_tuning(pipeline, time_limit=0.5).save("tuned.json")
        >>> tuned = tfpipe.load_tuned("tuned.json", pipeline)
        >>> tuned.fingerprint == pipeline.fingerprint
        True

    Raises:
        OSError: If the file cannot be read.
        ValueError: If the file was not written by `Search.save`.
    """
    errors.require_kind("", "pipeline", pipeline, Pipeline)
    loaded = Tuning.load(path, fingerprint=pipeline.fingerprint)
    saved = tuning.read_saved(path)
    if loaded != Tuning(**saved["tuning"]):
        return dataclasses.replace(pipeline, tuning=loaded)
    if saved.get("is_as_given"):
        return pipeline
    cache = saved.get("cache")
    setting = Setting(tuning=loaded, cache=Placement(**cache) if cache else None)
    return setting.of(space.opened(pipeline))
