"""Runs of a sweep: every combination of its settings.

In: a `Sweep`. Out: its `Run`s, each once, and its `Series`, for which scaling is
computed. This module starts no process and reads no file.
"""

import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import shlex
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.models import catalog
from benchmarks.page_cache import states
from benchmarks.planning.placement import Placement, count_slots
from benchmarks.results.collection import RunResult
from benchmarks.results.other_results import SweptSettings
from tfpipe import cli

SCALINGS = ("weak", "strong")
NO_ACCELERATOR = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One start of benchmarks.train.

    Attributes:
        num_ranks: Number of ranks; a single rank without `hosts` is started without
            horovodrun.
        data_dir: Folder of the data set; None if `arguments` name the data.
        repeat: Number of this run, from 1, among runs with equal settings.
        hosts: Hosts as horovodrun's -H takes them; none for this host.
    """

    model: str
    num_ranks: int
    batch_size: int | None
    data_dir: str | None
    repeat: int
    mode: str | None = None
    cache: str | None = None
    accelerator: str | None = None
    num_hosts: int | None = None
    hosts: tuple[str, ...] = ()
    tier: str | None = None
    arguments: tuple[str, ...] = ()
    horovodrun_arguments: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Run":
        """Returns the run that `as_json` described, also of an older version."""
        values: Any = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
        return cls(**values)

    @property
    def name(self) -> str:
        """Name of the run's file without suffix; unique to the run's settings."""
        folder = pathlib.Path(self.data_dir).name if self.data_dir else "no-data"
        where = self.data_dir
        if where and "://" not in where:
            where = os.path.abspath(where)
        # Settings that older sweeps did not have are left out where they are not used,
        # so that the results of these sweeps keep their names.
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
        values = {
            "model": self.model,
            "mode": self.mode,
            "batch_size": self.batch_size,
            "data_dir": self.data_dir,
            "cache": self.cache,
            "emulate": None if self.accelerator == NO_ACCELERATOR else self.accelerator,
        }
        own = [
            f"--{name}={value}" for name, value in values.items() if value is not None
        ]
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
            words = _without_interfaces(words)
        return [horovodrun, *ranks, *words, *train]


class Series(SweptSettings):
    """Runs that differ only in the number and the placement of their ranks."""

    def batch_size_per_rank(self, num_ranks: int) -> int | None:
        """Returns the batch size of each rank; None for the model's default."""
        if self.batch_size is None or self.scaling == "weak":
            return self.batch_size
        return self.batch_size // num_ranks


class Tier(NamedTuple):
    """A tier of storage that the data is on, and how a run reads the data.

    Attributes:
        setting: Setting of the sweep that names the data set; "" if nothing is read.
        cache: Value of --cache; None leaves the flag out.
        unused: Flags that benchmarks.train refuses for this tier. Its runs do not get
            them.
    """

    setting: str
    cache: str | None = None
    flags: tuple[str, ...] = ()
    has_shard_cache: bool = False
    unused: tuple[str, ...] = ()

    def arguments(self, shared: Sequence[str], shard_cache_dir: str) -> tuple[str, ...]:
        """Returns the flags of a run, besides --data_dir and --cache.

        Args:
            shared: The flags that all runs of the sweep share, each --name=value.
        """
        kept = [
            word
            for word in shared
            if word.lstrip("-").partition("=")[0] not in self.unused
        ]
        more = [f"--shard_cache_dir={shard_cache_dir}"] if self.has_shard_cache else []
        return (*kept, *self.flags, *more)


TIERS: Mapping[str, Tier] = {
    "remote": Tier("remote_url", flags=("--read_from=direct",)),
    "shard_cache_cold": Tier("remote_url", "cold", has_shard_cache=True),
    "shard_cache_warm": Tier("remote_url", "warm", has_shard_cache=True),
    "mount_cold": Tier("mount_dir", "cold"),
    "mount_warm": Tier("mount_dir", "warm"),
    "local_cold": Tier("data_dirs", "cold"),
    "local_warm": Tier("data_dirs", "warm"),
    "ram": Tier("data_dirs", flags=("--ram_cache=records",)),
    "decoded_ram": Tier(
        "data_dirs", flags=("--ram_cache=images",), unused=("whole_batches",)
    ),
    "synthetic": Tier(
        "",
        flags=("--synthetic",),
        unused=("tuning", "whole_batches", "on_error", "max_faults"),
    ),
}


_RUN = cli.group("What to run")
_PLACES = cli.group("In which places the data is")
_RANKS = cli.group("On how many ranks")
_START = cli.group("How runs are started")


