"""Copies the files of a table at a URL into the folder of the spool.

In: a `Source` with URLs. Out: the same with paths. A file is copied in pieces, so that
memory does not grow with it.
"""

import dataclasses
import pathlib

from converters.inputs.tables import places
from tfpipe.remote import urls
from tfpipe.remote.files import Files

_PIECE_BYTES = 16 << 20


def near(source: places.Source, folder: pathlib.Path) -> places.Source:
    """Returns a source whose files are on this machine.

    Args:
        source: The source; without URLs it is returned as it is.
        folder: Folder for the copies; it is made.

    Raises:
        RemoteError: If a file cannot be read.
        OSError: If it cannot be written.
    """
    if not source.is_remote:
        return source
    folder.mkdir(parents=True, exist_ok=True)
    copies = []
    for number, url in enumerate(source.files):
        place, _, name = url.rpartition("/")
        path = folder / f"{number:05d}-{name}"
        files = Files(urls.require_place("", "--input", place))
        num_bytes = files.size(name)
        with open(path, "wb") as file:
            if num_bytes <= _PIECE_BYTES:  # some web servers send whole files alone
                file.write(files.read(name))
                num_bytes = 0
            for start in range(0, num_bytes, _PIECE_BYTES):
                stop = min(start + _PIECE_BYTES, num_bytes)
                file.write(files.read_view(name, start, stop))
        copies.append(str(path))
    return dataclasses.replace(source, files=copies)
