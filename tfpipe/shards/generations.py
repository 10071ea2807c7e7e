"""Growing data sets: generations of shards, and the log that lists them.

In: the files of a growing data set. Out: the folders of a generation, their common
index, and a new generation that is published once. Imports no TensorFlow.

    index.json                 the whole log, replaced after each generation; may lag
    generations/000012.json    an entry of the log, made once and never replaced
    gen-000012/                a usual data set: index.json, catalog.parquet, shards

Generation N is what the first N entries of the log say. An entry adds folders; a folder
that comes again without records is no longer read. The number of a folder says when its
writer began; with several writers the generation may have another number. A function
that asks for files raises a RemoteError if they cannot be read or written.
"""

import collections
import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence

from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shards import index
from tfpipe.shards.index import INDEX_NAME, Index, Shard

FORMAT_VERSION = 2
LOG_FOLDER = "generations"


@dataclasses.dataclass(frozen=True)
class ShardFolder:
    """A folder of shards in an entry of the log.

    Attributes:
        name: Its name, such as gen-000012.
        digest: Digest of its shards, see `identity`.
        num_records: Its records; 0 from the entry on that removes them all.

    Raises:
        ValueError: If the name is another one, or the number is out of range.
    """

    name: str
    digest: str
    num_records: int

    def __post_init__(self) -> None:
        errors.settle_ints(self, ["num_records"], least=0)
        if not index.GENERATION_FOLDER.fullmatch(str(self.name)):
            raise ValueError(f"A folder must be as gen-000012, got {self.name!r}.")


Log = tuple[tuple[ShardFolder, ...], ...]


def is_log(content: bytes) -> bool:
    """Whether the content of an index.json is the log of a growing data set."""
    return b'"generations": [' in content[:64]


def is_growing(files: Files) -> bool:
    """Whether a data set grows; a folder that cannot be read does not."""
    try:
        return is_log(files.read(INDEX_NAME))
    except errors.MissingFileError:
        return files.exists(_entry_name(1))
    except errors.RemoteError:  # those that read the index say what is wrong
        if not files.location.is_local:
            raise
        return False


def read_log(files: Files) -> Log:
    """Returns all entries of the log; none if the data set has no generation yet.

    A writer may have been killed before index.json was replaced: the entries after
    those of index.json are read too.

    Raises:
        BadIndexError: If an entry is damaged, or the data set is a usual one.
    """
    shown, log = files.location.shown, Log()
    with contextlib.suppress(errors.MissingFileError):
        content = files.read(INDEX_NAME)
        if not is_log(content):
            raise errors.BadIndexError(
                f"{shown} must be a growing data set or empty, got a usual data set. "
                "Choose another folder."
            )
        log = _parsed(content, f"{shown}/{INDEX_NAME}")
    with contextlib.suppress(errors.MissingFileError):
        while True:
            name = _entry_name(len(log) + 1)
            log += _parsed(files.read(name), f"{shown}/{name}")
    return log


def _parsed(content: bytes, shown: str) -> Log:
    try:
        entries = errors.from_json(content)["generations"]
        return tuple(tuple(ShardFolder(**each) for each in entry) for entry in entries)
    except (KeyError, TypeError, ValueError) as error:
        raise errors.BadIndexError(
            f"{shown} must be a log of generations: {error}. Copy it again."
        ) from error


def _text(log: Log) -> bytes:
    rows = [json.dumps([dataclasses.asdict(each) for each in entry]) for entry in log]
    lines = ",\n  ".join(rows)
    return (
        f'{{"generations": [\n  {lines}\n ],\n "format_version": {FORMAT_VERSION}}}\n'
    ).encode()


def _entry_name(generation: int) -> str:
    return f"{LOG_FOLDER}/{generation:06d}.json"


def damaged_entries(files: Files, log: Log) -> Iterator[tuple[str, str]]:
    """Yields the files of entries that are not those of the log, and why."""
    for generation, entry in enumerate(log, start=1):
        name = _entry_name(generation)
        try:
            content = files.read(name)
        except errors.MissingFileError:
            yield name, "is missing"
            continue
        if content != _text((entry,)):
            yield name, f"must be entry {generation} of {INDEX_NAME}, got another text"


def publish(
    files: Files,
    log: Log,
    entry: Sequence[ShardFolder],
    *,
    create: Callable[[str, bytes], bool] | None = None,
) -> bool:
    """Publishes a generation, unless another writer has published its number.

    Args:
        files: The growing data set.
        log: The log that the writer has read.
        entry: The folders that the generation adds, or removes.
        create: Stands in for `files.create`.

    Returns:
        Whether the entry is published. If not, the writer reads the log again and
        decides anew.
    """
    text = _text((tuple(entry),))
    if not (create or files.create)(_entry_name(len(log) + 1), text):
        return False
    files.write(INDEX_NAME, _text((*log, tuple(entry))))
    return True


def folders(log: Log, generation: int) -> list[ShardFolder]:
    """Returns the folders with the records of a generation, in order.

    Raises:
        BadIndexError: If there is no such generation.
    """
    if not 1 <= generation <= len(log):
        raise errors.BadIndexError(
            f"generation must be 1 to {len(log)}, or 'latest', got {generation}."
            + ("" if log else " The data set has no generation yet.")
        )
    last = {each.name: each for entry in log[:generation] for each in entry}
    return [each for each in last.values() if each.num_records]


def identity(whole: Index) -> str:
    """Returns a digest of the shards of a data set, 32 characters.

    The digest covers the splits and the name, records, bytes and digest of the shards,
    and nothing else: side files may come and go.
    """
    splits = {
        split: index.rows_of(whole.splits[split]) for split in sorted(whole.splits)
    }
    return index.digest(repr(splits))


def combined(names: Sequence[str], parts: Sequence[Index], generation: int) -> Index:
    """Returns the index of all shards of a generation.

    Args:
        names: Names of the folders.
        parts: The index of each folder. The classes of each must begin those of the
            part with most classes.
        generation: Number of the generation.

    Raises:
        BadIndexError: If labels contradict, or no record is left.
    """
    if not parts:
        raise errors.BadIndexError(f"Generation {generation} has no record left.")
    splits: dict[str, list[Shard]] = {}
    decisions = collections.Counter[str]()
    ends, most = [], max(parts, key=lambda part: len(part.classes))
    for folder, part in zip(names, parts, strict=True):
        same = most.classes[: len(part.classes)] == part.classes
        if not same or part.label_base != most.label_base:
            raise errors.BadIndexError(
                f"Labels of {folder} must be those of the other generations, and they "
                "contradict. Convert its images again."
            )
        for split, shards in part.splits.items():
            splits.setdefault(split, []).extend(
                dataclasses.replace(shard, name=f"{folder}/{shard.name}")
                for shard in shards
            )
        ends.append({split: len(shards) for split, shards in splits.items()})
        decisions.update(part.made_by.get("decisions", {}))
    more = {"generation": generation, "shards_after": ends, "decisions": decisions}
    return Index(
        name=most.name,
        label_base=most.label_base,
        classes=most.classes,
        splits={split: tuple(shards) for split, shards in splits.items()},
        made_by={**parts[-1].made_by, **more},
    )


def prefixes(whole: Index) -> list[Index]:
    """Returns the data set as it was after each of its folders, the newest first."""
    return [
        dataclasses.replace(
            whole,
            splits={name: whole.splits[name][:count] for name, count in each.items()},
        )
        for each in reversed(whole.made_by.get("shards_after", []))
    ]
