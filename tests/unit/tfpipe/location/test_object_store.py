"""How a store is opened: its bucket, its folder and the time limit of a request."""

import os
import pathlib
from typing import Any

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
