"""The paths of a user, and the lines of the user's small files."""

import pathlib

from tfpipe.errors import require_local_path
from tfpipe.location import parts
from tfpipe.location.location import Location


def path_of(name: str, value: str) -> pathlib.Path:
    """Returns the path in the value of a flag, with ~ replaced by a home folder."""
    require_local_path("", name, value)
    if not value:
        raise ValueError(f"{name} must be a path, got nothing. Write . for here.")
    return Location.from_user(name, value, expand_user=True).path


def lines_of(path: pathlib.Path) -> list[str]:
    """Returns the lines of a UTF-8 file, or of a pipe, as a shell passes for a flag."""
    data = parts.read_bytes(path, pipe=True)
    return parts.decode_text(data, str(path), errors="surrogateescape").splitlines()
