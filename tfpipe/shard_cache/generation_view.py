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
        parts = [
            location.path / each.name
            if location.is_local
            else metadata.bring(Files(location / each.name, files.time_limit), folder)
            for each in chosen
        ]
        target.mkdir(parents=True, exist_ok=True)
        with metadata.locked(target):
            for each in chosen if location.is_local else ():
                with contextlib.suppress(FileExistsError):
                    (target / each.name).symlink_to(location.path / each.name)
            _write(target, chosen, parts, opened)
    return target, opened


def _write(
    target: pathlib.Path,
    chosen: Sequence[ShardFolder],
    parts: Sequence[pathlib.Path],
    generation: int,
) -> None:
    """Writes the catalog of a generation, and its index at last."""
    indexes = [index.load(part) for part in parts]
    for each, part in zip(chosen, indexes, strict=True):
        if generations.identity(part) != each.digest:
            raise errors.BadIndexError(
                f"{each.name}/{index.INDEX_NAME} must list the shards that were "
                f"published in generation {generation} or before, got others. Copy the "
                "folder again."
            )
    names = [each.name for each in chosen]
    whole = generations.combined(names, indexes, generation)
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
    with index.catalog_connection() as connection:
        connection.execute(
            f"COPY (FROM ({query}) ORDER BY list_position([{splits}], split), shard, "
            f"record) TO {sql.quoted(path)} (FORMAT parquet, COMPRESSION zstd)"
        )
