"""The log of a growing data set, its generations, and sources that read them."""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import pytest

import tfpipe
from converters import query, verify
from converters.options.query import QueryOptions
from converters.streams import growing as growing_data
from tests.support.data.trees import convert, make_tree
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shards import generations, index, subset
from tfpipe.shards.generations import ShardFolder
from tfpipe.shards.ranges import RecordRanges


def _add(top: pathlib.Path, raw: pathlib.Path, num_images: int, **options: Any) -> None:
    """Publishes a generation of the first images of a tree."""
    files = Files(str(top))
    log = generations.read_log(files)
    name = f"gen-{len(log) + 1:06d}"
    convert(make_tree(raw / name, num_images=num_images), top / name, **options)
    folder = growing_data.folder_of(name, index.load(top / name))
    assert generations.publish(files, log, [folder])


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Three generations of 8, 10 and 12 records, of 2, 1 and 3 shards."""
    top = tmp_path_factory.mktemp("growing")
    for num_images, num_shards in ((8, 2), (10, 1), (12, 3)):
        _add(top / "set", top / "raw", num_images, num_train_shards=num_shards)
    return top / "set"


@pytest.fixture(autouse=True)
def _near(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFPIPE_SHARD_CACHE", str(tmp_path / "near"))


@pytest.mark.parametrize(
    ("generation", "num_records", "num_shards"), [(1, 8, 2), (2, 18, 3), (3, 30, 6)]
)
def test_a_source_reads_one_generation(
    growing: pathlib.Path, generation: int, num_records: int, num_shards: int
) -> None:
    source = tfpipe.TFRecordSource(growing, "train", generation=generation)
    newest = tfpipe.TFRecordSource(growing, "train")

    assert source.index.num_records("train") == num_records
    assert source.shards == newest.shards[:num_shards]
    offsets = newest.split_index.spans.all_byte_offsets()
    assert source.split_index.spans.all_byte_offsets().tolist() == (
        offsets[:num_records].tolist()
    )
    assert newest.generation == 3


def test_all_records_come_once_an_epoch(growing: pathlib.Path) -> None:
    source = tfpipe.TFRecordSource(growing, "train", generation=2, batch_size=3)

    names = tfpipe.imagenet_train(source, image_size=16).record_names(epoch=0)

    assert len(names) == 18


def test_the_number_of_a_generation_is_checked(growing: pathlib.Path) -> None:
    with pytest.raises(errors.BadIndexError, match="1 to 3, or 'latest', got 4"):
        tfpipe.TFRecordSource(growing, "train", generation=4)
    with pytest.raises(errors.BadIndexError, match="is no growing data set, got 1"):
        tfpipe.TFRecordSource(growing / "gen-000001", "train", generation=1)
    with pytest.raises(ValueError, match="generation must be"):
        tfpipe.TFRecordSource(growing, "train", generation=0)


def test_an_epoch_stays_in_its_generation(growing: pathlib.Path) -> None:
    source = tfpipe.TFRecordSource(
        growing, "train", batch_size=2, generation=1, refresh=True
    )
    state = source.advance(tfpipe.State(generation=1), 3)
    assert (state.step, state.generation) == (3, 1)
    restored = tfpipe.State.from_json(state.to_json())

    newer = tfpipe.TFRecordSource(growing, "train", batch_size=2, refresh=True)
    same, in_epoch = newer.at_state(restored)
    assert same.generation == 1
    assert same.num_steps(in_epoch, 1) == 1

    after, begin = same.at_state(same.advance(in_epoch, 1))
    assert (after.generation, begin.epoch, begin.step) == (3, 1, 0)
    assert after.num_steps(begin, 1) == 15


def test_a_source_without_refresh_stays(growing: pathlib.Path) -> None:
    source = tfpipe.TFRecordSource(growing, "train", generation=1)

    later, _ = source.at_state(source.advance(tfpipe.State(), 8))

    assert later is source
    assert source.newest_generation() == 3


def test_several_ranks_are_told_the_newest_generation(growing: pathlib.Path) -> None:
    source = tfpipe.TFRecordSource(
        growing, "train", num_ranks=2, generation=1, refresh=True
    )
    with pytest.raises(ValueError, match="on one rank"):
        source.at_state(tfpipe.State())
    later, state = source.at_state(tfpipe.State(), newest=2)
    assert (later.generation, state.generation) == (2, 2)


def test_a_subset_stays_valid_in_later_generations(
    growing: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    old = tfpipe.TFRecordSource(growing, "train", generation=2)
    chosen = subset.Subset.of_records(old.index, "train", [3, 9, 17])

    new = tfpipe.TFRecordSource(growing, "train", subset=chosen)

    assert new.record_numbers is not None
    assert new.record_numbers.tolist() == [3, 9, 17]
    newest = subset.Subset.of_records(new.index, "train", [20])
    with pytest.raises(errors.BadSubsetError, match="as it is now"):
        tfpipe.TFRecordSource(growing, "train", generation=1, subset=newest)


def test_a_kill_before_the_index_is_replaced_loses_nothing(
    growing: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "set").symlink_to(growing)
    log = generations.read_log(Files(str(growing)))
    content = (growing / "index.json").read_bytes()
    try:
        for kept in (0, 2):
            (growing / "index.json").write_bytes(generations._text(log[:kept]))
            assert generations.read_log(Files(str(growing))) == log
        (growing / "index.json").unlink()
        assert generations.read_log(Files(str(growing))) == log
        assert generations.is_growing(Files(str(growing)))
        assert tfpipe.TFRecordSource(growing, "train").generation == 3
    finally:
        (growing / "index.json").write_bytes(content)


def test_a_shard_cache_asks_for_the_new_shards_alone(
    growing: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    cache = tfpipe.ShardCache(tmp_path / "cache", max_bytes=10**8)
    sources = [
        tfpipe.TFRecordSource(growing, generation=n, shard_cache=cache)
        for n in (1, 2, 3)
    ]
    num_bytes, num_requests = [], []
    for source in sources:
        records = RecordRanges(np.array([0]), np.array([source.order.num_records]))
        assert source.split_index.open_cache is not None
        source.split_index.open_cache.bring(records)
        figures = source.cache_statistics()
        assert figures is not None
        num_bytes.append(figures.bytes_from_server)
        num_requests.append(figures.num_requests)

    ends = [sum(shard.num_bytes for shard in source.shards) for source in sources]
    assert num_bytes == np.diff(ends, prepend=0).tolist()
    assert num_requests == [2, 1, 3]  # a small shard is one piece


def test_two_writers_publish_one_entry_of_a_number(growing: pathlib.Path) -> None:
    files = Files(str(growing))
    log = generations.read_log(files)

    assert not generations.publish(files, log[:2], log[0])
    assert generations.read_log(files) == log


def test_a_folder_without_records_is_read_in_earlier_generations(
    growing: pathlib.Path,
) -> None:
    log = generations.read_log(Files(str(growing)))
    removed = dataclasses.replace(log[1][0], num_records=0)
    added = ShardFolder("gen-000009", log[1][0].digest, 10)
    log = (*log, (removed, added))

    def names(generation: int) -> list[str]:
        return [each.name[-1:] for each in generations.folders(log, generation)]

    assert (names(3), names(4)) == (["1", "2", "3"], ["1", "3", "9"])
    with pytest.raises(errors.BadIndexError, match="1 to 4, or 'latest', got 5"):
        names(5)


@pytest.mark.parametrize(
    "entry",
    [
        b"[",
        b"[]",
        b'{"generations": [[{"name": "gen-000004"}]]}',
        b'{"generations": [[{"name": "../x", "digest": "", "num_records": 1}]]}',
        b'{"generations": [[{"name": "gen-000004", "digest": "", "num_records": -1}]]}',
    ],
)
def test_a_damaged_entry_is_named(growing: pathlib.Path, entry: bytes) -> None:
    path = growing / "generations" / "000004.json"
    path.write_bytes(entry)
    try:
        with pytest.raises(errors.BadIndexError, match=r"000004\.json must be a log"):
            generations.read_log(Files(str(growing)))
    finally:
        path.unlink()


def test_a_changed_folder_is_refused(
    growing: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    _add(tmp_path / "set", tmp_path / "raw", 8)
    whole = index.load(tmp_path / "set" / "gen-000001")
    shards = {"train": whole.splits["train"][:0]}
    broken = index.Index(**{**vars(whole), "splits": shards})
    index.write(broken, tmp_path / "set" / "gen-000001", fsync=False)

    with pytest.raises(errors.BadIndexError, match=r"gen-000001/index.json must list"):
        tfpipe.TFRecordSource(tmp_path / "set", "train")


def test_commands_take_a_generation(
    growing: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    def ask(**options: Any) -> int:
        values: dict[str, Any] = {"data_dir": str(growing), "fsync": False}
        values |= {"num_workers": 1}
        return int(query.ask(QueryOptions(**values | options))["num_chosen"])

    assert ask() == 30
    assert ask(generation=2) == 18
    assert ask(compact=str(tmp_path / "whole"), generation=2) == 18
    whole = tfpipe.TFRecordSource(tmp_path / "whole", "train")
    old = tfpipe.TFRecordSource(growing, "train", generation=2)
    rows = [
        index.load_catalog(s.index_folder, "train", ["digest"]) for s in (whole, old)
    ]
    assert sorted(rows[0]["digest"]) == sorted(rows[1]["digest"])
    options = verify.VerifyOptions(
        data_dir=str(growing), level="decode", num_workers=1, generation=2
    )
    result = verify.verify(options)
    assert (result.num_records, result.num_shards, result.num_faults) == (18, 3, 0)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("gen-000001/train-00000-of-00001", "byte"),
        ("gen-000001/train-00000-of-00001", "gone"),
        ("gen-000001/catalog.parquet", "byte"),
        ("gen-000002/classes.tsv", "gone"),
        ("generations/000001.json", "byte"),
        ("generations/000002.json", "gone"),
    ],
)
def test_a_fault_names_the_file(tmp_path: pathlib.Path, name: str, damage: str) -> None:
    for _ in range(2):
        _add(tmp_path / "set", tmp_path / "raw", 8)
    path = tmp_path / "set" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if damage == "byte":
        path.write_bytes(content)

    options = verify.VerifyOptions(data_dir=str(tmp_path / "set"), num_workers=1)
    faults = verify.verify(options).faults

    assert {fault.shard for fault in faults} == {name}


def test_a_damaged_catalog_ends_a_source_in_an_error(tmp_path: pathlib.Path) -> None:
    _add(tmp_path / "set", tmp_path / "raw", 8)
    path = tmp_path / "set" / "gen-000001" / "catalog.parquet"
    path.write_bytes(path.read_bytes()[:100])

    with pytest.raises(errors.BadIndexError, match=r"catalog.parquet of gen-000001 to"):
        tfpipe.TFRecordSource(tmp_path / "set", "train")


def test_the_top_is_no_usual_data_set(growing: pathlib.Path) -> None:
    with pytest.raises(errors.BadIndexError, match="growing data set"):
        index.load(growing)
    document = json.loads((growing / "index.json").read_bytes())
    records = [each["num_records"] for (each,) in document["generations"]]
    assert records == [8, 10, 12]


@pytest.mark.parametrize("is_local", [True, False])
def test_only_a_url_that_cannot_be_read_is_an_error_of_growing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    def read(self: Files, name: str) -> bytes:
        raise errors.RemoteError("no route")

    monkeypatch.setattr(Files, "read", read)
    files = Files(str(tmp_path) if is_local else "s3://bucket/set")
    if is_local:
        assert not generations.is_growing(files)
    else:
        with pytest.raises(errors.RemoteError, match="no route"):
            generations.is_growing(files)


def test_folders_of_other_labels_are_no_generation(growing: pathlib.Path) -> None:
    one, two = (index.load(growing / f"gen-00000{number}") for number in (1, 2))
    less = dataclasses.replace(one, classes=one.classes[:1])
    names = ["gen-000001", "gen-000002"]

    both = generations.combined(names, [less, two], 2)

    assert both.classes == two.classes
    assert [len(part.splits["train"]) for part in generations.prefixes(both)] == [3, 2]
    for wrong in (
        {"classes": (("n1", "other"),)},
        {"label_base": one.label_base + 1},
    ):
        with pytest.raises(
            errors.BadIndexError, match=r"^Labels of gen-000001 must be"
        ):
            generations.combined(names, [dataclasses.replace(less, **wrong), two], 2)
    with pytest.raises(errors.BadIndexError, match="Generation 4 has no record left"):
        generations.combined([], [], 4)
    with pytest.raises(errors.BadIndexError, match=r"must be a growing .* usual data"):
        generations.read_log(Files(str(growing / "gen-000001")))


def test_the_digest_of_a_source_is_that_of_its_generation(
    growing: pathlib.Path,
) -> None:
    digests = [
        tfpipe.TFRecordSource(growing, "train", generation=n).digest for n in (1, 2, 3)
    ]
    assert len(np.unique(digests)) == 3


def test_records_are_removed_from_later_generations(tmp_path: pathlib.Path) -> None:
    top = tmp_path / "set"
    for num_images in (8, 10, 2):
        _add(top, tmp_path / "raw", num_images)

    def names(generation: int) -> list[str]:
        source = tfpipe.TFRecordSource(top, "train", generation=generation)
        rows = index.load_catalog(source.index_folder, "train", ["filename"])
        return [str(name) for name in rows["filename"]]

    clause = "filename LIKE '%_1.JPEG' OR filename LIKE '%_0.JPEG'"
    values: dict[str, Any] = {"num_workers": 1, "fsync": False}
    done = query.ask(
        QueryOptions(data_dir=str(top), clause=clause, remove=True, **values)
    )

    assert (done["num_chosen"], done["generation"]) == (6, 4)
    before, after = names(3), names(4)
    left = [n for n in before if not n.endswith(("_0.JPEG", "_1.JPEG"))]
    assert sorted(after) == sorted(left)
    assert len(before) == 20
    result = verify.verify(verify.VerifyOptions(data_dir=str(top), num_workers=1))
    assert (result.num_records, result.num_faults) == (14, 0)
    worker = growing_data.GrowingDataSet(Files(str(top)), "w")
    assert worker.classes == [s for s, _ in index.load(top / "gen-000001").classes]


def test_removing_needs_a_growing_data_set(growing: pathlib.Path) -> None:
    folder = str(growing / "gen-000001")
    with pytest.raises(ValueError, match="--remove needs a growing data set"):
        query.ask(QueryOptions(data_dir=folder, clause="true", remove=True))
    with pytest.raises(ValueError, match="newest generation"):
        QueryOptions(data_dir=folder, clause="true", remove=True, generation=1)
    with pytest.raises(ValueError, match="--compact writes all records"):
        QueryOptions(data_dir=folder, clause="label = 1", compact="out")
