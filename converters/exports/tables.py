"""A shard of copied records while it is written, with its fragment, marker and tables.

In: a job, the plan of a shard, and its records with their rows. Out: the shard, its
catalog fragment and its marker in the folder of the job, as `jobs.write_shard` makes
them; and the entry points of the records, which stay valid for equal bytes (see
`tfpipe.native.entry_file`). This code runs in worker processes.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Mapping, Sequence

from converters.exports.source import Source
from tfpipe import errors
from tfpipe.native import entry_file
from tfpipe.remote import metadata
from tfpipe.shards import index


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tables:
    """The entry points of a data set.

    Attributes:
        paths: The file of each split that has one, on this host.
    """

    paths: Mapping[str, pathlib.Path] = dataclasses.field(default_factory=dict)

    def of(
        self, source: Source, split: str, number: int, records: Sequence[int]
    ) -> list[bytes]:
        """Returns the tables of some records of a shard, of a split that has a file.

        Raises:
            ValueError: If the file does not fit the data set; names it.
            OSError: If the file cannot be read.
        """
        before = source.known.splits[split][:number]
        first = sum(shard.num_records for shard in before)
        return entry_file.select(self.paths[split], first, records)

    def options(self) -> dict[str, list[str]]:
        """Returns what the options of a job say about them; nothing without them."""
        return {"entry_points_of": sorted(self.paths)} if self.paths else {}


def find_tables(source: Source) -> Tables:
    """Finds the files of a data set, and fetches those at a URL.

    A file that is not the one in the index is left out, and a line on stderr says so.

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
    """Returns the path of a file that is the one in the index."""
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
