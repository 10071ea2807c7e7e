"""URLs as text, for callers that do not hold a `Location` yet.

In: a path or a URL, as a person wrote it. Out: the same, checked. Opens nothing.
"""

import os
from typing import Any

from tfpipe.location import location
from tfpipe.location.location import (
    OBJECT_SCHEMES as OBJECT_SCHEMES,
    Location,
    has_no_secret as is_sound,
    shown as shown,
)


def scheme(text: str | os.PathLike[str]) -> str:
    """Returns the scheme of a URL in lower case, or "" for a path."""
    return location.written_scheme(os.fspath(text)).partition(":")[0].lower()


def is_url(path: str | os.PathLike[str]) -> bool:
    """Checks whether a text is a URL, of a known scheme or not, and not a path."""
    return bool(scheme(path))


def require_place(owner: object, name: str, value: Any) -> str:
    """Returns the text of a location that a person wrote, see `Location.from_user`."""
    return Location.from_user(name, value, owner=owner).text


def join(folder: str, name: str) -> str:
    """Returns the path or URL of a file in a folder."""
    if is_url(folder):
        return f"{folder.rstrip('/')}/{name}"
    return os.path.join(folder, name)


__all__ = ["OBJECT_SCHEMES", "is_sound", "is_url", "join", "require_place", "scheme"]
__all__ += ["shown"]
