"""Runs of a sweep: every combination of its settings.

In: a `Sweep`, or a file of its settings. Out: its `Run`s without repetition, and its
`Series`, the units of scaling. A `Placement` has the numbers of ranks and hosts of a
run, and chooses the hosts. No process starts in this module.
"""

import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.models import catalog
from benchmarks.page_cache import states
from benchmarks.planning import published
from benchmarks.results.other_results import SweptSettings
from tfpipe import cli, errors
from tfpipe.cli import fields

NO_ACCELERATOR = "none"
_INTERFACES = r"--network-interfaces?[= ]('[^']*'|\S+)"


@dataclasses.dataclass(frozen=True)
class Placement:
    """Numbers of the ranks and of the hosts, None if the slots of the hosts decide."""

    num_ranks: int
    num_hosts: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Placement":
        """Reads "2x4": hosts, and ranks of each host."""
        if (match := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)) is None:
            raise ValueError(
                "--placements must be hosts x ranks of each host, such as 1x8 or 2x4; "
                f"got {text!r}."
            )
        num_hosts, ranks_per_host = map(int, match.groups())
        return cls(num_hosts * ranks_per_host, num_hosts)

    def __str__(self) -> str:
        if self.num_hosts is None:
            return str(self.num_ranks)
        return f"{self.num_hosts}x{self.num_ranks // self.num_hosts}"

    def on(self, hosts: Sequence[str]) -> tuple[str, ...]:
        """Returns the hosts that ranks start on, as horovodrun's -H takes them.

        The hosts, "name" or "name:slots", are in the order of their use. With none, all
        ranks start on this host.
        """
        if self.num_hosts is None:
            if hosts and self.num_ranks > (slots := count_slots(hosts)):
                raise ValueError(
                    f"{self.num_ranks} ranks must fit into the slots of --hosts, got "
                    f"{slots} slots."
                )
            return tuple(hosts)
        if not hosts and self.num_hosts == 1:
            return ()
        if len(hosts) < self.num_hosts:
            raise ValueError(
                f"--placements={self} must have {self.num_hosts} --hosts, got "
                f"{len(hosts)}."
            )
        num_each = self.num_ranks // self.num_hosts
        used = [_split(host) for host in hosts[: self.num_hosts]]
        for name, free in used:
            if free is not None and free < num_each:
                raise ValueError(
                    f"--placements={self} must have {num_each} slots on each host, got "
                    f"{free} on {name}."
                )
        return tuple(f"{name}:{num_each}" for name, _ in used)


def count_slots(hosts: Sequence[str]) -> int:
    """Returns the number of slots of all hosts together."""
    slots = [s for _, s in map(_split, hosts) if s is not None]
    if len(slots) < len(hosts):
        raise ValueError(
            "Without --placements each of --hosts must have its slots, such as "
            f"host1:8; got {','.join(hosts)}."
        )
    return sum(slots)


