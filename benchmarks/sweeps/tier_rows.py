"""The table of tiers: what each place of the data reached, and what bound it.

In: a sweep with its results. Out: a row for each tier, as text and for JSON.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.sweeps.placement import Placement
from benchmarks.sweeps.plan import Result, Series, Sweep

BYTES = (
    *("bytes_from_server", "bytes_from_disk"),
    *("bytes_from_page_cache", "bytes_from_ram_cache"),
)
_TITLES = ("server", "disk", "page cache", "RAM cache")

# Shares of the time, of the cores and of the bytes from which a resource binds.
_MOST_STALL, _FULL, _MANY = 0.05, 0.85, 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One tier on one number of ranks: means over its repeats.

    Attributes:
        series: The settings that the repeats share.
        place: Where their ranks ran.
        results: The results of the repeats, at least one.
    """

    series: Series
    place: Placement
    results: Sequence[Result]

    def mean(self, name: str) -> float | None:
        """Returns the mean of a figure; None if a repeat does not know it."""
        return _mean([result.get(name) for result in self.results])

    def num_bytes(self, name: str) -> float | None:
        """Returns the mean of one of `BYTES`; 0 without records."""
        sections = [result.get("storage") or {name: 0} for result in self.results]
        return _mean([section.get(name) for section in sections])

    @property
    def state(self) -> str:
        """The measured state: cold, warm, mixed or unknown, "/" between several."""
        sections = [result.get("storage") or {} for result in self.results]
        return "/".join(sorted({section.get("state", "") for section in sections}))

    @property
    def binding(self) -> str:
        """The resource that binds the most repeats."""
        found = [binding(result) for result in self.results]
        return max(dict.fromkeys(found), key=found.count)

    def as_json(self) -> dict[str, Any]:
        """Returns settings and figures as a dict that JSON can hold."""
        names = ("cpu_seconds_per_example", "stall_fraction")
        rates = [float(result["examples_per_second"]) for result in self.results]
        return {
            **self.series.as_json(),
            "num_ranks": self.place.num_ranks,
            "num_repeats": len(rates),
            "examples_per_second": statistics.mean(rates),
            "examples_per_second_min": min(rates),
            "examples_per_second_max": max(rates),
            **{name: self.mean(name) for name in names},
            "binding": self.binding,
            "state": self.state,
            **{name: self.num_bytes(name) for name in BYTES},
        }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if len(known) == len(values) else None


def binding(result: Result) -> str:
    """Returns which resource a run waited for.

    It is the model, or the accelerator in its place, if the input kept up; the cores of
    the host if they were busy; else the place that gave the bytes. If all bytes were in
    memory, the stages of the pipeline waited for each other.
    """
    if result["stall_fraction"] <= _MOST_STALL:
        return "accelerator" if result.get("kind") == "emulated" else "model"
    if ((result.get("telemetry") or {}).get("host_cpu_fraction") or 0.0) >= _FULL:
        return "cores"
    section: Mapping[str, Any] = result.get("storage") or {}
    server, disk = (section.get(name) or 0 for name in BYTES[:2])
    if max(server, disk) > _MANY * section.get("consumed_bytes", 0):
        return "server" if server >= disk else "disk"
    return "pipeline"


def rows(
    sweep: Sweep, results_of: Mapping[Series, Mapping[Placement, Sequence[Result]]]
) -> list[Row]:
    """Returns a row for each tier and number of ranks that has a result.

    Args:
        sweep: The settings.
        results_of: The results of each series, by placement.
    """
    return [
        Row(series=series, place=place, results=results)
        for series in sweep.series()
        for place, results in results_of[series].items()
        if results
    ]


def lines(found: Sequence[Row]) -> list[str]:
    """Returns the printed table; bytes are megabytes of the timed steps."""
    head = f"{'tier':18}{'ranks':>6}{'images/s':>10}{'CPU ms':>8}{'stall':>8}"
    head += f"  {'binding':12}{'state':9}"
    table = [head + "".join(f"{title + ' MB':>15}" for title in _TITLES)]
    for row in found:
        values = row.as_json()
        cpu, stall = values["cpu_seconds_per_example"], values["stall_fraction"]
        line = (
            f"{values['tier']:18}{row.place!s:>6}{values['examples_per_second']:10.1f}"
        )
        line += f"{_or_dash(cpu and cpu * 1e3, '.2f'):>8}{_or_dash(stall, '.1%'):>8}"
        line += f"  {row.binding:12}{row.state or '-':9}"
        for name in BYTES:
            megabytes = None if values[name] is None else values[name] / 1e6
            line += f"{_or_dash(megabytes, '.1f'):>15}"
        table.append(f"{line}  {_settings(row, found)}".rstrip())
    return table


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _settings(row: Row, found: Sequence[Row]) -> str:
    """Returns the settings of a row, without those that all rows share."""
    names = ("model", "mode", "batch_size", "accelerator", "scaling")
    differ = [n for n in names if len({getattr(r.series, n) for r in found}) > 1]
    return ", ".join(str(getattr(row.series, name)) for name in differ)
