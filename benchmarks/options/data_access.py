"""Where the records of a run are, and how tfpipe reads the records.

In: the values of four flags. Out: a `DataAccess`, checked for contradictions. tfpipe
reads the files in place, through a shard cache, or with tensorflow-io.
"""

import dataclasses
import functools
import os
import pathlib
from typing import Any, Literal

import tfpipe

READ_FROM = ("auto", "direct")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataAccess:
    """A data set and the way to its shards; a field has the name of its flag.

    Raises:
        ValueError: If fields are contradictory, or tfpipe does not know the URL.
        RemoteError: If a package or a setting for the URL is missing.
    """

    data_dir: str | None
    read_from: str = "auto"
    shard_cache_dir: str | None = None
    shard_cache_max_gb: float | None = None

    def __post_init__(self) -> None:
        if self.shard_cache_max_gb is not None and self.shard_cache_dir is None:
            raise ValueError(
                f"--shard_cache_max_gb={self.shard_cache_max_gb:g} is the limit of "
                "--shard_cache_dir, which must be given."
            )
        if self.shard_cache_dir is not None and self.data_dir is None:
            raise ValueError(
                f"--shard_cache_dir={self.shard_cache_dir} must have --data_dir, whose "
                "shards it keeps."
            )
        if self.read_from == "direct":
            self._check_direct()
        if self.location is not None and not self.location.is_local:
            tfpipe.Files(self.location)  # a package or a setting may be missing

    @classmethod
    def from_config(cls, config: Any) -> "DataAccess":
        """Returns the access of a config with fields of the same names."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: getattr(config, name) for name in names})

    def _check_direct(self) -> None:
        if self.shard_cache_dir is not None:
            raise ValueError(
                "--read_from=direct and --shard_cache_dir exclude each other: the "
                "shards are read either directly or through a cache."
            )
        if not self.is_remote:
            raise ValueError(
                "--read_from=direct must have a URL as --data_dir, got "
                f"{self.data_dir}. A folder is read in place without the flag."
            )

    @functools.cached_property
    def location(self) -> tfpipe.Location | None:
        """The location of the data set; None without a data set."""
        if self.data_dir is None:
            return None
        return tfpipe.Location.from_user("--data_dir", self.data_dir)

    @property
    def is_remote(self) -> bool:
        """Whether the data set is at a URL."""
        return self.location is not None and not self.location.is_local

    @property
    def has_shard_cache(self) -> bool:
        """Whether the shards are read through a shard cache."""
        is_fetched = self.is_remote and self.read_from == "auto"
        return is_fetched or self.shard_cache_dir is not None

    @property
    def is_read_in_place(self) -> bool:
        """Whether the shards are files, read without a copy."""
        return self.data_dir is not None and not (
            self.has_shard_cache or self.is_remote
        )

    def shard_cache(
        self, directory: pathlib.Path | None = None
    ) -> tfpipe.ShardCache | Literal["auto", "direct"]:
        """Returns the argument `shard_cache` of a source.

        Args:
            directory: Folder of the cache; None is --shard_cache_dir.
        """
        folder = directory or self.shard_cache_dir
        if folder is None:
            return "direct" if self.read_from == "direct" else "auto"
        most = self.shard_cache_max_gb
        return tfpipe.ShardCache(
            os.fspath(folder), max_bytes=None if most is None else int(most * 1e9)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataOptions:
    """The options of every run on a data set; a field has the name of its flag."""

    data_dir: str | None = None
    read_from: str = "auto"
    shard_cache_dir: str | None = None
    shard_cache_max_gb: float | None = None
    model: str = "resnet50"
    image_size: int | None = None
    batch_size: int | None = None
    seed: int = 0
    tuning: str | None = None
    whole_batches: bool | str = "auto"
    report_dir: str | None = None

    @property
    def access(self) -> DataAccess:
        """The data set and the way to its shards."""
        return DataAccess.from_config(self)