def _split(host: str) -> tuple[str, int | None]:
    name, colon, slots = host.partition(":")
    if not name or (colon and not (slots.isdecimal() and int(slots))):
        raise ValueError(f"--hosts must be name or name:slots, got {host!r}.")
    return name, int(slots) if colon else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(SweptSettings):
    """A start of benchmarks.train.

    Attributes:
        scaling: "", as weak and strong scaling share runs.
        batch_size: Batch size of a rank.
        data_dir: Folder of the data set; None if `arguments` name the data.
        num_ranks: Number of ranks; a single rank without `hosts` is started without
            horovodrun.
        repeat: Number of the run, from 1, among runs with equal settings.
        hosts: Hosts as horovodrun's -H takes them; none for this host.
    """

    num_ranks: int
    repeat: int
    num_hosts: int | None = None
    hosts: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    horovodrun_arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the run's file without suffix; unique to the run's settings."""
        folder = pathlib.Path(self.data_dir).name if self.data_dir else "no-data"
        where = self.data_dir
        if where and "://" not in where:
            where = os.path.abspath(where)
        # A setting that older sweeps did not have is left out where it is not used, so
        # that the results of older sweeps keep their names. A used setting changes the
        # name, so a stored run may have keys of newer versions; see results/tree.py.
        rest = [where, self.arguments, self.horovodrun_arguments]
        rest += [self.hosts] if self.hosts else []
        parts = [
            *(self.model, self.mode, self.tier),
            f"x{Placement(self.num_ranks, self.num_hosts)}",
            "bown" if self.batch_size is None else f"b{self.batch_size}",
            *(self.cache, self.accelerator and f"on-{self.accelerator}"),
            folder,
            hashlib.sha256(json.dumps(rest).encode()).hexdigest()[:8],
            f"r{self.repeat}",
        ]
        return "-".join(part for part in parts if part)

    @property
    def flags(self) -> list[str]:
        emulate = None if self.accelerator == NO_ACCELERATOR else self.accelerator
        names = ("model", "mode", "batch_size", "data_dir", "cache")
        values = {name: getattr(self, name) for name in names} | {"emulate": emulate}
        own = [f"--{name}={value}" for name, value in values.items() if value]
        return [*own, *self.arguments]

    @property
    def needs_horovodrun(self) -> bool:
        return self.num_ranks > 1 or bool(self.hosts)

    def command(self, horovodrun: str) -> list[str]:
        train = [sys.executable, "-m", "benchmarks.train", *self.flags]
        if not self.needs_horovodrun:
            return train
        hosts = ("-H", ",".join(self.hosts)) if self.hosts else ()
        ranks = ("-np", str(self.num_ranks), *hosts)
        words = self.horovodrun_arguments
        if len(self.hosts) == 1:
            # horovodrun refuses an interface for ranks of a single host: the ranks use
            # the loopback interface, which a placement such as 2x4 must not use.
            text = re.sub(_INTERFACES, "", shlex.join(words))
            words = tuple(shlex.split(text))
        return [horovodrun, *ranks, *words, *train]


class Series(SweptSettings):
    """Runs whose only difference is the number and the placement of their ranks."""

    def batch_size_per_rank(self, num_ranks: int) -> int | None:
        """Returns the batch size of a rank; None for the model's default."""
        if self.batch_size is None or self.scaling == "weak":
            return self.batch_size
        return self.batch_size // num_ranks


class Tier(NamedTuple):
    """A tier of storage with the data, and how a run reads the data.

    Attributes:
        settings: Needed settings of the sweep; the first names the data.
        cache: Value of --cache; None leaves the flag out.
        flags: More flags of the runs. A setting in braces stands for its value.
        unused: Flags that benchmarks.train refuses for the tier. The runs of the tier
            do not get these flags.
    """

    settings: tuple[str, ...] = ()
    cache: str | None = None
    flags: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


_LOCAL, _CACHED = ("data_dirs",), ("remote_url", "shard_cache_dir")
_SHARD_CACHE = ("--shard_cache_dir={shard_cache_dir}",)
_NO_INPUT = ("tuning", "whole_batches", "on_error", "max_faults")
TIERS: Mapping[str, Tier] = {
    "remote": Tier(("remote_url",), flags=("--read_from=direct",)),
    "shard_cache_cold": Tier(_CACHED, "cold", _SHARD_CACHE),
    "shard_cache_warm": Tier(_CACHED, "warm", _SHARD_CACHE),
    "mount_cold": Tier(("mount_dir",), "cold"),
    "mount_warm": Tier(("mount_dir",), "warm"),
    "local_cold": Tier(_LOCAL, "cold"),
    "local_warm": Tier(_LOCAL, "warm"),
    "ram": Tier(_LOCAL, None, ("--ram_cache=records",)),
    "decoded_ram": Tier(_LOCAL, None, ("--ram_cache=images",), ("whole_batches",)),
    "synthetic": Tier((), None, ("--synthetic",), _NO_INPUT),
}


RUN = cli.group("What to run")
_PLACES = cli.group("In which places the data is")
_RANKS = cli.group("On how many ranks")
START = cli.group("How runs are started")


