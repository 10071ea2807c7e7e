"""tfpipe.reading.read_path: which way the data take, and why not the faster ones."""

import dataclasses
import types

import pytest

import tfpipe
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tfpipe import host
from tfpipe.native import op
from tfpipe.reading import read_path
from tfpipe.reading.read_ahead import ReadAhead


def inverted(example):
    return example | {"image": 255 - example["image"]}


def decoded(example):
    return example | {"image": example["encoded"]}


def decoding(image_size, dtype, quality):
    """A recipe whose crop is an op of a user."""
    return tfpipe.recipes.Recipe(
        train=(decoded,), evaluate=(decoded,), normalize=tfpipe.Normalize()
    )


def paths(data_dir, **options):
    made = tfpipe.imagenet_train(data_dir, image_size=8, batch_size=4, **options)
    return {name: str(path) for name, path in made.paths.items()}


@needs_native
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "yes"),
        ({"recipe": tfpipe.recipes.inception, "ops": [inverted]}, "yes"),
        ({"recipe": None}, "yes"),
        ({"whole_batches": False}, "no (whole_batches=False)"),
        ({"crop_op": "stock"}, "yes"),
        ({"recipe": decoding}, "on single examples before any crop)"),
        ({"recipe": None, "ops": [decoded]}, "on single examples before any crop)"),
    ],
)
def test_whole_batches_where_they_pay(data_dir, options, expected):
    assert paths(data_dir, **options)["whole_batches"].endswith(expected)


@needs_native
def test_the_memory_of_all_calls_bounds_whole_batches(data_dir, monkeypatch):
    tuning = tfpipe.Tuning(private_threadpool_size=10)
    in_all = 10 * 4 * 8 * 8 * 3 * 2  # calls x batch x height x width x channels x bytes
    found = {}
    for ram in (4 * in_all, 4 * in_all - 1):
        monkeypatch.setattr(host, "ram_bytes", lambda ram=ram: ram)
        found[ram] = paths(data_dir, dtype="float16", tuning=tuning)["whole_batches"]

    assert [*found.values()] == [
        "yes",
        "no (10 batches would need 0.0 GB, more than a quarter of the memory)",
    ]


@needs_native
def test_each_path_says_why_it_is_not_taken(data_dir, monkeypatch):
    found = paths(data_dir)
    monkeypatch.setattr(op, "load", lambda: (None, "nobody built it"))
    stock = paths(data_dir)

    assert found["crop"] == "native"
    assert found["entry_points"].startswith("no (the data set has none; python -m ")
    assert stock["crop"] == (
        "stock (nobody built it; python -m tfpipe.native builds the op)"
    )
    assert stock["entry_points"] == "no (only the native crop uses them)"
    assert stock["whole_batches"] == "yes"
    assert stock["reading"] == "tensorflow (the crop is not the native one)"


@needs_native
def test_stages_that_were_changed_say_what_they_do(data_dir):
    made = tfpipe.imagenet_eval(data_dir, image_size=8, batch_size=4)
    single = tfpipe.imagenet_eval(
        data_dir, image_size=8, batch_size=4, whole_batches=False
    )
    *stages, last = single.stages
    kept = [*stages[:3], tfpipe.Cache("ram"), *stages[3:], last]

    changed, cached = (
        dataclasses.replace(made, stages=stages) for stages in (single.stages, kept)
    )

    lines = [line.strip() for line in str(made).splitlines() if "path: " in line]
    assert lines[:2] == ["path: whole batches yes", "path: crop native"]
    assert lines[2].startswith("path: entry points no (the data set has none")
    assert lines[3:] == ["path: reading native"]
    assert "batches no (the stages were changed after the preset)" in str(changed)
    assert "whole batches no (Cache comes after the ops)" in str(cached)
    assert "reading tensorflow (Cache comes after the ops)" in str(cached)
    assert tfpipe.Pipeline(made.source, made.stages).paths == {}


