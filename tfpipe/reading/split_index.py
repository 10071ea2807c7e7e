"""The index and the catalog of one split: its shards, paths and byte offsets.

In: the folder of a data set and the name of a split. Out: a `SplitIndex`, from
index.json and the catalog, or from a scan of the shards where there is no index.
"""

import dataclasses
import functools
import os

import numpy as np
import numpy.typing as npt

from tfpipe import errors
from tfpipe.shards import index, scan
from tfpipe.shards.index import Index, Shard
from tfpipe.shards.records import Ints


@dataclasses.dataclass(frozen=True, eq=False)
class SplitIndex:
    """The shards of one split and the places of its records, read when first asked for.

    Args:
        data_dir: Folder with index.json, catalog.parquet and the shards.
        split: Name of the split.
        files: Pattern of the shards' names, see `matching.matching_files`; None reads
            the index, if there is one.

    Raises:
        BadIndexError: If the index, the catalog or a shard is missing or wrong.
    """

    data_dir: str | os.PathLike[str]
    split: str
    files: str | None = None

    @functools.cached_property
    def whole(self) -> Index:
        """The index of the data set, from index.json or from a scan of the shards."""
        return self._scan.index if self._scan else index.load(self.data_dir)

    @functools.cached_property
    def _scan(self) -> scan.Scan | None:
        if self.files is None and not scan.is_needed(self.data_dir):
            return None
        return scan.scan(self.data_dir, self.split, files=self.files)

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards of the split, in order."""
        return self.whole.splits[self.split]

    @property
    def paths(self) -> list[str]:
        """The path of each shard."""
        return [os.path.join(self.data_dir, shard.name) for shard in self.shards]

    @functools.cached_property
    def shard_sizes(self) -> Ints:
        """int64 [num_shards], records in each shard."""
        return np.array([shard.num_records for shard in self.shards], np.int64)

    @functools.cached_property
    def shard_bytes(self) -> Ints:
        """int64 [num_shards], size of each shard."""
        return np.array([shard.num_bytes for shard in self.shards], np.int64)

    @functools.cached_property
    def byte_offsets(self) -> Ints:
        """int64 [num_records], byte offset of each record in its shard."""
        if self._scan is not None:
            return self._scan.byte_offsets
        catalog = index.load_catalog(self.data_dir, self.split, ["byte_offset"])
        offsets: Ints = catalog["byte_offset"].astype(np.int64, copy=False)
        num_records = self.whole.num_records(self.split)
        if len(offsets) != num_records:
            raise errors.BadIndexError(
                f"{index.CATALOG_NAME} in {self.data_dir} must have a row for each of "
                f"the {num_records} records of split {self.split!r}, got "
                f"{len(offsets)}. Convert the data set again."
            )
        return offsets

    @functools.cached_property
    def labels(self) -> Ints:
        """int64 [num_records], label of each record; 0 is the first class.

        Raises:
            BadIndexError: If the catalog is missing or has no labels.
        """
        if self._scan is not None:
            raise errors.BadIndexError(
                f"Labels must be in {index.CATALOG_NAME}, but {self.data_dir} has none."
                " Convert the data set with a command of converters, or give weights "
                "of records."
            )
        catalog = index.load_catalog(self.data_dir, self.split, ["label"])
        return catalog["label"].astype(np.int64) - self.whole.label_base

    @functools.cached_property
    def is_checked(self) -> npt.NDArray[np.bool_]:
        """bool [num_records], whether the length in the record's header is checked.

        Converters write the index last, and a scan has read every header. Only a shard
        that was written after the index may hold lengths that nobody has checked.
        Reading sets the values of records that it has checked.
        """
        if self._scan is not None:
            return np.ones(int(self.shard_sizes.sum()), np.bool_)
        written = os.stat(os.path.join(self.data_dir, index.INDEX_NAME)).st_mtime_ns
        is_old = [os.stat(path).st_mtime_ns <= written for path in self.paths]
        return np.repeat(is_old, self.shard_sizes)
