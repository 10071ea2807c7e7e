"""converters.checks.files: a folder and a URL look the same to the checks.

A local folder stands for the URL; the system tests use a real S3 server.
"""

import pathlib
from typing import Any

import pytest

from converters.checks import dataset, files
from converters.checks.files import DataSetFiles
from converters.checks.shard import Request, Result
from tfpipe.location.files import Files
from tfpipe.shards import index


def _request(data_dir: pathlib.Path, **options: Any) -> Request:
    return Request(
        data_dir=data_dir,
        **{"level": "crc", "num_workers": 1} | options,
    )


def _check(data_dir: pathlib.Path, **options: Any) -> Result:
    request = _request(data_dir, **options)
    return dataset.check_data_set(request, index.load(data_dir))


def _both(data_dir: pathlib.Path) -> tuple[DataSetFiles, DataSetFiles]:
    remote = Files(str(data_dir))
    sizes = files.remote_sizes(remote, [])
    at_url = DataSetFiles(data_dir=pathlib.Path("nowhere"), files=remote, sizes=sizes)
    return DataSetFiles(data_dir=data_dir), at_url


def test_names_sizes_and_digests_are_the_same(data_dir: pathlib.Path) -> None:
    local, at_url = _both(data_dir)

    assert local.names() == at_url.names()
    for folder in ("dali_idx", "missing"):
        assert local.names(folder) == at_url.names(folder)
    for path in ("labels.txt", "dali_idx/train-00000-of-00003", "dali_idx", "missing"):
        assert local.size(path) == at_url.size(path)
    assert local.describe("labels.txt") == at_url.describe("labels.txt")
    assert list(local.each(str.upper, ["a", "b"])) == ["A", "B"]
    assert list(at_url.each(str.upper, ["a", "b"])) == ["A", "B"]


def test_faults_at_a_url_are_those_of_a_folder(copy_dir: pathlib.Path) -> None:
    shard = copy_dir / "train-00001-of-00003"
    content = bytearray(shard.read_bytes())
    content[5] ^= 1  # a damaged header: the checks go on at the next record
    content[-1] ^= 1
    shard.write_bytes(content)
    (copy_dir / "train-00000-of-00003").unlink()
    (copy_dir / "labels.txt").write_text("x")
    (copy_dir / "training").write_text("")

    local = _check(copy_dir)
    at_url = _check(copy_dir, files=Files(str(copy_dir)))

    assert local.num_faults == 5
    assert at_url == local


def test_a_web_server_is_asked_for_each_file(
    copy_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "can_list", lambda files: False)
    monkeypatch.setattr(dataset, "can_list", lambda files: False)
    monkeypatch.setattr(Files, "names", None)
    (copy_dir / "labels.txt").unlink()
    (copy_dir / "training").write_text("a stray")

    found = _check(copy_dir, files=Files(str(copy_dir)), level="quick")

    assert [fault.shard for fault in found.faults] == ["labels.txt"]
    (remark,) = found.details["remarks"]
    assert "does not list its files" in remark


@pytest.mark.parametrize("url", ["http://host/x", "https://host/x"])
def test_only_web_servers_cannot_list(url: str) -> None:
    assert not files.can_list(Files(url))
    assert files.can_list(Files("/tmp"))