@cli.options
class Sweep:
    """Settings of a sweep, which runs all their combinations."""

    arguments: tuple[str, ...] = cli.argument(
        "Flags of benchmarks.train for each run stand after --.",
        default=(),
        shown="-- FLAGS",
        url=True,
    )
    data_dirs: tuple[str, ...] = _RUN(
        (), "Folders or URLs of converted data sets to run on.", url=True
    )
    models: tuple[str, ...] = _RUN(
        ("resnet50",), "Models to run.", choices=sorted(catalog.MODELS)
    )
    batch_sizes: tuple[int, ...] = _RUN(
        (),
        "Examples in a batch. Of each rank with --scaling=weak, of all ranks together "
        "with --scaling=strong. Default: the model's own, for each rank.",
        least=1,
    )
    modes: tuple[str, ...] = _RUN(
        (), "Values of --mode to run with. Default: what follows --, or train."
    )
    caches: tuple[str, ...] = _RUN(
        (),
        "Values of --cache to run with. Default: what follows --, or as_is.",
        choices=states.STATES,
    )
    accelerators: tuple[str, ...] = _RUN(
        (),
        f"Values of --emulate to run with; {NO_ACCELERATOR} is the real model. "
        "Default: what follows --, or the real model.",
    )
    repeats: int = _RUN(
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
        choices=SCALINGS,
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
    run_timeout: float = _START(
        3600.0, "Seconds after which a run is stopped, and has failed.", above=0
    )
    horovodrun_arguments: tuple[str, ...] = _START(
        (),
        'More arguments for horovodrun, in one text: "--network-interface eth0".',
        repeated=True,
    )

    def __post_init__(self) -> None:
        cli.refuse_unused(self, _CONTRADICTIONS)
        _check_ranks(self)
        _check_tiers(self)
        _check_arguments(self)
        _check_search(self)
        if "strong" in self.scaling:
            _check_strong(self)
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
        names = ("tier", "data_dir", "cache", "mode", "accelerator", "model", "scaling")
        axes: Iterable[Any] = itertools.product(
            self._data(),
            self.modes or (None,),
            *(self.accelerators or (None,), self.models, self.scaling),
            self.batch_sizes or (None,),
        )
        return [
            Series(**dict(zip((*names, "batch_size"), (*data, *values), strict=True)))
            for data, *values in axes
        ]

    def _data(self) -> list[tuple[str | None, str | None, str | None]]:
        if self.tiers:
            tiers = ((name, TIERS[name]) for name in self.tiers)
            return [(name, self._data_dir(tier), tier.cache) for name, tier in tiers]
        pairs = itertools.product(self.data_dirs or (None,), self.caches or (None,))
        return [(None, *pair) for pair in pairs]

    def _data_dir(self, tier: Tier) -> str | None:
        if tier.setting == "data_dirs":
            return self.data_dirs[0]
        return getattr(self, tier.setting) if tier.setting else None

    def run_of(self, series: Series, placement: Placement, repeat: int) -> Run:
        """Returns one run of a series; `repeat` counts from 1."""
        gates = (f"--require={','.join(self.find_ranks)}",) if self.find_ranks else ()
        arguments = (*self.arguments, *gates)
        if series.tier is not None:
            tier = TIERS[series.tier]
            arguments = tier.arguments(arguments, self.shard_cache_dir)
        return Run(
            model=series.model,
            num_ranks=placement.num_ranks,
            batch_size=series.batch_size_per_rank(placement.num_ranks),
            data_dir=series.data_dir,
            repeat=repeat,
            mode=series.mode,
            cache=series.cache,
            accelerator=series.accelerator,
            num_hosts=placement.num_hosts,
            hosts=placement.on(self.hosts),
            tier=series.tier,
            arguments=arguments,
            horovodrun_arguments=self.horovodrun_words,
        )

    def runs_of(self, series: Series, placement: Placement) -> list[Run]:
        return [self.run_of(series, placement, 1 + n) for n in range(self.repeats)]

    def runs(self) -> list[Run]:
        """Returns every run once, including runs that several series share.

        The first repeat of all settings comes before the second repeat of any, so that
        a slow hour of the machine affects all settings alike. A search has the runs on
        its largest number of ranks here; it chooses its runs while it goes on.
        """
        runs = [
            run
            for series in self.series()
            for placement in self.all_placements()
            for run in self.runs_of(series, placement)
        ]
        return sorted(dict.fromkeys(runs), key=lambda run: run.repeat)


def _without_interfaces(words: Sequence[str]) -> tuple[str, ...]:
    """Returns words for ranks of one host: horovodrun refuses an interface there.

    Such ranks use the loopback interface, which a placement such as 2x4 must not use.
    """
    kept, words = [], list(words)
    while words:
        word = words.pop(0)
        if not word.startswith("--network-interface"):
            kept.append(word)
        elif "=" not in word:
            del words[:1]
    return tuple(kept)


# The flags that exclude each other, by the kind of sweep.
_CONTRADICTIONS = (
    cli.Unused("A sweep with --placements", lambda s: s.placements, ("ranks",)),
    cli.Unused("A sweep with --tiers", lambda s: s.tiers, ("caches", "find_ranks")),
    cli.Unused(
        "A sweep with --find_ranks",
        lambda s: s.find_ranks,
        ("ranks", "placements", "repeats"),
    ),
)


def _check_ranks(sweep: Sweep) -> None:
    for name in ("models", "scaling"):
        if not getattr(sweep, name):
            raise ValueError(f"--{name} must name at least one, got none.")
    if sweep.hosts and {"-H", "--hosts"} & set(sweep.horovodrun_words):
        raise ValueError("--hosts and -H in --horovodrun_arguments exclude each other.")


def _check_tiers(sweep: Sweep) -> None:
    for name in sweep.tiers:
        tier = TIERS[name]
        if tier.setting and not getattr(sweep, tier.setting):
            raise ValueError(
                f"The tier {name} must have --{tier.setting}, its data set."
            )
        if tier.has_shard_cache and not sweep.shard_cache_dir:
            raise ValueError(
                f"The tier {name} must have --shard_cache_dir, a folder on a local "
                "disk."
            )
    chosen = [TIERS[name] for name in sweep.tiers]
    used = {tier.setting for tier in chosen}
    used |= {"shard_cache_dir" for tier in chosen if tier.has_shard_cache}
    for name in ("remote_url", "mount_dir", "shard_cache_dir"):
        if getattr(sweep, name) and name not in used:
            raise ValueError(
                f"--{name} is for tiers that --tiers does not name, got "
                f"{', '.join(sweep.tiers) or 'no tiers'}."
            )
    if sweep.remote_url and "://" not in sweep.remote_url:
        raise ValueError(f"--remote_url must be a URL, got {sweep.remote_url}.")
    if sweep.tiers and len(sweep.data_dirs) > 1:
        raise ValueError(
            f"--tiers must have one of --data_dirs, got {','.join(sweep.data_dirs)}."
        )


def _check_arguments(sweep: Sweep) -> None:
    """Checks that no flag after -- is one that the sweep sets itself."""
    names = {argument.partition("=")[0].lstrip("-") for argument in sweep.arguments}
    swept = {"model": "models", "batch_size": "batch_sizes"}
    if sweep.tiers:
        own = ("data_dir", "synthetic", "cache", "read_from", "ram_cache")
        swept |= dict.fromkeys((*own, "shard_cache_dir"), "tiers")
    elif sweep.data_dirs:
        swept |= {"data_dir": "data_dirs", "synthetic": "data_dirs"}
    elif not names & {"data_dir", "synthetic"}:
        raise ValueError(
            "One of --data_dirs and, after --, --synthetic must be given: the runs "
            "need data."
        )
    swept |= {"mode": "modes"} if sweep.modes else {}
    swept |= {"cache": "caches"} if sweep.caches else {}
    swept |= {"require": "find_ranks"} if sweep.find_ranks else {}
    if sweep.accelerators:
        swept |= {"emulate": "accelerators", "step_time_ms": "accelerators"}
    for name in sorted(names & set(swept)):
        raise ValueError(f"--{name} cannot be given after --: --{swept[name]} sets it.")


def _check_search(sweep: Sweep) -> None:
    if not sweep.find_ranks:
        return
    if "strong" in sweep.scaling:
        raise ValueError(
            "--find_ranks must have --scaling=weak: it chooses the numbers of ranks "
            "itself, and one global batch may not divide by all of them."
        )
    if sweep.max_ranks is None and not sweep.hosts:
        raise ValueError("--find_ranks must have --max_ranks, or --hosts with slots.")


def _check_strong(sweep: Sweep) -> None:
    if not sweep.batch_sizes:
        raise ValueError(
            "--scaling=strong must have --batch_sizes: they are the global batches."
        )
    for batch_size in sweep.batch_sizes:
        for placement in sweep.all_placements():
            if batch_size % placement.num_ranks:
                raise ValueError(
                    "With --scaling=strong each of --batch_sizes must be divisible by "
                    f"each number of ranks; {batch_size} is not by "
                    f"{placement.num_ranks}."
                )


def estimate_seconds(run: Run, finished: Mapping[Run, RunResult]) -> float | None:
    """Returns the mean duration, in seconds, of the finished repeats of a run.

    Only runs with the same settings count, because nothing predicts how long another
    model, batch or number of ranks takes. None if no such run has finished.
    """
    seconds = [
        result.values.sweep.seconds
        for other, result in finished.items()
        if result.values.sweep and dataclasses.replace(other, repeat=run.repeat) == run
    ]
    return statistics.mean(seconds) if seconds else None


# The batch of a rank is each model's own, as in the publications.
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


def with_preset(name: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a preset, replaced by those of a file and of flags.

    Each preset has the gate `GATE`, unless the settings have a gate. --placements and
    --find_ranks choose the numbers of ranks themselves, so they exclude the ranks of
    the preset.
    """
    if name is None:
        return dict(settings)
    excluded = set()
    if settings.get("find_ranks"):
        excluded = {"ranks", "repeats"}
    elif settings.get("placements"):
        excluded = {"ranks"}
    own = {key: value for key, value in PRESETS[name].items() if key not in excluded}
    arguments = tuple(settings.get("arguments", ()))
    names = {word.lstrip("-").partition("=")[0] for word in arguments}
    if "require" not in names and not settings.get("find_ranks"):
        arguments += (GATE,)
    return {**own, **settings, "arguments": arguments}
