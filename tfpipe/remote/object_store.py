"""Files in an object store or on a web server, through obstore.

In: a URL with s3, gs, az, abfs, http or https. Out: the content, sizes and names of the
files below it. obstore repeats a request that failed in passing, with a backoff that
doubles and has jitter, and goes on where a broken answer ended. Credentials come from
the environment and the files of each store. obstore reads all of them, except for the
files of the AWS command line, which this module reads.
"""

import configparser
import datetime
import html
import os
import pathlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfpipe import errors
from tfpipe.remote import urls

if TYPE_CHECKING:
    import obstore.store

UPLOAD_PART_BYTES = 8 << 20
UPLOAD_CONNECTIONS = 4

# Shares of the time limit: a request is sent again until the first share is over, may
# then wait for the second and take the third. Together they are less than 1.
_RETRY_SHARE, _BACKOFF_SHARE, _REQUEST_SHARE = 0.6, 0.1, 0.25
# A connection on which nothing comes for this share is given up.
_STALL_SHARE = 0.1

_AWS_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
# Any of these says where else the credentials are.
_OTHER_AWS_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
# Where the AWS, Google and Azure machines hand out credentials.
_METADATA_SERVERS = ("169.254.169.254", "metadata.google.internal", "metadata/")
_REMEDIES = {
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a "
    "profile of ~/.aws/credentials; for a public bucket AWS_SKIP_SIGNATURE=true.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default "
    "login`; for a public bucket set GOOGLE_SKIP_SIGNATURE=true.",
    "az": "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or "
    "AZURE_STORAGE_SAS_TOKEN, or run `az login` and set AZURE_USE_AZURE_CLI=true.",
}
_REMEDIES["abfs"] = _REMEDIES["az"]


class ObjectStore:
    """The files below a URL.

    Args:
        place: A URL of `urls.OBJECT_SCHEMES`.
        time_limit: Seconds that one request may take with all its retries, > 0. A large
            file is written with several requests.

    Raises:
        RemoteError: If obstore is not installed or refuses the settings.
    """

    def __init__(self, place: str, time_limit: float) -> None:
        self._scheme = urls.scheme(place)
        try:
            import obstore
        except ImportError:
            raise errors.RemoteError(
                f"{urls.shown(place)} needs obstore: pip install 'tfpipe[remote]'"
            ) from None
        self._obstore = obstore
        try:
            self._store = _open(place, time_limit)
        except errors.RemoteError:
            raise
        except Exception as error:
            remedy = _REMEDIES.get(self._scheme, "Check the URL.")
            raise errors.RemoteError(
                f"{urls.shown(place)} cannot be used: {_came_back(str(error))}. "
                f"{remedy}"
            ) from None

    def read(self, name: str) -> bytes:
        return bytes(self._obstore.get(self._store, name).bytes())

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        found = self._obstore.get_range(self._store, name, start=start, end=stop)
        return bytes(found)

    def size(self, name: str) -> int:
        return int(self._obstore.head(self._store, name)["size"])

    def names(self) -> dict[str, int]:
        pages = self._obstore.list(self._store)
        return {entry["path"]: entry["size"] for page in pages for entry in page}

    def write(self, name: str, content: bytes) -> None:
        self._obstore.put(self._store, name, content)

    def upload(self, name: str, path: pathlib.Path) -> None:
        self._obstore.put(
            self._store,
            name,
            path,
            chunk_size=UPLOAD_PART_BYTES,
            max_concurrency=UPLOAD_CONNECTIONS,
        )

    def delete(self, name: str) -> None:
        self._obstore.delete(self._store, name)

    def explain(self, error: Exception) -> tuple[bool, str, str]:
        """Explains an error of a request.

        Returns:
            Whether only the file is missing, what came back, and a remedy or "".
        """
        text = str(error).split("\n\nDebug source")[0]
        came_back = _came_back(text)
        if any(server in text for server in _METADATA_SERVERS):
            remedy = _REMEDIES.get(self._scheme, "")
            return False, "no credentials were found", remedy
        if re.search(r"\b(?:401|403) |privileges|authenti", text):
            remedy = "Check the credentials and their rights. "
            return False, came_back, remedy + _REMEDIES.get(self._scheme, "")
        if "416 Range" in text:
            return False, came_back, "The file is too short. Copy it there again."
        if "NoSuchBucket" in text:
            return False, came_back, "Check the bucket's name; make it if it is new."
        is_missing = isinstance(error, FileNotFoundError)
        return is_missing, came_back, "" if is_missing else self._remedy(text)

    def _remedy(self, text: str) -> str:
        if "Method Not Allowed" in text or "PROPFIND" in text:
            return "A web server is only read, and does not list its files."
        if "builder error" in text or "region" in text.lower():
            return "Check AWS_ENDPOINT_URL and AWS_REGION."
        return "Check the network and the server, and try again."


