"""The files of a data set and the index of a split: the shards and byte offsets.

In: the folder or URL of a data set, the wish how to read it, and the name of a split.
Out: a `SplitIndex`, from index.json and the catalog, or without an index from a scan of
the shards. The index and the catalog of a URL are copied to this machine.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tfpipe import errors
from tfpipe.location import direct
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.location.system_reads import pread
from tfpipe.reading import parts
from tfpipe.shard_cache import generation_view, metadata
from tfpipe.shard_cache.disk import used_as_cache
from tfpipe.shard_cache.generation_view import Generation
from tfpipe.shard_cache.open_cache import OpenCache
from tfpipe.shard_cache.settings import INDEX_FOLDER, ShardCache
from tfpipe.shards import (
    catalog,
    generations,
    image_record,
    index,
    records,
    scan,
)
from tfpipe.shards.index import Index, Shard
from tfpipe.shards.ranges import RecordRanges
from tfpipe.shards.records import Ints
from tfpipe.shards.spans import RecordSpans

CacheChoice = ShardCache | Literal["auto", "direct"]

DIRECTORY_VARIABLE, _DIRECTORY = "TFPIPE_SHARD_CACHE", "~/.cache/tfpipe/shards"
_NO_HOME = (
    f"{DIRECTORY_VARIABLE} must name a folder for the shard cache: this user has no "
    "home folder."
)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class DataSetStorage:
    """The files of a data set, and how its shards are read.

    Attributes:
        location: The folder or URL of the data set.
        folder: A local folder with the index and the catalog.
        files: The files at the location; None for local files without a cache.
        cache: The cache through which the shards are read; None reads shards directly.
        generation: Number of the generation; 0 for a data set that does not grow.
    """

    location: Location
    folder: str
    files: Files | None = None
    cache: ShardCache | None = None
    generation: int = 0

    def bring(self, whole: Index, name: str) -> pathlib.Path:
        """Returns the path of a side file on this host; remote files are fetched.

        The files of a folder with a cache, such as a shared mount, are remote files.

        Args:
            whole: The index of the data set.
            name: Name of a file in the index.

        Raises:
            BadIndexError: If the file is missing or differs from the index.
            RemoteError: If a URL cannot be read.
            OSError: If the file cannot be looked at, or the cache cannot be written.
        """
        if self.files is not None:
            return metadata.bring_side_file(self.files, whole, name, self._near())
        path, wanted = pathlib.Path(self.folder).absolute() / name, whole.files or {}
        size = path.stat().st_size if path.exists() else None
        if name not in wanted or size != wanted[name].num_bytes:
            got = "no such file" if size is None else f"{size} bytes"
            raise errors.BadIndexError(
                f"{path} must have the size that {index.INDEX_NAME} says, got {got}."
            )
        return path

    def _near(self) -> pathlib.Path:
        """Returns the folder of this host for files of the data set."""
        if self.cache is None or not self.location.is_local:
            return pathlib.Path(self.folder)
        text = (pathlib.Path(self.folder) / index.INDEX_NAME).read_bytes()
        folder = pathlib.Path(self.cache.directory) / INDEX_FOLDER
        return (folder / index.describe(text).digest).absolute()


def require_cache_choice(owner: object, name: str, value: Any) -> None:
    """Checks that a value is a ShardCache, "auto" or "direct".

    Raises:
        TypeError: If the value is anything else.
    """
    if not isinstance(value, ShardCache) and value not in ("auto", "direct"):
        raise TypeError(
            f"{type(owner).__name__}.{name} must be a ShardCache, 'auto' or 'direct', "
            f"got {value!r}."
        )


def find_storage(
    data_dir: str | os.PathLike[str],
    choice: CacheChoice,
    *,
    generation: Generation = "latest",
) -> DataSetStorage:
    """Finds the files of a data set.

    Args:
        data_dir: A local folder, or a URL, see `Location.from_user`.
        choice: As `shard_cache` of `source.TFRecordSource`.
        generation: As `generation` of `source.TFRecordSource`.

    Raises:
        BadIndexError: If a URL has no index or catalog, or a generation is missing.
        RemoteError: If a URL cannot be read.
        ValueError: If the URL cannot be read directly on this machine, or there is no
            folder for a cache.
    """
    location = Location.from_user("data_dir", data_dir)
    is_local = location.is_local
    cache = choice if isinstance(choice, ShardCache) else None
    usual = os.environ.get(DIRECTORY_VARIABLE) or os.path.expanduser(_DIRECTORY)
    directory = usual if cache is None else cache.directory
    if not is_local and choice == "direct":
        direct.prepare(location)
    if not is_local and choice == "auto":
        cache = ShardCache(directory)
    limit = [] if cache is None else [cache.time_limit]
    files = Files(location, *limit, is_pinned=not is_local)
    views, opened = pathlib.Path(directory) / INDEX_FOLDER, 0
    folder = pathlib.Path(location.text)
    with used_as_cache(directory):
        is_growing = generations.is_growing(files)
        if directory == _DIRECTORY and (is_growing or not is_local):
            raise ValueError(_NO_HOME)
        if is_growing:
            folder, opened = generation_view.bring(files, views, generation)
        elif not is_local:
            folder = metadata.bring(files, views)
    if not is_growing and generation != "latest":
        raise errors.BadIndexError(
            f"generation must be 'latest' for {location.shown}, which is no growing "
            f"data set, got {generation}."
        )
    if not is_local and choice == "auto":
        errors.say_once(
            f"Shards are read by URL through the cache in {os.fspath(directory)}, on "
            f"the local disk. {DIRECTORY_VARIABLE} or shard_cache=tfpipe.ShardCache("
            "...) chooses another."
        )
    return DataSetStorage(
        location=location,
        folder=os.fspath(folder),
        files=files if cache is not None or not is_local else None,
        cache=cache,
        generation=opened,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class SplitIndex:
    """The shards of a split and the byte offsets of its records, read at first use.

    Args:
        data_dir: Folder or URL with index.json, catalog.parquet and the shards.
        split: Name of the split.
        files: Pattern of the shards' names, see `scan.matching_files`; None reads the
            index, or scans a folder without an index.
        shard_cache: How the shards are read, see `source.TFRecordSource`.
        skips_damage: Whether the damage of shards is left to reading, see `scan.scan`.
        generation: Which generation is read, see `source.TFRecordSource`.

    Raises:
        BadIndexError: If the index, the catalog or a shard is missing or wrong.
        RemoteError: If a URL cannot be read.
    """

    data_dir: str | os.PathLike[str]
    split: str
    files: str | None = None
    shard_cache: CacheChoice = "auto"
    skips_damage: bool = False
    generation: Generation = "latest"

    @functools.cached_property
    def storage(self) -> DataSetStorage:
        """The files of the data set."""
        return find_storage(self.data_dir, self.shard_cache, generation=self.generation)

    @functools.cached_property
    def whole(self) -> Index:
        """The index of the data set, from index.json or from a scan of the shards."""
        return self._scan.index if self._scan else index.load(self.storage.folder)

    @functools.cached_property
    def _scan(self) -> scan.Scan | None:
        if self.storage.files is not None:
            return None
        if self.files is None and not scan.is_needed(self.data_dir):
            return None
        return scan.scan(
            self.data_dir, self.split, files=self.files, skips_damage=self.skips_damage
        )

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards of the split, in order."""
        return self.whole.splits[self.split]

    @functools.cached_property
    def origins(self) -> list[str]:
        """The path or URL of every shard in the data set."""
        location = self.storage.location
        if location.is_local:  # a `Location` of each of 100,000 shards takes seconds
            return [os.path.join(location.text, shard.name) for shard in self.shards]
        return [(location / shard.name).text for shard in self.shards]

    @functools.cached_property
    def tags(self) -> list[str]:
        """The ETag of every shard when it was checked; "" where a store has none."""
        files = self.storage.files
        return ["" if files is None else files.tag(s.name) for s in self.shards]

    @property
    def paths(self) -> list[str]:
        """The path or URL from which TensorFlow reads every shard."""
        return self.origins if self.open_cache is None else self.open_cache.paths

    @functools.cached_property
    def open_cache(self) -> OpenCache | None:
        """The shard cache of the shards; None without a shard cache."""
        cache, files = self.storage.cache, self.storage.files
        if cache is None or files is None:
            return None
        return cache.open(
            *(files, self.storage.folder, self.split, self.shards),
            self.spans.all_byte_offsets(),
            is_growing=bool(self.storage.generation),
        )

    @functools.cached_property
    def version(self) -> metadata.DataVersion | None:
        """The version of a data set that is read directly; None with a cache."""
        storage = self.storage
        if storage.files is None or storage.cache is not None:
            return None
        return metadata.DataVersion(storage.files, self.digest)

    @functools.cached_property
    def digest(self) -> str:
        """The digest of index.json; "" for a growing data set, and after a scan."""
        storage = self.storage
        if self._scan is not None:
            return ""
        return metadata.index_digest(
            storage.folder, is_growing=bool(storage.generation)
        )

    def check(self) -> None:
        """Checks the split, the sizes of its shards and the digest of the catalog.

        Raises:
            BadIndexError: If the split or a shard is missing, a size is wrong, or the
                catalog is not the one of the index.
            RemoteError: If a URL cannot be read.
        """
        location, files = self.storage.location, self.storage.files
        if files is not None and not location.is_local:
            index.require_split(self.whole.splits, location.shown, self.split)
            metadata.check_sizes(files, self.shards)
        else:
            _ = self._times_of_checked  # raises for a wrong shard
        catalog.check_catalog(self.whole, self.storage.folder, is_opening=True)

    def first_records(
        self, count: int, *, numbers: Ints | None = None
    ) -> Iterator[tuple[str, records.Record]]:
        """Yields the first records of the split, with the path or URL of their shard.

        Without a URL, a cache and a subset, all records are yielded, whatever the count
        is. Otherwise at most `count` records of the first shard are yielded.

        Args:
            count: Number of records that are enough.
            numbers: int64, rising: the numbers of the only records to read, for a
                subset; None is all records.
        """
        if self.storage.files is None and numbers is None:
            for path in self.paths:
                for record in records.read(path):
                    yield path, record
            return
        ends = np.cumsum(self.shard_sizes)
        first = 0 if numbers is None else int(numbers[0])
        shard = int(np.searchsorted(ends, first, side="right"))
        chosen = np.arange(first, ends[shard]) if numbers is None else numbers
        for record_id in chosen[chosen < ends[shard]][:count].tolist():
            yield from _read_alone(self, shard, record_id)

    @functools.cached_property
    def shard_sizes(self) -> Ints:
        """int64 [num_shards], records in each shard."""
        return np.array([shard.num_records for shard in self.shards], np.int64)

    @functools.cached_property
    def spans(self) -> RecordSpans:
        """The byte offset and the size of each record in its shard."""
        ends = np.append(0, np.cumsum(self.shard_sizes))

        def read(shards: Ints) -> Ints:
            if self._scan is not None:
                wanted = RecordRanges(ends[shards], self.shard_sizes[shards])
                return self._scan.byte_offsets[wanted.records()]
            columns = index.load_catalog(
                *(self.storage.folder, self.split, ["byte_offset"]),
                shards=None if len(shards) == len(self.shards) else shards.tolist(),
            )
            return columns["byte_offset"]

        if self._scan is None:
            count = catalog.num_rows(self.storage.folder, self.split)
            if count != ends[-1]:
                raise errors.BadIndexError(
                    f"{index.CATALOG_NAME} in {self.data_dir} must have a row for each "
                    f"of the {ends[-1]} records of split {self.split!r}, got {count}. "
                    "Convert the data set again."
                )
        num_bytes = np.array([shard.num_bytes for shard in self.shards], np.int64)
        spans = RecordSpans(
            shard_sizes=self.shard_sizes, shard_bytes=num_bytes, read=read
        )
        spans.byte_offsets(np.arange(min(ends[-1], 1)))  # finds a bad catalog at once
        return spans

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
        catalog.check_catalog(self.whole, self.storage.folder)
        columns = index.load_catalog(self.storage.folder, self.split, ["label"])
        return columns["label"].astype(np.int64) - self.whole.label_base

    def are_for_validation(self, share: float) -> npt.NDArray[np.bool_]:
        """Returns bool [num_records], see `parts.are_for_validation`."""
        try:
            labels = self.labels
        except errors.BadIndexError:  # shards of other tools
            labels = None
        count = int(self.shard_sizes.sum())
        return parts.are_for_validation(count, share, labels)

    @functools.cached_property
    def labels_key(self) -> str | None:
        """Key of the feature with all labels of a record; None if a record has one.

        Raises:
            BadIndexError: If the catalog is missing or unreadable.
        """
        if self.whole.made_by.get("multi_label") is True:
            return image_record.LABEL
        if self._scan is None and catalog.has_label_lists(self.storage.folder):
            return image_record.LABELS
        return None

    @functools.cached_property
    def median_short_side(self) -> float | None:
        """Median short side of the images of the split in pixels, of all its records.

        A subset or a part of the split does not change the value. None without sizes:
        other tools write them into the records only.

        Raises:
            BadIndexError: If the catalog is missing or unreadable.
        """
        if self._scan is not None:
            return None
        catalog.check_catalog(self.whole, self.storage.folder)
        return catalog.median_short_side(self.storage.folder, self.split)

    @functools.cached_property
    def is_unchecked(self) -> npt.NDArray[np.bool_]:
        """bool [num_records], whether the length in the record's header is unchecked.

        Converters write the index last, a scan has read every header, and a shard cache
        checks all pieces. Only a shard that is newer than the index may hold unchecked
        lengths. Reading checks them and sets the values.
        """
        if self._scan is not None:
            return self._scan.is_damaged.copy()
        # Zeros that nobody writes take no memory.
        flags = np.zeros(int(self.shard_sizes.sum()), np.bool_)
        if self.storage.files is None:
            path = os.path.join(self.storage.folder, index.INDEX_NAME)
            ends = np.cumsum(self.shard_sizes)
            for shard in np.flatnonzero(self.mtimes > os.stat(path).st_mtime_ns):
                flags[ends[shard] - self.shard_sizes[shard] : ends[shard]] = True
        return flags

    @functools.cached_property
    def mtimes(self) -> Ints:
        """int64 [num_shards], time of each shard's last change that was looked at, ns.

        0 for shards that are not local files.
        """
        if self._scan is not None:
            return self._scan.mtimes
        if self.storage.files is not None:
            return np.zeros(len(self.shards), np.int64)
        return self._times_of_checked

    @functools.cached_property
    def _times_of_checked(self) -> Ints:
        """int64 [num_shards], time of each shard's last change at its check, ns."""
        times = index.check(self.whole, self.storage.location.path, self.split)
        return np.array(times, np.int64)


def _read_alone(
    split: SplitIndex, shard: int, record_id: int
) -> Iterator[tuple[str, records.Record]]:
    """Yields a record of the split, and reads no other byte of its shard."""
    numbers = np.array([record_id])
    start = int(split.spans.byte_offsets(numbers)[0])
    stop = start + int(split.spans.num_bytes(numbers)[0])
    origin = split.origins[shard]
    if split.storage.files is not None:
        name = split.shards[shard].name
        content = split.storage.files.read_range(name, start, stop)
    else:
        with open(origin, "rb") as file:
            content = pread(file.fileno(), stop - start, start)
    for record in records.read_from(
        lambda size, offset: content[offset : offset + size], len(content)
    ):
        yield origin, record._replace(byte_offset=start)
