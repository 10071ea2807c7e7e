"""The index and the catalog in a local folder, from a folder in place of a URL."""

import json
import pathlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shard_cache import metadata
from tfpipe.shards import index


def test_both_files_come_and_a_catalog_that_is_there_stays(
    copy_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    files, cache = Files(str(copy_dir)), tmp_path / "cache"
    folder = metadata.bring(files, cache)
    catalog = folder / index.CATALOG_NAME
    before = catalog.stat().st_ino

    assert index.load(folder) == index.load(copy_dir)
    assert catalog.read_bytes() == (copy_dir / index.CATALOG_NAME).read_bytes()
    assert sorted(path.name for path in cache.rglob("*") if path.is_file()) == [
        index.CATALOG_NAME,
        index.INDEX_NAME,
    ]
    assert metadata.bring(files, cache) == folder
    assert catalog.stat().st_ino == before

    for name in (index.CATALOG_NAME, index.INDEX_NAME):
        (folder / name).write_bytes(b"damaged")
        metadata.bring(files, cache)

        assert (folder / name).read_bytes() == (copy_dir / name).read_bytes()


def test_another_version_of_the_index_has_a_folder_of_its_own(
    copy_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    first = metadata.bring(Files(str(copy_dir)), tmp_path / "cache")
    document = json.loads((copy_dir / index.INDEX_NAME).read_text())
    (copy_dir / index.INDEX_NAME).write_text(json.dumps(document | {"name": "other"}))
    second = metadata.bring(Files(str(copy_dir)), tmp_path / "cache")

    assert first != second
    assert index.load(second).name == "other"
    assert index.load(first).name != "other"


def test_many_may_bring_the_same_at_once_and_the_catalog_comes_once(
    data_dir: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, fetched = Files(str(data_dir)), []

    def download(
        files: Files,
        name: str,
        path: pathlib.Path,
        num_bytes: int,
        right: Callable[..., None] = metadata.download,
    ) -> None:
        fetched.append(name)
        right(files, name, path, num_bytes)

    monkeypatch.setattr(metadata, "download", download)
    with ThreadPoolExecutor(8) as pool:
        folders = set(
            pool.map(lambda _: metadata.bring(files, tmp_path / "cache"), range(16))
        )

    assert len(folders) == 1
    assert fetched == [index.CATALOG_NAME]
    assert sorted(path.name for path in folders.pop().iterdir()) == [
        index.CATALOG_NAME,
        index.INDEX_NAME,
    ]


def test_a_folder_without_index_and_a_bad_index_are_named(
    copy_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    files = Files(str(copy_dir))
    for text, said in (
        ("{", f"{copy_dir}/index.json cannot be read"),
        ('{"format_version": 99}', f"{copy_dir}/index.json must have format_version 1"),
        (None, f"No data set in {copy_dir}: index.json is missing"),
    ):
        path = copy_dir / index.INDEX_NAME
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(errors.BadIndexError, match=said):
            metadata.bring(files, tmp_path / "cache")

    assert list((tmp_path / "cache").iterdir()) == []


def test_a_wrong_catalog_is_refused_and_a_missing_one_named(
    copy_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    catalog = copy_dir / index.CATALOG_NAME
    content = bytearray(catalog.read_bytes())
    content[50] ^= 1
    catalog.write_bytes(content)

    with pytest.raises(errors.BadIndexError, match=f"{catalog} must have the digest"):
        metadata.bring(Files(str(copy_dir)), tmp_path / "cache")

    assert capsys.readouterr().err.count(f"{catalog} must have the digest") == 2

    catalog.unlink()
    with pytest.raises(errors.BadIndexError, match=f"{catalog} failed"):
        metadata.bring(Files(str(copy_dir)), tmp_path / "cache")

    assert not list((tmp_path / "cache").rglob("*.parquet*"))


def test_sizes_of_shards_are_checked(copy_dir: pathlib.Path) -> None:
    files = Files(str(copy_dir))
    shards = index.load(copy_dir).splits["train"]
    metadata.check_sizes(files, shards)
    path = copy_dir / shards[1].name
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(errors.BadIndexError, match=f"{path} must have .* got"):
        metadata.check_sizes(files, shards)

    path.unlink()
    with pytest.raises(errors.BadIndexError, match=f"{path} must .* no such file"):
        metadata.check_sizes(files, shards)


def _forget_the_files(folder: pathlib.Path) -> None:
    """Makes index.json one of an earlier version, without the digest of the catalog."""
    document = json.loads((folder / index.INDEX_NAME).read_text())
    del document["files"]
    (folder / index.INDEX_NAME).write_text(json.dumps(document))


def test_an_older_data_set_may_have_a_catalog_or_none(
    copy_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    _forget_the_files(copy_dir)
    files = Files(str(copy_dir))
    catalog = (copy_dir / index.CATALOG_NAME).read_bytes()

    folder = metadata.bring(files, tmp_path / "cache")
    assert (folder / index.CATALOG_NAME).read_bytes() == catalog

    (copy_dir / index.CATALOG_NAME).unlink()
    folder = metadata.bring(files, tmp_path / "other")
    assert not (folder / index.CATALOG_NAME).exists()


def test_a_side_file_comes_once_and_again_when_it_is_damaged(
    copy_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, known = Files(str(copy_dir)), index.load(copy_dir)
    name, folder = index.CATALOG_NAME, tmp_path / "a/b"
    content = (copy_dir / name).read_bytes()

    path = metadata.bring_side_file(files, known, name, folder)
    assert (path, path.read_bytes()) == (folder / name, content)
    before = path.stat().st_ino
    assert metadata.bring_side_file(files, known, name, folder) == path
    assert path.stat().st_ino == before
    assert capsys.readouterr().err == ""

    path.write_bytes(b"cut")
    monkeypatch.setattr(metadata, "_LARGE_BYTES", len(content))
    metadata.bring_side_file(files, known, name, folder)

    assert path.read_bytes() == content
    said = capsys.readouterr().err
    assert f"{path} is damaged and is fetched again from" in said
    assert f"MB, is fetched once and kept in {folder}." in said
    with pytest.raises(errors.BadIndexError, match=r"must list .*other"):
        metadata.bring_side_file(files, known, "other", folder)


def test_a_side_file_that_is_missing_is_a_fault_of_the_data_set(
    copy_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    files, known = Files(str(copy_dir)), index.load(copy_dir)
    (copy_dir / index.CATALOG_NAME).unlink()

    with pytest.raises(errors.BadIndexError, match="catalog"):
        metadata.bring_side_file(files, known, index.CATALOG_NAME, tmp_path)


def test_the_store_is_asked_whether_a_data_set_was_replaced_unless_it_grows(
    copy_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked, read = copy_dir / index.INDEX_NAME, list[str](), Files.read
    files, digest = Files(str(copy_dir)), index.describe_file(path).digest

    def note(files: Files, name: str) -> bytes:
        asked.append(name)
        return read(files, name)

    monkeypatch.setattr(Files, "read", note)
    for change, now in (
        (lambda: None, None),
        (lambda: path.write_text("{}"), index.describe(b"{}").digest),
        (path.unlink, "none"),
    ):
        change()
        asked.clear()
        error = metadata.DataVersion(files, digest).replaced()
        assert asked == [index.INDEX_NAME]
        assert error is None if now is None else f"has {now} now" in str(error)
        assert metadata.DataVersion(files).replaced() is None
        assert asked == [index.INDEX_NAME]
