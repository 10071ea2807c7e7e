"""A path of this machine or a URL, as one type.

In: a path or a URL, as a person wrote it, and names of files. Out: a `Location`, its
name, its parent and the locations below it. A location holds no credentials:
credentials come from the environment and the files of the stores. Opens nothing:
`Files` reads and writes.

| part of a name | in a path | in s3, gs, az, abfs, hdfs | in http, https |
|---|---|---|---|
| `# ? % * [` space, newline | itself | itself | percent-encoded in the text |
| bytes outside of UTF-8 | themselves | an error of the store | percent-encoded |
| `~` at the start | itself; a command line asks for a home folder | itself | itself |
| `..`, or `/` at the start | refused by `/` | refused by `/` | refused by `/` |
| `/` at the end | left out | left out | left out |
"""

import dataclasses
import functools
import os
import pathlib
import re
import urllib.parse
from typing import Any

from tfpipe import errors

# Schemes of obstore.
OBJECT_SCHEMES = ("s3", "gs", "az", "abfs", "http", "https")

# Schemes of Hadoop and Google for the same stores.
_ALIASES = {"s3a": "s3", "abfss": "abfs", "gcs": "gs"}

# A scheme of two letters or more.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
# A person may write a URL into a `pathlib.Path`, which makes one slash of two.
_WRITTEN_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,2}")
_BUCKET = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
# The part between the two slashes and the next slash, and an example. A user name
# stands only in URLs of stores with user names.
_SCHEMES = {
    "s3": (_BUCKET, "bucket/folder"),
    "gs": (_BUCKET, "bucket/folder"),
    "az": (_BUCKET, "container/folder"),
    "abfs": (
        rf"(?:{_BUCKET}@)?{_BUCKET}",
        "container@account.dfs.core.windows.net/folder",
    ),
    "http": (_HOST, "host/folder"),
    "https": (_HOST, "host/folder"),
    "hdfs": (rf"(?:{_BUCKET}@)?(?:{_HOST})?", "host:8020/folder"),
}
_WEB = ("http", "https")
_SAFE_ON_WEB = "/~!$&'()*+,;=:@"


