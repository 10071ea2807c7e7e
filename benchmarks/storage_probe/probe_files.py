"""Files that the probe reads: its own, or the shards of a data set.

In: a folder or a URL. Out: a `ProbeFiles`. Own files are made in a new folder below the
folder, and removed at the end, by another process. In a folder or store with an
index.json, the shards are read. Nothing is written there, unless writing is measured.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import tfpipe
from benchmarks.storage_probe.reads import Piece
from benchmarks.system import mounts
from benchmarks.system.mounts import Beneath
from tfpipe import errors

PIECE_BYTES = 64 << 20  # a thread takes piece after piece
_OWN_FILES, _OWN_SHARE = 16, 0.1  # of the free space, at most
_LEAST_BYTES = 1 << 20  # of an own file, whose size is a multiple
_NUM_SMALL, _SMALL_BYTES = 256, 4096
_MAX_SAMPLE_BYTES = 4 << 30
_MAX_FILES = 1024  # opened by each thread that reads at random
_INDEX = "index.json"
# Removes a folder at the end of stdin, by whatever end of the other process. A worker
# that still writes may make a file in the folder meanwhile.
_REMOVER = """
import os, shutil, sys, time
sys.stdin.read()
for _ in range(100):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        sys.exit(0)
    time.sleep(0.1)
sys.exit(1)
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeFiles:
    """The files to read.

    Attributes:
        url: The store, or None if the names of pieces are local paths.
        names: Files for the measurements that open files or ask for sizes.
        file_system: Type of a local file system; for a URL its scheme.
    """

    url: str | None
    pieces: Sequence[Piece]
    names: Sequence[str]
    is_own: bool
    file_system: str
    beneath: Beneath = dataclasses.field(default_factory=Beneath)
    write_folder: str | None = None
    write_bytes: int = 0
    mean_record_bytes: float | None = None
    name: str = ""

    def part(self, rank: int, num_ranks: int) -> "ProbeFiles":
        """Returns the pieces for a host, so that several hosts read each byte once.

        Own files are those of a host. A host reads all pieces if there are too few.
        """
        if self.is_own or len(self.pieces) < num_ranks:
            return self
        return dataclasses.replace(self, pieces=self.pieces[rank::num_ranks])

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(name for name, _, _ in self.pieces))

    @property
    def num_bytes(self) -> int:
        return sum(stop - start for _, start, stop in self.pieces)

    def as_json(self) -> dict[str, Any]:
        return {
            "files": "own" if self.is_own else "shards",
            "data_set": self.name,
            "file_system": self.file_system,
            "beneath": self.beneath.text,
            "is_memory": self.beneath.is_memory,
            "num_files": len(self.files),
            "num_bytes": self.num_bytes,
            "mean_record_bytes": self.mean_record_bytes,
        }


@contextlib.contextmanager
def own_folder(parent: pathlib.Path) -> Iterator[pathlib.Path]:
    """Makes a folder, and removes it at the end, also after SIGKILL."""
    folder = parent / f"storage-probe-{uuid.uuid4().hex[:8]}"
    with subprocess.Popen(
        [sys.executable, "-I", "-c", _REMOVER, folder],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in a terminal does not reach the process
    ) as remover:
        folder.mkdir(mode=0o700)
        yield folder
    if remover.returncode:
        raise OSError(f"{folder} must be removed, and cannot be. Remove it.")


@contextlib.contextmanager
def opened(location: str, *, writes: bool = False) -> Iterator[ProbeFiles]:
    """Finds the files to read, or makes own files and removes them at the end."""
    if not tfpipe.Location.from_user("The folder or URL", location).is_local:
        if writes:
            raise ValueError(
                f"--write must have a folder, got {location.partition('?')[0]}: "
                "checkpoints are written to folders."
            )
        yield _shards_of(location)
        return
    if not os.path.isdir(location):
        errors.require_visible(location)
        what = "a file" if os.path.exists(location) else "no such folder"
        raise ValueError(
            f"DIR_OR_URL must be a folder or a URL, got {location}: {what}."
        )
    folder = pathlib.Path(location).resolve()  # other processes read the files
    files = _shards_of(str(folder)) if (folder / _INDEX).is_file() else None
    if files is not None and not writes:
        yield files
        return
    room = int(shutil.disk_usage(folder).free * _OWN_SHARE)
    if room < _OWN_FILES * _LEAST_BYTES:
        raise ValueError(
            f"{folder} must have {_OWN_FILES * _LEAST_BYTES / _OWN_SHARE / 1e6:.0f} MB "
            "free for the files of the probe. Make room, or name another folder."
        )
    with own_folder(folder) as own:
        if files is None:
            files = _own_files(own, room)
        if writes:
            files = dataclasses.replace(files, write_folder=str(own), write_bytes=room)
        yield files


