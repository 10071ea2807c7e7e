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
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfpipe import errors
from tfpipe.location import location as locations
from tfpipe.location.location import Location

if TYPE_CHECKING:
    import obstore.store

UPLOAD_PART_BYTES = 8 << 20
UPLOAD_CONNECTIONS = 4

# Shares of the time limit: a request is sent again until the first share is over, may
# then wait for the second and take the third. Together they are less than 1.
_RETRY_SHARE, _BACKOFF_SHARE, _REQUEST_SHARE = 0.6, 0.05, 0.3
# A connection on which nothing comes for this share is given up.
_STALL_SHARE = 0.1
_FIRST_BACKOFF = datetime.timedelta(seconds=0.1)

_XML_TAGS = ("Code", "Message")
_MAX_CHARACTERS = 300
# Kinds of obstore's HttpError.
_KINDS = {
    "Connect": "cannot be reached",
    "Timeout": "did not answer in time",
    "Interrupted": "broke off the connection",
}

_AWS_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_MADE_BY_AWS = {"credential_process", "role_arn", "sso_session", "sso_start_url"}
_AWS_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
# The most specific one first.
_AWS_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
# Any of these says where else the credentials are.
_OTHER_AWS_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
# Where the AWS, Google and Azure machines hand out credentials.
_METADATA_SERVERS = ("169.254.169.254", "latest/api/token", "metadata.google.internal")
_REMEDIES = {
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a "
    "profile of ~/.aws/credentials; for a public bucket AWS_SKIP_SIGNATURE=true.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default "
    "login`; for a public bucket set GOOGLE_SKIP_SIGNATURE=true.",
    "az": "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or "
    "AZURE_STORAGE_SAS_TOKEN, or run `az login` and set AZURE_USE_AZURE_CLI=true.",
}
_REMEDIES["abfs"] = _REMEDIES["az"]

# The processes that have used obstore: this one, or those it was forked from.
_processes: set[int] = set()


class ObjectStore:
    """The files below a URL.

    Args:
        location: A URL of `location.OBJECT_SCHEMES`.
        time_limit: Seconds that one request may take with all its retries, > 0. A large
            file is written with several requests.

    Raises:
        RemoteError: If obstore is not installed or refuses the settings.
    """

    def __init__(self, location: Location, time_limit: float) -> None:
        self._scheme = location.scheme
        try:
            import obstore
        except ImportError:
            raise errors.RemoteError(
                f"{location.shown} needs obstore: pip install 'tfpipe[remote]'"
            ) from None
        self._obstore: ModuleType = obstore
        try:
            self._store = _open(location, time_limit)
        except errors.RemoteError:
            raise
        except Exception as error:
            remedy = _REMEDIES.get(self._scheme, "Check the URL.")
            raise errors.RemoteError(
                f"{location.shown} cannot be used: {_came_back(str(error))}. {remedy}"
            ) from None

    @property
    def _client(self) -> ModuleType:
        """Is obstore, unless its threads were lost in a fork: it would wait forever."""
        if _processes and os.getpid() not in _processes:
            raise errors.RemoteError(
                "A process that was made by fork cannot read or write URLs after its "
                "parent did. Start it with the method spawn or forkserver of "
                "multiprocessing."
            )
        _processes.add(os.getpid())
        return self._obstore

    def read(self, name: str) -> bytes:
        return bytes(self._client.get(self._store, name).bytes())

    def read_range(self, name: str, start: int, stop: int) -> memoryview:
        return memoryview(
            self._client.get_range(self._store, name, start=start, end=stop)
        )

    def size(self, name: str) -> int:
        return int(self._client.head(self._store, name)["size"])

    def version(self, name: str) -> str:
        head = self._client.head(self._store, name)
        return f"{head['size']} {head['e_tag'] or head['last_modified']}"

    def names(self) -> dict[str, int]:
        pages = self._client.list(self._store)
        return {entry["path"]: entry["size"] for page in pages for entry in page}

    def write(self, name: str, content: bytes) -> None:
        self._client.put(self._store, name, content)

    def upload(self, name: str, path: pathlib.Path) -> None:
        self._client.put(
            self._store,
            name,
            path,
            chunk_size=UPLOAD_PART_BYTES,
            max_concurrency=UPLOAD_CONNECTIONS,
        )

    def delete(self, name: str) -> None:
        self._client.delete(self._store, name)

    def explain(self, error: Exception) -> tuple[bool, str, str]:
        """Explains an error of a request.

        Returns:
            Whether only the file is missing, what came back, and a remedy or "".
        """
        text = str(error)
        came_back = _came_back(text)
        remedy = _REMEDIES.get(self._scheme, "")
        if any(server in text for server in _METADATA_SERVERS):
            return False, "no credentials were found", remedy
        if re.search(r"status code: 40[13]\b|Unauthenticated", text):
            return False, came_back, f"Check the credentials. {remedy}".rstrip()
        if "status code: 416" in text:
            return False, came_back, "The file is too short: copy it again."
        if "NoSuchBucket" in text:
            return False, came_back, "Check the bucket's name; make it if it is new."
        if "RangeNotSupported" in text:
            return False, came_back, "Use a web server that can send ranges of bytes."
        if isinstance(error, FileNotFoundError):
            return True, came_back, "Check its name, its folder and its bucket."
        if _kind(text) is not None:  # it may pass
            return False, came_back, "Check the network and the server, and try again."
        return False, came_back, "Check the settings of the store, see BUILD.md."


