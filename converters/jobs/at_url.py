"""A data set at a URL: read ahead in pieces, and claimed while a job writes it.

In: the files at a URL; the identity and the file names of a job. Out: bytes of a file;
whether the job may write there; the files of the job at the URL, the index last.

A store has no renames and no locks. The claim replaces both: a file that is written
before the first shard, and removed after the index. It names the job under way and the
files that the job may leave behind. A URL with a claim holds no complete data set.
"""

import concurrent.futures
import dataclasses
import functools
import json
import pathlib
import tempfile
from collections.abc import Collection, Mapping, Sequence

import xxhash

from converters.engines import processes
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shards import index

_PIECE_BYTES = 8 << 20
_NUM_AHEAD = 2


class Ahead:
    """A file at a URL that is read once, from its start to its end.

    Args:
        files: The files at the URL.
        name: Name of the file.
        size: Bytes of the file.
        piece_bytes: Bytes of one request, >= 1.
    """

    def __init__(
        self, files: Files, name: str, size: int, *, piece_bytes: int = _PIECE_BYTES
    ) -> None:
        self._files, self._name, self._size = files, name, size
        self._piece_bytes = piece_bytes
        self._pool = concurrent.futures.ThreadPoolExecutor(_NUM_AHEAD)
        self._pieces: dict[int, concurrent.futures.Future[bytes]] = {}

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def pread(self, num_bytes: int, offset: int) -> bytes:
        """Returns bytes from an offset on; fewer only at the end of the file.

        Pieces before the offset are forgotten, so that a read further back fetches its
        piece again.

        Raises:
            RemoteError: If the bytes cannot be read.
        """
        stop = min(offset + num_bytes, self._size)
        if offset >= stop:
            return b""
        first, last = offset // self._piece_bytes, (stop - 1) // self._piece_bytes
        self._fetch(first, last)
        pieces = [self._pieces[n].result() for n in range(first, last + 1)]
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        start = first * self._piece_bytes
        return whole[offset - start : stop - start]

    def _fetch(self, first: int, last: int) -> None:
        """Begins to fetch the pieces that are needed now and those that come next."""
        for number in [number for number in self._pieces if number < first]:
            del self._pieces[number]
        num_pieces = -(-self._size // self._piece_bytes)
        for number in range(first, min(last + 1 + _NUM_AHEAD, num_pieces)):
            if number not in self._pieces:
                start = number * self._piece_bytes
                stop = min(start + self._piece_bytes, self._size)
                self._pieces[number] = self._pool.submit(
                    self._files.read_range, self._name, start, stop
                )


def describe(files: Files, name: str, size: int) -> index.File:
    """Returns the entry of the index for a file at a URL, which is read in pieces.

    Args:
        files: The files at the URL.
        name: Name of the file.
        size: Bytes of the file.

    Raises:
        RemoteError: If the file cannot be read.
    """
    digest = xxhash.xxh3_128()
    with Ahead(files, name, size) as ahead:
        for offset in range(0, size, _PIECE_BYTES):
            digest.update(ahead.pread(_PIECE_BYTES, offset))
    return index.File(num_bytes=size, digest=digest.hexdigest())


CLAIM_NAME = ".converting.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """The file that says at a place which conversion is under way.

    Attributes:
        job: Identity of the job; empty if no conversion is under way.
        names: Files that this job may write, and files of an older data set or of a
            conversion that did not end, which this job replaces or removes.

    Raises:
        ValueError: If a name cannot be the name of a file of a data set.
    """

    job: str = ""
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in self.names:
            for part in name.split("/", 1):  # a side file may be in a folder
                index.require_base_name(part)

    def to_json(self) -> bytes:
        """Returns the content of the file."""
        return json.dumps(dataclasses.asdict(self)).encode()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetState:
    """The files at a place, and the claim that a job writes there.

    Attributes:
        sizes: Bytes of every file at the place. All is empty for a job that writes to a
            folder.
        claim: The claim to write before anything else is changed.
        is_claimed: Whether the job has begun to change the place.
    """

    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    claim: Claim = Claim()
    is_claimed: bool = False

    @property
    def has_index(self) -> bool:
        """Whether a data set is at the place, which stays until the new one is made."""
        return index.INDEX_NAME in self.sizes


def look(
    files: Files, *, job: str, names: Collection[str], overwrite: bool
) -> TargetState:
    """Looks at a place, and checks that a job may write there. Changes nothing.

    Args:
        files: The place.
        job: Identity of the job.
        names: Every file that the job may write, without the index.
        overwrite: Whether a data set, or what is left of another conversion, may be
            replaced.

    Raises:
        FileExistsError: If something else is there that must not be replaced.
        BadIndexError: If the index of the old data set cannot be read.
        RemoteError: If the place cannot be read.
    """
    sizes = files.names()
    before = _read_claim(files, sizes)
    is_claimed = before.job == job
    if not (is_claimed or overwrite):
        _require_nothing(files, sizes, before)
    known = set(before.names)
    if not is_claimed:  # a claim already has the names of the old data set
        known |= _names_of_data_set(files, sizes)
    strange = sizes.keys() - known - {CLAIM_NAME, index.INDEX_NAME}
    if not known and strange:
        raise FileExistsError(
            f"--output_dir {files.location.shown} must be empty or hold a data set, "
            f"got other files, the first is {min(strange)}. Choose another place."
        )
    if clash := strange & set(names):
        raise FileExistsError(
            f"{files.location.shown} holds {min(clash)}, which a new file would "
            f"replace, but no {index.INDEX_NAME} lists it. Move it away."
        )
    claim = Claim(job=job, names=sorted(known & sizes.keys() | set(names)))
    return TargetState(sizes=sizes, claim=claim, is_claimed=is_claimed)


def _require_nothing(files: Files, sizes: Mapping[str, int], before: Claim) -> None:
    """Refuses a place with a data set or with the claim of another job."""
    shown = files.location.shown
    if before.job:
        raise FileExistsError(
            f"{shown} holds an unfinished conversion that differs from this one. "
            "Finish that one with its own input and options, or drop it with "
            "--overwrite."
        )
    if index.INDEX_NAME in sizes:
        raise FileExistsError(
            f"--output_dir {shown} already holds a data set. Choose another place, or "
            "replace it with --overwrite."
        )


def _read_claim(files: Files, sizes: Mapping[str, int]) -> Claim:
    if CLAIM_NAME not in sizes:
        return Claim()
    try:
        return Claim(**errors.from_json(files.read(CLAIM_NAME)))
    except (ValueError, TypeError, AttributeError) as error:
        raise FileExistsError(
            f"{CLAIM_NAME} in {files.location.shown} cannot be read: {error}. "
            "Remove what is there, or choose another place."
        ) from error


def _names_of_data_set(files: Files, sizes: Mapping[str, int]) -> set[str]:
    """Returns the shards and side files that the index of a data set lists."""
    if index.INDEX_NAME not in sizes:
        return set()
    known = load_index(files)
    shards = {shard.name for entries in known.splits.values() for shard in entries}
    return shards | set(known.files or ())


def load_index(files: Files) -> index.Index:
    """Reads the index of the data set at a place.

    Raises:
        BadIndexError: If it is missing or is not an index.
        RemoteError: If it cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        return fetch_index(files, pathlib.Path(folder))


def fetch_index(files: Files, folder: pathlib.Path) -> index.Index:
    """Copies the index of the data set at a place into a folder, and reads it.

    Raises:
        BadIndexError: If it is missing or is not an index.
        RemoteError: If it cannot be read.
    """
    shown = files.location.shown
    try:
        fetch(files, index.INDEX_NAME, folder)
        return index.load(folder)
    except errors.MissingFileError:
        raise errors.BadIndexError(
            f"No data set in {shown}: {index.INDEX_NAME}, which a conversion writes "
            "last, is missing."
        ) from None
    except errors.BadIndexError as error:
        text = str(error).replace(str(folder), shown)
        raise errors.BadIndexError(text) from None


def fetch(files: Files, name: str, folder: pathlib.Path) -> None:
    """Copies a small file of a place into a folder.

    Raises:
        RemoteError: If the file is missing (a `MissingFileError`) or cannot be read.
        OSError: If it cannot be written.
    """
    (folder / name).write_bytes(files.read(name))


def write_claim(files: Files, state: TargetState) -> None:
    """Says at the place that the job is under way.

    Raises:
        RemoteError: If the place cannot be written.
    """
    files.write(CLAIM_NAME, state.claim.to_json())


def move(files: Files, folder: pathlib.Path, name: str) -> None:
    """Uploads one file, and then removes it from the folder.

    Raises:
        RemoteError: If the file cannot be uploaded; it then stays in the folder.
    """
    files.upload(name, folder / name)
    (folder / name).unlink()


def publish(
    files: Files,
    state: TargetState,
    folder: pathlib.Path,
    names: Sequence[str],
    *,
    num_workers: int,
) -> None:
    """Makes a complete data set of a place: uploads what is left, the index last.

    Every step can be cut off and done again. The index of an older data set is removed
    first, and its other files are removed after the new index is in place.

    Args:
        files: The place.
        state: What `look` found there.
        folder: Folder with the index and the files that are not uploaded yet.
        names: All files of the data set, without the index.
        num_workers: Number of files that are uploaded at a time.

    Raises:
        RemoteError: If the place cannot be written.
        OSError: If a file cannot be read.
    """
    write_claim(files, state)
    if state.has_index:
        files.delete(index.INDEX_NAME)
    here = [name for name in names if (folder / name).exists()]
    processes.run(
        functools.partial(_move_and_count, files, folder),
        here,
        num_workers=num_workers,
        num_images=len(here),
        unit="file",
    )
    files.upload(index.INDEX_NAME, folder / index.INDEX_NAME)
    stale = set(state.claim.names) & state.sizes.keys() - set(names)
    for name in sorted(stale - {index.INDEX_NAME}):
        files.delete(name)
    files.delete(CLAIM_NAME)


def _move_and_count(files: Files, folder: pathlib.Path, name: str) -> None:
    move(files, folder, name)
    processes.image_done()


def abandon(files: Files, job: str) -> None:
    """Removes what a failed job has left at a place, unless another job has begun.

    Raises:
        RemoteError: If the place cannot be read or written.
    """
    sizes = files.names()
    claim = _read_claim(files, sizes)
    if claim.job != job:
        return
    if index.INDEX_NAME not in sizes:  # otherwise an old data set is still whole
        for name in sorted(sizes.keys() & set(claim.names)):
            files.delete(name)
    files.delete(CLAIM_NAME)