def _shards_of(location: str) -> ProbeFiles:
    """Returns files of a data set, named by paths in a folder, by names in a store."""
    files = tfpipe.Files(location)
    is_local = files.location.is_local
    content = files.read(_INDEX)
    shards = _shards(content, f"{_INDEX} of {location.partition('?')[0]}")
    root = f"{location}/" if is_local else ""
    kind = mounts.filesystem(location) if is_local else location.partition(":")[0]
    for shard in shards if is_local else ():
        size = files.size(shard["name"])
        if size != shard["num_bytes"]:
            raise ValueError(
                f"{root}{shard['name']} must have {shard['num_bytes']} bytes as "
                f"{_INDEX} says, got {size}. Look with python -m converters.verify."
            )
    named = [(root + shard["name"], shard["num_bytes"]) for shard in shards]
    sampled = sample([size for _, size in named])
    num_records = sum(shard["num_records"] for shard in shards)
    return ProbeFiles(
        url=None if is_local else location,
        pieces=cut([named[index] for index in sampled]),
        names=[name for name, _ in named[:_MAX_FILES]],
        is_own=False,
        file_system=kind,
        beneath=mounts.beneath(named[0][0]) if is_local else Beneath(),
        mean_record_bytes=sum(size for _, size in named) / num_records,
        name=str(errors.from_json(content).get("name", "")),
    )


def _shards(index: bytes, where: str) -> list[Any]:
    try:
        splits = errors.from_json(index)["splits"].values()
        shards = [shard for split in splits for shard in split if shard["num_records"]]
        for shard in shards:
            name = shard["name"]
            is_plain = name not in ("", ".", "..") and os.path.basename(name) == name
            if shard["num_bytes"] < 1 or not is_plain:
                raise ValueError(f"a shard has no bytes or no plain name: {shard}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where} is not the index of a data set: {error}.") from error
    if not shards:
        raise ValueError(f"{where} must name a shard with records, got none.")
    return shards


def sample(sizes: Sequence[int]) -> list[int]:
    """Returns indices of shards spread over a data set, one or up to 4 GiB of them."""
    mean = sum(sizes) / len(sizes)
    count = int(min(len(sizes), max(1, _MAX_SAMPLE_BYTES / mean), _MAX_FILES))
    return [index * len(sizes) // count for index in range(count)]


def cut(files: Sequence[tuple[str, int]]) -> list[Piece]:
    """Cuts files in pieces of at most 64 MiB."""
    return [
        (name, start, min(start + PIECE_BYTES, size))
        for name, size in files
        for start in range(0, size, PIECE_BYTES)
    ]


def _own_files(folder: pathlib.Path, room: int) -> ProbeFiles:
    file_bytes = min(PIECE_BYTES, room // _OWN_FILES // _LEAST_BYTES * _LEAST_BYTES)
    large = [folder / f"large-{index:02}" for index in range(_OWN_FILES)]
    small = [folder / f"small-{index:03}" for index in range(_NUM_SMALL)]
    random = np.random.default_rng()  # a store must not find the bytes again
    for path in large:
        with open(path, "wb") as file:
            file.write(random.bytes(file_bytes))
            file.flush()
            os.fsync(file.fileno())
    for path in small:
        path.write_bytes(random.bytes(_SMALL_BYTES))
    return ProbeFiles(
        url=None,
        pieces=cut([(str(path), file_bytes) for path in large]),
        names=list(map(str, small)),
        is_own=True,
        file_system=mounts.filesystem(folder),
        beneath=mounts.beneath(large[0]),
    )
