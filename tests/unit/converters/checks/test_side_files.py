"""converters.checks.files: damaged and stray side files, and old indexes."""

import dataclasses
import json
import pathlib
import shutil
from typing import Any

import pytest

from converters import verify
from tests.support.data.trees import forget_digests
from tfpipe import errors
from tfpipe.shards import index

SHARD = "train-00001-of-00003"
SIDE_FILES = [
    "catalog.parquet",
    "classes.tsv",
    "dali_idx/train-00001-of-00003",
    "dataset_info.json",
    "features.json",
    "image.class.label.labels.txt",
    "labels.txt",
]


def run(data_dir: pathlib.Path, **options: Any) -> verify.Result:
    config = verify.VerifyOptions(data_dir=str(data_dir), num_workers=1, **options)
    return verify.verify(config)


def faults(data_dir: pathlib.Path, level: str = "crc") -> list[tuple[str, str]]:
    return [(f.shard, f.fault) for f in run(data_dir, level=level).faults]


def flip(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_the_index_lists_every_file_beside_the_shards(data_dir: pathlib.Path) -> None:
    files = (path for path in data_dir.rglob("*") if path.is_file())
    names = {str(path.relative_to(data_dir)) for path in files}
    known = index.load(data_dir)
    shards = {shard.name for shards in known.splits.values() for shard in shards}

    assert known.files is not None
    assert set(known.files) == names - shards - {index.INDEX_NAME}
    for name, file in known.files.items():
        assert file == index.describe((data_dir / name).read_bytes())


def test_side_files_that_are_missing_cut_or_damaged_are_named(
    copy_dir: pathlib.Path,
) -> None:
    sizes = {name: (copy_dir / name).stat().st_size for name in SIDE_FILES}
    for name in SIDE_FILES:
        flip(copy_dir / name)
    flipped = faults(copy_dir), faults(copy_dir, "quick")
    for name in SIDE_FILES:
        (copy_dir / name).write_bytes((copy_dir / name).read_bytes()[:-1])
    cut = faults(copy_dir), faults(copy_dir, "quick")
    for name in SIDE_FILES:
        (copy_dir / name).unlink()
    missing = faults(copy_dir), faults(copy_dir, "quick")

    assert sorted(name for name, _ in flipped[0]) == SIDE_FILES
    assert all("the digest must be" in fault for _, fault in flipped[0])
    # The catalog is read at every level, because the other checks rely on it.
    catalog = [fault for fault in flipped[0] if fault[0] == index.CATALOG_NAME]
    assert flipped[1] == catalog
    for found in cut:
        assert dict(found) == {
            name: f"must have {size} bytes as the index says, got {size - 1}"
            for name, size in sizes.items()
        }
    said = "the index lists it, but there is no such file"
    for found in missing:
        assert dict(found) == dict.fromkeys(SIDE_FILES, said)


def test_files_of_another_data_set_are_named(copy_dir: pathlib.Path) -> None:
    (copy_dir / "rejects.jsonl").write_text("{}")
    (copy_dir / "dali_idx" / "train-00003-of-00004").write_text("")

    assert faults(copy_dir, "quick") == [
        (
            "rejects.jsonl",
            "the index does not list it: it belongs to another data set",
        ),
        ("dali_idx/train-00003-of-00004", "the index lists no shard of this name"),
    ]


def test_shards_of_a_split_that_is_not_in_the_index_are_named(
    copy_dir: pathlib.Path,
) -> None:
    """Readers that look by name would read them."""
    known = index.load(copy_dir)
    (copy_dir / "train-00000-of-00001").write_bytes(b"")
    document = json.loads((copy_dir / index.INDEX_NAME).read_text())
    del document["splits"]["train"]
    (copy_dir / index.INDEX_NAME).write_text(json.dumps(document))

    found = {name for name, _ in faults(copy_dir, "quick")}

    shards = {shard.name for shard in known.splits["train"]}
    assert shards | {"train-00000-of-00001", index.INDEX_NAME} <= found


def test_repair_makes_the_side_files_for_other_readers_anew(
    copy_dir: pathlib.Path, data_dir: pathlib.Path, raw_dir: pathlib.Path
) -> None:
    names = [name for name in SIDE_FILES if name != index.CATALOG_NAME]
    for name in names:
        flip(copy_dir / name)
    shutil.rmtree(copy_dir / "dali_idx")
    flip(copy_dir / SHARD)

    result = run(copy_dir, input_dir=str(raw_dir), repair=True)

    assert result.faults == []
    repaired = set(result.details["repaired"])
    assert {SHARD, *names} <= repaired
    assert len(repaired) == 1 + len(names) + 4  # the other shards' files for DALI
    for name in (*repaired, SHARD):
        assert (copy_dir / name).read_bytes() == (data_dir / name).read_bytes()


@pytest.mark.parametrize("name", [index.CATALOG_NAME, index.INDEX_NAME])
def test_repair_does_not_believe_a_damaged_index_or_catalog(
    copy_dir: pathlib.Path, raw_dir: pathlib.Path, name: str
) -> None:
    path = copy_dir / name
    path.write_bytes(path.read_bytes().replace(b"n01440764", b"n01440765"))
    flip(copy_dir / SHARD)
    before = (copy_dir / SHARD).read_bytes()

    with pytest.raises(
        ValueError, match=f"from a sound {name}, but the one in .* has faults"
    ):
        run(copy_dir, input_dir=str(raw_dir), repair=True)

    assert (copy_dir / SHARD).read_bytes() == before


def test_repair_needs_the_policy_of_the_conversion(
    copy_dir: pathlib.Path, raw_dir: pathlib.Path
) -> None:
    known = index.load(copy_dir)
    made_by = {**known.made_by, "options": {"policy": {"cmyk": 3}}}
    index.write(dataclasses.replace(known, made_by=made_by), copy_dir)
    flip(copy_dir / SHARD)

    with pytest.raises(
        errors.BadIndexError, match="must be the policy of a conversion"
    ):
        run(copy_dir, input_dir=str(raw_dir), repair=True)


def test_an_index_of_an_older_version_is_read_and_can_be_completed(
    copy_dir: pathlib.Path, data_dir: pathlib.Path
) -> None:
    forget_digests(copy_dir)
    old = index.load(copy_dir)

    result = run(copy_dir)
    flip(copy_dir / "labels.txt")
    unseen = run(copy_dir)
    flip(copy_dir / "labels.txt")
    completed = run(copy_dir, write_index=True)

    assert old.files is None
    assert result.faults == unseen.faults == []
    (remark,) = result.details["remarks"]
    assert "older version" in remark
    assert "--write_index adds" in remark
    assert completed.details["written"] == [index.INDEX_NAME]
    for name in (index.INDEX_NAME, "labels.txt"):
        assert (copy_dir / name).read_bytes() == (data_dir / name).read_bytes()
    assert run(copy_dir).details["remarks"] == []


def test_an_index_of_an_older_version_stays_as_it_is_where_there_are_faults(
    copy_dir: pathlib.Path,
) -> None:
    forget_digests(copy_dir)
    flip(copy_dir / SHARD)
    before = (copy_dir / index.INDEX_NAME).read_bytes()

    result = run(copy_dir, write_index=True)

    assert result.num_faults == 1
    assert result.details["remarks"] == [
        "the index was not written, because there are faults"
    ]
    assert (copy_dir / index.INDEX_NAME).read_bytes() == before


def test_no_folder_outside_is_written_or_emptied_through_a_link(
    copy_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A link to any folder may have the name of the work folder."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_text("mine")
    for name in [index.INDEX_NAME, *SIDE_FILES]:
        (copy_dir / name).unlink()
    shutil.rmtree(copy_dir / "dali_idx")
    (copy_dir / ".verifying").symlink_to(mine)

    result = run(copy_dir, write_index=True)

    assert result.faults == []
    assert [path.name for path in mine.iterdir()] == ["file"]
