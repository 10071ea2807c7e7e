"""The index and the catalog of a remote data set, brought to this host.

In: the files of a data set by URL, and a local folder. Out: a folder with its checked
index.json and catalog.parquet, for readers like a local data set; side files for
readers; and the proof that all shards are there. Imports no TensorFlow.
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tfpipe import errors
from tfpipe.location import atomic, limits
from tfpipe.location.files import Files
from tfpipe.shards import index

_PIECE_BYTES = 8 << 20
# Bytes that the network altered are right the next time.
_NUM_TRIES = 3
# From this size on a line on stderr announces the file.
_LARGE_BYTES = 64 << 20


class _AlteredError(Exception):
    """A fetched file has another digest than the index says."""


def bring(files: Files, folder: pathlib.Path) -> pathlib.Path:
    """Brings index.json and catalog.parquet of a data set into a local folder.

    An index.json has a folder of its own, named by its digest: data sets and their
    versions do not mix. A catalog of an earlier call is checked and kept. If several
    processes bring the same files at once, the first fetches the catalog for all.

    Args:
        files: The data set.
        folder: A local folder; a missing folder is made.

    Returns:
        The folder with the two files. An older data set may have no catalog.

    Raises:
        BadIndexError: If index.json is missing, unreadable or of a later format, or if
            the catalog is missing or has not the digest that index.json says.
        RemoteError: If the store fails.
        OSError: If the folder cannot be written.
    """
    content = _read_index(files)
    folder.mkdir(parents=True, exist_ok=True)
    url = files.location.shown
    whole = index.parse(content, f"{url}/{index.INDEX_NAME}")
    target = folder / index.describe(content).digest
    target.mkdir(exist_ok=True)
    kept = target / index.INDEX_NAME
    with locked(folder):  # a writer of a file locks the folder of the file itself
        if not kept.exists() or kept.read_bytes() != content:
            Files(str(target)).write(index.INDEX_NAME, content)
        _bring_catalog(files, whole, target / index.CATALOG_NAME)
    return target


@dataclasses.dataclass(frozen=True)
class DataVersion:
    """The version of a data set, by its index at the opening.

    Attributes:
        files: The data set.
        digest: Digest of index.json at the opening; "" if the index may change.
    """

    files: Files
    digest: str = ""

    def replaced(self) -> errors.RemoteError | None:
        """Returns the error of a data set replaced since then; None otherwise.

        A store without an answer tells nothing.
        """
        if not self.digest:
            return None
        try:
            now = index.describe(self.files.read(index.INDEX_NAME)).digest
        except errors.MissingFileError:
            now = "none"
        except errors.RemoteError:
            return None
        if now == self.digest:
            return None
        return errors.RemoteError(
            f"{self.files.location.shown} was replaced while it was read: "
            f"{index.INDEX_NAME} had the digest {self.digest} when the data set was "
            f"opened, and has {now} now. Start the run again."
        )


def index_digest(folder: str | os.PathLike[str], *, is_growing: bool) -> str:
    """Returns the digest of the index.json of a data set at its opening.

    Args:
        folder: Local folder with the index.json.
        is_growing: Whether the data set grows: its index is then a view.

    Returns:
        "" for a view, and without an index.json.
    """
    path = pathlib.Path(folder) / index.INDEX_NAME
    return index.describe_file(path).digest if path.exists() and not is_growing else ""


def tags_digest(tags: Sequence[str]) -> str:
    """Returns a digest of the ETags of shards; "" unless each shard has one."""
    return index.digest(repr([*tags])) if all(tags) else ""


def say_copied(shown: str, since: str) -> None:
    """Says once: the shards are other files, perhaps with the same bytes.

    Args:
        shown: The data set.
        since: The earlier look at the ETags, as a sentence.
    """
    errors.say_once(
        f"The shards of {shown} were replaced or copied again since {since}: "
        f"{index.INDEX_NAME} is the same, but their ETags differ. python -m "
        f"converters.verify {shown} --level=crc finds shards with other bytes."
    )


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Holds the lock of a folder, where its file system has locks of folders."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def check_sizes(files: Files, shards: Sequence[index.Shard]) -> None:
    """Checks that all shards exist with the sizes in the index.

    The check takes one listing. A web server cannot list, and is asked for every shard.

    Raises:
        BadIndexError: If a shard is missing or has another size.
        RemoteError: If the store fails.
    """
    if files.location.is_web_server:
        with ThreadPoolExecutor(limits.connections()) as pool:
            sizes = list(pool.map(lambda shard: _size(files, shard.name), shards))
    else:
        listing = files.names()
        sizes = [listing.get(shard.name) for shard in shards]
    for shard, size in zip(shards, sizes, strict=True):
        if size != shard.num_bytes:
            got = "no such file" if size is None else f"{size}"
            raise errors.BadIndexError(
                f"Shard {(files.location / shard.name).shown} must have "
                f"{shard.num_bytes} bytes as {index.INDEX_NAME} says, got {got}. Copy "
                "it again or convert the data set again."
            )


def _size(files: Files, name: str) -> int | None:
    try:
        return files.size(name)
    except errors.MissingFileError:
        return None


def _read_index(files: Files) -> bytes:
    """Reads index.json; reads a changed index.json twice."""
    try:
        content = files.read(index.INDEX_NAME)
    except errors.MissingFileError:
        if files.location.is_local:
            raise index.missing(files.location.path) from None
        url = files.location.shown
        raise errors.BadIndexError(
            f"No data set in {url}: {index.INDEX_NAME} is missing. Check the URL, or "
            f"create one with python -m converters.folder PHOTOS {url}."
        ) from None
    try:
        is_sound = not index.change_of(content, "")
    except errors.BadIndexError:
        is_sound = False
    # If a person edited the file, the second content is the same.
    return content if is_sound else files.read(index.INDEX_NAME)


def _bring_catalog(files: Files, whole: index.Index, path: pathlib.Path) -> None:
    wanted = (whole.files or {}).get(index.CATALOG_NAME)
    if path.exists() and wanted in (None, index.describe_file(path)):
        return
    if wanted is None and not files.exists(index.CATALOG_NAME):
        return
    _fetch(files, wanted, path)


def bring_side_file(
    files: Files, whole: index.Index, name: str, folder: pathlib.Path
) -> pathlib.Path:
    """Brings a file of the index into a local folder, unless the file is there.

    A local file with a wrong digest is fetched again. If several processes need the
    file, a process fetches it and the others wait. A file of 64 MB or more is announced
    on stderr.

    Args:
        files: The data set.
        whole: The index of the data set.
        name: Name of the file.
        folder: Local folder for the index, from `bring`; a missing folder is made.

    Returns:
        The path of the file.

    Raises:
        BadIndexError: If the index does not list the file, or the file is missing or
            has another digest than the index says.
        RemoteError: If the store fails.
        OSError: If the folder cannot be written.
    """
    shown = (files.location / name).shown
    if (wanted := (whole.files or {}).get(name)) is None:
        raise errors.BadIndexError(f"{index.INDEX_NAME} must list {shown}.")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    with atomic.locked(folder / f".{name}.lock"):
        if path.exists():
            if index.describe_file(path) == wanted:
                return path
            print(
                f"tfpipe: {path} is damaged and is fetched again from {shown}.",
                file=sys.stderr,
            )
        if wanted.num_bytes >= _LARGE_BYTES:
            print(
                f"tfpipe: {shown}, {wanted.num_bytes / 1e6:.0f} MB, is fetched once "
                f"and kept in {folder}.",
                file=sys.stderr,
            )
        _fetch(files, wanted, path)
    return path


def _fetch(files: Files, wanted: index.File | None, path: pathlib.Path) -> None:
    """Fetches the file of this name, and compares its digest, if it is wanted.

    Raises:
        BadIndexError: If the file is missing, or has another digest each time.
        RemoteError: If the store fails.
        OSError: If the folder cannot be written.
    """
    name = path.name
    fault = (
        f"{(files.location / name).shown} must have the digest that "
        f"{index.INDEX_NAME} says"
    )
    for attempt in range(_NUM_TRIES):
        if attempt:
            print(f"tfpipe: {fault}: it is read again.", file=sys.stderr)
        try:
            with atomic.new_file(path) as part:
                num_bytes = wanted.num_bytes if wanted else files.size(name)
                download(files, name, part, num_bytes)
                if wanted not in (None, index.describe_file(part)):
                    raise _AlteredError
            return
        except _AlteredError:
            continue
        except errors.MissingFileError as error:
            raise errors.BadIndexError(str(error)) from None
    raise errors.BadIndexError(
        f"{fault}, but has another one each time. Copy it again or convert the data "
        "set again."
    )


def download(files: Files, name: str, path: pathlib.Path, num_bytes: int) -> None:
    """Copies a file to this host by parallel reads of pieces.

    A small file is read whole: some web servers cannot send a piece.
    """
    if num_bytes <= _PIECE_BYTES:
        path.write_bytes(files.read(name))
        return
    with open(path, "wb") as file, ThreadPoolExecutor(limits.connections()) as pool:

        def copy(start: int) -> None:
            stop = min(start + _PIECE_BYTES, num_bytes)
            os.pwrite(file.fileno(), files.read_range(name, start, stop), start)

        list(pool.map(copy, range(0, num_bytes, _PIECE_BYTES)))
