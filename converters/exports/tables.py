"""Entry points of copied records, which stay valid because the bytes stay equal.

In: a data set. Out: its checked files of entry points, and the tables of some records.
`tfpipe.native.entry_file` describes the files.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Mapping, Sequence

from converters.exports.source import Source
from tfpipe import errors
from tfpipe.native import entry_file
from tfpipe.shard_cache import metadata
from tfpipe.shards import index


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tables:
    """The entry points of a data set.

    Attributes:
        paths: The files on this host, by split; not all splits have a file.
    """

    paths: Mapping[str, pathlib.Path] = dataclasses.field(default_factory=dict)

    def of(
        self, source: Source, split: str, number: int, records: Sequence[int]
    ) -> list[bytes]:
        """Returns the tables of some records of a shard, in a split with a file.

        Raises:
            ValueError: If the file does not fit the data set; names the file.
            OSError: If the file cannot be read.
        """
        before = source.known.splits[split][:number]
        first = sum(shard.num_records for shard in before)
        return entry_file.select(self.paths[split], first, records)

    def options(self) -> dict[str, list[str]]:
        """Returns the options of a job about entry points; nothing without files."""
        return {"entry_points_of": sorted(self.paths)} if self.paths else {}


def find_tables(source: Source) -> Tables:
    """Finds the files of a data set, and fetches files at a URL.

    A file is left out if the index lists another file; a line on stderr says so.

    Raises:
        OSError: If there is no room for a file at a URL.
    """
    paths = {}
    for split in source.known.splits:
        name = entry_file.name_of(split)
        if (listed := (source.known.files or {}).get(name)) is None:
            continue
        try:
            paths[split] = _sound(source, name, listed)
        except (errors.RemoteError, errors.BadIndexError) as error:
            print(
                f"Warning: the entry points of {split} are left out. {error} Make them "
                f"again before or afterwards: {entry_file.REMEDY}",
                file=sys.stderr,
            )
    return Tables(paths=paths)


def _sound(source: Source, name: str, listed: index.File) -> pathlib.Path:
    """Returns the path of a file, which is compared with the index."""
    if source.files is not None:
        folder = source.folder
        return metadata.bring_side_file(source.files, source.known, name, folder)
    path = source.folder / name
    if not path.is_file() or index.describe_file(path) != listed:
        raise errors.BadIndexError(
            f"{path} must be the file that {index.INDEX_NAME} lists, but it is missing "
            "or damaged."
        )
    return path.absolute()
