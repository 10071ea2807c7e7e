"""How a store is opened: its bucket, its folder and the time limit of a request."""

import os
import pathlib
import types
from typing import Any, ClassVar

import pytest

from tfpipe.location import object_store, store_settings
from tfpipe.location.location import Location


def opened(location: Location, time_limit: float) -> Any:
    settings = store_settings.find(location, os.environ)
    return object_store._open(location, settings, time_limit)


def test_requests_take_no_longer_than_the_time_limit() -> None:
    store = opened(Location("https://127.0.0.1:9/x"), 10.0)

    retry, client = store.retry_config, store.client_options
    assert retry["retry_timeout"].total_seconds() == 6.5
    assert retry["backoff"]["max_backoff"].total_seconds() == 0.5
    assert (client["timeout"], client["connect_timeout"]) == ("2s 800ms", "1s")
    assert client["allow_http"] == "false"


def test_s3_has_the_bucket_and_the_folder_of_the_url(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(
        "[profile team]\nendpoint_url = http://127.0.0.1:9000\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "team")

    store = opened(Location("s3://bucket/photos/2024"), 10.0)

    assert (store.config["bucket"], store.prefix) == ("bucket", "photos/2024")
    assert store.config["endpoint"] == "http://127.0.0.1:9000"
    assert store.client_options["allow_http"] == "true"


def test_the_server_of_a_redirection_is_named_without_its_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Connection:
        headers: ClassVar[dict[str, str]] = {}

        def __init__(self, host: str, port: int | None, timeout: float) -> None:
            assert (host, port) == ("here", 80)

        def request(self, method: str, path: str) -> None:
            assert (method, path) == ("GET", "/x")

        def getresponse(self) -> "Connection":
            return self

        def close(self) -> None:
            pass

    monkeypatch.setattr(object_store.http.client, "HTTPConnection", Connection)
    for target, server in (("https://me:my@other:90/x", "other:90"), ("/y", "")):
        Connection.headers = {"Location": target}
        assert object_store._redirected_to("http://here:80/x?a=b") == server
    assert object_store._redirected_to("memory:///x") == ""


def test_a_request_that_failed_is_sent_again_after_longer_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = object_store.ObjectStore(
        Location("https://127.0.0.1:9/x"), 10, is_pinned=False
    )
    pauses: list[float] = []

    def fail(client: object, opened: object) -> None:
        raise ConnectionError("non-2xx status code: 503 Service Unavailable: x")

    clock = types.SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(object_store, "time", clock)
    longest = types.SimpleNamespace(uniform=lambda low, high: high)
    monkeypatch.setattr(object_store, "random", longest)
    with pytest.raises(ConnectionError):
        store._ask(fail)

    assert pauses[:7] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    assert 6 <= sum(pauses) < 6.5