@cli.options
class Sweep:
    """Settings of a sweep. The sweep runs all combinations of the settings."""

    arguments: tuple[str, ...] = cli.argument(
        "Flags of benchmarks.train for each run stand after --.",
        default=(),
        shown="-- FLAGS",
        url=True,
    )
    data_dirs: tuple[str, ...] = RUN(
        (), "Folders or URLs of converted data sets to run on.", url=True
    )
    models: tuple[str, ...] = RUN(
        ("resnet50",), "Models to run.", choices=sorted(catalog.MODELS)
    )
    batch_sizes: tuple[int, ...] = RUN(
        (),
        "Examples in a batch. Of each rank with --scaling=weak, of all ranks together "
        "with --scaling=strong. Default: the model's own, for each rank.",
        least=1,
    )
    modes: tuple[str, ...] = RUN(
        (), "Values of --mode to run with. Default: what follows --, or train."
    )
    caches: tuple[str, ...] = RUN(
        (),
        "Values of --cache to run with. Default: what follows --, or as_is.",
        choices=states.STATES,
    )
    accelerators: tuple[str, ...] = RUN(
        (),
        f"Values of --emulate to run with; {NO_ACCELERATOR} is the real model. "
        "Default: what follows --, or the real model.",
    )
    repeats: int = RUN(
        1,
        "Runs of each setting. Confidence intervals need 2, and are wide with fewer "
        "than 5.",
        least=1,
    )
    tiers: tuple[str, ...] = _PLACES(
        (),
        "Run the same on data in several places. Any of "
        f"{', '.join(TIERS)}. local and RAM tiers read --data_dirs, remote and "
        "shard_cache tiers --remote_url, mount tiers --mount_dir.",
        choices=tuple(TIERS),
    )
    remote_url: str = _PLACES("", "URL of the data set, for --tiers.", url=True)
    mount_dir: str = _PLACES(
        "", "Folder of the data set on a shared mount, for --tiers."
    )
    shard_cache_dir: str = _PLACES(
        "", "Folder on a local disk for a cache of the shards, for --tiers."
    )
    ranks: tuple[int, ...] = _RANKS(
        (),
        "Numbers of ranks to run on. Default: 1. The list must contain 1 for "
        "efficiency.",
        least=1,
    )
    placements: tuple[str, ...] = _RANKS(
        (),
        "In place of --ranks: hosts x ranks of each host, such as 1x8,2x4,4x2.",
        shown="HxR,...",
    )
    hosts: tuple[str, ...] = _RANKS(
        (),
        "Hosts to start ranks on, in the order of their use. host1,host2 with "
        "--placements, and with their slots, host1:8,host2:8, without. Default: this "
        "host.",
        shown="HOST,...",
    )
    scaling: tuple[str, ...] = _RANKS(
        ("weak",),
        "What stays the same on any number of ranks. weak: the batch of each rank. "
        "strong: the global batch.",
        choices=("weak", "strong"),
        shown="weak,strong",
    )
    find_ranks: tuple[str, ...] = _RANKS(
        (),
        "Find the largest number of ranks that meets these gates, such as au>=0.9. The "
        "search doubles, then bisects. Each probe is a run.",
        shown="GATE,...",
    )
    max_ranks: int | None = _RANKS(
        None,
        "Most ranks that --find_ranks tries. Default: the slots of --hosts.",
        least=1,
        needs="--find_ranks",
    )
    run_timeout: float = START(
        3600.0, "Seconds after which a run is stopped, and has failed.", above=0
    )
    horovodrun_arguments: tuple[str, ...] = START(
        (),
        'More arguments for horovodrun, in one text: "--network-interface eth0".',
        repeated=True,
    )

    def __post_init__(self) -> None:
        cli.refuse_unused(self, _CONTRADICTIONS)
        for fault in itertools.chain(_faults_of_ranks(self), _faults_of_data(self)):
            raise ValueError(fault)
        for placement in self.all_placements():
            placement.on(self.hosts)
        if not any(run.needs_horovodrun for run in self.runs()):
            why = "A sweep of runs of one rank on this host"
            cli.refuse(self, why, "horovodrun_arguments")

    @property
    def horovodrun_words(self) -> tuple[str, ...]:
        texts = self.horovodrun_arguments
        return tuple(word for text in texts for word in shlex.split(text))

    def all_placements(self) -> list[Placement]:
        """Returns where the ranks of the runs start; of a search, its largest run."""
        if self.find_ranks:
            return [Placement(self.max_ranks or count_slots(self.hosts))]
        if self.placements:
            return [Placement.parse(text) for text in self.placements]
        return [Placement(num_ranks) for num_ranks in self.ranks or (1,)]

    def series(self) -> list[Series]:
        names = ("mode", "accelerator", "model", "scaling", "batch_size")
        axes: Iterable[Any] = itertools.product(
            self._data(),
            *(self.modes or (None,), self.accelerators or (None,)),
            *(self.models, self.scaling, self.batch_sizes or (None,)),
        )
        return [
            Series(**data, **dict(zip(names, values, strict=True)))
            for data, *values in axes
        ]

    def _data(self) -> list[dict[str, str | None]]:
        """Returns all combinations of tier, data set and state of the page cache."""
        if not self.tiers:
            pairs = itertools.product(self.data_dirs or (None,), self.caches or (None,))
            return [{"data_dir": path, "cache": cache} for path, cache in pairs]
        values = vars(self) | {"data_dirs": "".join(self.data_dirs)}  # at most one
        tiers = [(name, TIERS[name]) for name in self.tiers]
        paths = [next((values[s] for s in tier.settings), None) for _, tier in tiers]
        return [
            {"tier": name, "data_dir": path, "cache": tier.cache}
            for (name, tier), path in zip(tiers, paths, strict=True)
        ]

    def run_of(self, series: Series, placement: Placement, repeat: int) -> Run:
        """Returns a run of a series; `repeat` counts from 1."""
        gates = (f"--require={','.join(self.find_ranks)}",) if self.find_ranks else ()
        tier = TIERS[series.tier] if series.tier else Tier()
        own = {"batch_size": series.batch_size_per_rank(placement.num_ranks)}
        return Run(
            **{**dataclasses.asdict(series), **own, "scaling": ""},
            num_ranks=placement.num_ranks,
            repeat=repeat,
            num_hosts=placement.num_hosts,
            hosts=placement.on(self.hosts),
            arguments=(
                *(w for w in self.arguments if _flag_of(w) not in tier.unused),
                *gates,
                *(flag.format_map(vars(self)) for flag in tier.flags),
            ),
            horovodrun_arguments=self.horovodrun_words,
        )

    def runs(self) -> list[Run]:
        """Returns every run once, also a common run of several series.

        The first repeat of all settings comes before the second repeat of any, so that
        a slow hour of the machine affects all settings alike. A search has the runs on
        its largest number of ranks here; the search chooses its runs as it goes on.
        """
        repeats = range(1, 1 + self.repeats)
        axes = itertools.product(repeats, self.series(), self.all_placements())
        runs = (self.run_of(series, where, repeat) for repeat, series, where in axes)
        return list(dict.fromkeys(runs))


