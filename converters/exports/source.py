"""The data set that is copied: its index, its catalog, its shards.

In: a folder or a URL. Out: a frozen `Source`, and the bytes and rows of its shards.
Nothing is changed.
"""

import contextlib
import dataclasses
import functools
import importlib
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import xxhash

from converters.checks.record import CatalogRow
from converters.checks.shard import load_rows
from converters.inputs.classes import Class, classes_of
from converters.jobs import at_url, work_dir
from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.location.system_reads import pread
from tfpipe.shard_cache import generation_view
from tfpipe.shard_cache.generation_view import Generation
from tfpipe.shards import catalog, generations, index, records

# Takes a number of bytes and a byte offset, and returns these bytes.
Pread = Callable[[int, int], bytes]

# Shards whose rows a worker keeps: it writes all copies of one, and then of the next.
_KEPT = 2
# Part of a shard at a URL from which on all of it is read: one request for every record
# takes longer than the bytes between them.
_READ_WHOLE = 0.2
_TRAIN = "train"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A data set with an index.

    Attributes:
        name: Path or URL of the data set, for messages.
        folder: Folder of its index and catalog; without `files` also of its shards.
        files: The files at its URL; None for a folder.
        known: Its index.
        digest: Digest of the text of its index.
    """

    name: str
    folder: pathlib.Path
    files: Files | None
    known: index.Index
    digest: str

    @property
    def classes(self) -> list[Class]:
        """All classes in label order."""
        return classes_of(self.known)

    def num_bytes(self, *splits: str) -> int:
        """Returns the bytes of the data set, or of some of its splits."""
        chosen = splits or tuple(self.known.splits)
        return sum(s.num_bytes for split in chosen for s in self.known.splits[split])

    @property
    def num_records(self) -> int:
        """Number of records of the data set."""
        return sum(map(self.known.num_records, self.known.splits))

    @property
    def num_shards(self) -> int:
        """Number of shards of the data set."""
        return sum(map(len, self.known.splits.values()))

    @property
    def read_split(self) -> str:
        """The split that a training run reads: train, or the largest split."""
        if _TRAIN in self.known.splits:
            return _TRAIN
        return max(self.known.splits, key=self.num_bytes)

    def origin(self) -> dict[str, Any]:
        """Returns what the index of copies says about their source; JSON values."""
        made_by = self.known.made_by
        kept = {k: made_by[k] for k in ("features", "multi_label") if k in made_by}
        return kept | {
            "source": {
                "name": self.known.name,
                "index_digest": self.digest,
                "command": made_by.get("command"),
                "version": made_by.get("version"),
                "splits": list(self.known.splits),
                "num_bytes": self.num_bytes(),
            }
        }

    @contextlib.contextmanager
    def reading(
        self, shard: index.Shard, num_bytes: int | None = None
    ) -> Iterator[Pread]:
        """Opens a shard for reading forwards.

        Args:
            shard: The shard.
            num_bytes: Bytes that will be read of it; None stands for all.

        Raises:
            OSError: If it cannot be opened, or has another size than the index says.
            RemoteError: If it cannot be read.
        """
        files = self.files
        if files is not None:
            if num_bytes is not None and num_bytes < _READ_WHOLE * shard.num_bytes:
                yield lambda size, offset: files.read_range(
                    shard.name, offset, offset + size
                )
                return
            with at_url.Ahead(files, shard.name, shard.num_bytes) as opened:
                yield opened.pread
            return
        path = self.folder / shard.name
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size != shard.num_bytes:
                raise changed(self, shard, f"{size} bytes, not {shard.num_bytes}")

            def read_at(size: int, offset: int) -> bytes:
                with atomic.naming(path):  # never the output
                    return pread(file.fileno(), size, offset)

            yield read_at

    def rows(self, split: str, number: int, shard: index.Shard) -> list[CatalogRow]:
        """Returns the rows of the catalog for one shard, in record order.

        Raises:
            BadIndexError: If the catalog cannot be read or contradicts the index.
        """
        found = _rows(self.folder, self.digest, split, number)
        if len(found) != shard.num_records:
            raise errors.BadIndexError(
                f"The catalog of {self.name} must have a row for each of the "
                f"{shard.num_records} records of {shard.name}, got {len(found)}. Make "
                "the data set again."
            )
        return found


@functools.lru_cache(maxsize=_KEPT)
def _rows(
    folder: pathlib.Path, digest: str, split: str, number: int
) -> list[CatalogRow]:
    """Loads the rows of a shard. The digest tells a new data set from an old one."""
    return load_rows(folder, split, number)


def read_records(
    source: Source,
    split: str,
    shard: int,
    rows: Sequence[CatalogRow],
    on_fault: Callable[[CatalogRow, str], None],
) -> Iterator[tuple[CatalogRow, bytes]]:
    """Yields records of a shard, with header and footer, after a check of their CRCs.

    A shard without a fault that is read as a whole is compared with its digest.

    Args:
        source: The data set.
        split: Split of the shard.
        shard: Number of the shard in the split.
        rows: Rows of the records in the catalog, in the order of the records.
        on_fault: Takes the row and the fault of every damaged record, which is not
            yielded. The function may raise an error.

    Raises:
        OSError: If the shard cannot be read, or is not the one in the index.
        RemoteError: If the shard cannot be read from its URL.
    """
    entry = source.known.splits[split][shard]
    is_whole, digest = len(rows) == entry.num_records, xxhash.xxh3_128()
    with source.reading(entry, sum(row.num_bytes for row in rows)) as pread:
        for row in rows:
            framed = pread(row.num_bytes, row.byte_offset)
            size = records.record_bytes(framed[: records.HEADER_BYTES])
            if size not in (None, row.num_bytes):
                what = f"another record at byte {row.byte_offset}"
                raise changed(source, entry, what)
            if size is None:
                fault = "the header (length and its CRC) is damaged"
            elif len(framed) < row.num_bytes:
                fault = f"only {len(framed)} of its {row.num_bytes} bytes can be read"
            else:
                data = framed[records.HEADER_BYTES : -records.FOOTER_BYTES]
                fault = records.data_fault(data, framed[-records.FOOTER_BYTES :])
            if fault:
                is_whole = False
                on_fault(row, fault)
                continue
            if is_whole:
                digest.update(framed)
            yield row, framed
    if is_whole and digest.hexdigest() != entry.digest:
        raise changed(source, entry, f"digest {digest.hexdigest()}")


def damaged(
    source: Source, split: str, shard: int, row: CatalogRow, fault: str, leave_out: str
) -> errors.BadRecordError:
    """Returns the error about a damaged record.

    Args:
        source: The data set.
        split: Split of the record.
        shard: Number of its shard.
        row: Its row of the catalog.
        fault: What is wrong.
        leave_out: How the command leaves the record out; empty if it cannot.
    """
    name = source.known.splits[split][shard].name
    return errors.BadRecordError(
        f"{source.name}/{name}: record {row.record} at byte {row.byte_offset} "
        f"({row.filename}) is damaged: {fault.rstrip('.')}. Mend the data set with "
        f"python -m converters.verify --repair{leave_out}, and run the same command "
        "again to go on: complete shards are kept."
    )


def changed(source: Source, shard: index.Shard, what: str) -> OSError:
    """Returns the error for a shard that is not the one in the index."""
    return OSError(
        f"{source.name}: shard {shard.name} must be the one in {index.INDEX_NAME}, got "
        f"{what}. It is damaged, or was changed after the index was written. Look at "
        "it with python -m converters.verify."
    )


def require_package(flag: str, module: str, extra: str) -> None:
    """Checks that a package is installed, which a flag needs.

    Raises:
        ValueError: If the package cannot be imported.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{flag} needs a package that is not installed: pip install "
            f"'tfpipe[{extra}]' ({error})."
        ) from error


