"""The index and the catalog of a data set on a real S3 server and a web server."""

import dataclasses
import pathlib

import pytest

from tests.support.faults.bad_proxy import BadProxy, Fault
from tests.support.servers import web_server
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shard_cache import metadata
from tfpipe.shards import index


@pytest.fixture
def files(s3_folder: str, data_dir: pathlib.Path, bad_proxy: BadProxy) -> Files:
    """The data set on the server, without requests in the proxy's list."""
    files = Files(s3_folder, time_limit=20)
    for path in data_dir.rglob("*"):
        if path.is_file():
            files.upload(str(path.relative_to(data_dir)), path)
    bad_proxy.requests.clear()
    return files


def test_the_catalog_comes_once_and_the_sizes_with_one_request(
    files: Files, data_dir: pathlib.Path, tmp_path: pathlib.Path, bad_proxy: BadProxy
) -> None:
    folders = {metadata.bring(files, tmp_path / "cache") for _ in range(2)}
    folder = folders.pop()
    size = (data_dir / index.CATALOG_NAME).stat().st_size

    assert not folders
    for name in (index.INDEX_NAME, index.CATALOG_NAME):
        assert (folder / name).read_bytes() == (data_dir / name).read_bytes()
    assert bad_proxy.num_bytes(f"*/{index.CATALOG_NAME}") == size

    bad_proxy.requests.clear()
    shards = [s for split in index.load(folder).splits.values() for s in split]
    metadata.check_sizes(files, shards)

    assert len(bad_proxy.requests) == 1
    assert bad_proxy.requests[0].name == ""

    files.delete(shards[0].name)
    with pytest.raises(errors.BadIndexError, match=f"{shards[0].name} .*no such file"):
        metadata.check_sizes(files, shards)


def test_altered_bytes_are_named_and_never_used(
    files: Files,
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    bad_proxy: BadProxy,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil_index = Fault(kind="alter", names="*/index.json", after=100, times=1)
    spoil_catalog = Fault(kind="alter", names="*/catalog.parquet", after=99, times=2)
    bad_proxy.faults += [spoil_index, spoil_catalog]
    folder = metadata.bring(files, tmp_path / "cache")

    for name in (index.INDEX_NAME, index.CATALOG_NAME):
        assert (folder / name).read_bytes() == (data_dir / name).read_bytes()
    named = f"{files.location.text}/catalog.parquet must have the digest"
    assert capsys.readouterr().err.count(named) == 2

    bad_proxy.faults[:] = [dataclasses.replace(spoil_catalog, times=None)]
    with pytest.raises(errors.BadIndexError, match=f"{named} .* another one"):
        metadata.bring(files, tmp_path / "other")

    assert not list((tmp_path / "other").rglob("*catalog*"))


def test_a_listing_without_index_is_one_line(
    files: Files, tmp_path: pathlib.Path
) -> None:
    files.delete(index.INDEX_NAME)

    with pytest.raises(errors.BadIndexError) as raised:
        metadata.bring(files, tmp_path / "cache")

    text = str(raised.value)
    assert text.startswith(
        f"No data set in {files.location.text}: index.json is missing"
    )
    assert "\n" not in text


def test_a_data_set_on_a_web_server(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with web_server.serve(data_dir) as address:
        files = Files(address, time_limit=20)
        known = index.load(metadata.bring(files, tmp_path))
        metadata.check_sizes(files, known.splits["train"])
        missing = dataclasses.replace(known.splits["train"][0], name="nothing")

        assert known == index.load(data_dir)
        with pytest.raises(errors.BadIndexError, match=f"{address}/nothing must have"):
            metadata.check_sizes(files, [missing])