def _open(place: str, time_limit: float) -> "obstore.store.ObjectStore":
    from obstore import store

    def seconds(share: float) -> datetime.timedelta:
        return datetime.timedelta(seconds=share * time_limit)

    scheme, retry = urls.scheme(place), dict[str, Any]()
    retry["max_retries"] = 1_000_000  # the time is the limit
    retry["retry_timeout"] = seconds(_RETRY_SHARE)
    retry["backoff"] = {"max_backoff": seconds(_BACKOFF_SHARE)}
    client: dict[str, Any] = {
        "timeout": seconds(_REQUEST_SHARE),
        "read_timeout": seconds(_STALL_SHARE),
        "connect_timeout": seconds(_STALL_SHARE),
    }
    options: dict[str, Any] = {"retry_config": retry, "client_options": client}
    if scheme in ("http", "https"):
        client["allow_http"] = scheme == "http"
        return store.HTTPStore.from_url(place, **options)
    if scheme == "s3":
        settings = aws_settings(os.environ)
        # Without encryption only where the endpoint itself says http.
        endpoint = settings.get("endpoint", "")
        client["allow_http"] = endpoint.lower().startswith("http://")
        bucket, _, folder = place.removeprefix("s3://").partition("/")
        return store.S3Store(bucket, prefix=folder, **settings, **options)
    return store.from_url(place, **options)


def aws_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """Returns what the AWS command line's files and variables say and obstore misses.

    obstore reads the variables AWS_* itself. As for other AWS tools, the profile
    AWS_PROFILE, or `default`, of ~/.aws/credentials and ~/.aws/config applies where no
    variable does.

    Args:
        environ: The environment. AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name
            other files.

    Returns:
        Some of access_key_id, secret_access_key, session_token, region and endpoint.

    Raises:
        RemoteError: If a file cannot be understood, or lacks the profile AWS_PROFILE,
            or the profile has credentials of a kind that is not supported.
    """
    profile = _aws_profile(environ)
    settings: dict[str, Any] = {}
    if not any(environ.get(name) for name in _OTHER_AWS_CREDENTIALS):
        settings = {
            k.removeprefix("aws_"): profile[k] for k in _AWS_KEYS if k in profile
        }
    if not (environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")):
        settings |= {"region": profile["region"]} if "region" in profile else {}
    endpoint = (
        environ.get("AWS_ENDPOINT_URL_S3")
        or environ.get("AWS_ENDPOINT_URL")
        or environ.get("AWS_ENDPOINT")
        or profile.get("endpoint_url", "")
    )
    if not endpoint:
        return settings
    if urls.scheme(endpoint) not in ("http", "https"):
        raise errors.RemoteError(
            "AWS_ENDPOINT_URL, or endpoint_url of the AWS profile, must begin with "
            "https:// or http://."
        )
    return settings | {"endpoint": endpoint}


def _aws_profile(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the keys and values of the profile in both files."""
    name = environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE") or "default"
    found: dict[str, str] = {}
    is_there = False
    for variable, file, prefix in (
        ("AWS_CONFIG_FILE", "config", "" if name == "default" else "profile "),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", ""),
    ):
        path = pathlib.Path(environ.get(variable) or f"~/.aws/{file}").expanduser()
        # A value may hold a %.
        parser = configparser.ConfigParser(interpolation=None, default_section="\0")
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, OSError, ValueError):
            # The parser's own error repeats lines of the file.
            raise errors.RemoteError(
                f"{path} cannot be read as a file of AWS profiles: correct it, or set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            ) from None
        if parser.has_section(prefix + name):
            is_there = True
            found |= dict(parser[prefix + name])
    if not is_there and name != "default":
        raise errors.RemoteError(
            f"AWS_PROFILE is {name!r}, but neither ~/.aws/credentials nor "
            "~/.aws/config has this profile."
        )
    return found


def _came_back(text: str) -> str:
    """Returns the answer in an error of obstore as one short line without secrets."""
    text = re.sub(r"(https?://[^\s?]*)\?\S*", r"\1", text)
    parts = [re.search(r"status code: ([0-9]+ [A-Za-z -]+)", text)]
    parts += [
        re.search(rf"<{tag}>([^<]*)</{tag}>", text) for tag in ("Code", "Message")
    ]
    said = [html.unescape(part[1]).strip() for part in parts if part]
    first_line = (text.splitlines() or ["nothing"])[0]
    retries = re.search(r" in ([0-9.]+m?s), after [0-9]+ retries", text)
    line = ", ".join(said) or re.sub(
        r"(?:, max_retries: \d+, retry_timeout: \S+)", "", first_line
    )
    if said and retries:
        line += f" (tried for {retries[1]})"
    return line[:300].rstrip(" .")