def require_beside(flag: str, output: Location, data_dir: Location) -> None:
    """Checks that neither the output nor the data set is in the other.

    Args:
        flag: The flag of the output, such as `--output_dir`.
        output: The output.
        data_dir: The data set.

    Raises:
        ValueError: If one is.
    """
    if output.is_in(data_dir) or data_dir.is_in(output):
        raise ValueError(
            f"{flag} and DIR must be folders beside each other, got {output.shown} and "
            f"{data_dir.shown}, of which one is in the other. Choose another folder."
        )


def open_source(
    location: Location,
    folder: pathlib.Path,
    splits: Sequence[str],
    *,
    generation: Generation = "latest",
) -> Source:
    """Looks at a data set, and reads its index.

    Args:
        location: The data set.
        folder: Empty folder, into which the index and catalog at a URL are copied.
        splits: Splits to take; empty takes all.
        generation: Which generation of a growing data set is taken.

    Raises:
        ValueError: If there is no data set, or it has no such split.
        BadIndexError: If the index cannot be read, the catalog is that of another
            index, or a shard is missing or cut short.
        RemoteError: If the URL cannot be read.
    """
    files = None if location.is_local else Files(location)
    there = Files(location) if files is None else files
    if generations.is_growing(there):
        data_dir, _ = generation_view.bring(there, folder, generation)
        known = index.load(data_dir)
    elif generation != "latest":
        raise ValueError(
            f"--generation needs a growing data set, and {location.shown} is none."
        )
    elif files is not None:
        known = at_url.fetch_index(files, folder)
        at_url.fetch(files, index.CATALOG_NAME, folder)
        data_dir = folder
    else:
        data_dir = location.absolute().path
        known = _load(data_dir)
    catalog.check_catalog(known, data_dir, is_opening=True)
    if splits:
        for split in splits:
            index.require_split(known.splits, data_dir, split)
        kept = {split: known.splits[split] for split in known.splits if split in splits}
        known = dataclasses.replace(known, splits=kept)
    for split in known.splits:
        if files is None:
            index.check(known, data_dir, split)
    text = (data_dir / index.INDEX_NAME).read_text(encoding="utf-8")
    if not sum(known.num_records(split) for split in known.splits):
        raise ValueError(f"{location.shown} must hold at least one record, got none.")
    return Source(
        name=location.shown,
        folder=data_dir,
        files=files,
        known=known,
        digest=index.digest(text),
    )


def _load(data_dir: pathlib.Path) -> index.Index:
    """Loads the index of a folder, or says why there is none."""
    if not data_dir.is_dir():
        raise ValueError(f"DIR must be a folder with a data set, got {data_dir}.")
    work_dir.require_whole(data_dir)
    return index.load(data_dir)
