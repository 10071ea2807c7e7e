"""Files that the probe reads: its own, or the shards of a data set.

In: a folder or a URL. Out: a `ProbeFiles`. Own files are made in a new folder below the
folder, and removed at the end, also after Ctrl-C or SIGTERM. In a folder or store with
an index.json, the shards are read and nothing is written.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import tfpipe
from benchmarks.storage_probe.reads import Piece
from benchmarks.system import mounts
from tfpipe import errors

PIECE_BYTES = 64 << 20  # a thread takes piece after piece
_OWN_FILES, _OWN_SHARE = 16, 0.1  # of the free space, at most
_LEAST_BYTES = 1 << 20  # of an own file, whose size is a multiple
_NUM_SMALL, _SMALL_BYTES = 256, 4096
_MAX_SAMPLE_BYTES = 4 << 30
_MAX_FILES = 1024  # opened by each thread that reads at random
_INDEX = "index.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeFiles:
    """The files to read.

    Attributes:
        url: The store, or None if the names of pieces are local paths.
        pieces: Parts of at most 64 MiB of the large files.
        names: Files for the measurements that open files or ask for sizes.
        is_own: Whether the probe has made the files.
        file_system: Type of a local file system; for a URL its scheme.
        mean_record_bytes: Mean bytes of a record; None without a data set.
        name: Name of the data set, or "".
    """

    url: str | None
    pieces: Sequence[Piece]
    names: Sequence[str]
    is_own: bool
    file_system: str
    mean_record_bytes: float | None = None
    name: str = ""

    @property
    def files(self) -> list[str]:
        """Names of the large files."""
        return list(dict.fromkeys(name for name, _, _ in self.pieces))

    @property
    def num_bytes(self) -> int:
        """Bytes of all pieces."""
        return sum(stop - start for _, start, stop in self.pieces)

    def as_json(self) -> dict[str, Any]:
        """Returns a description of the files for JSON, without paths."""
        return {
            "files": "own" if self.is_own else "shards",
            "data_set": self.name,
            "file_system": self.file_system,
            "num_files": len(self.files),
            "num_bytes": self.num_bytes,
            "mean_record_bytes": self.mean_record_bytes,
        }


@contextlib.contextmanager
def opened(location: str) -> Iterator[ProbeFiles]:
    """Finds the files to read, or makes own files and removes them at the end.

    Args:
        location: A folder, or the URL of a data set.

    Raises:
        ValueError: If the location is no folder, has no room for the files, or holds no
            index at a URL, or its index does not fit its shards.
        OSError: If the files cannot be read or written.
        TfpipeError: If a store does not answer.
    """
    if not tfpipe.Location.from_user("The folder or URL", location).is_local:
        yield _remote(location)
        return
    if not os.path.isdir(location):
        errors.require_visible(location)
        what = "a file" if os.path.exists(location) else "no such folder"
        raise ValueError(
            f"DIR_OR_URL must be a folder or a URL, got {location}: {what}."
        )
    folder = pathlib.Path(location)
    if (folder / _INDEX).is_file():
        yield _local(folder, (folder / _INDEX).read_bytes())
        return
    with _own_files(folder) as files:
        yield files


def _local(folder: pathlib.Path, index: bytes) -> ProbeFiles:
    shards = _shards(index, str(folder / _INDEX))
    for shard in shards:
        size = (folder / shard["name"]).stat().st_size
        if size != shard["num_bytes"]:
            raise ValueError(
                f"{folder / shard['name']} must have {shard['num_bytes']} bytes as "
                f"{_INDEX} says, got {size}. Look with python -m converters.verify."
            )
    files = _of_index(index, shards, None, mounts.filesystem(folder))
    return dataclasses.replace(
        files,
        pieces=[(str(folder / p), start, stop) for p, start, stop in files.pieces],
        names=[str(folder / name) for name in files.names],
    )


def _remote(url: str) -> ProbeFiles:
    index = tfpipe.Files(url).read(_INDEX)
    where = f"{_INDEX} of {url.partition('?')[0]}"
    return _of_index(index, _shards(index, where), url, url.partition(":")[0])


def _of_index(
    index: bytes, shards: Sequence[Any], url: str | None, kind: str
) -> ProbeFiles:
    sampled = sample([shard["num_bytes"] for shard in shards])
    num_records = sum(shard["num_records"] for shard in shards)
    num_bytes = sum(shard["num_bytes"] for shard in shards)
    return ProbeFiles(
        url=url,
        pieces=cut([(shards[n]["name"], shards[n]["num_bytes"]) for n in sampled]),
        names=[shard["name"] for shard in shards[:_MAX_FILES]],
        is_own=False,
        file_system=kind,
        mean_record_bytes=num_bytes / num_records,
        name=str(json.loads(index).get("name", "")),
    )


def _shards(index: bytes, where: str) -> list[Any]:
    """Returns the shards of an index that hold records, of all splits."""
    try:
        splits = json.loads(index)["splits"].values()
        shards = [shard for split in splits for shard in split if shard["num_records"]]
        for shard in shards:
            if shard["num_bytes"] < 1 or not _is_plain(shard["name"]):
                raise ValueError(f"a shard has no bytes or no plain name: {shard}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where} is not the index of a data set: {error}.") from error
    if not shards:
        raise ValueError(f"{where} must name a shard with records, got none.")
    return shards


def _is_plain(name: str) -> bool:
    """Checks that a file of this name is in the folder itself."""
    return name not in ("", ".", "..") and os.path.basename(name) == name


def sample(sizes: Sequence[int]) -> list[int]:
    """Chooses shards that are spread over a data set, of at most 4 GiB together.

    Args:
        sizes: Bytes of each shard.

    Returns:
        Indices of the chosen shards, at least one, in order.
    """
    mean = sum(sizes) / len(sizes)
    count = int(min(len(sizes), max(1, _MAX_SAMPLE_BYTES / mean), _MAX_FILES))
    return [index * len(sizes) // count for index in range(count)]


def cut(files: Sequence[tuple[str, int]]) -> list[Piece]:
    """Cuts files in pieces of at most 64 MiB.

    Args:
        files: Name and bytes of each file.
    """
    return [
        (name, start, min(start + PIECE_BYTES, size))
        for name, size in files
        for start in range(0, size, PIECE_BYTES)
    ]


@contextlib.contextmanager
def _own_files(parent: pathlib.Path) -> Iterator[ProbeFiles]:
    room = shutil.disk_usage(parent).free * _OWN_SHARE / _OWN_FILES
    file_bytes = min(PIECE_BYTES, int(room) // _LEAST_BYTES * _LEAST_BYTES)
    if not file_bytes:
        raise ValueError(
            f"{parent} must have {_OWN_FILES * _LEAST_BYTES / _OWN_SHARE / 1e6:.0f} MB "
            "free for the files of the probe. Make room, or name another folder."
        )
    folder = pathlib.Path(tempfile.mkdtemp(prefix="storage-probe-", dir=parent))
    try:
        large = [folder / f"large-{index:02}" for index in range(_OWN_FILES)]
        small = [folder / f"small-{index:03}" for index in range(_NUM_SMALL)]
        random = np.random.default_rng()  # a store must not find the bytes again
        for path in large:
            _write(path, random.bytes(file_bytes))
        for path in small:
            path.write_bytes(random.bytes(_SMALL_BYTES))
        yield ProbeFiles(
            url=None,
            pieces=cut([(str(path), file_bytes) for path in large]),
            names=list(map(str, small)),
            is_own=True,
            file_system=mounts.filesystem(folder),
        )
    finally:
        with _uninterrupted():
            shutil.rmtree(folder)


def _write(path: pathlib.Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignores Ctrl-C and SIGTERM while the block runs."""
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {kind: signal.signal(kind, signal.SIG_IGN) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
