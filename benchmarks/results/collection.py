"""Results as a page needs them: read from folders and files, and repeats grouped.

In: folders with the JSON results of benchmarks.train, benchmarks.input,
benchmarks.storage, benchmarks.sweep and benchmarks.advise, or single files. Out: a
`Collection` of typed values. A key that is missing or of another type has its default,
because results of older versions are read too.
"""

import dataclasses
import functools
import itertools
import json
import pathlib
import re
import statistics
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

from benchmarks.results import checks, gates, tree
from benchmarks.results.checks import ADVISE, INPUT, STORAGE, SWEEP, TRAIN, VERSIONS
from benchmarks.results.other_results import (
    AdviceResult,
    InputResult,
    StorageResult,
    SweepResult,
)
from benchmarks.results.train_result import GateAnswer, MeasuredResult, TrainResult
from tfpipe import errors
from tfpipe.errors import count_of

# Options that change no figure: for files, waiting and gates.
_NOT_SETTINGS = {"report_dir", "checkpoint_dir", "rank_timeout", "require", "repeat"}
_TIME_IN_NAME = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)")
_REVISION = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28}\b")
_MAX_NAME = 60  # letters of a name in a label
_PICTURES = (".jpg", ".jpeg", ".png")
_TYPES: Mapping[str, type[MeasuredResult]] = {
    INPUT: InputResult,
    STORAGE: StorageResult,
    SWEEP: SweepResult,
    ADVISE: AdviceResult,
}
T = TypeVar("T", bound=MeasuredResult)
Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True, eq=False)
class Result(Generic[T]):
    """One JSON document, and its typed values; the name is unique in a `Collection`."""

    name: str
    document: Mapping[str, Any]
    picture: pathlib.Path | None = None

    @functools.cached_property
    def values(self) -> T:
        """The typed values; a value of a wrong type has its default."""
        kind = _TYPES.get(str(self.document.get("command")), TrainResult)
        return cast(T, tree.decode(kind, self.document)[0])

    @functools.cached_property
    def faults(self) -> list[str]:
        """A sentence for every contradiction within the result; see `checks`."""
        return checks.faults(self.document)

    @functools.cached_property
    def gates(self) -> list[GateAnswer]:
        """The gates, with the verdicts that the figures give."""
        values: MeasuredResult = self.values
        return gates.again(values) if isinstance(values, TrainResult) else []

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """All options of the run, of any version, to compare and to repeat it."""
        return _mapping(self.document.get("config"))

    @property
    def kind(self) -> str:
        """Kind of the run: real, synthetic or emulated."""
        if self.values.kind or self.values.config.synthetic:
            return self.values.kind or "synthetic"
        return "emulated" if self.accelerator else "real"

    @property
    def accelerator(self) -> str:
        """The emulated accelerator or step time; an empty text where there is none."""
        config = self.values.config
        if config.emulate or config.step_time_ms is None:
            return config.emulate or ""
        return f"{config.step_time_ms:g} ms a step"

    @property
    def data(self) -> str:
        """Name of the data set, or else of its folder; empty for synthetic data."""
        if self.kind == "synthetic":
            return ""
        folder = (self.values.config.data_dir or "").rstrip("/").rpartition("/")[2]
        data = self.values.environment.data
        return (data.name if data else None) or folder

    @property
    def cache(self) -> str:
        """Measured state of the page cache, or the wanted state."""
        return self.values.cache.label or self.values.cache.state or ""

    @property
    def started(self) -> str:
        """Date and time in UTC, to the minute; an empty text where no time is known."""
        if text := self.values.started_at:
            return text[:16].replace("T", " ")
        match = _TIME_IN_NAME.search(self.name)
        return match.expand(r"\1-\2-\3 \4:\5") if match else ""

    @property
    def hosts(self) -> list[str]:
        return [host.name for host in self.values.environment.hosts if host.name]


RunResult = Result[TrainResult]


