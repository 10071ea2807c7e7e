"""Files in an object store or on a web server, through obstore.

In: a URL with s3, gs, az, abfs, http or https. Out: the content, sizes and names of the
files below the URL. obstore repeats a request after a passing failure, with a backoff
that doubles and has jitter, and goes on where a broken answer ended. Credentials come
from the environment and the files of each store, see `store_settings`.
"""

import contextlib
import datetime
import http.client
import os
import pathlib
import random
import threading
import time
import urllib.parse
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from tfpipe import errors
from tfpipe.location import answers, store_settings
from tfpipe.location.location import Location

if TYPE_CHECKING:
    import obstore.store

# A server without ranges can give files up to so many bytes.
_MOST_WHOLE_BYTES = 64 << 20
UPLOAD_PART_BYTES = 8 << 20
UPLOAD_CONNECTIONS = 4

# Shares of the time limit: a request is sent again until the first share is over, may
# then wait for the second and take the third. Together they are less than 1. A hanging
# request is sent three times.
_RETRY_SHARE, _BACKOFF_SHARE, _REQUEST_SHARE = 0.65, 0.05, 0.28
_FIRST_PAUSE_SHARE = 0.002
# A server that takes no connection for a share of the time is given up. A connected
# server may be silent as long as the request may last: some servers find a file slowly.
_CONNECT_SHARE = 0.1
_FIRST_BACKOFF = datetime.timedelta(seconds=0.1)

# A look at a refusing server; no answer is needed.
_LONGEST_LOOK_SECONDS = 5.0
_NO_ANSWER = (OSError, http.client.HTTPException, ValueError)

Result = TypeVar("Result")


class ObjectStore:
    """The files below a URL.

    Args:
        location: A URL of `location.OBJECT_SCHEMES`.
        time_limit, is_pinned: As for `Files`.

    Attributes:
        tags: The ETag of every listed file; only of a pinned object, and only ETags
            that change with every byte.

    Raises:
        RemoteError: If obstore is not installed or refuses the settings.
    """

    def __init__(
        self, location: Location, time_limit: float, *, is_pinned: bool
    ) -> None:
        self._location, self._time_limit = location, time_limit
        self._is_pinned, self.tags = is_pinned, dict[str, str]()
        self._lock = threading.Lock()
        try:
            import obstore
        except ImportError:
            raise errors.RemoteError(
                f"{location.shown} needs obstore: pip install 'tfpipe[remote]'"
            ) from None
        self._obstore: ModuleType = obstore
        self._settings = store_settings.find(location, os.environ)
        self._store = self._open()

    def _open(self) -> "obstore.store.ObjectStore":
        try:
            return _open(self._location, self._settings, self._time_limit)
        except Exception as error:
            login = answers.LOGINS.get(self._location.scheme, "Check the URL.")
            _, came_back, _ = answers.Answer(error).explain()
            raise errors.RemoteError(
                f"{self._location.shown} cannot be used: {came_back}. {login}"
            ) from None

    def _ask(self, request: Callable[[ModuleType, Any], Result]) -> Result:
        """Sends a request, and again where obstore does not.

        obstore gives a request up at once where the answer breaks off within a listing,
        or where the file may be there now. A refused store gets the keys of the
        profile once more, if these have changed.
        """
        client, store = self._obstore, self._store
        end = time.monotonic() + _RETRY_SHARE * self._time_limit
        pause = _FIRST_PAUSE_SHARE * self._time_limit
        while True:
            try:
                return request(client, store)
            except Exception as error:
                answer = answers.Answer(error)
                if answer.may_pass and time.monotonic() + pause < end:
                    time.sleep(pause * random.uniform(0.5, 1.0))
                    pause = min(2 * pause, _BACKOFF_SHARE * self._time_limit)
                elif answer.is_refused and self._has_new_keys(store):
                    store = self._store
                else:
                    raise

    def _has_new_keys(self, store: object) -> bool:
        """Opens the store again if the keys have changed; another thread may have."""
        credentials = self._settings.credentials
        with self._lock:
            if self._store is store and credentials and credentials.have_changed():
                self._store = self._open()
            return self._store is not store

    def read(self, name: str) -> bytes:
        return self._ask(lambda client, store: bytes(client.get(store, name).bytes()))

    def read_range(self, name: str, start: int, stop: int) -> memoryview:
        def read(client: ModuleType, store: Any) -> memoryview:
            # The condition that the file is still the listed file.
            pin = {"if_match": self.tags[name]} if name in self.tags else {}
            try:
                if not pin:  # one call: `bytes` waits for the body in a second call
                    return memoryview(
                        client.get_range(store, name, start=start, end=stop)
                    )
                options = {"range": (start, stop), **pin}
                return memoryview(client.get(store, name, options=options).bytes())
            except Exception as error:
                # Some servers call a range a whole file, as rclone's.
                if not answers.Answer(error).is_whole:
                    raise
                whole = client.get(store, name)
                if int(whole.meta["size"]) > _MOST_WHOLE_BYTES:
                    raise
                return memoryview(whole.bytes())[start:stop]

        return self._ask(read)

    def size(self, name: str) -> int:
        return int(self._head(name)["size"])

    def version(self, name: str) -> str:
        head = self._head(name)
        return f"{head['size']} {head['e_tag'] or head['last_modified']}"

    def _head(self, name: str) -> dict[str, Any]:
        return self._ask(lambda client, store: dict(client.head(store, name)))

    def names(self) -> dict[str, int]:
        entries = self._ask(
            lambda client, store: [e for page in client.list(store) for e in page]
        )
        if self._is_pinned:  # the first listing counts
            tags = {entry["path"]: entry["e_tag"] or "W/" for entry in entries}
            strong = {n: tag for n, tag in tags.items() if not tag.startswith("W/")}
            self.tags = {**strong, **self.tags}
        return {entry["path"]: entry["size"] for entry in entries}

    def write(self, name: str, content: bytes) -> None:
        self._ask(lambda client, store: client.put(store, name, content))

    def create(self, name: str, content: bytes) -> bool:
        from obstore import exceptions

        try:
            self._ask(
                lambda client, store: client.put(store, name, content, mode="create")
            )
        except exceptions.AlreadyExistsError:
            return False
        return True

    def upload(self, name: str, path: pathlib.Path) -> None:
        parts = {"chunk_size": UPLOAD_PART_BYTES, "max_concurrency": UPLOAD_CONNECTIONS}
        self._ask(lambda client, store: client.put(store, name, path, **parts))

    def delete(self, name: str) -> None:
        self._ask(lambda client, store: client.delete(store, name))

    def explain(
        self, error: Exception, *, is_write: bool
    ) -> tuple[type[errors.RemoteError], str, str]:
        """Explains an error of a request.

        Args:
            error: The error.
            is_write: Whether the request writes or removes.

        Returns:
            The kind of the error, what came back, and a remedy or "".
        """
        scheme, limit = self._location.scheme, self._time_limit
        answer = answers.Answer(error, scheme, is_write, limit)
        kind, came_back, remedy = answer.explain()
        if answer.is_refused and (server := _redirected_to(answer.url)):
            remedy = f"The store sends the request to {server}. {answers.ELSEWHERE}"
        return kind, came_back, remedy


