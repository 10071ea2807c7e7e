"""URLs: the known schemes, and the text that messages show of a URL."""

import pathlib

import pytest

from tfpipe.location import urls

SECRET = "wJalrXUtnFEMI"


@pytest.mark.parametrize(
    "place",
    [
        "s3://bucket",
        "s3://my.bucket-1/photos@2x/a b/",
        "gs://bucket/photos",
        "az://container/photos",
        "abfs://container@account.dfs.core.windows.net/photos",
        "http://127.0.0.1:8080/photos",
        "https://[::1]:443/photos",
        "hdfs://me@name-node:8020/photos",
        "hdfs:///photos",
        "/data/photos",
        "photos",
        "./s3:photos",
    ],
)
def test_a_place_is_a_path_or_a_known_url(place: str) -> None:
    assert urls.require_place("TFRecordSource", "data_dir", place) == place
    assert urls.shown(place) == place
    assert urls.is_url(place) == ("://" in place)


def test_a_path_object_and_capitals_become_the_url() -> None:
    path = pathlib.Path("s3://bucket/photos")

    assert urls.is_url(path)
    assert urls.require_place("", "dir", path) == "s3://bucket/photos"
    assert urls.require_place("", "dir", "S3://Bucket/A") == "s3://Bucket/A"
    assert urls.require_place("", "dir", pathlib.Path("/data")) == "/data"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("ftp://host/photos", r"s3://, gs://, az://.*hdfs://, got ftp://"),
        ("s3a://bucket", r"s3://, gs://"),
        ("file:///data/photos", "Write the path: /data/photos"),
        ("s3://", "such as s3://bucket/folder"),
        ("https:///photos", "such as https://host/folder"),
        ("http://host:port/photos", "such as http://host/folder"),
        ("s3://bucket/photos?versionId=3", "without a password, a query"),
        ("s3://bucket/photos#1", "a fragment"),
        ("", "a path or a URL"),
        (None, "a path or a URL"),
        (3, "a path or a URL"),
        (b"s3://bucket", "a path or a URL"),
    ],
)
def test_other_places_are_refused_by_the_name_of_the_argument(
    place: object, said: str
) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        urls.require_place("TFRecordSource", "data_dir", place)

    assert str(raised.value).startswith("TFRecordSource.data_dir must be ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "place",
    [
        f"s3://AKIA:{SECRET}@bucket/photos",
        f"s3://AKIA:half/{SECRET}@bucket/photos",
        f"s3://{SECRET}@bucket/photos",
        f"gs://{SECRET}@bucket/photos",
        f"https://me:{SECRET}@host/photos",
        f"https://{SECRET}@host/photos",
        f"http://host:80/x:{SECRET}@y",
        f"hdfs://me:{SECRET}@host/photos",
        f"abfs://container:{SECRET}@account/photos",
        f"https://host/photos?sig={SECRET}",
        f"az://container/photos?{SECRET}",
        f"ftp://me:{SECRET}@host/photos",
    ],
)
def test_a_secret_in_a_url_is_refused_and_never_repeated(place: str) -> None:
    with pytest.raises(ValueError, match="must be") as raised:
        urls.require_place("", "data_dir", place)

    assert SECRET not in str(raised.value)
    assert SECRET not in urls.shown(place)


def test_join_keeps_one_slash() -> None:
    assert urls.join("s3://bucket", "a") == "s3://bucket/a"
    assert urls.join("s3://bucket/photos/", "dali_idx/a") == (
        "s3://bucket/photos/dali_idx/a"
    )
    assert urls.join("/data", "a") == "/data/a"
