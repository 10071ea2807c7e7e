"""The header of an image counts, whatever its record states, however it is read."""

import numpy as np
import pytest

import tfpipe
from tests.support.data.foreign import make_image, write_shard
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.trees import make_jpeg
from tfpipe.ops import stated_sizes

pytestmark = needs_native

HEIGHT, WIDTH = 60, 90
# What a record states, and whether it differs from the header.
STATED = {
    "right": ({"height": HEIGHT, "width": WIDTH}, False),
    "off by one": ({"height": HEIGHT + 1, "width": WIDTH}, True),
    "one less": ({"height": HEIGHT, "width": WIDTH - 1}, True),
    "half": ({"height": HEIGHT // 2, "width": WIDTH // 2}, True),
    "double": ({"height": HEIGHT * 2, "width": WIDTH * 2}, True),
    "swapped": ({"height": WIDTH, "width": HEIGHT}, True),
    "absent": ({}, False),
    "height alone": ({"height": HEIGHT}, False),
    "wrong height alone": ({"height": 1}, True),
    "0": ({"height": 0, "width": 0}, False),
    "negative": ({"height": -HEIGHT, "width": -WIDTH}, True),
    "beyond 32 bits": ({"height": HEIGHT + (1 << 32), "width": WIDTH}, True),
}
DIFFERENT = {n for n, (_, differs) in enumerate(STATED.values()) if differs}
OPTIONS = {"batch_size": 4, "shuffle": "none"}


def write(folder, image=make_jpeg):
    """Writes a record of each row of STATED."""
    write_shard(
        folder / "part-0.tfrecord",
        [
            {
                "image/encoded": image(n, width=WIDTH, height=HEIGHT),
                "image/class/label": n,
                **{f"image/{name}": side for name, side in stated.items()},
            }
            for n, (stated, _) in enumerate(STATED.values())
        ],
    )
    return folder


def pixels(make, source, whole, crop_op, **keys):
    parse = tfpipe.Parse(label_base=0, **keys)
    options = {"image_size": 32, "whole_batches": whole, "crop_op": crop_op}
    pipeline = make(source, parse=parse, **options)
    batches = pipeline.build(num_epochs=1)
    return np.concatenate([batch["image"].numpy() for batch in batches])


WAYS = [
    ("native", True, "native"),
    ("tensorflow", True, "native"),
    ("tensorflow", False, "native"),
    ("tensorflow", True, "stock"),
    ("tensorflow", False, "stock"),
]


@pytest.mark.parametrize(
    ("reading", "whole", "crop_op", "purpose", "image"),
    [
        *((*way, "train", make_jpeg) for way in WAYS),
        *((*WAYS[n], "eval", make_jpeg) for n in (0, -1)),
        *((*WAYS[n], "train", make_image) for n in (0, -1)),
    ],
)
def test_the_header_counts(tmp_path, capfd, reading, whole, crop_op, purpose, image):
    remainder = {"train": "drop", "eval": "pad"}[purpose]
    source = tfpipe.TFRecordSource(
        write(tmp_path, image),
        files="*",
        reading=reading,
        remainder=remainder,
        **OPTIONS,
    )
    make = {"train": tfpipe.imagenet_train, "eval": tfpipe.imagenet_eval}[purpose]

    made = pixels(make, source, whole, crop_op)
    said = capfd.readouterr().err
    expected = pixels(make, source, whole, crop_op, height_key=None)

    np.testing.assert_array_equal(made, expected)
    assert stated_sizes.different(f"{tmp_path}, *") == DIFFERENT
    assert said.count("states") == 1
    assert f"{tmp_path}/part-0.tfrecord: record " in said
    assert f"the header of its image {HEIGHT} x {WIDTH}" in said
    assert "states" not in capfd.readouterr().err


def test_records_of_converters_are_taken_as_they_are(data_dir, capfd):
    pipeline = tfpipe.imagenet_train(data_dir, batch_size=4, image_size=32)
    next(iter(pipeline.build()))

    ops = [op for stage in pipeline.stages for op in getattr(stage, "ops", ())]
    (parse,) = [op for op in ops if isinstance(op, tfpipe.Parse)]
    assert parse.as_converted
    assert parse.data_name == ""
    assert "states" not in capfd.readouterr().err


def test_a_cache_may_stand_after_parse(tmp_path):
    source = tfpipe.TFRecordSource(write(tmp_path), files="*", **OPTIONS)
    parse = tfpipe.Parse(label_base=0).for_source(source)
    crop = tfpipe.CenterCrop(image_size=32)
    pipeline = tfpipe.Pipeline(
        source,
        [
            *(tfpipe.Interleave(), tfpipe.Map(parse, crop), tfpipe.Cache("ram")),
            tfpipe.Batch(4),
        ],
    )

    assert len(list(pipeline.build(num_epochs=2))) == 2 * len(STATED) // 4
    assert stated_sizes.different(f"{tmp_path}, *") == DIFFERENT


def test_the_count_is_said_when_the_process_ends(tmp_path, capfd, monkeypatch):
    at_exit = []
    monkeypatch.setattr(
        stated_sizes.atexit, "register", lambda *call: at_exit.append(call)
    )
    source = tfpipe.TFRecordSource(write(tmp_path), files="*", **OPTIONS)
    parse = tfpipe.Parse(label_base=0)
    pipeline = tfpipe.imagenet_train(source, parse=parse, image_size=32)
    list(pipeline.build(num_epochs=2))
    capfd.readouterr()

    ((say, name),) = at_exit
    say(name)

    assert capfd.readouterr().err == (
        f"{len(DIFFERENT)} records of {tmp_path}, * stated another height or width "
        "than the header of the image.\n"
    )