@dataclasses.dataclass(frozen=True, order=True)
class Location:
    """A path of this machine or a URL, of a folder or a file.

    `from_user` makes a location of the text of a person. The constructor takes
    the `text` of another location.

    Example:
        >>> folder = tfpipe.Location("s3://bucket/photos")
        >>> (folder / "a#1.jpg").text
        's3://bucket/photos/a#1.jpg'
        >>> (folder / "a#1.jpg").parent == folder
        True
        >>> tfpipe.Location("/data/photos/").name
        'photos'

    Attributes:
        text: The path, as `pathlib` writes the path; or the URL, without a slash at its
            end. A web server's URL is percent-encoded.

    Raises:
        ValueError: If the text is empty, or a URL of an unknown scheme, or a URL with a
            password.
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text:
            raise ValueError(f"Location.text must be a path or a URL: {self.text!r}.")
        if self.is_local:
            errors.settle(self, "text", str(pathlib.Path(self.text)))
            return
        if not _has_sound_authority(self.text):
            raise ValueError(
                "Location.text must be a path or a URL of a known scheme, without a "
                f"password, got {shown(self.text)}."
            )
        scheme, _, rest = self.text.partition("://")
        errors.settle(self, "text", f"{_plain(scheme)}://{rest.rstrip('/')}")

    @classmethod
    def from_user(
        cls, name: str, value: Any, *, owner: object = "", expand_user: bool = False
    ) -> "Location":
        """Returns the location in the text of a person.

        Args:
            name: Name of the argument or flag, for errors.
            value: Value of the argument: a str, an `os.PathLike` or a location.
            owner: See `tfpipe.errors`.
            expand_user: Whether ~ at the start of a path means a home folder, as on a
                command line.

        Raises:
            ValueError: If the value is neither a path nor a URL, if its scheme is
                unknown, if a home folder is unknown, or if the URL holds a password, a
                query or a fragment. The error does not repeat the secrets.
        """
        if isinstance(value, cls):
            return value
        argument = errors.named(owner, name)
        text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
        if text == "":
            raise ValueError(
                f"{argument} must be a path or a URL, got nothing. Write . for here."
            )
        if not isinstance(text, str):
            raise ValueError(
                f"{argument} must be a path or a URL, got {type(value).__name__}."
            )
        match = _WRITTEN_URL.match(text)
        if match is None:
            return cls(_with_home(argument, text) if expand_user else text)
        scheme = _plain(match[1])
        if scheme == "file":
            errors.require_local_path(owner, name, text)
        if scheme not in _SCHEMES:
            schemes = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
            raise ValueError(
                f"{argument} must be a path or a URL with one of {schemes}, got "
                f"{scheme}://. Copy the files to such a place, or mount their folder."
            )
        url = f"{scheme}://{text[match.end() :]}"
        if not has_no_secret(url):
            raise ValueError(
                f"{argument} must be a URL such as {scheme}://{_SCHEMES[scheme][1]}, "
                "without a password, a query (?) and a fragment (#), and is not shown "
                "here because it may hold a secret. Credentials come from the "
                "environment and the files of the store, see BUILD.md."
            )
        return cls(url)

    def __truediv__(self, name: str) -> "Location":
        """Returns the location of a file or folder below; "" is the folder itself.

        Raises:
            ValueError: If the name is an absolute path or leaves this folder by "..".
        """
        if name.startswith("/") or ".." in name.split("/"):
            raise ValueError(
                f"A name in {self.shown} must stay below the folder, got {name!r}."
            )
        if not name.strip("/"):
            return self
        if self.is_local:
            return Location(os.path.join(self.text, name))
        if self.is_web_server:
            name = urllib.parse.quote(name, safe=_SAFE_ON_WEB, errors="surrogateescape")
        return Location(f"{self.text}/{name}")

    def resolve(self, reference: str) -> "Location":
        """Returns the location that a table or a list of files names.

        Args:
            reference: A URL or an absolute path, taken as the whole location; or a
                path relative to the location.
        """
        if _URL.match(reference) or os.path.isabs(reference):
            return Location(reference)
        if self.is_local:  # ".." has a meaning in a folder
            return Location(os.path.join(self.text, reference))
        return self / reference

    @property
    def scheme(self) -> str:
        """The scheme of a URL in lower case; "" for a path."""
        match = _URL.match(self.text)
        return _plain(match[1]) if match else ""

    @property
    def is_local(self) -> bool:
        """Whether the location is a path of this machine."""
        return _URL.match(self.text) is None

    @property
    def is_web_server(self) -> bool:
        """Whether a web server has the files: without listing and writing."""
        return self.scheme in _WEB

    @property
    def path(self) -> pathlib.Path:
        """The path of a local file or folder.

        Raises:
            ValueError: If the location is a URL.
        """
        if not self.is_local:
            raise ValueError(f"{self.shown} must be a path of this machine.")
        return pathlib.Path(self.text)

    @property
    def name(self) -> str:
        """The last part; "" for a bucket, a server or the root folder."""
        return self.path.name if self.is_local else self.split()[1].rpartition("/")[2]

    @property
    def parent(self) -> "Location":
        """The folder above; a bucket, a server and the root folder are their own."""
        if self.is_local:
            return Location(str(self.path.parent))
        root, name = self.split()
        return root / name.rpartition("/")[0]

    def absolute(self) -> "Location":
        """Returns the location with an absolute path; a URL is absolute."""
        return Location(os.path.abspath(self.text)) if self.is_local else self

    @property
    def shown(self) -> str:
        r"""The text for messages: one line; a newline is shown as \n."""
        return errors.printable(self.text)

    def split(self) -> tuple["Location", str]:
        """Returns the bucket, server or folder, and the name of the file there."""
        if self.is_local:
            return self.parent, self.name
        scheme, _, rest = self.text.partition("://")
        authority, _, name = rest.partition("/")
        if self.is_web_server:
            name = urllib.parse.unquote(name, errors="surrogateescape")
        return Location(f"{scheme}://{authority}"), name

    @functools.cached_property
    def _real(self) -> str:
        return os.path.realpath(self.text)

    def is_in(self, folder: "Location") -> bool:
        """Whether the location is the folder or below; links on disks are followed."""
        if self.is_local != folder.is_local:
            return False
        if self.is_local:
            return f"{self._real}/".startswith(os.path.join(folder._real, ""))
        return f"{self.text}/".startswith(f"{folder.text}/")


def shown(text: str) -> str:
    """Returns a text for messages; a URL without credentials and query.

    Example:
        >>> shown("https://me:secret@host/photos")
        'https://...'
    """
    match = _WRITTEN_URL.match(text)
    if match is None:
        return text
    plain = re.split(r"[?#]", text)[0]
    return plain if has_no_secret(plain) else f"{match[1].lower()}://..."


def has_no_secret(url: str) -> bool:
    """Whether a URL has a known authority, and neither query, fragment nor password."""
    authority, *path = url[len(written_scheme(url)) :].split("/", 1)
    # Slashes of a secret would put the "@" behind the authority.
    has_secret = ":" in authority and any("@" in part for part in path)
    return _has_sound_authority(url) and not has_secret and not re.search(r"[?#]", url)


def _has_sound_authority(url: str) -> bool:
    written = written_scheme(url)
    store = _SCHEMES.get(_plain(written.partition(":")[0]))
    authority = url[len(written) :].partition("/")[0]
    return store is not None and re.fullmatch(store[0], authority) is not None


def _plain(scheme: str) -> str:
    """Returns a scheme in lower case, by its usual name."""
    return _ALIASES.get(scheme.lower(), scheme.lower())


def written_scheme(url: str) -> str:
    """Returns the start of a URL up to its slashes."""
    match = _WRITTEN_URL.match(url)
    return match[0] if match else ""


def _with_home(argument: str, path: str) -> str:
    expanded = os.path.expanduser(path)  # changes nothing in ./~
    if expanded.startswith("~"):
        raise ValueError(
            f"{argument} must be a path, got {path}, whose user has no home folder "
            f"here. Write ./{path} for a name that begins with ~."
        )
    return expanded
