"""tfpipe.reading.paths: which paths the data take, and why not the others."""

import dataclasses

import pytest

import tfpipe
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tfpipe import host
from tfpipe.native import op


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
        ({"crop_op": "stock"}, "no (they gain little without the native crop)"),
        ({"crop_op": "stock", "whole_batches": True}, "yes"),
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
    assert stock["whole_batches"].startswith("no (they gain little")


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

    assert "paths: whole batches yes, crop native, entry points no (" in str(made)
    assert "batches no (the stages were changed after the preset)" in str(changed)
    assert "no (a Cache keeps the results of ops on examples)" in str(cached)
    assert tfpipe.Pipeline(made.source, made.stages).paths == {}


def test_whole_batches_must_be_a_switch_or_auto(data_dir):
    with pytest.raises(ValueError, match=r'must be True, False or "auto", got .yes'):
        paths(data_dir, whole_batches="yes")
