"""URLs of data sets: the known schemes, and URLs in messages.

In: a path or a URL, as a person wrote it. Out: the same, checked. A URL holds no
credentials: credentials come from the environment and the files of the stores. An error
does not repeat a URL that might hold credentials. Opens nothing.
"""

import os
import re
from typing import Any

from tfpipe import errors

# Schemes of obstore. fsspec has the other schemes.
OBJECT_SCHEMES = ("s3", "gs", "az", "abfs", "http", "https")

# A scheme of two letters or more; pathlib makes one slash of the two after it.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,2}")
_BUCKET = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
# The part between the two slashes and the next slash. A user name stands only in URLs
# of stores with user names: abfs://container@account, hdfs://user@host.
_AUTHORITIES = {
    "s3": _BUCKET,
    "gs": _BUCKET,
    "az": _BUCKET,
    "abfs": rf"(?:{_BUCKET}@)?{_BUCKET}",
    "http": _HOST,
    "https": _HOST,
    "hdfs": rf"(?:{_BUCKET}@)?(?:{_HOST})?",
}

_EXAMPLES = {
    "s3": "bucket/folder",
    "gs": "bucket/folder",
    "az": "container/folder",
    "abfs": "container@account.dfs.core.windows.net/folder",
    "http": "host/folder",
    "https": "host/folder",
    "hdfs": "host:8020/folder",
}


def scheme(location: str | os.PathLike[str]) -> str:
    """Returns the scheme of a URL in lower case, or "" for a path."""
    match = _SCHEME.match(os.fspath(location))
    return match[1].lower() if match else ""


def is_url(path: str | os.PathLike[str]) -> bool:
    """Checks whether a text is a URL, of a known scheme or not, and not a path.

    A `pathlib.Path` of a URL counts as the URL, although such a path has one slash.
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
            repeat the secrets.
    """
    argument = errors.named(owner, name)
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    if not isinstance(text, str) or not text:
        raise ValueError(f"{argument} must be a path or a URL.")
    kind = scheme(text)
    if not kind:
        return text
    if kind == "file":
        errors.require_local_path(owner, name, text)
    if kind not in _AUTHORITIES:
        schemes = ", ".join(f"{scheme}://" for scheme in _AUTHORITIES)
        raise ValueError(
            f"{argument} must be a path or a URL with one of {schemes}, got "
            f"{kind}://. Copy the files to one of these places, or mount their folder."
        )
    if not is_sound(text):
        raise ValueError(
            f"{argument} must be a URL such as {kind}://{_EXAMPLES[kind]}, "
            "without a password, a query (?) and a fragment (#), and is not shown here "
            "because it may hold a secret. Credentials come from the environment and "
            "the files of the store, see BUILD.md."
        )
    return f"{kind}://{_after_scheme(text)}"


def join(folder: str, name: str) -> str:
    """Returns the path or URL of a file in a folder."""
    if is_url(folder):
        return f"{folder.rstrip('/')}/{name}"
    return os.path.join(folder, name)


def shown(url: str) -> str:
    """Returns a path or URL for messages: without credentials, query and fragment."""
    if not is_url(url):
        return url
    plain = re.split(r"[?#]", url)[0]
    return plain if is_sound(plain) else f"{scheme(url)}://..."


def is_sound(url: str) -> bool:
    """Checks the authority of a URL, and that it has no query and no fragment."""
    authority, *path = _after_scheme(url).split("/", 1)
    pattern = _AUTHORITIES.get(scheme(url))
    # Slashes of a secret would put the "@" behind the authority.
    has_secret = "://" in url and ":" in authority and any("@" in part for part in path)
    return (
        pattern is not None
        and not has_secret
        and re.fullmatch(pattern, authority) is not None
        and not re.search(r"[?#]", url)
    )


def _after_scheme(url: str) -> str:
    match = _SCHEME.match(url)
    return url[match.end() :] if match else url