def rates(run: RunResult) -> list[float]:
    """Returns images/s of every run in a result; several with --repeat."""
    every = run.values.reproducibility.examples_per_second_per_run
    return [r for r in every or (run.values.examples_per_second,) if r is not None]


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Repeats: runs of equal settings, versions and machines.

    Attributes:
        index: Number of the group, from 1, among the groups of its kind.
        label: The number, and the settings unlike other groups.
        kind: "run"; or "input", "storage", "advice" or "sweep" for a single result.
    """

    index: int
    label: str
    results: Sequence[Result[Any]]
    kind: str = "run"

    @functools.cached_property
    def median(self) -> RunResult:
        """The repeat of the median rate, for charts."""
        ordered = sorted(self.results, key=lambda r: r.values.examples_per_second or 0)
        return ordered[(len(ordered) - 1) // 2]

    @property
    def values(self) -> TrainResult:
        return self.median.values

    @property
    def rates(self) -> list[float]:
        return [rate for result in self.results for rate in rates(result)]

    @property
    def gates(self) -> list[GateAnswer]:
        return [gate for result in self.results for gate in result.gates]

    def figures(self, get: Callable[[TrainResult], float | None]) -> list[float]:
        """Returns a figure of each repeat with the figure."""
        return [v for r in self.results if (v := get(r.values)) is not None]

    def mean(self, get: Callable[[TrainResult], float | None]) -> float | None:
        """Returns the mean of a figure over the repeats with the figure."""
        values = self.figures(get)
        return statistics.fmean(values) if values else None


@dataclasses.dataclass(frozen=True)
class Collection:
    """All results."""

    groups: Sequence[Group]
    inputs: Sequence[Result[InputResult]]
    probes: Sequence[Result[StorageResult]]
    sweeps: Sequence[Result[SweepResult]]
    advice: Sequence[Result[AdviceResult]]
    left_out: Sequence[str]

    @property
    def results(self) -> list[Result[Any]]:
        runs = [result for group in self.groups for result in group.results]
        return [*runs, *self.inputs, *self.probes]

    @property
    def entries(self) -> list[Group]:
        """The groups, then all other results as groups, in the order of a page."""
        others: dict[str, Sequence[Result[Any]]]
        others = {"Input": self.inputs, "Storage": self.probes}
        others |= {"Advice": self.advice, "Sweep": self.sweeps}
        return list(self.groups) + [
            Group(index, f"{kind}: {result.name}", [result], kind.lower())
            for kind, several in others.items()
            for index, result in enumerate(several, 1)
        ]


def read(paths: Sequence[pathlib.Path], *, flag: str = "--results") -> Collection:
    """Reads the results of folders and files."""
    valid: dict[str, Result[Any]] = {}
    left_out: list[str] = []
    for path in dict.fromkeys(itertools.chain(*map(_files, paths))):
        try:
            document = _document(path)
        except ValueError as error:
            left_out.append(f"{path} is left out: {error}")
            continue
        name = f"{path.parent.name}/{path.stem}" if path.stem in valid else path.stem
        while name in valid:
            name += "'"
        pictures = filter(pathlib.Path.exists, map(path.with_suffix, _PICTURES))
        valid[name] = Result(name, document, next(pictures, None))
    if not valid:
        raise ValueError(
            f"{flag}={','.join(map(str, paths))} must hold at least one JSON result, "
            f"got none. {' '.join(left_out)} Make one with python -m benchmarks.train "
            "--report_dir=FOLDER.".replace("  ", " ")
        )
    return collect(list(valid.values()), left_out=left_out)


def collect(
    results: Sequence[Result[Any]], *, left_out: Sequence[str] = ()
) -> Collection:
    """Returns results by their command, and repeats grouped."""
    train, inputs, probes, sweeps, advice = (
        [result for result in results if result.document.get("command") == command]
        for command in (TRAIN, INPUT, STORAGE, SWEEP, ADVISE)
    )
    return Collection(_groups(train), inputs, probes, sweeps, advice, left_out)


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} must be a folder or a JSON file with results: nothing is there."
        )
    return sorted(path.glob("*.json")) if path.is_dir() else [path]


def _document(path: pathlib.Path) -> dict[str, Any]:
    content = path.read_bytes()
    try:
        document = _mapping(errors.from_json(content.decode()))
    except ValueError as error:
        raise ValueError(f"it cannot be read as JSON ({error}).") from error
    if str(command := document.get("command")) not in VERSIONS:
        what = f"its command is {command}" if isinstance(command, str) else "no command"
        raise ValueError(f"it is no result of a benchmark ({what}).")
    return document


def settings(result: RunResult) -> dict[str, Any]:
    """Returns the settings of repeats: options, paths and the number of ranks."""
    options, values = result.options, result.values
    kept = {key: options[key] for key in sorted(options.keys() - _NOT_SETTINGS)}
    # The paths say what ran with an option "auto".
    return {"num_ranks": values.num_ranks, "kind": result.kind, **kept, **values.paths}


def environment(result: Result[Any]) -> dict[str, Any]:
    """Returns versions and hardware, without the names of hosts."""
    values = _mapping(result.document.get("environment"))
    return {key: value for key, value in values.items() if key != "hosts"}


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def machines(result: RunResult) -> list[str]:
    """Returns the machines of a run, the same before and after a reboot.

    Results of older versions have the boot of a machine only.
    """
    hosts = result.values.environment.hosts
    return sorted({host.machine_id or host.boot_id or host.name for host in hosts})


def alike(results: Sequence[Item], key: Callable[[Item], Any]) -> list[list[Item]]:
    """Returns results with equal keys, values of JSON, in the order of the first."""
    groups: dict[str, list[Item]] = {}
    for result in results:
        groups.setdefault(json.dumps(key(result), sort_keys=True), []).append(result)
    return list(groups.values())


def _groups(results: Sequence[RunResult]) -> list[Group]:
    def same(result: RunResult) -> list[object]:
        where = [environment(result), machines(result)]
        return [settings(result), result.cache, *where, bool(result.faults)]

    ordered = sorted(alike(results, same), key=lambda group: _order(group[0]))
    named = labels([texts(group[0]) for group in ordered], "model", "ranks")
    return [
        Group(index, f"{index}. {label}", group)
        for index, (label, group) in enumerate(zip(named, ordered, strict=True), 1)
    ]


def _order(result: RunResult) -> tuple[Any, ...]:
    values, config = result.values, result.values.config
    names = (config.mode, config.model)
    where = (result.kind, result.accelerator, result.data)
    sizes = (config.batch_size or 0, values.num_ranks or 0)
    return (*names, *where, result.cache, *sizes, result.started, result.name)


def labels(parts: Sequence[Mapping[str, str | None]], *always: str) -> list[str]:
    """Returns a label for each mapping: the texts that differ, and others.

    Args:
        parts: Key -> text. A key without a text is left out.
        always: Keys of texts that are in every label.
    """
    shown = {
        key
        for key in set().union(*parts)
        if key in always or len({part.get(key) or "" for part in parts}) > 1
    }
    chosen = ([part[key] for key in part if key in shown] for part in parts)
    return [", ".join(filter(None, several)) for several in chosen]


def short_name(text: str) -> str:
    """Returns a short name for use within a sentence.

    A name from right to left is enclosed in Unicode's isolates (UAX 9): the words
    around the name keep their direction. A revision of git has 12 digits.
    """
    text = _REVISION.sub(r"\1", text)
    if len(text) > _MAX_NAME:
        text = f"{text[: _MAX_NAME // 2]}…{text[-_MAX_NAME // 2 :]}"
    if any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text):
        return f"\u2068{text}\u2069"
    return text


def texts(result: RunResult) -> dict[str, str]:
    """Returns the conditions of a run as short texts by name; "" for a usual one."""
    values, config = result.values, result.values.config
    versions = {
        f"environment {key}": f"{key} {short_name(str(value))}"
        for key, value in environment(result).items()
        if isinstance(value, str | int | float)
    }
    batch = config.batch_size
    return {
        "mode": "" if config.mode == "train" else config.mode,
        "model": short_name(config.model) or "unknown model",
        "ranks": "" if values.num_ranks is None else count_of(values.num_ranks, "rank"),
        "batch": "" if batch is None else f"batch {batch}",
        "kind": f"{result.kind} {result.accelerator}".removeprefix("real").strip(),
        "data": short_name(result.data),
        "tier": short_name(values.storage.tier if values.storage else ""),
        "cache": result.cache.removeprefix("as_is"),
        "precision": config.precision or "",
        "image": f"{config.image_size or 'own'} pixels",
        "hosts": short_name(", ".join(result.hosts)),
        "machine": ", ".join(name[:8] for name in machines(result)),
        **versions,
        "altered": "altered" if result.faults else "",
    }
