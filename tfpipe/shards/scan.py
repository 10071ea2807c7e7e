"""Scans shards without an index for the facts of index.json and the catalog.

In: a folder of shards of another tool. Out: an index of a split and the byte offsets of
its records. The record headers are read once, and the result is kept for the next time.
Imports no TensorFlow.
"""

import collections
import dataclasses
import io
import os
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import xxhash

from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.shards import arrays, index, records, split_names
from tfpipe.shards.index import Path
from tfpipe.shards.records import Ints

FOLDER_NAME = ".tfpipe"  # beside the shards; hidden from the globs of other readers

# `train-00000-of-00008`, or the names of TFDS: `NAME-train.tfrecord-00000-of-00008`.
_SHARD_NAME = re.compile(
    r"(?:.+-)?(?P<split>\w+)(?:\.tfrecord)?-\d{5}-of-\d{5}(?:\.tfrecord)?"
)
# First bytes of compressed files, and a command to unpack a file.
_COMPRESSED = {
    b"\x1f\x8b": ("GZIP", "gzip -dc OLD > NEW"),
    **dict.fromkeys(
        (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"),
        (
            "ZLIB",
            'python -c "import sys, zlib; sys.stdout.buffer.write('
            'zlib.decompress(sys.stdin.buffer.read()))" < OLD > NEW',
        ),
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScannedIndex(index.Index):
    """The index of a scan: shards and records, but no labels.

    Raises:
        BadIndexError: When `label_base` is read: a scan cannot know the label base.
    """

    label_base: int = dataclasses.field(init=False, repr=False, compare=False)

    def __getattr__(self, name: str) -> NoReturn:
        # Python calls the method for missing attributes only; the field has no value.
        if name != "label_base":
            raise AttributeError(name)
        remedy = (
            f" Or write an index with python -m converters.verify {self.name} "
            "--level=crc --write_index."
        ) * ("files" not in self.made_by)
        raise errors.BadIndexError(
            f"The shards in {self.name} have no index, so nothing says which label "
            "the first class has. Write parse=tfpipe.Parse(label_base=0), with your "
            "other arguments of Parse, if the smallest label on disk is 0, or "
            f"label_base=1 if it is 1.{remedy}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundShard(index.Shard):
    """A shard found by a pattern; its name may hold folders."""

    def __post_init__(self) -> None:
        """Checks nothing: the name comes from the disk, not from a file."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Scan:
    """A split as found on disk.

    Attributes:
        index: The shards. A shard's digest covers the offset and the data CRC of every
            record, so that shards with other content have another digest.
        byte_offsets: int64 [num_records], byte offset of each record in its shard.
        is_damaged: bool [num_records], whether the shard cannot be read from the
            record on. Such a record is the last of its shard.
        mtimes: int64 [num_shards], time of each shard's last change, ns.
    """

    index: ScannedIndex
    byte_offsets: Ints
    mtimes: Ints
    is_damaged: npt.NDArray[np.bool_]


class _Stamp(NamedTuple):
    """Properties that recognize a scanned shard.

    Attributes:
        name: Name of the file.
        num_bytes: Size of the file.
        mtime_ns: Time of the last change of the content. Programs can set it: a copy
            may have the time of its original.
        ctime_ns: Time of the last change of the file. No program can set it back.
    """

    name: str
    num_bytes: int
    mtime_ns: int
    ctime_ns: int


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Records:
    """The records of a shard.

    Attributes:
        byte_offsets: int64 [num_records], byte offset of each record.
        data_crcs: uint32 [num_records], masked CRC of the record's data, from its
            footer; 0 of a damaged record.
        has_damage: Whether the last record is damaged.
    """

    byte_offsets: Ints
    data_crcs: npt.NDArray[np.uint32]
    has_damage: bool = False

    @property
    def is_damaged(self) -> npt.NDArray[np.bool_]:
        """bool [num_records], whether each record is damaged."""
        flags = np.zeros(len(self.byte_offsets), np.bool_)
        flags[-1:] = self.has_damage
        return flags

    @property
    def digest(self) -> str:
        """A digest of offsets and CRCs; the name of the file does not matter."""
        content = self.byte_offsets.tobytes() + self.data_crcs.tobytes()
        return f"records:{xxhash.xxh3_128_hexdigest(content)}"


_Shards = Mapping[_Stamp, _Records]


def is_needed(data_dir: Path) -> bool:
    """Returns whether a folder has shards but no index."""
    folder = pathlib.Path(data_dir)
    return not (folder / index.INDEX_NAME).exists() and bool(find_shards(folder))


def find_shards(data_dir: Path) -> dict[str, list[str]]:
    """Returns the sorted names of the shards of every split, found by name alone."""
    names = collections.defaultdict(list)
    folder = pathlib.Path(data_dir)
    if folder.is_dir():
        for name in sorted(entry.name for entry in os.scandir(folder)):
            if match := _SHARD_NAME.fullmatch(name):
                names[match["split"]].append(name)
    return dict(names)


def scan(
    data_dir: Path, split: str, *, files: str | None = None, skips_damage: bool = False
) -> Scan:
    """Finds the records of a split, or loads the result of an earlier scan.

    A scan reads 16 bytes a record: the header and the CRC of the data. The result is
    kept in the folder `.tfpipe` beside the shards or, if the folder is read-only, under
    $XDG_CACHE_HOME/tfpipe. A shard is scanned again if its size or a time of its change
    differs.

    Args:
        data_dir: Folder of the shards.
        split: Name of the split.
        files: Pattern of the shards' names, see `matching_files`; None finds
            the shards of the split by their usual names.
        skips_damage: Whether a shard that is cut short, or has a damaged header, ends
            with a damaged record there; the result is then not kept.

    Raises:
        BadIndexError: If there is no such split, no file matches, a shard is missing
            or compressed, or, without `skips_damage`, damaged or cut short.
        OSError: If a shard cannot be read.
        ValueError: If the names of the files say different splits, while `split` is
            one of them.
    """
    folder = pathlib.Path(data_dir)
    if files is None:
        names, kept_as = _complete_split(folder, split), split
    else:
        names = matching_files(folder, files)
        kept_as = f"files-{index.digest(files)}"
        if split_names.split_of_word(split):
            others = "a split of another name, such as split='all'."
            said = split_names.splits_of_shards(
                names,
                named=[re.split(r"[*?[]", files)[0].rpartition("/")[0]],
                remedy=f"Name the inner folder as data_dir, or {others}",
            )
            split_names.require_splits_apart(
                said,
                f"The shards of files={files!r} in {folder}",
                remedy="Write a pattern that matches one of them, or, if all are "
                f"meant, {others}",
            )
    stamps = [_stamp(folder, name) for name in names]
    kept = _load(folder, kept_as)
    missing = [stamp for stamp in stamps if stamp not in kept]
    if missing:
        what = f"split {split!r}" if files is None else f"files={files!r}"
        kept |= _scan_shards(folder, what, missing, skips_damage)
    shards = {stamp: kept[stamp] for stamp in stamps}
    if missing:
        sound = {k: shard for k, shard in shards.items() if not shard.has_damage}
        where = _keep(folder, kept_as, sound) if sound else "memory only"
        print(
            f"Scanned {errors.count_of(len(missing), 'shard')}; kept in {where}.",
            file=sys.stderr,
        )
    _tell_of_empty(folder, shards)
    return Scan(
        index=_make_index(folder, split, files, shards),
        byte_offsets=np.concatenate([each.byte_offsets for each in shards.values()]),
        is_damaged=np.concatenate([each.is_damaged for each in shards.values()]),
        mtimes=np.array([stamp.mtime_ns for stamp in stamps], np.int64),
    )


def _tell_of_empty(folder: pathlib.Path, shards: _Shards) -> None:
    """Says which of some shards hold no record."""
    empty = [stamp for stamp, shard in shards.items() if not len(shard.byte_offsets)]
    if empty:
        print(
            f"{errors.count_of(len(empty), 'shard')} of {len(shards)} without a record "
            f"in {folder}, the first is {empty[0].name} ({empty[0].num_bytes} bytes): "
            "copy or convert again what should hold records.",
            file=sys.stderr,
        )


def _complete_split(folder: pathlib.Path, split: str) -> list[str]:
    """Returns the shards of a split; none may be missing or of another data set."""
    shards = find_shards(folder)
    index.require_split(shards, folder, split)
    parts = [name.removesuffix(".tfrecord").split("-of-") for name in shards[split]]
    numbers = [int(start[-5:]) for start, _ in parts]
    count = int(parts[0][1])
    if (wrong := split_names.wrong_number(numbers, count)) is not None:
        raise errors.BadIndexError(
            f"The shards of split {split!r} in {folder} must be numbered 0 to "
            f"{count - 1}, as {shards[split][0]} says, once each; got {len(numbers)} "
            f"shards, see number {wrong}. Copy what is missing, or move shards of "
            "another data set away."
        )
    return shards[split]


def _stamp(folder: pathlib.Path, name: str) -> _Stamp:
    status = (folder / name).stat()
    return _Stamp(name, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _scan_shards(
    folder: pathlib.Path, what: str, stamps: Sequence[_Stamp], skips_damage: bool
) -> dict[_Stamp, _Records]:
    print(
        f"No index is read for {folder}: scanning "
        f"{errors.count_of(len(stamps), 'shard')} of {what} for their records. "
        "This is done once.",
        file=sys.stderr,
    )
    import tqdm

    # disable=None shows the bar on a terminal only.
    bar = tqdm.tqdm(stamps, unit="shard", file=sys.stderr, disable=None)
    return {stamp: _scan_shard(folder / stamp.name, skips_damage) for stamp in bar}


def _scan_shard(path: pathlib.Path, skips_damage: bool) -> _Records:
    spans: list[records.RecordSpan] = []
    has_damage = False
    try:
        spans.extend(records.scan(path))
    except errors.BadRecordError as error:
        # The length of a sound record may begin with the same bytes.
        if not spans:
            _refuse_compressed(path)
        if not skips_damage:
            raise errors.BadIndexError(f"Shard {error}") from None
        end = spans[-1].byte_offset + spans[-1].num_bytes if spans else 0
        num_bytes = os.path.getsize(path) - end
        print(
            f"Shard {error} {errors.count_of(len(spans), 'record')} before it can be "
            f"read; the last {num_bytes} bytes count as one damaged record.",
            file=sys.stderr,
        )
        spans.append(records.RecordSpan(end, num_bytes, 0))
        has_damage = True
    return _Records(
        byte_offsets=np.array([span.byte_offset for span in spans], np.int64),
        data_crcs=np.array([span.data_crc for span in spans], np.uint32),
        has_damage=has_damage,
    )


def _refuse_compressed(path: pathlib.Path) -> None:
    with open(path, "rb") as file:
        kind, command = _COMPRESSED.get(file.read(2), ("", ""))
    if kind:
        raise errors.BadIndexError(
            f"Shard {path} must not be compressed, got {kind}: a record in it has no "
            f"place of its own. Unpack each shard into another folder: {command}"
        )


def _make_index(
    folder: pathlib.Path, split: str, files: str | None, shards: _Shards
) -> ScannedIndex:
    make = index.Shard if files is None else FoundShard
    listed = tuple(
        make(
            name=stamp.name,
            num_records=len(shard.byte_offsets),
            num_bytes=stamp.num_bytes,
            digest=shard.digest,
        )
        for stamp, shard in shards.items()
    )
    return ScannedIndex(
        name=os.fspath(folder),
        classes=(),
        splits={split: listed},
        made_by={"command": "tfpipe.shards.scan"} | ({"files": files} if files else {}),
    )


def _folders(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the possible folders of a kept scan, the best first."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    digest = index.digest(os.fspath(folder.resolve()))
    return [folder / FOLDER_NAME, pathlib.Path(cache) / "tfpipe" / digest]


def _load(folder: pathlib.Path, split: str) -> dict[_Stamp, _Records]:
    """Loads the results of earlier scans; unreadable files are ignored."""
    kept: dict[_Stamp, _Records] = {}
    for kept_in in _folders(folder):
        try:
            file = arrays.read((kept_in / f"{split}.npz").read_bytes())
            columns = [file[f"stamp_{field}"].tolist() for field in _Stamp._fields]
            bounds = np.cumsum(file["count"])[:-1]
            offsets = np.split(file["byte_offset"], bounds)
            crcs = np.split(file["data_crc"], bounds)
            rows = list(zip(*columns, offsets, crcs, strict=True))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for *fields, offset, crc in rows:
            kept[_Stamp(*fields)] = _Records(byte_offsets=offset, data_crcs=crc)
    return kept


def _keep(folder: pathlib.Path, split: str, results: _Shards) -> str:
    """Writes the result of a scan to the first writable folder.

    Ranks may scan at the same time: a rank writes a file of its own and renames it.

    Returns:
        The folder, or a text without a writable folder, for people.
    """
    content = io.BytesIO()
    shards = results.values()
    columns = {
        f"stamp_{field}": np.array(values)
        for field, values in zip(
            _Stamp._fields, zip(*results, strict=True), strict=True
        )
    }
    np.savez(
        content,
        **columns,
        count=np.array([len(shard.byte_offsets) for shard in shards]),
        byte_offset=np.concatenate([shard.byte_offsets for shard in shards]),
        data_crc=np.concatenate([shard.data_crcs for shard in shards]),
    )
    for kept_in in _folders(folder):
        try:
            kept_in.mkdir(parents=True, exist_ok=True)
            with atomic.new_file(kept_in / f"{split}.npz") as part:
                part.write_bytes(content.getvalue())
        except OSError:
            continue
        return os.fspath(kept_in)
    return "memory only, as no folder could be written"


_MAX_NAMES_SHOWN = 20


def matching_files(folder: pathlib.Path, files: str) -> list[str]:
    """Returns the files that match a pattern, sorted by name, 2 before 10.

    Args:
        folder: Folder of the shards.
        files: Pattern as of `pathlib.Path.glob`, relative to the folder; `**` stands
            for any folders. Files and folders with a leading dot, and DALI's
            indexes in `dali_idx`, do not match.

    Returns:
        Paths relative to the folder.

    Raises:
        BadIndexError: If no file matches, or two names are links to one file.
    """
    matches = [
        path.relative_to(folder).as_posix()
        for path in folder.glob(files)
        if path.is_file() and not _is_hidden(path.relative_to(folder))
    ]
    if not matches:
        there = sorted(p.name + "/" * p.is_dir() for p in folder.glob("*"))
        more = ", ..." if len(there) > _MAX_NAMES_SHOWN else ""
        raise errors.BadIndexError(
            f"No file in {folder} matches files={files!r}. There are "
            f"{', '.join(there[:_MAX_NAMES_SHOWN]) or 'no files at all'}{more}."
        )
    names = sorted(matches, key=split_names.natural)
    by_file: dict[tuple[int, int], str] = {}
    for name in names:
        status = (folder / name).stat()
        other = by_file.setdefault((status.st_dev, status.st_ino), name)
        if other != name:
            raise errors.BadIndexError(
                f"Each record must be read once, but {other} and {name} in {folder} "
                f"are the same file. Write a pattern that matches one of them, got "
                f"files={files!r}."
            )
    return names


def _is_hidden(path: pathlib.Path) -> bool:
    return any(
        (part.startswith(".") and part != "..") or part == index.DALI_DIR_NAME
        for part in path.parts
    )
