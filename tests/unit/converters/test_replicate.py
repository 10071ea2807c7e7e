"""Data sets copied in this process: what the copies hold, and what is refused."""

import dataclasses
import json
import os
import pathlib
from typing import Any

import pytest

from converters import replicate, verify
from converters.options.replicate import ReplicateOptions
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.trees import convert, digests, make_tree
from tfpipe import errors
from tfpipe.shards import index, records

pytestmark = needs_native


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("source")
    raw = make_tree(folder / "raw", num_images=6, num_validation_images=2)
    convert(raw, folder / "set", num_train_shards=2, num_validation_shards=1)
    return folder / "set"


def _copy(source: pathlib.Path, output: pathlib.Path, **options: Any) -> dict[str, Any]:
    values = {"copies": 2, "num_workers": 1, "fsync": False} | options
    return replicate.make_copies(
        ReplicateOptions(data_dir=str(source), output_dir=str(output), **values)
    )


def _check(folder: pathlib.Path) -> Any:
    config = verify.VerifyOptions(data_dir=str(folder), level="decode", num_workers=1)
    return verify.verify(config)


def _fields(folder: pathlib.Path, *names: str) -> list[tuple[Any, ...]]:
    query = (
        f"SELECT {', '.join(names)} FROM read_parquet(?) ORDER BY split, shard, record"
    )
    return index.query_catalog(folder, query, [])