def _flag_of(word: str) -> str:
    return word.lstrip("-").partition("=")[0]


# Flags without a use, by the kind of sweep.
_CONTRADICTIONS = (
    cli.Unused("A sweep with --placements", lambda s: s.placements, ("ranks",)),
    cli.Unused("A sweep with --tiers", lambda s: s.tiers, ("caches", "find_ranks")),
    cli.Unused(
        "A sweep with --find_ranks",
        lambda s: s.find_ranks,
        ("ranks", "placements", "repeats"),
    ),
)


def _faults_of_ranks(sweep: Sweep) -> Iterator[str]:
    for name in ("models", "scaling"):
        if not getattr(sweep, name):
            yield f"--{name} must name at least one, got none."
    if sweep.hosts and {"-H", "--hosts"} & set(sweep.horovodrun_words):
        yield "--hosts and -H in --horovodrun_arguments exclude each other."
    if sweep.find_ranks and "strong" in sweep.scaling:
        yield (
            "--find_ranks must have --scaling=weak: it chooses the numbers of ranks "
            "itself, and one global batch may not divide by all of them."
        )
    if sweep.find_ranks and sweep.max_ranks is None and not sweep.hosts:
        yield "--find_ranks must have --max_ranks, or --hosts with slots."
    if "strong" not in sweep.scaling:
        return
    if not sweep.batch_sizes:
        yield "--scaling=strong must have --batch_sizes: they are the global batches."
    placements = sweep.all_placements()
    for size, placement in itertools.product(sweep.batch_sizes, placements):
        if size % placement.num_ranks:
            yield (
                "With --scaling=strong each of --batch_sizes must be divisible by each "
                f"number of ranks; {size} is not by {placement.num_ranks}."
            )