def _redirected_to(url: str) -> str:
    """Returns the server that a URL is redirected to; "" without a redirection.

    A redirected request has no login any more, so another server refuses the request.
    """
    parts = urllib.parse.urlsplit(url)
    if not parts.hostname:
        return ""
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    connection = kinds[parts.scheme](
        parts.hostname, parts.port, timeout=_LONGEST_LOOK_SECONDS
    )
    with contextlib.closing(connection), contextlib.suppress(*_NO_ANSWER):
        connection.request("GET", parts.path or "/")
        target = str(connection.getresponse().headers.get("Location", ""))
        return urllib.parse.urlsplit(target).netloc.rpartition("@")[2]
    return ""


def _open(
    location: Location, settings: store_settings.StoreSettings, time_limit: float
) -> "obstore.store.ObjectStore":
    from obstore import store

    def seconds(share: float) -> datetime.timedelta:
        return datetime.timedelta(seconds=share * time_limit)

    retry: dict[str, Any] = {"max_retries": 1_000_000}  # the time is the limit
    retry["retry_timeout"] = seconds(_RETRY_SHARE)
    longest = seconds(_BACKOFF_SHARE)
    first = min(_FIRST_BACKOFF, longest / 2)  # obstore panics if it is not shorter
    retry["backoff"] = {"init_backoff": first, "max_backoff": longest}
    client: dict[str, Any] = {
        "allow_http": settings.allow_http,
        "timeout": seconds(_REQUEST_SHARE),
        "connect_timeout": seconds(_CONNECT_SHARE),
    }
    if settings.certificates:
        client["root_certificate"] = settings.certificates
    options: dict[str, Any] = {"retry_config": retry, "client_options": client}
    options |= settings.config
    if settings.credentials:
        options["credential_provider"] = settings.credentials
    if location.scheme == "s3":  # also with what from_url takes for another store
        bucket, _, folder = location.text.removeprefix("s3://").partition("/")
        return store.S3Store(bucket, prefix=folder, **options)
    return store.from_url(location.text, **options)
