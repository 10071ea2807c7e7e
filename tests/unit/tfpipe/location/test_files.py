"""Files of a local folder and of a file system of fsspec; errors before any request."""

import os
import pathlib
import pickle
import sys
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry

from tfpipe import errors
from tfpipe.location.files import Files


class StandIn(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A folder of this machine under the scheme hdfs."""

    protocol = "hdfs"
    root = pathlib.Path()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, str) and path.startswith("hdfs://"):
            path = str(cls.root / path.removeprefix("hdfs://"))
        return super()._strip_protocol(path)


@pytest.fixture
def hdfs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of a folder behind fsspec."""
    StandIn.root = tmp_path / "hdfs"
    monkeypatch.setitem(_registry, "hdfs", StandIn)
    return "hdfs://host/photos"


@pytest.fixture(params=["local", "hdfs"])
def place(request: pytest.FixtureRequest, tmp_path: pathlib.Path, hdfs: str) -> str:
    return hdfs if request.param == "hdfs" else str(tmp_path / "photos")


def test_files_are_written_listed_read_and_removed(
    place: str, tmp_path: pathlib.Path
) -> None:
    files = Files(place)
    (tmp_path / "source").write_bytes(b"0123456789")
    files.write("index.json", b"{}")
    files.write("index.json", b"{1}")
    files.upload("dali_idx/train", tmp_path / "source")

    assert files.names() == {"dali_idx/train": 10, "index.json": 3}
    assert files.names("dali") == {"dali_idx/train": 10}
    assert files.read("index.json") == b"{1}"
    assert files.read_range("dali_idx/train", 2, 5) == b"234"
    assert files.read_range("dali_idx/train", 5, 5) == b""
    assert files.size("dali_idx/train") == 10
    assert files.exists("dali_idx/train")
    before = files.version("dali_idx/train")
    assert files.version("dali_idx/train") == before
    files.write("dali_idx/train", b"9876543210")
    assert files.version("dali_idx/train") != before

    files.delete("dali_idx/train")

    assert not files.exists("dali_idx/train")
    assert files.names() == {"index.json": 3}


def test_a_missing_and_a_short_file_are_named(place: str) -> None:
    files = Files(place)
    files.write("shard", bytes(10))

    for ask in (files.read, files.size, lambda name: files.read_range(name, 0, 1)):
        with pytest.raises(errors.MissingFileError, match=f"{place}/nothing failed"):
            ask("nothing")
    with pytest.raises(errors.RemoteError, match=f"{place}/shard must give 15.*got 5"):
        files.read_range("shard", 5, 20)
    with pytest.raises(ValueError, match="0 <= start <= stop"):
        files.read_range("shard", 5, 4)


def test_a_failed_upload_leaves_the_old_file(
    place: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(place)
    files.write("shard", b"old")
    (tmp_path / "source").write_bytes(b"new")

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        patch.setattr(pathlib.Path, "replace", fail)
        patch.setattr(StandIn, "mv", fail)
        with pytest.raises(errors.RemoteError, match=r"shard failed: .*No space left"):
            files.upload("shard", tmp_path / "source")
    with pytest.raises(FileNotFoundError):
        files.upload("shard", tmp_path / "no source")

    assert files.names() == {"shard": 3}
    assert files.read("shard") == b"old"


# The old content, the call that fails, and the sorted contents of all files afterwards.
# Where only the old file could not be removed, the new file is whole beside it.
FAILED_WRITES = [
    (None, "put_file", 1, []),
    (None, "mv", 1, []),
    (b"old", "put_file", 1, [b"old"]),
    (b"old", "mv", 1, [b"old"]),
    (b"old", "mv", 2, [b"old"]),
    (b"old", "rm_file", 1, [b"newer", b"old"]),
]


@pytest.mark.parametrize(("old", "method", "failing_call", "after"), FAILED_WRITES)
def test_a_write_behind_fsspec_that_fails_is_undone(
    old: bytes | None,
    method: str,
    failing_call: int,
    after: list[bytes],
    hdfs: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = Files(hdfs)
    if old is not None:
        files.write("shard", old)
    (tmp_path / "source").write_bytes(b"newer")
    succeed, calls = getattr(StandIn, method), []

    def fail_once(*arguments: object, **options: object) -> None:
        calls.append(arguments)
        if len(calls) == failing_call:
            raise OSError(5, "Input/output error")
        succeed(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(StandIn, method, fail_once)
        with pytest.raises(errors.RemoteError, match=r"shard failed: .*Input/output"):
            files.upload("shard", tmp_path / "source")

    assert sorted(map(files.read, files.names())) == after
    assert files.exists("shard") == bool(after)
    assert not after or files.read("shard") == after[0]


@pytest.mark.parametrize("package", ["obstore", "fsspec"])
def test_a_missing_extra_is_named_before_work(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    place = {"obstore": "s3://bucket/photos", "fsspec": "hdfs://host/photos"}[package]

    with pytest.raises(errors.RemoteError) as raised:
        Files(place)

    assert "pip install 'tfpipe[remote]'" in str(raised.value)
    assert place in str(raised.value)
    assert "\n" not in str(raised.value)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Files\.location must be .*ftp://"):
        Files("ftp://host")
    for limit in (0, -1, 86_401, float("inf"), "60", None, True):
        with pytest.raises(ValueError, match=r"Files\.time_limit must be"):
            Files("/data", time_limit=limit)  # type: ignore[arg-type]


def test_a_path_that_a_store_cannot_hold_is_refused() -> None:
    for place in ("s3://bucket/a//b", "s3://bucket/../b"):
        with pytest.raises(errors.RemoteError, match=f"{place} cannot be used"):
            Files(place)


def test_azure_without_an_account_says_which_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)

    with pytest.raises(errors.RemoteError, match="or AZURE_STORAGE_ACCOUNT_NAME"):
        Files("az://container/photos")


def test_web_servers_neither_list_nor_take_files(tmp_path: pathlib.Path) -> None:
    files = Files("http://127.0.0.1:1/photos")
    (tmp_path / "source").write_bytes(b"")

    for ask in (
        lambda: files.write("a", b""),
        lambda: files.upload("a", tmp_path / "source"),
        lambda: files.delete("a"),
        files.names,
    ):
        with pytest.raises(errors.RemoteError, match="is a web server, which"):
            ask()


def test_a_pickle_is_the_same_files_without_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the/secret")
    files = Files("s3://bucket/photos", time_limit=7)
    data = pickle.dumps(files)

    assert pickle.loads(data) == files
    assert (
        repr(files)
        == "Files(location=Location(text='s3://bucket/photos'), time_limit=7)"
    )
    assert b"the/secret" not in data
