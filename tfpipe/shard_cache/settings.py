"""ShardCache: remote shards on a local disk, fetched ahead of use, shared by a host.

In: the files of a data set elsewhere, and the order in which its records are read. Out:
local paths in which these records are at their byte offsets. Imports no TensorFlow.
"""

import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tfpipe import errors
from tfpipe.location import limits
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shard_cache import metadata, pieces as cuts, store
from tfpipe.shard_cache.directory import Directory
from tfpipe.shard_cache.disk import used_as_cache
from tfpipe.shard_cache.open_cache import OpenCache
from tfpipe.shard_cache.shared import SharedPieces
from tfpipe.shards import index
from tfpipe.shards.index import Shard
from tfpipe.shards.ranges import RecordRanges
from tfpipe.shards.records import Ints

# Folder of a cache directory with the index and the catalog of each data set by URL.
INDEX_FOLDER = "index"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillFigures:
    """The result of `ShardCache.fill`.

    Example:
        >>> from tfpipe.shard_cache.settings import FillFigures
        >>> cache = tfpipe.ShardCache("cache", max_bytes=10**8)
        >>> filled = cache.fill("DIR")
        >>> isinstance(filled, FillFigures)
        True
        >>> filled.num_bytes_present == filled.num_bytes_total
        True

    Attributes:
        num_bytes_fetched: Bytes of the shards that the call fetched.
        num_bytes_present: Bytes of the shards that are in the cache now.
        num_bytes_total: Bytes of all shards, or of the part to fill.
        seconds: Seconds of the call.
        index_digest: Digest of index.json, see `TFRecordSource.index_digest`.
        tags: Split -> digest of the ETags of its shards, see `TFRecordSource.tags`.
    """

    num_bytes_fetched: int
    num_bytes_present: int
    num_bytes_total: int
    seconds: float
    index_digest: str = ""
    tags: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ShardCache:
    """A folder on a local disk for the parts of remote shards that are in use.

    All processes of a host share the folder: every part of a shard is fetched once.
    Records are fetched in pieces of 2 to 4 MB with parallel ranged reads, ahead of use,
    in the order of reading. A piece is used after its lengths agree with the catalog
    and its CRCs with its records. A whole shard is *published*, or kept after a reboot,
    after its digest also agrees with index.json. If the data set does not fit, the
    piece that is used farthest in the future makes room. Several data sets and splits
    can share a folder; data sets that nobody reads make room first.

    The cache survives killed processes. If the disk is full, or the server fails,
    stalls, or alters bytes, reading goes on with the sound pieces and tries again.

    Several hosts can share a second folder, on a shared file system: a host that lacks
    a piece reads the piece there, and only one host fetches a piece from the store.
    Hosts agree by files that are created exclusively, without a lock daemon, so the
    file system must have O_EXCL, rename and link, as JuiceFS, Lustre, CephFS and NFS
    have. If a host dies while the host fetches a piece, another host fetches the piece
    after 30 s. The folder never shrinks: delete the folders of old data sets in
    `shared_directory` yourself, at any time.

    Example:
        >>> cache = tfpipe.ShardCache("cache", max_bytes=10**8)
        >>> source = tfpipe.TFRecordSource("DIR", "train", shard_cache=cache)
        >>> len(list(tfpipe.Pipeline(source, [tfpipe.Interleave()]).build()))
        24

    Args:
        directory: Folder on a local disk of this host; a missing folder is made.
        max_bytes: Bytes on the disk that all pieces may take, of all data sets and
            splits in the folder. Up to 1 GiB of three windows of each rank may be in
            memory besides. None is 80 % of the disk's free bytes at the opening, cached
            bytes included.
        shared_directory: Folder on a file system that all hosts of a job share, such as
            "/lustre/cache"; a missing folder is made. None: each host fetches for
            itself.
        shared_max_bytes: Bytes of each split that `shared_directory` may keep: those at
            the start of the split. All hosts need the same value. None is no limit.
        num_connections: Requests of a process at once, for each split.
            Default: $TFPIPE_STORE_CONNECTIONS, or 16 without it.
        time_limit: Seconds that a piece may take with all retries, > 0, at most a day.
            Default: $TFPIPE_STORE_TIME_LIMIT, or 120 without it.

    Raises:
        ValueError: If an argument is wrong.
    """

    directory: str | os.PathLike[str]
    _: dataclasses.KW_ONLY
    max_bytes: int | None = None
    shared_directory: str | os.PathLike[str] | None = None
    shared_max_bytes: int | None = None
    num_connections: int = dataclasses.field(default_factory=limits.connections)
    time_limit: float = dataclasses.field(
        default_factory=lambda: limits.seconds(default=limits.PIECE_SECONDS)
    )

    def __post_init__(self) -> None:
        _require_folder(self, "directory", self.directory)
        if self.shared_directory is not None:
            _require_folder(self, "shared_directory", self.shared_directory)
            if pathlib.Path(self.shared_directory) == pathlib.Path(self.directory):
                raise ValueError(
                    "ShardCache.shared_directory must be another folder than directory,"
                    f" got {self.directory} twice. Give a local folder as directory."
                )
        elif self.shared_max_bytes is not None:
            raise ValueError(
                "ShardCache.shared_max_bytes must have a shared_directory, got "
                f"{self.shared_max_bytes} without one."
            )
        errors.settle_ints(
            self, ["max_bytes", "shared_max_bytes"], least=1, also=[None]
        )
        errors.settle_ints(
            self, ["num_connections"], least=1, most=limits.MOST_CONNECTIONS
        )
        errors.settle_numbers(self, ["time_limit"], above=0, most=limits.MOST_SECONDS)

    def fill(
        self,
        data_dir: str | os.PathLike[str],
        split: str | None = None,
        *,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> FillFigures:
        """Brings all records of a data set into the cache, as far as there is room.

        Shards are fetched in order. Pieces that no reader uses make room for them.
        Large pieces go past the page cache, where the file system can: a reader finds
        them on the disk.

        Args:
            data_dir: Folder or URL of the data set.
            split: Name of a split; None is all.
            on_progress: Receives the bytes in the cache and the bytes of all shards,
                several times a second.

        Raises:
            ValueError: If the directory cannot be used.
            BadIndexError: If the index or a shard is wrong.
            RemoteError: If the store fails.
        """
        start = time.perf_counter()
        location = Location.from_user("data_dir", data_dir)
        files = Files(location, self.time_limit, is_pinned=not location.is_local)
        if location.is_local:
            folder = location.path
        else:
            with used_as_cache(self.directory):
                folder = metadata.bring(
                    files, pathlib.Path(self.directory) / INDEX_FOLDER
                )
        whole = index.load(folder)
        names = list(whole.splits) if split is None else [split]
        num_bytes_total = 0
        for name in names:
            index.require_split(whole.splits, location.shown, name)
            num_bytes_total += sum(shard.num_bytes for shard in whole.splits[name])
        if not location.is_local:
            metadata.check_sizes(files, [s for n in names for s in whole.splits[n]])
        fetched = there = now = 0
        tags = {}
        for name in names:
            catalog = index.load_catalog(folder, name, ["byte_offset"])
            offsets = catalog["byte_offset"].astype(np.int64)
            with contextlib.closing(
                self.open(files, folder, name, whole.splits[name], offsets)
            ) as opened:
                for now in opened.fill():
                    if on_progress is not None:
                        on_progress(there + now, num_bytes_total)
                there += now
                fetched += opened.statistics().bytes_from_server
                tags[name] = metadata.tags_digest(opened.content.tags)
        return FillFigures(
            num_bytes_fetched=fetched,
            num_bytes_present=there,
            num_bytes_total=num_bytes_total,
            seconds=time.perf_counter() - start,
            index_digest=metadata.index_digest(folder, is_growing=False),
            tags=tags,
        )

    def open(
        self,
        files: Files,
        index_folder: str | os.PathLike[str],
        split: str,
        shards: Sequence[Shard],
        byte_offsets: Ints,
        *,
        is_growing: bool = False,
    ) -> OpenCache:
        """Opens the cache for a split; for the sources of tfpipe.

        Args:
            files: The files of the data set.
            index_folder: Local folder with its index.json and catalog.parquet.
            split: Name of the split.
            shards: The shards of the split.
            byte_offsets: int64 [num_records], byte offset of each record in its shard.
            is_growing: Whether the data set grows: its index is then a view.

        Raises:
            ValueError: If the directory cannot be used; the text says why.
            BadIndexError: If the byte offsets contradict the shards.
        """
        sizes = np.array([shard.num_records for shard in shards], np.int64)
        num_bytes = np.array([shard.num_bytes for shard in shards], np.int64)
        try:
            pieces = cuts.cut(sizes, byte_offsets, num_bytes)
        except errors.BadIndexError as error:
            raise errors.BadIndexError(f"{os.fspath(index_folder)}: {error}") from None
        if files.time_limit != self.time_limit:  # a copy would lose the listing
            files = dataclasses.replace(files, time_limit=self.time_limit)
        content = store.SplitContent(
            location=files.location,
            split=split,
            shards=shards,
            pieces=pieces,
            tags=[files.tag(shard.name) for shard in shards],
        )
        shared = None
        if self.shared_directory is not None:
            shared = SharedPieces(
                pathlib.Path(self.shared_directory),
                content,
                max_bytes=self.shared_max_bytes,
                longest_wait=self.time_limit / 2,
            )
        digest = metadata.index_digest(index_folder, is_growing=is_growing)
        return OpenCache(
            Directory(pathlib.Path(self.directory), self.max_bytes),
            files,
            content,
            shared=shared,
            version=metadata.DataVersion(files, digest),
            num_connections=self.num_connections,
        )


def fill_part(
    cache: OpenCache | None,
    ranges: RecordRanges,
    on_progress: Callable[[int, int], object] | None,
) -> FillFigures:
    """Brings some records into an open cache, see `TFRecordSource.fill_cache`."""
    if cache is None:
        raise ValueError("TFRecordSource.fill_cache must have a ShardCache, got none.")
    start, now = time.perf_counter(), 0
    pieces = cache.pieces.of(ranges)
    total = int((cache.pieces.stop - cache.pieces.start)[pieces].sum())
    before = cache.statistics().bytes_from_server
    for now in cache.fill(pieces):
        if on_progress is not None:
            on_progress(now, total)
    return FillFigures(
        num_bytes_fetched=cache.statistics().bytes_from_server - before,
        num_bytes_present=now,
        num_bytes_total=total,
        seconds=time.perf_counter() - start,
        index_digest=cache.index_digest,
        tags={cache.content.split: metadata.tags_digest(cache.content.tags)},
    )


def _require_folder(cache: ShardCache, name: str, value: object) -> None:
    errors.require_local_path(cache, name, value)
    if not isinstance(value, str | os.PathLike) or not value:
        raise ValueError(f"ShardCache.{name} must be a folder, got {value!r}.")
