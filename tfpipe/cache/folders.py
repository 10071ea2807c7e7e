"""The folders of stores: finds, creates, compares and evicts them.

In: a folder on a local disk and a description of the content. Out: the store of the
content, with everything stored before, in a folder of its own. A process holds a lock
while the process reads or changes the set of folders. The users of a store hold the
lock of the store, so that no process evicts or drops the store. Imports no TensorFlow.

    DIRECTORY/lock
    DIRECTORY/<fingerprint>/manifest.json   its content, and the boot of its creation
    DIRECTORY/<fingerprint>/in_use          locked by its users
    DIRECTORY/<fingerprint>/complete        exists if the store is whole and on the disk
    DIRECTORY/<fingerprint>/...             see `store.layout`, and segments of strings
"""

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tfpipe import errors, host
from tfpipe.cache import store
from tfpipe.location import atomic
from tfpipe.shards import index

_MANIFEST_NAME = "manifest.json"
_IN_USE_NAME = "in_use"
# Tries to open a store while others remove its files.
_TRIES = 5
_FINGERPRINT = re.compile(r"[0-9a-f]{32}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheContent:
    """The content of a store.

    Attributes:
        made_of: Everything of which the content is made, such as the digest of the
            data, as JSON values.
        features: Features of a record.
        num_records: Number of records in the split.
        string_bytes: Largest sum of the bytes of all strings of a feature.
    """

    made_of: Mapping[str, Any]
    features: Sequence[store.StoredFeature]
    num_records: int
    string_bytes: int

    @property
    def fingerprint(self) -> str:
        """A digest of the content, 32 hexadecimal digits."""
        return index.digest(json.dumps(self.document(), sort_keys=True))

    def document(self) -> dict[str, Any]:
        """Returns the content in the form of the manifest."""
        features = [[f.name, f.dtype.name, *f.shape] for f in self.features]
        numbers = {"num_records": self.num_records, "features": features}
        return {**self.made_of, **numbers}

    @property
    def num_bytes(self) -> int:
        """The bytes of the full store."""
        return store.num_bytes(self.features, self.num_records, self.string_bytes)


def open_store(
    directory: str | os.PathLike[str], content: CacheContent, *, max_bytes: int | None
) -> store.DiskStore:
    """Opens the store of a content, or makes room and creates the store.

    Lines on stderr name the stores that were opened, dropped or evicted.

    Args:
        directory: Folder of all stores, on a disk of this host.
        content: Content of the store.
        max_bytes: Most bytes of all stores in the folder when full. The stores opened
            longest ago are evicted, but no store in use. None is no limit.

    Raises:
        ValueError: If the store cannot fit max_bytes.
        OSError: If the disk has not enough space, or the folder cannot be used.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(FileNotFoundError):  # others remove files meanwhile
            return _open(pathlib.Path(directory), content, max_bytes)
    return _open(pathlib.Path(directory), content, max_bytes)


def _open(
    directory: pathlib.Path, content: CacheContent, max_bytes: int | None
) -> store.DiskStore:
    directory.mkdir(parents=True, exist_ok=True)
    folder = directory / content.fingerprint
    with atomic.locked(directory / "lock"):
        for leftover in directory.glob(".*.tmp"):
            shutil.rmtree(leftover)
        if folder.exists() and (fault := _fault(folder, content)):
            _say(f"{folder} {fault}: it is dropped and filled again.")
            _remove(folder)
        _make_room(directory, content, max_bytes)
        if not folder.exists():
            _explain(directory, content)
            _create(folder, content)
        os.utime(folder / _MANIFEST_NAME)
        lock = (folder / _IN_USE_NAME).open("ab")
        fcntl.flock(lock, fcntl.LOCK_SH)
    with contextlib.ExitStack() as failed:
        failed.push(lock)
        opened = store.DiskStore(
            folder,
            content.features,
            content.num_records,
            string_bytes=content.string_bytes,
            lock=lock,
        )
        failed.pop_all()
    return opened


def _fault(folder: pathlib.Path, content: CacheContent) -> str:
    """Returns the fault of an existing folder, or ""."""
    manifest = _manifest(folder)
    if manifest is None:
        return f"has no readable {_MANIFEST_NAME}"
    if manifest["content"] != json.loads(json.dumps(content.document())):
        return "holds something else"
    for name, size in store.layout(content.features, content.num_records).items():
        path = folder / name
        num_bytes = path.stat().st_size if path.exists() else None
        if num_bytes != size:
            return f"must have a file {name} of {size} bytes, got {num_bytes}"
    complete = (folder / store.COMPLETE_NAME).exists()
    if not complete and manifest["boot_id"] != host.boot_id():
        return (
            "was not complete when this host was last shut down, so it may lack what "
            "was not yet on the disk"
        )
    return ""


def _manifest(folder: pathlib.Path) -> dict[str, Any] | None:
    """Returns the manifest of a store; None without a sound manifest.

    Raises:
        OSError: If the manifest cannot be read. The store may be sound nevertheless.
    """
    try:
        manifest = errors.from_json(
            (folder / _MANIFEST_NAME).read_text(encoding="utf-8")
        )
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError):
        return None
    keys = {"content", "num_bytes", "boot_id"}
    return manifest if isinstance(manifest, dict) and keys <= set(manifest) else None


def _others(directory: pathlib.Path, content: CacheContent) -> list[pathlib.Path]:
    """Returns the folders of other stores, the least recently opened first."""
    folders = [
        folder
        for folder in directory.iterdir()
        if _FINGERPRINT.fullmatch(folder.name) and folder.name != content.fingerprint
    ]
    return sorted(folders, key=_last_opened)


def _last_opened(folder: pathlib.Path) -> float:
    manifest = folder / _MANIFEST_NAME
    return manifest.stat().st_mtime if manifest.exists() else 0.0


def _num_bytes(folder: pathlib.Path) -> int:
    with contextlib.suppress(OSError):  # of another store
        if (manifest := _manifest(folder)) is not None:
            return int(manifest["num_bytes"])
    return sum(path.stat().st_size for path in folder.iterdir())


def _explain(directory: pathlib.Path, content: CacheContent) -> None:
    """Prints how the existing stores differ from the wanted store."""
    for other in _others(directory, content):
        with contextlib.suppress(OSError):
            if (manifest := _manifest(other)) is not None:
                kept, wanted = manifest["content"], content.document()
                keys = [key for key in wanted if kept.get(key) != wanted[key]]
                _say(f"{other} does not fit: it was made with other {', '.join(keys)}.")


def _make_room(
    directory: pathlib.Path, content: CacheContent, max_bytes: int | None
) -> None:
    """Evicts other stores to make room; none if no room would be enough."""
    others = _others(directory, content)
    free = {folder: _num_bytes(folder) for folder in others if not _in_use(folder)}
    need, evictable = content.num_bytes, sum(free.values())
    left = _disk_left(directory)
    missing = max(need - _allocated(directory / content.fingerprint), 0)
    in_use = sum(_num_bytes(folder) for folder in others if folder not in free)
    if max_bytes is not None and need + in_use > max_bytes:
        raise ValueError(
            f"Cache.max_bytes must be >= {need + in_use} for this cache of {need} "
            f"bytes and {in_use} bytes that are in use in {directory}, got {max_bytes}."
        )
    if missing > left + evictable:
        raise OSError(
            errno.ENOSPC,
            f"The cache needs {missing} bytes more, the disk has {left} and "
            f"{evictable} of other caches",
            os.fspath(directory),
        )
    for folder, size in free.items():
        kept = in_use + evictable
        if missing <= _disk_left(directory) and (
            max_bytes is None or kept + need <= max_bytes
        ):
            break
        _say(f"evicted {folder}, {size} bytes when full, to make room.")
        _remove(folder)
        evictable -= size


def _allocated(folder: pathlib.Path) -> int:
    if not folder.exists():
        return 0
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


def _disk_left(directory: pathlib.Path) -> int:
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def _in_use(folder: pathlib.Path) -> bool:
    with open(folder / _IN_USE_NAME, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _remove(folder: pathlib.Path) -> None:
    """Removes a folder. A kill leaves nothing in the form of a store."""
    if _in_use(folder):
        raise OSError(
            errno.EBUSY,
            "The cache is in use by another process, on this host or another one",
            os.fspath(folder),
        )
    leftover = folder.with_name(f".{folder.name}.tmp")
    folder.rename(leftover)
    shutil.rmtree(leftover)


def _create(folder: pathlib.Path, content: CacheContent) -> None:
    """Creates an empty store, with the disk space of its arrays allocated."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    temporary.mkdir()
    try:
        for name, size in store.layout(content.features, content.num_records).items():
            with open(temporary / name, "xb") as file:
                # A write through a memory map to a hole of a file would, on a full
                # disk, kill the process.
                os.posix_fallocate(file.fileno(), 0, size)
        (temporary / _IN_USE_NAME).touch()
        manifest = {
            "content": content.document(),
            "num_bytes": content.num_bytes,
            "boot_id": host.boot_id(),
        }
        text = json.dumps(manifest, indent=1) + "\n"
        (temporary / _MANIFEST_NAME).write_text(text, encoding="utf-8")
    except BaseException:
        shutil.rmtree(temporary)
        raise
    temporary.rename(folder)
    atomic.sync(folder.parent)


def _say(text: str) -> None:
    print(f"cache: {text}", file=sys.stderr)
