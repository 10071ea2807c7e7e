"""converters.jobs.write_shard: one shard, its catalog fragment and its marker."""

import json
import os
import pathlib

import pytest
import tensorflow as tf
import xxhash

from converters.images.policy import Policy
from converters.inputs import classes
from converters.inputs.image import Image
from converters.jobs import plan, write_shard
from converters.jobs.job import Job
from tests.support.data.conversions import read_ilsvrc
from tests.support.data.trees import make_jpeg
from tfpipe.location.location import Location
from tfpipe.shards import index, records

CLASSES = classes.imagenet_classes()


def _write(
    input_dir: pathlib.Path,
    folder: pathlib.Path,
    planned: plan.ShardPlan,
    **options: object,
) -> write_shard.Written:
    """Writes a shard of a job with this shard alone."""
    job = Job(
        command="test",
        name="imagenet",
        input_dir=Location(str(input_dir)),
        output_dir=folder,
        plans=[planned],
        classes=CLASSES,
        **{"fsync": False, **options},  # type: ignore[arg-type]
    )
    return write_shard.write_shard(job, folder, write_shard.task_of(job, planned))


def _plan(raw_dir: pathlib.Path) -> plan.ShardPlan:
    tree = read_ilsvrc(raw_dir)
    (only,) = plan.make_plan({"train": tree.splits["train"]}, {"train": 1}, seed=0)
    return only


def _image(path: pathlib.Path) -> Image:
    return Image(path.name, 0, path.name, 0, path.stat().st_size)


