"""Results as a page needs them: read from folders and files, and repeats grouped.

In: folders with the JSON results of benchmarks.train, benchmarks.input,
benchmarks.storage, benchmarks.sweep and benchmarks.advise, or single files. Out: a
`Collection`. Every key of a result may be missing or have another type, because results
of older versions are read too.
"""

import dataclasses
import functools
import json
import math
import pathlib
import re
import statistics
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.results import checks, gates, tree
from benchmarks.results.checks import ADVISE, INPUT, STORAGE, SWEEP, TRAIN, WITH_RESULT
from benchmarks.results.train_result import TrainResult

# Options that change no figure: for files, waiting and gates.
_NOT_SETTINGS = {"report_dir", "checkpoint_dir", "rank_timeout", "require", "repeat"}
_TIME_IN_NAME = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)")
_MAX_NAME = 60  # letters of a name in a label
_PICTURES = (".jpg", ".jpeg", ".png")


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """One JSON document.

    Attributes:
        name: Name of its file without suffix, unique in a `Collection`.
        document: The JSON object.
        picture: Picture of the first batch, or None.
    """

    name: str
    document: Mapping[str, Any]
    picture: pathlib.Path | None = None

    @functools.cached_property
    def values(self) -> TrainResult:
        """The typed values; a value of a wrong type has its default."""
        return tree.decode(TrainResult, self.document)[0]

    @functools.cached_property
    def faults(self) -> list[str]:
        """A sentence for each contradiction within the result; see `checks`."""
        return checks.faults(self.document)

    @functools.cached_property
    def gates(self) -> list[dict[str, Any]]:
        """The gates, with the verdicts that the figures give."""
        return gates.again(self.document)

    def get(self, path: str) -> Any:
        """Returns the value at a path with dots; None where a part is missing."""
        value: Any = self.document
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def figure(self, path: str) -> float | None:
        """Returns a finite number, or None where there is none."""
        return as_number(self.get(path))

    def figures(self, path: str) -> list[float | None]:
        """Returns a list with None in place of every item but finite numbers."""
        return [as_number(item) for item in self.items(path)]

    def items(self, path: str) -> list[Any]:
        """Returns a list; an empty list where there is none."""
        value = self.get(path)
        return list(value) if isinstance(value, list | tuple) else []

    def text(self, path: str) -> str:
        """Returns a text; an empty text where there is none."""
        value = self.get(path)
        return value if isinstance(value, str) else ""

    @property
    def kind(self) -> str:
        """Kind of the run: real, synthetic or emulated."""
        config = self.values.config
        if self.values.kind or config.synthetic:
            return self.values.kind or "synthetic"
        is_real = config.emulate is config.step_time_ms is None
        return "real" if is_real else "emulated"

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
        folder = self.text("config.data_dir").rstrip("/").rpartition("/")[2]
        return self.text("environment.data.name") or folder

    @property
    def cache(self) -> str:
        """Measured state of the page cache, or the wanted state."""
        return self.text("cache.label") or self.text("cache.state")

    @property
    def started(self) -> str:
        """Date and time in UTC, to the minute; an empty text where no time is known."""
        if text := self.text("started_at"):
            return text[:16].replace("T", " ")
        if match := _TIME_IN_NAME.search(self.name):
            year, month, day, hour, minute, _ = match.groups()
            return f"{year}-{month}-{day} {hour}:{minute}"
        return ""

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts."""
        hosts = self.items("environment.hosts")
        names = [host.get("name") for host in hosts if isinstance(host, Mapping)]
        return [name for name in names if isinstance(name, str)]

    @property
    def rates(self) -> list[float]:
        """Images/s of every run in the result; several with --repeat."""
        several = self.figures("reproducibility.examples_per_second_per_run")
        single = [self.figure("examples_per_second")]
        return [rate for rate in several or single if rate is not None]


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Repeats: runs of equal settings, versions and machines.

    Attributes:
        index: Index of the group on the page, from 1.
        label: The number, and the settings unlike other groups.
        results: The repeats, at least one.
    """

    index: int
    label: str
    results: Sequence[Result]

    @property
    def median(self) -> Result:
        """The repeat of the median rate, for charts."""
        ordered = sorted(
            self.results, key=lambda r: r.figure("examples_per_second") or 0
        )
        return ordered[(len(ordered) - 1) // 2]

    @property
    def rates(self) -> list[float]:
        """Images/s of all repeats."""
        return [rate for result in self.results for rate in result.rates]

    def mean(self, path: str) -> float | None:
        """Returns the mean of a figure over the repeats with the figure."""
        values = [v for r in self.results if (v := r.figure(path)) is not None]
        return statistics.fmean(values) if values else None


@dataclasses.dataclass(frozen=True)
class Collection:
    """All results.

    Attributes:
        groups: Training, evaluation and inference.
        inputs: Results of benchmarks.input.
        probes: Results of benchmarks.storage.
        sweeps: Documents of benchmarks.sweep.
        advice: Predictions of benchmarks.advise.
        left_out: A sentence for every JSON file without a result.
    """

    groups: Sequence[Group]
    inputs: Sequence[Result]
    probes: Sequence[Result]
    sweeps: Sequence[Result]
    advice: Sequence[Result]
    left_out: Sequence[str]

    @property
    def results(self) -> list[Result]:
        """All results of runs, without the documents of sweeps and predictions."""
        runs = [result for group in self.groups for result in group.results]
        return [*runs, *self.inputs, *self.probes]


def as_number(value: Any) -> float | None:
    """Returns a finite number as it is, and None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:  # a whole number of JSON may be too large
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def read(paths: Sequence[pathlib.Path], *, flag: str = "--results") -> Collection:
    """Reads the results of folders and files.

    Args:
        paths: Folders with `*.json`, and JSON files.
        flag: Name of the flag with the paths, for the error.

    Raises:
        ValueError: If there is no result.
        OSError: If a path does not exist or cannot be read.
    """
    valid: list[Result] = []
    left_out: list[str] = []
    files = (file for path in paths for file in _files(path))
    for path in dict.fromkeys(files):
        document, reason = _document(path)
        if document is None:
            left_out.append(f"{path} is left out: {reason}")
            continue
        taken = {result.name for result in valid}
        name = path.stem
        if name in taken:
            name = f"{path.parent.name}/{name}"
        while name in taken:
            name += "'"
        picture = next(
            (p for s in _PICTURES if (p := path.with_suffix(s)).exists()), None
        )
        valid.append(Result(name, document, picture))
    if not valid:
        raise ValueError(
            f"{flag}={','.join(map(str, paths))} must hold at least one JSON result, "
            f"got none. {' '.join(left_out)} Make one with python -m benchmarks.train "
            "--report_dir=FOLDER.".replace("  ", " ")
        )
    return collect(valid, left_out=left_out)


def collect(results: Sequence[Result], *, left_out: Sequence[str] = ()) -> Collection:
    """Returns results by their command, and repeats grouped.

    Args:
        results: Results with different names.
        left_out: A sentence for every file without a result.
    """
    by_command = {
        command: [r for r in results if r.get("command") == command]
        for command in WITH_RESULT
    }
    return Collection(
        groups=_groups(by_command[TRAIN]),
        inputs=by_command[INPUT],
        probes=by_command[STORAGE],
        sweeps=by_command[SWEEP],
        advice=by_command[ADVISE],
        left_out=left_out,
    )


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} must be a folder or a JSON file with results: nothing is there."
        )
    return sorted(path.glob("*.json")) if path.is_dir() else [path]


def _document(path: pathlib.Path) -> tuple[dict[str, Any] | None, str]:
    """Returns the result in a file, or None and the reason."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return None, f"it cannot be read as JSON ({why})."
    command = document.get("command") if isinstance(document, dict) else None
    if command not in WITH_RESULT:
        what = f"its command is {command}" if isinstance(command, str) else "no command"
        return None, f"it is no result of a benchmark ({what})."
    return document, ""


def settings(result: Result) -> dict[str, Any]:
    """Returns the settings of repeats: options, paths and the number of ranks."""
    config = result.get("config")
    options = dict(config) if isinstance(config, Mapping) else {}
    kept = {key: options[key] for key in sorted(options.keys() - _NOT_SETTINGS)}
    # The paths say what ran with an option "auto".
    paths = result.get("paths")
    kept |= paths if isinstance(paths, dict) else {}
    return {"num_ranks": result.get("num_ranks"), "kind": result.kind, **kept}


def environment(result: Result) -> dict[str, Any]:
    """Returns versions and hardware, without the names of hosts."""
    values = result.get("environment")
    if not isinstance(values, dict):
        return {}
    return {key: value for key, value in values.items() if key != "hosts"}


def machines(result: Result) -> list[str]:
    """Returns the machines of a run, the same before and after a reboot.

    A repeat may follow a reboot: cores, memory and name of the machine stay. Results of
    older versions have the boot of a machine only.
    """
    hosts = result.values.environment.hosts
    return sorted({host.machine_id or host.boot_id or host.name for host in hosts})


def _groups(results: Sequence[Result]) -> list[Group]:
    """Returns the repeats together, and the groups in an order for readers."""
    repeats: dict[str, list[Result]] = {}
    for result in results:
        same = [settings(result), result.cache, environment(result)]
        same += [machines(result), bool(result.faults)]
        repeats.setdefault(json.dumps(same, sort_keys=True), []).append(result)
    ordered = sorted(repeats.values(), key=lambda group: _order(group[0]))
    labels = _labels([group[0] for group in ordered])
    return [
        Group(index, f"{index}. {label}", group)
        for index, (label, group) in enumerate(zip(labels, ordered, strict=True), 1)
    ]


def _order(result: Result) -> tuple[Any, ...]:
    names = (result.text("config.mode"), result.text("config.model"))
    where = (result.kind, result.accelerator, result.data)
    sizes = (result.figure(path) or 0 for path in ("config.batch_size", "num_ranks"))
    return (*names, *where, result.cache, *sizes, result.started, result.name)


def _labels(results: Sequence[Result]) -> list[str]:
    """Returns model and ranks of every run, and the settings unlike other runs."""
    parts = [_parts(result) for result in results]
    always = {"model", "ranks"}
    differing = {
        key
        for key in dict.fromkeys(key for p in parts for key in p)
        if len({p.get(key, "") for p in parts}) > 1
    }
    return [
        ", ".join(p[key] for key in p if key in always | differing and p[key])
        for p in parts
    ]


def short_name(text: str) -> str:
    """Returns a short name for use within a sentence.

    A name from right to left is enclosed in Unicode's isolates (UAX 9): the words
    around the name keep their direction.
    """
    if len(text) > _MAX_NAME:
        text = f"{text[: _MAX_NAME // 2]}…{text[-_MAX_NAME // 2 :]}"
    if any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text):
        return f"\u2068{text}\u2069"
    return text


def _parts(result: Result) -> dict[str, str]:
    ranks, batch = result.figure("num_ranks"), result.figure("config.batch_size")
    mode = result.text("config.mode")
    kind = f"{result.kind} {result.accelerator}".strip()
    values = result.values
    return {
        "mode": "" if mode == "train" else mode,
        "model": short_name(result.text("config.model")) or "unknown model",
        "ranks": "" if ranks is None else f"{ranks:g} rank{'s' if ranks != 1 else ''}",
        "batch": "" if batch is None else f"batch {batch:g}",
        "kind": "" if kind == "real" else kind,
        "data": short_name(result.data),
        "tier": short_name(result.text("storage.tier")),
        "cache": result.cache if result.cache != "as_is" else "",
        "precision": values.config.precision or "",
        "image": f"{values.config.image_size or 'own'} pixels",
        "hosts": short_name(", ".join(result.hosts)),
        "machine": ", ".join(name[:8] for name in machines(result)),
        **{
            f"environment {key}": f"{key} {short_name(str(value))}"
            for key, value in environment(result).items()
            if isinstance(value, str | int | float)
        },
        "altered": "altered" if result.faults else "",
    }