# The flags after -- by the setting of the sweep with the same effect.
_SWEPT = {
    "models": ("model",),
    "batch_sizes": ("batch_size",),
    "tiers": (
        *("data_dir", "synthetic", "cache", "read_from", "ram_cache"),
        "shard_cache_dir",
    ),
    "data_dirs": ("data_dir", "synthetic"),
    "modes": ("mode",),
    "caches": ("cache",),
    "find_ranks": ("require",),
    "accelerators": ("emulate", "step_time_ms"),
}


def _faults_of_data(sweep: Sweep) -> Iterator[str]:
    for name in sweep.tiers:
        for setting in TIERS[name].settings:
            if not getattr(sweep, setting):
                is_cache = setting == "shard_cache_dir"
                what = "a folder on a local disk" if is_cache else "its data set"
                yield f"The tier {name} must have --{setting}, {what}."
    used = {setting for name in sweep.tiers for setting in TIERS[name].settings}
    for name in ("remote_url", "mount_dir", "shard_cache_dir"):
        if getattr(sweep, name) and name not in used:
            got = ", ".join(sweep.tiers) or "no tiers"
            yield f"--{name} is for tiers that --tiers does not name, got {got}."
    if sweep.remote_url and "://" not in sweep.remote_url:
        yield f"--remote_url must be a URL, got {sweep.remote_url}."
    if sweep.tiers and len(sweep.data_dirs) > 1:
        yield f"--tiers must have one of --data_dirs, got {','.join(sweep.data_dirs)}."
    names = {_flag_of(word) for word in sweep.arguments}
    if not (sweep.tiers or sweep.data_dirs or names & {"data_dir", "synthetic"}):
        yield (
            "One of --data_dirs and, after --, --synthetic must be given: the runs "
            "need data."
        )
    for setting, flags in _SWEPT.items():
        if getattr(sweep, setting) or setting == "batch_sizes":
            for name in sorted(names.intersection(flags)):
                yield f"--{name} cannot be given after --: --{setting} sets it."


# The batch of a rank is the model's own, as in the publications.
_MODELS = (
    *("resnet50", "resnet152", "vgg16", "googlenet"),
    *("inception_v3", "inception_v4"),
)
_PRESET_RANKS = (1, 2, 4, 8)  # a host of the tests had eight accelerators
# In the tests by Dell and NVIDIA, the GPUs were busy for at least 97 % of the time.
GATE = "--require=au>=0.97"
PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Five repeats: with fewer, an interval of confidence is wide.
    "scaling": {"models": ("resnet50",), "ranks": _PRESET_RANKS, "repeats": 5},
    "models": {"models": _MODELS, "modes": ("train",), "ranks": _PRESET_RANKS},
    "inference": {"models": _MODELS, "modes": ("infer",), "ranks": _PRESET_RANKS},
    "tiers": {"tiers": tuple(TIERS)},
}


def read_file(path: str) -> dict[str, Any]:
    """Reads the values of --sweep_file, by the names of the fields of `Sweep`."""
    settings = published.read_settings("sweep_file", path)
    options = {option.field: option for option in fields.options_of(Sweep)}
    for name in settings:
        what = f"A setting in --sweep_file={path}"
        errors.require_choice("", what, name, tuple(options))
    try:
        return {name: options[name].check(value) for name, value in settings.items()}
    except ValueError as error:
        raise ValueError(f"--sweep_file={path} is not valid: {error}") from None


def with_preset(name: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a preset, replaced by those of a file and of flags.

    A preset has the gate `GATE`, unless the settings have a gate. --placements and
    --find_ranks choose the numbers of ranks themselves, so they exclude the ranks of
    the preset.
    """
    if name is None:
        return dict(settings)
    excluded = {"ranks"} if settings.get("placements") else set()
    if settings.get("find_ranks"):
        excluded = {"ranks", "repeats"}
    own = {key: value for key, value in PRESETS[name].items() if key not in excluded}
    arguments = tuple(settings.get("arguments", ()))
    has_gate = settings.get("find_ranks") or "require" in map(_flag_of, arguments)
    return {
        **own,
        **settings,
        "arguments": arguments if has_gate else (*arguments, GATE),
    }
