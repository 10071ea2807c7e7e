"""Files of a local folder and of a stand-in of HDFS; errors before any request."""

import io
import os
import pathlib
import pickle
import sys
import types
from typing import Any

import pytest

from tfpipe import errors
from tfpipe.location.files import Files


class StandIn:
    """A client of hdfs-native whose files are in a folder of this machine."""

    root = pathlib.Path()

    def __init__(self, url: str | None, config: dict[str, str]) -> None:
        if url is None:
            raise RuntimeError("No fs.defaultFS setting found\n\tat java")

    def _path(self, path: str) -> pathlib.Path:
        return self.root / path.lstrip("/")

    def read(self, path: str) -> Any:
        return StandInFile(self._path(path), "rb")

    def create(self, path: str, options: Any) -> Any:
        self._path(path).parent.mkdir(parents=True, exist_ok=True)
        return StandInFile(self._path(path), "wb")

    def rename(self, old: str, new: str, overwrite: bool) -> None:
        if not overwrite and self._path(new).exists():
            raise FileExistsError(new)
        os.replace(self._path(old), self._path(new))

    def delete(self, path: str, recursive: bool) -> None:
        self._path(path).unlink()

    def get_file_info(self, path: str) -> Any:
        status = self._path(path).stat()
        return types.SimpleNamespace(
            path=path,
            length=status.st_size,
            isdir=self._path(path).is_dir(),
            modification_time=status.st_mtime_ns,
        )

    def list_status(self, path: str, recursive: bool) -> Any:
        if not self._path(path).exists():
            raise FileNotFoundError(path)
        below = self._path(path).rglob("*")
        return (self.get_file_info(f"/{p.relative_to(self.root)}") for p in below)


class StandInFile(io.FileIO):
    """A file of the client."""

    @property
    def size(self) -> int:
        return os.fstat(self.fileno()).st_size

    def read_range(self, offset: int, count: int) -> bytes:
        assert offset + count <= self.size, "the real one panics"
        return os.pread(self.fileno(), count, offset)


@pytest.fixture
def hdfs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of a folder behind hdfs-native."""
    StandIn.root = tmp_path / "hdfs"
    module = types.ModuleType("hdfs_native")
    vars(module).update(Client=StandIn, WriteOptions=lambda **options: options)
    monkeypatch.setitem(sys.modules, "hdfs_native", module)
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


def test_a_file_that_is_there_is_not_created_again(place: str) -> None:
    files = Files(place)

    assert [files.create("claim", content) for content in (b"1", b"2")] == [True, False]
    assert files.names() == {"claim": 1}
    assert files.read("claim") == b"1"


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
        patch.setattr(StandIn, "rename", fail)
        with pytest.raises(errors.RemoteError, match=r"shard failed: .*No space left"):
            files.upload("shard", tmp_path / "source")
    with pytest.raises(FileNotFoundError):
        files.upload("shard", tmp_path / "no source")

    assert files.names() == {"shard": 3}
    assert files.read("shard") == b"old"


@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize("method", ["create", "rename"])
def test_a_write_to_hdfs_that_fails_is_undone(
    old: bytes | None,
    method: str,
    hdfs: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = Files(hdfs)
    if old is not None:
        files.write("shard", old)
    (tmp_path / "source").write_bytes(b"newer")

    def fail(*arguments: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(StandIn, method, fail)
        with pytest.raises(errors.RemoteError, match=r"shard failed: .*Input/output"):
            files.upload("shard", tmp_path / "source")

    assert [files.read(name) for name in files.names()] == ([old] if old else [])


def test_an_error_of_hdfs_has_a_remedy(
    hdfs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for said, kind, remedy in (
        ("Connection refused (os error 111)", errors.RemoteError, "of the name node"),
        ("failed to lookup address", errors.RemoteError, "port of the name node"),
        ("AccessControlException: x", errors.RefusedError, "Log in \\(kinit\\)"),
        ("a block is missing", errors.RemoteError, "Check HDFS and the network"),
    ):

        def fail(client: object, path: str, said: str = said) -> None:
            raise RuntimeError(f"{said}\n\tat java")

        monkeypatch.setattr(StandIn, "get_file_info", fail)
        with pytest.raises(kind, match=remedy) as raised:
            Files(hdfs).size("shard")
        assert "java" not in str(raised.value)


def test_hdfs_without_a_name_node_says_which_variable(hdfs: str) -> None:
    with pytest.raises(errors.RemoteError, match="or set HADOOP_CONF_DIR") as raised:
        Files("hdfs:///photos")

    assert "java" not in str(raised.value)


@pytest.mark.parametrize(
    ("package", "extra", "place"),
    [
        ("obstore", "remote", "s3://bucket/photos"),
        ("hdfs_native", "hdfs", "hdfs://host/photos"),
    ],
)
def test_a_missing_extra_is_named_before_work(
    package: str, extra: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(errors.RemoteError) as raised:
        Files(place)

    assert f"pip install 'tfpipe[{extra}]'" in str(raised.value)
    assert place in str(raised.value)
    assert "\n" not in str(raised.value)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Files\.location must be .*ftp://"):
        Files("ftp://host")
    for limit in (0, -1, 86_401, float("inf"), "60", True):
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
        == "Files(location=Location(text='s3://bucket/photos'), time_limit=7, "
        "is_pinned=False)"
    )
    assert b"the/secret" not in data
