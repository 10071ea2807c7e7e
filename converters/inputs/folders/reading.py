"""Reads parts of files by URL, also several at a time.

In: an input folder and the name of a file in it, or the URL of a file. Out: its bytes.
The connections of a folder are kept for the next file.
"""

import functools
import pathlib
import urllib.parse

from tfpipe.remote import urls
from tfpipe.remote.files import Files

# Folders whose connections are kept; images of one input are mostly in one.
_MAX_PLACES = 64
_SEPARATOR = "://"


def is_remote(input_dir: pathlib.Path, file: str) -> bool:
    """Whether a file is read by URL: it is a URL itself, or the input folder is one."""
    return _SEPARATOR in file or urls.is_url(input_dir)


def shown(input_dir: pathlib.Path) -> str:
    """Returns the path or URL of the input folder, for messages."""
    is_url = urls.is_url(input_dir)
    return urls.shown(_place(input_dir)) if is_url else str(input_dir)


def shown_file(input_dir: pathlib.Path, file: str) -> str:
    """Returns the path or URL of a file, for messages."""
    if _SEPARATOR in file:
        return urls.shown(file)
    return urls.join(shown(input_dir), file)


def read(input_dir: pathlib.Path, file: str, start: int, num_bytes: int) -> bytes:
    """Reads a part of a file by URL.

    Args:
        input_dir: Path or URL of the input folder.
        file: Name of the file in that folder, or its URL.
        start: First byte, >= 0.
        num_bytes: Number of bytes, >= 0.

    Raises:
        ValueError: If the URL is of an unknown kind or holds a secret.
        RemoteError: If the file is missing, too short, or cannot be read.
    """
    place, name = split(file) if _SEPARATOR in file else (_place(input_dir), file)
    return _files(place).read_range(name, start, start + num_bytes)


def split(url: str) -> tuple[str, str]:
    """Returns the URL of the bucket or server, and the name of the file in it.

    Raises:
        ValueError: If the URL is of an unknown kind, holds a secret or names no file.
    """
    url = urls.require_place("", "The URL of an image", url)
    scheme, _, rest = url.partition(_SEPARATOR)
    authority, _, name = rest.partition("/")
    if not name:
        raise ValueError(f"The URL of an image must name a file, got {url}.")
    # A web server gets the name encoded, and so it is already in such a URL.
    name = urllib.parse.unquote(name) if scheme in ("http", "https") else name
    return f"{scheme}{_SEPARATOR}{authority}", name


def _place(input_dir: pathlib.Path) -> str:
    return urls.require_place("", "--input_dir", input_dir)


@functools.lru_cache(maxsize=_MAX_PLACES)
def _files(place: str) -> Files:
    return Files(place)
