"""Where the files of a data set are: the choices, and what is refused before work."""

import pathlib
import shutil

import numpy as np
import pytest

import tfpipe
from tests.support.data.foreign import write_shard
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.reading import split_index
from tfpipe.shards import records


@pytest.fixture
def brought(monkeypatch):
    """The index of a URL is taken for brought; holds (Files, folder) of each call."""
    calls = []

    def bring(files, folder):
        calls.append((files, folder))
        return folder / "digest"

    monkeypatch.setattr(split_index.metadata, "bring", bring)
    monkeypatch.setattr(split_index.generations, "is_growing", lambda files: False)
    errors.say_once.cache_clear()
    return calls


def test_a_local_folder_is_read_in_place_by_default(data_dir):
    for choice in ("auto", "direct"):
        found = split_index.find_storage(data_dir, choice)

        assert (found.location.text, found.folder) == (str(data_dir), str(data_dir))
        assert (found.files, found.cache) == (None, None)


def test_a_cache_given_also_reads_a_local_folder(data_dir, tmp_path):
    cache = tfpipe.ShardCache(tmp_path, time_limit=5)

    found = split_index.find_storage(data_dir, cache)

    assert (found.cache, found.folder) == (cache, str(data_dir))
    assert found.files == Files(str(data_dir), 5)


def test_a_url_has_a_cache_by_default_and_says_once_where(
    brought, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("TFPIPE_SHARD_CACHE", str(tmp_path))

    for _ in range(2):
        found = split_index.find_storage("s3://bucket/photos", "auto")

    assert found.cache == tfpipe.ShardCache(str(tmp_path))
    assert found.folder == str(tmp_path / "index" / "digest")
    assert brought[0] == (found.files, tmp_path / "index")
    assert found.files == Files(
        "s3://bucket/photos", found.cache.time_limit, is_pinned=True
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path) in line
    assert "TFPIPE_SHARD_CACHE" in line


def test_a_source_keeps_a_url_as_it_is_written_and_a_path_as_it_is_given(
    brought, data_dir, tmp_path, monkeypatch
):
    monkeypatch.setattr(split_index.metadata, "check_sizes", lambda *_: None)
    shutil.copytree(data_dir, tmp_path / "index/digest")
    cache = tfpipe.ShardCache(tmp_path)
    for given, kept in (("https://host/a//", "https://host/a"), (data_dir, data_dir)):
        assert tfpipe.TFRecordSource(given, shard_cache=cache).data_dir == kept


def test_the_default_cache_is_in_the_home_folder(brought, monkeypatch):
    monkeypatch.delenv("TFPIPE_SHARD_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")

    found = split_index.find_storage("s3://bucket/photos", "auto")

    directory = pathlib.Path("/home/somebody/.cache/tfpipe/shards")
    assert found.cache == tfpipe.ShardCache(str(directory))


def test_without_a_home_folder_data_with_a_cache_are_refused(
    brought, data_dir, monkeypatch
):
    monkeypatch.delenv("TFPIPE_SHARD_CACHE", raising=False)
    monkeypatch.setattr(split_index.os.path, "expanduser", lambda path: path)
    # Without tensorflow-io it refuses each URL.
    monkeypatch.setattr(split_index.direct, "prepare", lambda location: None)

    assert split_index.find_storage(data_dir, "auto").cache is None
    for choice in ("auto", "direct"):
        with pytest.raises(ValueError, match="TFPIPE_SHARD_CACHE must name a folder"):
            split_index.find_storage("https://host/a", choice)
    monkeypatch.setattr(split_index.generations, "is_growing", lambda files: True)
    with pytest.raises(ValueError, match="TFPIPE_SHARD_CACHE must name a folder"):
        split_index.find_storage(data_dir, "auto")
    assert not brought


@pytest.mark.parametrize(
    ("place", "options", "error", "message"),
    [
        ("ftp://host/x", {}, ValueError, r"data_dir must be .* s3://.*got ftp://"),
        ("file:///x", {}, ValueError, r"data_dir must be a path .* the path: /x\."),
        ("s3://a:hush@b/x", {}, ValueError, "not shown here because"),
        ("x", {"shard_cache": "/cache"}, TypeError, "a ShardCache, 'auto' or 'direct'"),
        ("s3://b/x", {"files": "*.tfrecord"}, ValueError, "--write_index"),
        ("x", {"files": "*", "shard_cache": "direct"}, ValueError, "got x with shard_"),
    ],
)
def test_wrong_places_are_refused_before_work(place, options, error, message):
    with pytest.raises(error, match=message) as caught:
        tfpipe.TFRecordSource(place, **options)

    assert "hush" not in str(caught.value)


def test_offsets_of_a_scan_are_those_of_the_wanted_shards(tmp_path):
    """A shuffled window reads shards that lie apart."""
    paths = [tmp_path / f"{shard}.tfrecord" for shard in range(8)]
    for path in paths:
        write_shard(path, [{"name": b"x" * n} for n in range(3)])
    source = tfpipe.TFRecordSource(tmp_path, files="*.tfrecord")
    offsets = [span.byte_offset for path in paths for span in records.scan(path)]

    for apart in ([9, 20, 4], [23, 1], [12, 16]):
        found = source.split_index.spans.byte_offsets(np.array(apart))
        assert found.tolist() == [offsets[record] for record in apart]
