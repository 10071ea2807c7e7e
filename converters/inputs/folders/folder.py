"""Opens an input folder, on a disk or by URL.

In: a path or a URL. Out: an `OnDisk` or `AtUrl`, which have the same methods; and a
folder on the disk with the small files that say what the images are.
"""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator, Sequence

from converters.inputs.folders.at_url import AtUrl
from converters.inputs.folders.on_disk import OnDisk
from tfpipe.remote import urls

Folder = OnDisk | AtUrl


def of(place: pathlib.Path) -> Folder:
    """Returns the folder at a path or URL; nothing is read yet.

    Args:
        place: The path; a URL in a `Path` lacks one of its slashes, and is right.

    Raises:
        ValueError: If it is a URL of an unknown kind or with a password.
    """
    if urls.is_url(place):
        return AtUrl(urls.require_place("", "--input_dir", place))
    return OnDisk(place)


def require(folder: Folder) -> None:
    """Checks that an input folder is there.

    Raises:
        ValueError: If it is not.
        RemoteError: If the store cannot be listed.
    """
    if not folder.is_folder(""):
        kind = "file below this URL" if isinstance(folder, AtUrl) else "folder"
        raise ValueError(
            f"--input_dir must be a folder, got {folder.shown('')}: no such {kind}."
        )


@contextlib.contextmanager
def near(folder: Folder, names: Sequence[str]) -> Iterator[pathlib.Path]:
    """Yields a folder on the disk that holds these files of an input folder.

    A folder on a disk is its own. Files of a store are copied to a temporary folder. An
    error inside the block names the URL instead of that folder.

    Args:
        folder: The input folder.
        names: Files that may be there, all of them small.

    Raises:
        ValueError: If a file is too large, or from the block.
        RemoteError: If the store cannot be read.
    """
    if isinstance(folder, OnDisk):
        yield folder.place
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder.fetch(names, pathlib.Path(temporary))
        try:
            yield pathlib.Path(temporary)
        except ValueError as error:
            text = str(error).replace(temporary, folder.shown(""))
            raise ValueError(text) from None
