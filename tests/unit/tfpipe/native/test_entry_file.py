"""tfpipe.native.entry_file: tables of records in a file, and joined files."""

import dataclasses
import pathlib

import pytest
import tensorflow as tf
from hypothesis import given, strategies as st

import tfpipe
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.faults.damage import flip
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.native import entry_file
from tfpipe.ops import identity
from tfpipe.reading import split_index
from tfpipe.shard_cache import metadata
from tfpipe.shards import index

TABLES = [b"one", b"", b"three" * 9]
CONTENT = entry_file.encode(TABLES)


def read(path, records):
    op = tfpipe.EntryPoints(path=str(path))
    return op({"record_id": tf.constant(records, tf.int64)})["entry_points"]


@given(st.lists(st.binary(max_size=9), max_size=5))
def test_tables_come_back(tables):
    assert entry_file.decode(entry_file.encode(tables)) == tables


def test_files_of_shards_are_joined(tmp_path):
    parts = [TABLES, [], TABLES[::-1], [b"last"]]
    for number, tables in enumerate(parts):
        (tmp_path / str(number)).write_bytes(entry_file.encode(tables))
    paths = [tmp_path / str(number) for number in range(len(parts))]
    entry_file.join(paths, tmp_path / "whole", fsync=True)

    expected = entry_file.encode([table for tables in parts for table in tables])
    assert (tmp_path / "whole").read_bytes() == expected


@pytest.mark.parametrize(
    "content",
    [
        b"",
        CONTENT[:12],
        b"x" + CONTENT[1:],
        CONTENT[:-1],
        CONTENT + b"x",
        CONTENT[:8] + b"\xff" * 8 + CONTENT[16:],  # records
        CONTENT[:16] + b"\1" + CONTENT[17:],  # the first place
        CONTENT[:24] + b"\xff" * 8 + CONTENT[32:],  # the second place
    ],
)
def test_a_damaged_file_is_refused(content, tmp_path):
    with pytest.raises(ValueError, match="must"):
        entry_file.decode(content)
    part = tmp_path / "part"
    part.write_bytes(content)
    with pytest.raises(ValueError, match=r"part: .*must"):
        entry_file.join([part], tmp_path / "whole", fsync=False)


@needs_native
def test_the_op_reads_tables_by_the_numbers_of_records(tmp_path):
    path = tmp_path / "entry_points-train"
    path.write_bytes(CONTENT)

    assert read(path, 2).numpy() == TABLES[2]
    found = read(path, [[2, 0], [1, 2]]).numpy().tolist()
    assert found == [[TABLES[2], TABLES[0]], [TABLES[1], TABLES[2]]]
    ends = [-1, 3, 4, 1 << 62, -(1 << 63)]
    assert read(path, ends).numpy().tolist() == [b""] * len(ends)


@needs_native
def test_the_op_gives_empty_tables_where_the_file_is_damaged(tmp_path):
    path = tmp_path / "entry_points-train"
    backwards = CONTENT[:32] + bytes(8) + CONTENT[40:]
    huge = CONTENT[:24] + b"\xff" * 8 + CONTENT[32:]
    for name, content in {
        "cut": CONTENT[:-1],
        "backwards": backwards,
        "huge": huge,
        "head": CONTENT[:16],
    }.items():
        (tmp_path / name).write_bytes(content)
    path.write_bytes(CONTENT)
    assert read(tmp_path / "cut", [0, 2]).numpy().tolist() == [TABLES[0], b""]
    assert read(tmp_path / "backwards", [1, 2]).numpy()[0] == b""
    assert read(tmp_path / "huge", [0, 1]).numpy().tolist() == [b"", b""]
    assert read(tmp_path / "head", [0, 1]).numpy().tolist() == [b"", b""]
    for wrong in (tmp_path / "none", pathlib.Path(__file__), tmp_path):
        with pytest.raises(tf.errors.NotFoundError, match="--write_entry_points"):
            read(wrong, 0)


def known_files(content):
    """An index that lists the file of the split `train`."""
    return index.Index(
        name="data",
        label_base=0,
        classes=(),
        splits={"train": ()},
        made_by={},
        files={"entry_points-train": index.describe(content)},
    )


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_file_is_found_if_it_is_the_one_in_the_index(tmp_path, capsys, is_elsewhere):
    here, near = tmp_path / "data", tmp_path / "cache" / "index"
    here.mkdir()
    known, path = known_files(CONTENT), here / "entry_points-train"
    index.write(known, here)
    cache = tfpipe.ShardCache(tmp_path / "cache") if is_elsewhere else "auto"

    def find(known, split="train"):
        errors.say_once.cache_clear()
        return entry_file.find(known, split_index.find_storage(here, cache), split)

    assert find(known) is None
    said = capsys.readouterr().err
    assert "without entry points" in said
    assert f"{entry_file.REMEDY}" in said
    for split, other in (("validation", known), ("train", older(known))):
        assert find(other, split) is None
        assert capsys.readouterr().err == ""

    path.write_bytes(CONTENT)
    found = find(known)
    assert (found == str(path)) != is_elsewhere
    assert pathlib.Path(found).read_bytes() == CONTENT
    assert capsys.readouterr().err == ""
    if is_elsewhere:
        # What is here already is used, also if the place is gone; damage is noticed.
        assert pathlib.Path(found).is_relative_to(near)
        path.unlink()
        assert find(known) == found
        path.write_bytes(CONTENT)
        flip(pathlib.Path(found), 20, mask=1)
        assert find(known) == found
        assert "is damaged and is fetched again" in capsys.readouterr().err
        assert pathlib.Path(found).read_bytes() == CONTENT
        pathlib.Path(found).unlink()
    path.write_bytes(CONTENT[:-1])
    assert find(known) is None
    assert str(path) in capsys.readouterr().err
    # Nothing but the file that says who fetches is left.
    assert not list(near.rglob("*.partial"))


def older(known):
    return dataclasses.replace(known, files=None)


def test_a_large_file_is_announced(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(metadata, "_LARGE_BYTES", len(CONTENT))
    (tmp_path / "entry_points-train").write_bytes(CONTENT)
    known, files = known_files(CONTENT), Files(str(tmp_path))

    for _ in range(2):
        metadata.bring_side_file(files, known, "entry_points-train", tmp_path / "near")

    assert capsys.readouterr().err.count("is fetched once and kept in") == 1


def test_a_data_set_that_is_moved_keeps_its_pipeline():
    here, there = (tfpipe.EntryPoints(path=path) for path in ("/here", "/there"))

    assert here != there  # graphs that are kept for equal ops read their file
    assert identity.content(here) == identity.content(there)