PARSE, SELECT = tfpipe.Parse(label_base=1), tfpipe.Select("image", "label")
FOLDER = {"files": None, "cache": None}
URL = {"files": "s3://bucket", "cache": None}
SHARD_CACHE = {"files": "s3://bucket", "cache": "/cache"}
POINTS = tfpipe.EntryPoints(path="entry_points-train")
BOXES = [tfpipe.ParseBoxes(label_base=1), PARSE]
BIG = {"batch_bytes": 80 * 10**6}  # of a quarter of 1 GB, for four threads
SINGLE = "tensorflow (the ops run on one example"
STOCK = "tensorflow (the crop is not the native one)"


@needs_native
@pytest.mark.parametrize(
    ("data", "options", "whole", "crop", "points", "reading"),
    [
        (FOLDER, {}, "yes", "native", "no (the data set has none", "native"),
        (FOLDER, {"points": POINTS}, "yes", "native", "yes", "native"),
        (SHARD_CACHE, {}, "yes", "native", "no", "native"),
        (URL, {}, "yes", "native", "no", "tensorflow (the shards are at a URL"),
        (FOLDER, {"kernel": "stock"}, "yes", "stock", "no (only the native", STOCK),
        (FOLDER, {"kernel": None}, "yes", "none", "no", "tensorflow (no crop comes"),
        (FOLDER, {"has_cache": True}, "yes", "native", "no", "tensorflow (a cache k"),
        (FOLDER, {"whole_batches": False}, "no (whole", "native", "no", SINGLE),
        (FOLDER, {"batch_bytes": 40 * 10**6}, "yes", "native", "no", "native"),
        (FOLDER, BIG, "no (4 batches would need 0.3 GB", "native", "no", SINGLE),
        (FOLDER, BIG | {"whole_batches": True}, "yes", "native", "no", "native"),
        (FOLDER, {"parse": [decoded]}, "no (<function dec", "native", "no", SINGLE),
        (FOLDER, {"parse": BOXES}, "yes", "native", "no", "native"),
        (FOLDER, {"reading": "tensorflow"}, "yes", "native", "no", "tensorflow (read"),
        (FOLDER, {"reading": "native"}, "yes", "native", "no", "native"),
    ],
)
def test_the_path_follows_from_the_data_the_options_and_the_host(
    monkeypatch, data, options, whole, crop, points, reading
):
    usual = {"kernel": "native", "reading": "auto", "parse": [PARSE], "points": None}
    options = usual | options
    entry_points, kernel = options.pop("points"), options.pop("kernel")
    monkeypatch.setattr(tfpipe.EntryPoints, "of", lambda _: entry_points)
    monkeypatch.setattr(host, "ram_bytes", lambda: 10**9)
    crops = [tfpipe.CenterCrop(image_size=8, crop_op=kernel)] if kernel else []
    split = types.SimpleNamespace(storage=types.SimpleNamespace(**data))
    source = types.SimpleNamespace(
        **{"reading": options.pop("reading"), "split_index": split, "batch_size": 4},
        **{"on_error": "raise", "locate": print, "read_again": print},
    )

    path, ops = read_path.decide(
        source, options.pop("parse"), [*crops, SELECT], num_threads=4, **options
    )

    expected = {"whole_batches": whole, "crop": crop, "entry_points": points}
    for name, start in (expected | {"reading": reading}).items():
        value, _, _ = start.partition(" ")
        assert getattr(path, name).value == value
        assert str(getattr(path, name)).startswith(start)
    assert (entry_points in ops) == (points == "yes")
    reader, *_ = path.stages(source, ops, None)
    assert isinstance(reader, ReadAhead if reading == "native" else tfpipe.Interleave)


def test_reading_that_cannot_be_native_says_why(data_dir):
    source = tfpipe.TFRecordSource(data_dir, batch_size=4, reading="native")
    with pytest.raises(ValueError, match=r'here, got "native": a cache keeps the rec'):
        tfpipe.imagenet_train(source, cache=tfpipe.Cache("ram"), whole_batches=True)


def test_whole_batches_must_be_a_switch_or_auto(data_dir):
    with pytest.raises(ValueError, match=r'must be True, False or "auto", got .yes'):
        paths(data_dir, whole_batches="yes")
