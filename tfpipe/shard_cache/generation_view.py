"""A generation of a growing data set, as a usual data set in a folder of this host.

In: the files of a growing data set, and the number of a generation. Out: a local folder
with index.json and catalog.parquet of all its shards. The folders of earlier calls
stay: a new generation at a URL fetches the catalogs of its new folders alone. Imports
no TensorFlow.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Literal

from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.location.files import Files
from tfpipe.shard_cache import metadata
from tfpipe.shards import generations, index, sql
from tfpipe.shards.generations import ShardFolder
from tfpipe.shards.index import CATALOG_NAME, Index

Generation = int | Literal["latest"]


def bring(
    files: Files, folder: pathlib.Path, generation: Generation
) -> tuple[pathlib.Path, int]:
    """Brings the index and the catalog of a generation into a folder of this host.

    Args:
        files: The growing data set.
        folder: A local folder for views; a missing folder is made.
        generation: Number of the generation, or "latest".

    Returns:
        The folder with the two files, and the number of the generation. For a local
        data set the folder also links to the folders of the shards.

    Raises:
        BadIndexError: If there is no such generation, or a file is damaged.
        RemoteError: If the data set cannot be read.
        OSError: If the folder cannot be written.
    """
    log = generations.read_log(files)
    opened = len(log) if generation == "latest" else generation
    chosen = generations.folders(log, opened)
    location = files.location.absolute()
    target = folder / index.digest(repr((location.text, opened, chosen)))
    if not (target / index.INDEX_NAME).exists():
        parts = _parts(files, folder, chosen)
        target.mkdir(parents=True, exist_ok=True)
        with metadata.locked(target):
            for each in chosen if location.is_local else ():
                with contextlib.suppress(FileExistsError):
                    (target / each.name).symlink_to(location.path / each.name)
            _write(target, chosen, parts, opened)
    return target, opened


def check(files: Files, folder: pathlib.Path, generation: int) -> None:
    """Checks that the folders of a generation are those of its log, and fit together.

    The arguments are those of `bring`.

    Raises:
        BadIndexError: If they are not, or contradict.
        RemoteError: If the data set cannot be read.
    """
    chosen = generations.folders(generations.read_log(files), generation)
    _combined(chosen, _parts(files, folder, chosen), generation)


def _parts(
    files: Files, folder: pathlib.Path, chosen: Sequence[ShardFolder]
) -> list[pathlib.Path]:
    """Returns the folders on this host with the indexes of the folders of a log."""
    location = files.location.absolute()
    if location.is_local:
        return [location.path / each.name for each in chosen]
    remote = (Files(location / each.name, files.time_limit) for each in chosen)
    return [metadata.bring(each, folder) for each in remote]


def _combined(
    chosen: Sequence[ShardFolder], parts: Sequence[pathlib.Path], generation: int
) -> tuple[Index, list[Index]]:
    """Returns the index of a generation, and the indexes of its folders."""
    indexes = [index.load(part) for part in parts]
    for each, part in zip(chosen, indexes, strict=True):
        if generations.identity(part) != each.digest:
            raise errors.BadIndexError(
                f"{each.name}/{index.INDEX_NAME} must list the shards that were "
                f"published in generation {generation} or before, got others. Copy the "
                "folder again."
            )
    names = [each.name for each in chosen]
    return generations.combined(names, indexes, generation), indexes


def _write(
    target: pathlib.Path,
    chosen: Sequence[ShardFolder],
    parts: Sequence[pathlib.Path],
    generation: int,
) -> None:
    """Writes the catalog of a generation, and its index at last."""
    whole, indexes = _combined(chosen, parts, generation)
    catalog = target / CATALOG_NAME
    with atomic.new_file(catalog) as new:
        _write_catalog(new, whole, indexes, parts)
    whole = dataclasses.replace(
        whole, files={CATALOG_NAME: index.describe_file(catalog)}
    )
    index.write(whole, target, fsync=False)


def _write_catalog(
    path: pathlib.Path,
    whole: Index,
    indexes: Sequence[Index],
    parts: Sequence[pathlib.Path],
) -> None:
    """Joins the catalogs; the numbers of the shards go on from folder to folder."""
    before = dict.fromkeys(whole.splits, 0)
    rows = []
    for each, part in zip(indexes, parts, strict=True):
        cases = " ".join(f"WHEN '{name}' THEN {n}" for name, n in before.items())
        shard = f"(shard + CASE split {cases} END)::INTEGER"
        table = sql.read_files("parquet", [part / CATALOG_NAME])
        rows.append(f"SELECT * REPLACE ({shard} AS shard) FROM {table}")
        for split, shards in each.splits.items():
            before[split] += len(shards)
    splits = ", ".join(f"'{name}'" for name in whole.splits)
    query = " UNION ALL BY NAME ".join(rows)
    try:
        with index.catalog_connection() as connection:
            connection.execute(
                f"COPY (FROM ({query}) ORDER BY list_position([{splits}], split), "
                f"shard, record) TO {sql.quoted(path)} (FORMAT parquet, COMPRESSION "
                "zstd)"
            )
    except sql.engine().Error as error:
        raise errors.BadIndexError(
            f"A {CATALOG_NAME} of {parts[0].name} to {parts[-1].name} cannot be read: "
            f"{str(error).splitlines()[0]}. `tfpipe check` says which; copy it again."
        ) from error
