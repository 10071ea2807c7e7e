"""Locations: hostile names in every store, what a person may write, and secrets."""

import pathlib
import pickle

import pytest

from tfpipe.location import location
from tfpipe.location.location import Location

SECRET = "wJalrXUtnFEMI"

HOSTILE_NAMES = (
    "a#b.jpg",
    "a?b.jpg",
    "a?x=1&y#z",
    "100%.jpg",
    "a%20b.jpg",
    "%2F",
    "*.jpg",
    "a[1].csv",
    "{0..9}.tar",
    "a\nb.jpg",
    "\t",
    " a b ",
    "label=zebra",
    "~root",
    "~",
    "...",
    ".hidden",
    "-flag",
    "s3:",
    "a@2x.jpg",
    "a:b@c",
    "a\\b",
    "'\"",
    "é漢字",
    b"a\xff.jpg".decode("utf-8", "surrogateescape"),
)
FOLDERS = (
    "/data",
    "/",
    ".",
    "photos",
    "/a#b/c?d",
    "s3://bucket",
    "s3://bucket/a b",
    "gs://bucket/photos@2x",
    "abfs://container@account/photos",
    "hdfs:///photos",
    "http://127.0.0.1:8080",
    "https://host/a%20b",
)


@pytest.mark.parametrize("text", FOLDERS)
@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_name_is_itself_in_every_store(text: str, name: str) -> None:
    folder = Location(text)

    file = folder / name

    assert file.name == name
    assert file.parent == folder
    assert file / "" == file == folder / f"{name}/"
    assert (file / "below").parent == file
    assert (folder / f"{name}/{name}").parent.name == name
    assert folder.resolve(name) == file
    # The text alone is enough to find the file again.
    assert Location(file.text) == pickle.loads(pickle.dumps(file)) == file
    assert file.is_local == folder.is_local == ("://" not in text)
    if file.is_local:
        assert file.path == pathlib.Path(text) / name
    else:
        assert folder.split()[1].strip("/") == file.split()[1].rpartition("/")[0]
        assert (file.split()[0] / file.split()[1]) == file
    assert file.shown.isprintable()
    assert file.is_in(folder)
    assert file.is_in(file)
    assert not (folder / f"{name}2").is_in(file)


@pytest.mark.parametrize("text", FOLDERS)
@pytest.mark.parametrize("name", ["..", "../a", "a/../../b", "/etc/passwd", "a/.."])
def test_a_name_stays_below_its_folder(text: str, name: str) -> None:
    with pytest.raises(ValueError, match=r"must stay below the folder, got '"):
        Location(text) / name


@pytest.mark.parametrize(
    ("text", "name", "joined", "shown"),
    [
        ("/data/", "a", "/data/a", "/data/a"),
        ("./data//x", "a", "data/x/a", "data/x/a"),
        ("S3://Bucket/A/", "a#b", "s3://Bucket/A/a#b", "s3://Bucket/A/a#b"),
        ("s3://bucket", "a//b", "s3://bucket/a//b", "s3://bucket/a//b"),
        ("https://host/x", "a b#?", "https://host/x/a%20b%23%3F", None),
        ("http://host:80", "a@2x", "http://host:80/a@2x", None),
        ("https://host", b"\xff".decode("utf-8", "surrogateescape"), None, None),
        ("/data", "a\nb", "/data/a\nb", r"/data/a\nb"),
        ("hdfs:///", "a", "hdfs:///a", "hdfs:///a"),
    ],
)
def test_the_texts_of_locations(
    text: str, name: str, joined: str | None, shown: str | None
) -> None:
    file = Location(text) / name

    assert file.text == (joined or "https://host/%FF")
    assert file.shown == (shown or file.text)


@pytest.mark.parametrize(
    ("folder", "reference", "resolved"),
    [
        ("/data", "a/b", "/data/a/b"),
        ("/data", "../a", "/data/../a"),
        ("/data", "/other/a", "/other/a"),
        ("/data", "s3://bucket/a#b", "s3://bucket/a#b"),
        ("s3://bucket", "gs://other/a", "gs://other/a"),
        ("s3://bucket/photos", "a", "s3://bucket/photos/a"),
        ("s3://bucket", "/data/a", "/data/a"),
    ],
)
def test_a_reference_is_relative_unless_it_stands_for_itself(
    folder: str, reference: str, resolved: str
) -> None:
    assert Location(folder).resolve(reference).text == resolved