def test_shard_holds_the_planned_images_byte_for_byte(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    planned = _plan(raw_dir)

    written = _write(raw_dir, tmp_path, planned)

    path = tmp_path / "train-00000-of-00001"
    stored = [
        tf.train.Example.FromString(record.numpy()).features.feature
        for record in tf.data.TFRecordDataset(str(path))
    ]
    assert len(stored) == written.shard.num_records == 24
    for features, image in zip(stored, planned.images, strict=True):
        data = (raw_dir / image.name).read_bytes()
        assert features["image/encoded"].bytes_list.value == [data]
        label = features["image/class/label"].int64_list.value[0]
        synset = features["image/class/synset"].bytes_list.value[0].decode()
        assert CLASSES[label - 1].synset == synset == image.name.split("/")[1]
    assert written.shard.num_bytes == path.stat().st_size
    assert written.shard.digest == xxhash.xxh3_128_hexdigest(path.read_bytes())
    assert (written.decisions, written.changes, written.rejects) == (
        {"kept": 24},
        [],
        [],
    )
    marker = write_shard.marker_path(path).read_text()
    assert write_shard.Written.from_json(marker) == written


def test_fragment_says_where_each_record_is(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    _write(raw_dir, tmp_path, _plan(raw_dir))

    path = tmp_path / "train-00000-of-00001"
    lines = write_shard.fragment_path(path).read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    places = [(row["byte_offset"], row["num_bytes"]) for row in rows]
    assert places == [place[:2] for place in records.scan(path)]
    encoded = (raw_dir / rows[0]["filename"]).read_bytes()
    assert rows[0]["digest"] == xxhash.xxh3_128_hexdigest(encoded)


def test_names_that_json_escapes_are_in_the_fragment(tmp_path: pathlib.Path) -> None:
    names = ['q"u\\o.JPEG', "\u65e5\n.JPEG"]
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(make_jpeg(number))
    found = [_image(tmp_path / name) for name in names]
    planned = plan.ShardPlan("train", 3, "train-00003-of-00004", found)

    _write(tmp_path, tmp_path, planned)

    fragment = write_shard.fragment_path(tmp_path / planned.name).read_bytes()
    rows = [json.loads(line) for line in fragment.splitlines()]
    assert [row["filename"] for row in rows] == names
    assert [tuple(row) for row in rows] == [tuple(index.CATALOG_COLUMNS)] * 2
    assert [row["shard"] for row in rows] == [3, 3]


@pytest.mark.parametrize("most", [1, 700, 5000])
def test_system_call_that_writes_a_part_is_gone_on_from(
    raw_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    """The kernel writes a part if the disk is nearly full, and beyond 2 GB."""
    expected = _write(raw_dir, tmp_path, _plan(raw_dir))

    def write_part(descriptor: int, buffers: list[bytes]) -> int:
        return os.write(descriptor, b"".join(buffers)[:most])

    monkeypatch.setattr(os, "writev", write_part)
    _write(raw_dir, tmp_path, _plan(raw_dir))

    data = (tmp_path / expected.shard.name).read_bytes()
    assert xxhash.xxh3_128_hexdigest(data) == expected.shard.digest


@pytest.mark.parametrize("fsync", [True, False])
def test_marker_comes_after_the_shard_is_on_the_disk(
    raw_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    fsync: bool,
) -> None:
    events: list[str] = []
    replace = os.replace

    def record_fsync(descriptor: int) -> None:
        path = pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        events.append(f"fsync {path.name.split('.')[0] if path.suffix else 'folder'}")

    def record_replace(source: pathlib.Path, target: pathlib.Path) -> None:
        events.append(f"name {target.name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    _write(raw_dir, tmp_path, _plan(raw_dir), fsync=fsync)

    shard = "train-00000-of-00001"
    named = [f"name {shard}.catalog", f"name {shard}", f"name {shard}.done"]
    assert [event for event in events if event.startswith("name")] == named
    assert [event for event in events if event.startswith("fsync")] == (
        [f"fsync {shard}", f"fsync {shard}", "fsync ", "fsync folder"] if fsync else []
    )
    if fsync:
        assert events.index(f"fsync {shard}") < events.index(named[1])


def test_what_is_changed_or_left_out_is_said(tmp_path: pathlib.Path) -> None:
    (tmp_path / "gray.JPEG").write_bytes(make_jpeg(1, mode="L"))
    (tmp_path / "ink.JPEG").write_bytes(make_jpeg(2, mode="CMYK"))
    (tmp_path / "text.JPEG").write_bytes(b"no picture")
    names = ("gray", "ink", "text")
    found = [_image(tmp_path / f"{name}.JPEG") for name in names]
    planned = plan.ShardPlan("train", 0, "train-00000-of-00001", found)

    written = _write(tmp_path, tmp_path, planned)

    assert written.shard.num_records == 2
    assert written.decisions == {
        "kept_grayscale": 1,
        "converted_cmyk": 1,
        "skipped_not_an_image": 1,
    }
    assert written.changes == [{"name": "ink.JPEG", "action": "converted_cmyk"}]
    (reject,) = written.rejects
    assert (reject["name"], reject["reason"]) == ("text.JPEG", "not_an_image")


def test_boxes_are_in_the_record(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.JPEG").write_bytes(make_jpeg(1))
    planned = plan.ShardPlan(
        "train", 0, "train-00000-of-00001", [_image(tmp_path / "a.JPEG")]
    )
    boxes = {"a.JPEG": [(0.0, 0.25, 0.5, 1.0)]}

    _write(tmp_path, tmp_path, planned, boxes_of=boxes.__getitem__)

    (record,) = tf.data.TFRecordDataset(str(tmp_path / planned.name))
    features = tf.train.Example.FromString(record.numpy()).features.feature
    assert features["image/object/bbox/ymin"].float_list.value == [0.25]
    assert features["image/object/class/label"].int64_list.value == [1]


def test_bad_image_is_named_where_the_policy_is_to_fail(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "bad.JPEG").write_bytes(b"no picture")
    planned = plan.ShardPlan(
        "train", 0, "train-00000-of-00001", [_image(tmp_path / "bad.JPEG")]
    )
    policy = Policy(not_an_image="fail")

    with pytest.raises(ValueError, match=r"bad\.JPEG.*Restore it, remove it"):
        _write(tmp_path, tmp_path, planned, policy=policy)

    assert [path.name for path in tmp_path.iterdir()] == ["bad.JPEG"]