def test_distinct_copies(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = _copy(source, tmp_path / "out", seed=3)

    known = index.load(tmp_path / "out")
    before = index.load(source)
    assert _check(tmp_path / "out").faults == []
    assert done["decisions"] == {"recoded": 16}
    assert [done[key] for key in ("num_records", "num_shards")] == [16, 6]
    assert {split: len(shards) for split, shards in known.splits.items()} == {
        "train": 4,
        "validation": 2,
    }
    assert (known.classes, known.name) == (before.classes, before.name)
    assert known.made_by["options"]["copies"] == 2
    assert known.made_by["options"]["kind"] == "distinct"
    text = (source / index.INDEX_NAME).read_text()
    assert known.made_by["source"]["index_digest"] == index.digest(text)
    # Both copies have the rows of the source, and no image has the same bytes.
    kept = ("label", "synset", "height", "width", "filename")
    assert sorted(_fields(tmp_path / "out", *kept)) == sorted(
        2 * _fields(source, *kept)
    )
    made = {digest for (digest,) in _fields(tmp_path / "out", "digest")}
    assert len(made) == 16
    assert not made & {digest for (digest,) in _fields(source, "digest")}

    _copy(source, tmp_path / "again", seed=3)
    _copy(source, tmp_path / "other", seed=4, splits=["validation"])
    assert digests(tmp_path / "again") == digests(tmp_path / "out")
    other = index.load(tmp_path / "other")
    assert set(other.splits) == {"validation"}
    shards = {shard.digest for shard in known.splits["validation"]}
    assert not shards & {shard.digest for shard in other.splits["validation"]}


@pytest.mark.parametrize("by", ["auto", "link", "copy"])
def test_identical_copies(
    source: pathlib.Path, tmp_path: pathlib.Path, by: Any
) -> None:
    done = _copy(source, tmp_path / "out", identical=True, identical_by=by, copies=3)

    known, before = index.load(tmp_path / "out"), index.load(source)
    assert _check(tmp_path / "out").faults == []
    assert sum(done["decisions"].values()) == 24
    for split, shards in known.splits.items():
        wanted = [shard.digest for shard in before.splits[split]]
        assert [shard.digest for shard in shards] == 3 * wanted
    if by != "auto":
        (decision,) = done["decisions"]
        assert decision == f"identical_{by}"
        links = (tmp_path / "out" / known.splits["train"][0].name).stat().st_nlink
        assert (links > 1) == (by == "link")
    assert not list(tmp_path.rglob("*.part"))


def test_a_dry_run_tells_and_writes_nothing(
    source: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = sum(path.stat().st_size for path in source.glob("train-*"))
    done = _copy(
        source,
        tmp_path / "out",
        dry_run=True,
        copies=None,
        for_ram=size,
        num_hosts=2,
    )

    assert list(tmp_path.iterdir()) == []
    assert (done["copies"], done["num_shards"], done["num_records"]) == (10, 30, 80)
    assert done["estimate"]["fits"]
    text = capsys.readouterr().err
    assert "rule of MLPerf Storage: 5 x 2 hosts" in text
    assert "room: " in text
    huge = _copy(source, tmp_path / "out", dry_run=True, copies=10**10)
    assert not huge["estimate"]["fits"]
    assert json.loads(json.dumps(huge)) == huge


def _damage(source: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, str]:
    """Returns a copy of a data set with a changed byte in one record, and its shard."""
    folder.mkdir()
    for path in source.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    name = index.load(folder).splits["train"][1].name
    place = list(records.scan(folder / name))[1]
    content = bytearray((folder / name).read_bytes())
    content[place.byte_offset + 300] ^= 1
    (folder / name).write_bytes(content)
    return folder, name


def test_a_damaged_record_is_named_and_can_be_left_out(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder, name = _damage(source, tmp_path / "damaged")

    for options in (
        {},
        {"identical": True},
        {"identical": True, "identical_by": "copy"},
    ):
        with pytest.raises(
            errors.BadRecordError, match=rf"{name}: record 1 at byte .*CRC"
        ):
            _copy(folder, tmp_path / f"out{len(options) or ''}", **options)

    # The job that was ended goes on.
    complete = list((tmp_path / "out").rglob("*.done"))
    assert complete
    done = _copy(folder, tmp_path / "out", damaged="skip")
    assert done["decisions"] == {"recoded": 14, "skipped_damaged_record": 2}
    lines = (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()
    assert [json.loads(line)["reason"] for line in lines] == ["damaged_record"] * 2
    assert _check(tmp_path / "out").faults == []


def test_a_source_that_is_not_as_its_index_says_is_refused(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder, name = _damage(source, tmp_path / "changed")
    # A shard of other records of the same size, whose every CRC is right.
    shards = index.load(source).splits["train"]
    whole = [record.data for record in records.read(source / name)]
    content = b"".join(b"".join(records.frame([data])) for data in whole[::-1])
    assert len(content) == shards[1].num_bytes
    (folder / name).write_bytes(content)
    for options in ({}, {"identical": True, "identical_by": "copy"}):
        with pytest.raises(OSError, match=f"{name} must be the one in.*another record"):
            _copy(folder, tmp_path / f"out{len(options)}", **options)

    (folder / name).write_bytes(content[:-1])
    with pytest.raises(errors.BadIndexError, match=f"{name} must have"):
        _copy(folder, tmp_path / "out")


def test_folders_that_must_not_be_used(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(source)
    for data_dir, output, message in [
        (source, source / "copies", "beside each other"),
        (link, source / "copies", "beside each other"),
        (source, source, "beside each other"),
        (source, source.parent, "beside each other"),
        (tmp_path / "none", tmp_path / "out", "must be a folder with a data set"),
        (source.parent / "raw", tmp_path / "out", "converters.imagenet .*raw NEW"),
    ]:
        with pytest.raises((ValueError, errors.BadIndexError), match=message):
            _copy(data_dir, output)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thing").touch()
    with pytest.raises(ValueError, match="must be empty or hold a data set"):
        _copy(source, tmp_path / "full")
    with pytest.raises(errors.BadIndexError, match="Unknown split 'test'"):
        _copy(source, tmp_path / "out", splits=["test"])
    assert sorted(os.listdir(tmp_path)) == ["full", "link"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"copies": None}, "Exactly one of --copies"),
        ({"identical": True, "mirror": True}, "--mirror changes records"),
        ({"identical": True, "damaged": "skip"}, "--damaged changes records"),
        ({"identical_by": "copy"}, "needs --identical"),
        ({"reencode": True, "enlarge": 3.0}, "Leave out --reencode"),
        ({"enlarge": 3.0, "mirror": True}, "--mirror is for copies without loss"),
        ({"quality": 90}, "--quality is for images"),
        ({"work_dir": "/x"}, "--work_dir is for an --output_dir by URL"),
    ],
)
def test_options_that_do_not_fit_together(options: Any, message: str) -> None:
    values = {"data_dir": "a", "output_dir": "b", "copies": 2}
    with pytest.raises(ValueError, match=message):
        ReplicateOptions(**values | options)


def test_large_images_are_one_copy_unless_more_are_wanted() -> None:
    config = ReplicateOptions(data_dir="a", output_dir="b", enlarge=3.0, quality=100)

    assert config.wanted.copies == 1
    more = dataclasses.replace(config, target_bytes=10**12)
    assert (more.wanted.copies, more.wanted.target_bytes) == (None, 10**12)