def test_roots_are_their_own_parents() -> None:
    for text in ("/", "s3://bucket", "http://host", "hdfs://"):
        root = Location(text)
        assert (root.name, root.parent) == ("", root)
    assert Location("a").parent == Location(".")
    assert Location("http://host/a b/c").parent == Location("http://host/a%20b")


def test_a_link_and_another_store_are_told_apart(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real, link = Location(str(tmp_path / "real")), Location(str(tmp_path / "link"))

    assert (link / "a").is_in(real)
    assert not Location(f"s3:/{tmp_path}/real/a").is_in(real)
    assert not Location("s3://bucket/ab").is_in(Location("s3://bucket/a"))


def test_a_url_has_no_path() -> None:
    with pytest.raises(ValueError, match="s3://bucket/a must be a path of this mach"):
        _ = Location("s3://bucket/a").path


@pytest.mark.parametrize(
    "place",
    [
        "s3://bucket",
        "s3://my.bucket-1/photos@2x/a b",
        "gs://bucket/photos",
        "az://container/photos",
        "abfs://container@account.dfs.core.windows.net/photos",
        "http://127.0.0.1:8080/photos",
        "https://[::1]:443/photos",
        "hdfs://me@name-node:8020/photos",
        "hdfs:///photos",
        "/data/photos",
        "photos",
        "s3:photos",
    ],
)
def test_a_person_writes_a_path_or_a_known_url(place: str) -> None:
    assert Location.from_user("data_dir", place).text == place
    assert location.shown(place) == place


def test_a_path_object_and_capitals_become_the_url() -> None:
    def text(value: object) -> str:
        return Location.from_user("dir", value).text

    assert text(pathlib.Path("s3://bucket/photos")) == "s3://bucket/photos"
    assert text("S3://Bucket/A") == "s3://Bucket/A"
    assert text(pathlib.Path("/data")) == "/data"
    assert text(Location("s3://bucket/a#b")) == "s3://bucket/a#b"


def test_a_home_folder_is_only_meant_on_a_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/me")

    def text(value: str, *, expand_user: bool) -> str:
        return Location.from_user("DIR", value, expand_user=expand_user).text

    assert text("~/a", expand_user=True) == "/home/me/a"
    assert text("./~", expand_user=True) == "~"
    assert text("~/a", expand_user=False) == "~/a"
    assert text("s3://bucket/~", expand_user=True) == "s3://bucket/~"
    with pytest.raises(ValueError, match=r"DIR must be a path, got ~nouser, whose "):
        text("~nouser", expand_user=True)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("ftp://host/photos", r"s3://, gs://, az://.*hdfs://, got ftp://"),
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
def test_other_values_are_refused_by_the_name_of_the_argument(
    place: object, said: str
) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        Location.from_user("data_dir", place, owner="TFRecordSource")

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
        Location.from_user("data_dir", place)

    assert SECRET not in str(raised.value)
    assert SECRET not in location.shown(place)


@pytest.mark.parametrize(
    "text",
    ["", None, "ftp://host/a", f"https://me:{SECRET}@host", f"s3://{SECRET}@bucket/a"],
)
def test_a_location_checks_itself(text: str) -> None:
    with pytest.raises(ValueError, match=r"Location.text must be a path or") as raised:
        Location(text)

    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("s3a://bucket/a b", "s3://bucket/a b"),
        ("S3A://bucket", "s3://bucket"),
        ("gcs://bucket/a", "gs://bucket/a"),
        (
            "abfss://files@me.dfs.core.windows.net/a",
            "abfs://files@me.dfs.core.windows.net/a",
        ),
    ],
)
def test_the_schemes_of_hadoop_and_google_are_the_same_stores(
    written: str, text: str
) -> None:
    assert Location.from_user("input", written).text == text
    assert Location(written) == Location(text)
    assert Location(written).shown == text
    assert Location("/a").resolve(written) == Location(text)
