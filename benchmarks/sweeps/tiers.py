"""Tiers of a sweep: the places of its data, and how each is read.

In: the settings of a sweep. Out: the flags of benchmarks.train for each tier, or an
error for a tier without its place.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Places(Protocol):
    """The settings of a sweep that say where its data is; see `plan.Sweep`."""

    @property
    def tiers(self) -> Sequence[str]: ...
    @property
    def data_dirs(self) -> Sequence[str]: ...
    @property
    def remote_url(self) -> str: ...
    @property
    def mount_dir(self) -> str: ...
    @property
    def shard_cache_dir(self) -> str: ...
    @property
    def caches(self) -> Sequence[str]: ...
    @property
    def find_ranks(self) -> object: ...


class Tier(NamedTuple):
    """A place of the data, and how it is read.

    Attributes:
        place: Setting of the sweep that names the place; "" if nothing is read.
        cache: Value of --cache; None leaves it out.
        flags: More flags of benchmarks.train.
        has_shard_cache: Whether --shard_cache_dir is needed too.
        unused: Flags of benchmarks.train that it refuses for this tier; they are left
            out of its runs.
    """

    place: str
    cache: str | None = None
    flags: tuple[str, ...] = ()
    has_shard_cache: bool = False
    unused: tuple[str, ...] = ()

    def arguments(self, given: Sequence[str], shard_cache_dir: str) -> tuple[str, ...]:
        """Returns the flags of a run, besides its place and the state of its cache.

        Args:
            given: The flags that all runs of the sweep share, each --name=value.
            shard_cache_dir: Folder of the shard cache.
        """
        kept = [
            word
            for word in given
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


def check(sweep: Places) -> None:
    """Checks that each tier is known and has its place.

    Raises:
        ValueError: If one does not, or a setting contradicts the tiers.
    """
    if unknown := set(sweep.tiers) - set(TIERS):
        raise ValueError(
            f"--tiers must be of {', '.join(TIERS)}; got {', '.join(sorted(unknown))}."
        )
    for name in sweep.tiers:
        tier = TIERS[name]
        if tier.place and not getattr(sweep, tier.place):
            raise ValueError(f"The tier {name} must have --{tier.place}, its data set.")
        if tier.has_shard_cache and not sweep.shard_cache_dir:
            raise ValueError(
                f"The tier {name} must have --shard_cache_dir, a folder on a local "
                "disk."
            )
    chosen = [TIERS[name] for name in sweep.tiers]
    used = {tier.place for tier in chosen}
    used |= {"shard_cache_dir" for tier in chosen if tier.has_shard_cache}
    for name in ("remote_url", "mount_dir", "shard_cache_dir"):
        if getattr(sweep, name) and name not in used:
            raise ValueError(
                f"--{name} is for tiers that --tiers does not name, got "
                f"{', '.join(sweep.tiers) or 'no tiers'}."
            )
    if sweep.remote_url and "://" not in sweep.remote_url:
        raise ValueError(f"--remote_url must be a URL, got {sweep.remote_url}.")
    if sweep.tiers and (sweep.caches or sweep.find_ranks or len(sweep.data_dirs) > 1):
        raise ValueError(
            "--tiers settle where the data is and the state of its cache: they exclude "
            "--caches, --find_ranks and more than one of --data_dirs."
        )
