"""Where the records of a run are, and how tfpipe reads the records.

In: the values of four flags. Out: a `DataAccess`, checked for contradictions. tfpipe
reads the files in place, through a shard cache, or with tensorflow-io.
"""

import dataclasses
import os
import pathlib
from typing import Any, Literal

import tfpipe

READ_FROM = ("auto", "direct")


def is_url(location: str | None) -> bool:
    """Returns whether a location is a URL, which must not become a path."""
    return location is not None and "://" in location


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
        if is_url(self.data_dir):
            try:
                tfpipe.Files(self.data_dir)  # names the schemes that can be read
            except ValueError as error:
                text = str(error).replace("Files.place", "--data_dir")
                raise ValueError(text) from None

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
        if not is_url(self.data_dir):
            raise ValueError(
                "--read_from=direct must have a URL as --data_dir, got "
                f"{self.data_dir}. A folder is read in place without the flag."
            )

    @property
    def has_shard_cache(self) -> bool:
        """Whether the shards are read through a shard cache."""
        is_remote = is_url(self.data_dir) and self.read_from == "auto"
        return is_remote or self.shard_cache_dir is not None

    @property
    def is_read_in_place(self) -> bool:
        """Whether the shards are files, read without a copy."""
        return self.data_dir is not None and not (
            self.has_shard_cache or is_url(self.data_dir)
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
