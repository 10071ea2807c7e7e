"""URLs of data sets: which are known, and how they are shown.

In: a path or a URL, as a person wrote it. Out: the same, checked. A URL holds no
credentials: these come from the environment and the files of each store. An error does
not repeat a URL that might hold some. Opens nothing.
"""

import os
import re
from typing import Any

from tfpipe import errors

# Schemes of obstore, and those of fsspec.
OBJECT_SCHEMES = ("s3", "gs", "az", "abfs", "http", "https")
OTHER_SCHEMES = ("hdfs",)

# A scheme of two letters or more; pathlib makes one slash of the two after it.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
_BUCKET = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
# The part between the two slashes and the next one. A user name stands only where a
# store has it in its URLs: abfs://container@account, hdfs://user@host.
_AUTHORITIES = {
    "s3": _BUCKET,
    "gs": _BUCKET,
    "az": _BUCKET,
    "abfs": rf"(?:{_BUCKET}@)?{_BUCKET}",
    "http": _HOST,
    "https": _HOST,
    "hdfs": rf"(?:{_BUCKET}@)?(?:{_HOST})?",
}


def scheme(place: str | os.PathLike[str]) -> str:
    """Returns the scheme of a URL in lower case, or "" for a path."""
    found = _SCHEME.match(os.fspath(place))
    return found[1].lower() if found else ""


def is_url(path: str | os.PathLike[str]) -> bool:
    """Checks whether a text is a URL, of a known scheme or not, and not a path.

    A `pathlib.Path` of a URL counts as the URL, although it has only one slash.
    """
    return bool(scheme(path))


def require_place(owner: object, name: str, value: Any) -> str:
    """Checks that a value is a path on this machine or the URL of a folder.

    Args:
        owner: See `tfpipe.errors`.
        name: Name of the argument or flag.
        value: Value of the argument.

    Returns:
        The path as it is, or the URL with two slashes after its scheme in lower case.

    Raises:
        ValueError: If the value is neither, if its scheme is unknown, or if the URL
            holds a user name and password, a query or a fragment. The error does not
            repeat these.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    if not isinstance(text, str) or not text:
        raise ValueError(f"{_named(owner, name)} must be a path or a URL.")
    kind = scheme(text)
    if not kind:
        return text
    if kind == "file":
        errors.require_local_path(owner, name, text)
    if kind not in _AUTHORITIES:
        known = ", ".join(f"{known}://" for known in _AUTHORITIES)
        raise ValueError(
            f"{_named(owner, name)} must be a path or a URL with one of {known}, got "
            f"{kind}://. Copy the files to one of these places, or mount their folder."
        )
    if not _is_sound(text):
        raise ValueError(
            f"{_named(owner, name)} must be a URL such as {kind}://{_EXAMPLES[kind]}, "
            "without a password, a query (?) and a fragment (#), and is not shown here "
            "because it may hold a secret. Credentials come from the environment and "
            "the files of the store, see BUILD.md."
        )
    return f"{kind}://{_after_scheme(text)}"


def join(place: str, name: str) -> str:
    """Returns the path or URL of a file in a folder."""
    return f"{place.rstrip('/')}/{name}" if is_url(place) else os.path.join(place, name)


def shown(url: str) -> str:
    """Returns a path or URL for messages: without credentials, query and fragment."""
    if not is_url(url):
        return url
    plain = re.split(r"[?#]", url)[0]
    return plain if _is_sound(plain) else f"{scheme(url)}://..."


_EXAMPLES = {
    "s3": "bucket/folder",
    "gs": "bucket/folder",
    "az": "container/folder",
    "abfs": "container@account.dfs.core.windows.net/folder",
    "http": "host/folder",
    "https": "host/folder",
    "hdfs": "host:8020/folder",
}


def _after_scheme(url: str) -> str:
    found = _SCHEME.match(url)
    return url[found.end() :] if found else url


def _is_sound(url: str) -> bool:
    """Checks the authority of a URL, and that it has no query and no fragment."""
    authority, *path = _after_scheme(url).split("/", 1)
    known = _AUTHORITIES.get(scheme(url))
    # Slashes of a secret would put the "@" behind the authority.
    has_secret = "://" in url and ":" in authority and any("@" in part for part in path)
    return (
        known is not None
        and not has_secret
        and re.fullmatch(known, authority) is not None
        and not re.search(r"[?#]", url)
    )


def _named(owner: object, name: str) -> str:
    if isinstance(owner, str):
        return f"{owner}.{name}" if owner else name
    return f"{type(owner).__name__}.{name}"
