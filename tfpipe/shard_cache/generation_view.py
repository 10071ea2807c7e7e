"""A generation of a growing data set, as a usual data set in a folder of this host.

In: the files of a growing data set, and the number of a generation. Out: a local folder
with index.json and catalog.parquet of all its shards. The folders of earlier calls
stay: a new generation at a URL fetches the catalogs of its new folders alone. Imports
no TensorFlow.
"""

import pathlib
from typing import Literal

from tfpipe.location.files import Files
from tfpipe.shard_cache import metadata
from tfpipe.shards import generations, index

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
    chosen = len(log) if generation == "latest" else generation
    entries = generations.folders(log, chosen)
    location = files.location
    names = (location.absolute().text, generations.digest_of(entries), str(chosen))
    target = folder / index.digest(repr(names))
    if not (target / index.INDEX_NAME).exists():
        parts = [_part(files, entry.folder, folder) for entry in entries]
        shards_in = location.path if location.is_local else None
        generations.write_view(target, entries, parts, chosen, shards_in=shards_in)
    return target, chosen


def _part(files: Files, name: str, folder: pathlib.Path) -> pathlib.Path:
    """Returns a local folder with the index and the catalog of a folder."""
    location = files.location / name
    if location.is_local:
        return location.path
    return metadata.bring(Files(location, files.time_limit), folder)