def _open(location: Location, time_limit: float) -> "obstore.store.ObjectStore":
    from obstore import store

    def seconds(share: float) -> datetime.timedelta:
        return datetime.timedelta(seconds=share * time_limit)

    scheme, retry = location.scheme, dict[str, Any]()
    retry["max_retries"] = 1_000_000  # the time is the limit
    retry["retry_timeout"] = seconds(_RETRY_SHARE)
    longest = seconds(_BACKOFF_SHARE)
    first = min(_FIRST_BACKOFF, longest / 2)  # obstore panics if it is not shorter
    retry["backoff"] = {"init_backoff": first, "max_backoff": longest}
    client: dict[str, Any] = {
        "timeout": seconds(_REQUEST_SHARE),
        "read_timeout": seconds(_STALL_SHARE),
        "connect_timeout": seconds(_STALL_SHARE),
    }
    options: dict[str, Any] = {"retry_config": retry, "client_options": client}
    if location.is_web_server:
        client["allow_http"] = scheme == "http"
        return store.HTTPStore.from_url(location.text, **options)
    if scheme == "s3":
        settings = aws_settings(os.environ)
        # Without encryption only where the endpoint itself says http.
        endpoint = settings.get("endpoint", "")
        client["allow_http"] = endpoint.lower().startswith("http://")
        bucket, _, folder = location.text.removeprefix("s3://").partition("/")
        return store.S3Store(bucket, prefix=folder, **settings, **options)
    return store.from_url(location.text, **options)


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
    for name in (*map(str.upper, _AWS_KEYS), *_AWS_REGIONS, *_AWS_ENDPOINTS):
        if re.search(r"\s", environ.get(name, "")):
            raise errors.RemoteError(f"{name} must have no space and no end of line.")
    profile = _aws_profile(environ)
    settings: dict[str, Any] = {}
    if not any(environ.get(name) for name in _OTHER_AWS_CREDENTIALS):
        if _AWS_KEYS[0] not in profile and _MADE_BY_AWS & set(profile):
            raise errors.RemoteError(
                "The AWS profile has credentials that the AWS command line must make. "
                'Run eval "$(aws configure export-credentials --format env)" before.'
            )
        settings = {
            k.removeprefix("aws_"): profile[k] for k in _AWS_KEYS if k in profile
        }
    if not any(environ.get(name) for name in _AWS_REGIONS):
        settings |= {"region": profile["region"]} if "region" in profile else {}
    named = [environ[name] for name in _AWS_ENDPOINTS if environ.get(name)]
    endpoint = (*named, profile.get("endpoint_url", ""))[0]
    if not endpoint:
        return settings
    # A password in it would be printed.
    if not (re.match("(?i)https?://", endpoint) and locations.has_no_secret(endpoint)):
        raise errors.RemoteError(
            "AWS_ENDPOINT_URL, or endpoint_url of the AWS profile, must be "
            "https://HOST:PORT or http://HOST:PORT, without a user name."
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
    # A query may hold a signature, and an endpoint a password.
    line = re.sub(r"\?\S*|(?<=//)[^/\s@]*@", "", (text or "nothing").splitlines()[0])
    status = re.search(r"status code: ([0-9]+ [A-Za-z -]+)", line)
    if status:
        xml = [re.search(rf"<{tag}>([^<]*)</{tag}>", text) for tag in _XML_TAGS]
        parts = [status[1], *(part[1] for part in xml if part)]
        return ", ".join(html.unescape(part).strip(" .") for part in parts)
    kind = _kind(text)
    if kind is None:
        return line[:_MAX_CHARACTERS].strip(" .")
    server = re.search(r"performing [A-Z]+ (https?://[^/\s]+)", line)
    detail = re.search(r'(?:message|error): "([^"]+)"|(Invalid\w+\(\s*\w+)', text)
    details = re.sub(r"\s+", "", detail[2]) + ")" if detail and detail[2] else ""
    details = detail[1] if detail and detail[1] else details
    return (
        f"the server {server[1] if server else ''} ".replace("  ", " ")
        + _KINDS.get(kind, "failed")
        + (f" ({details})" if details else "")
    )


def _kind(text: str) -> str | None:
    """Returns the kind of a failure of the connection or the server, if it is one."""
    found = re.search(r"HttpError {\s*kind: (\w+)", text)
    if found and "builder error" not in text:
        return found[1]
    return "Status" if re.search(r"status code: (?:5\d\d|429)", text) else None
