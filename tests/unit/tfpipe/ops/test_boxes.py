import dataclasses
import io

import hypothesis
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import tfpipe
from tests.support.data.native_op import native_op  # noqa: F401
from tests.support.data.trees import SYNSETS, convert, make_tree
from tests.unit.converters.inputs.test_boxes import make_xml
from tests.unit.tfpipe.ops.test_crop import in_map
from tfpipe.ops.basic import op_seed
from tfpipe.shards import image_record

NO_BOX = [0.0, 0.0, 0.0, 0.0]


def image_of(size, rectangle):
    """A black JPEG with a white rectangle: top, left, bottom, right in pixels."""
    pixels = np.zeros((*size, 3), np.uint8)
    top, left, bottom, right = rectangle
    pixels[top:bottom, left:right] = 255
    out = io.BytesIO()
    PIL.Image.fromarray(pixels).save(out, "JPEG", quality=100, subsampling=0)
    return out.getvalue()


def example_of(size, rectangle, seed):
    """An image with two boxes, one around its rectangle and all of it; then no box."""
    height, width = size
    scale = [height, width, height, width]
    return {
        "encoded": tf.constant(image_of(size, rectangle)),
        "height": tf.constant(height),
        "width": tf.constant(width),
        "seed": tf.constant(seed, tf.int64),
        "boxes": tf.constant(
            [np.divide(rectangle, scale), [0, 0, 1, 1], NO_BOX], tf.float32
        ),
        "box_label": tf.constant([5, 0, -1]),
    }


def expected_boxes(example, crop_box, sides, flip):
    """The boxes after a crop, in numpy, and whether each is near to a pixel in size."""
    top, left, height, width = np.float64(crop_box)
    boxes = np.float64(example["boxes"])
    ys = (boxes[:, 0::2] * float(example["height"]) - top) / height
    xs = (boxes[:, 1::2] * float(example["width"]) - left) / width
    ys, xs = ys.clip(0, 1), xs.clip(0, 1)
    xs = 1 - xs[:, ::-1] if flip else xs
    pixels = np.stack([ys[:, 1] - ys[:, 0], xs[:, 1] - xs[:, 0]], -1) * sides
    found = np.stack([ys[:, 0], xs[:, 0], ys[:, 1], xs[:, 1]], -1)
    is_box = (pixels >= 1).all(-1) & (np.asarray(example["box_label"]) >= 0)
    found[~is_box] = 0
    return found, is_box, (np.abs(pixels - 1) < 1e-3).any(-1)


SIZES = st.tuples(st.integers(20, 70), st.integers(20, 70))
RESULTS = st.sampled_from([16, (24, 40), (33, 20)])
OPS = (
    (tfpipe.RandomCrop, {"area": (0.2, 1.0), "flip": True}),
    (tfpipe.RandomScaleCrop, {"short_side": (40, 60), "flip": True}),
    (tfpipe.CenterCrop, {}),
    (tfpipe.Resize, {}),
)
LEFT = ((40, 60), (4, 2, 30, 24))  # an image with a rectangle in its left half
MIRRORED = 2  # the seed of a record that is mirrored


@st.composite
def rectangles(draw):
    """The size of an image and a rectangle of at least 8 x 8 pixels in it."""
    size = draw(SIZES)
    begin = [draw(st.integers(0, side - 8)) for side in size]
    end = [draw(st.integers(b + 8, s)) for b, s in zip(begin, size, strict=True)]
    return size, (*begin, *end)


@pytest.mark.usefixtures("native_op")
@pytest.mark.parametrize("crop_op", ["stock", "native"])
@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.example(op=OPS[0], result=16, rectangle=LEFT, number=MIRRORED)
@hypothesis.example(op=OPS[1], result=(24, 40), rectangle=LEFT, number=MIRRORED)
@hypothesis.given(
    op=st.sampled_from(OPS),
    result=RESULTS,
    rectangle=rectangles(),
    number=st.integers(0, 99),
)
def test_boxes_follow_the_image_through_every_crop_and_flip(
    crop_op, op, result, rectangle, number
):
    kind, options = op
    op = kind(image_size=result, quality="exact", crop_op=crop_op, **options)
    example = example_of(*rectangle, (1, number))

    cropped = op(example)

    seed = op_seed(tfpipe.Flip(), example["seed"])
    drawn = float(tf.random.stateless_uniform([1], seed)[0])
    flip = "flip" in options and drawn < 0.5
    boxes, is_box, unsure = expected_boxes(example, op.window(example), op.sides, flip)
    sure = ~unsure
    np.testing.assert_allclose(cropped["boxes"][sure], boxes[sure], atol=1e-5)
    labels = np.where(is_box, [5, 0, -1], -1)
    np.testing.assert_array_equal(cropped["box_label"][sure], labels[sure])

    # Bright pixels are where the box is, to a pixel of the result.
    white = cropped["image"].numpy().mean(-1) > 127
    ymin, xmin, ymax, xmax = cropped["boxes"][0].numpy() * [*op.sides, *op.sides]
    if ymax - ymin > 2 and xmax - xmin > 2:
        (rows,), (columns,) = white.any(1).nonzero(), white.any(0).nonzero()
        edges = [rows[0], columns[0], rows[-1] + 1, columns[-1] + 1]
        np.testing.assert_allclose(edges, [ymin, xmin, ymax, xmax], atol=1.01)


def test_the_op_that_flips_takes_the_boxes_along():
    crop = tfpipe.RandomCrop(image_size=24, crop_op="stock")
    mirrored = set()
    for number in range(8):
        example = example_of((40, 50), (4, 6, 30, 40), (0, number))

        flipped = tfpipe.Flip()(crop(example))

        expected = dataclasses.replace(crop, flip=True)(example)
        mirrored.add(bool(np.any(flipped["boxes"] != crop(example)["boxes"])))
        for name in ("image", "boxes", "box_label"):
            np.testing.assert_array_equal(flipped[name], expected[name])
    assert mirrored == {True, False}


def test_a_box_that_is_cut_away_leaves_its_place_empty():
    example = example_of((40, 40), (0, 0, 9, 9), (0, 0))
    example["boxes"] = tf.constant([[0, 0, 0.2, 0.2], [0.4, 0.4, 2, 2], NO_BOX])

    cropped = tfpipe.CenterCrop(image_size=20, fraction=0.5, crop_op="stock")(example)

    np.testing.assert_allclose(cropped["boxes"], [NO_BOX, [0.3, 0.3, 1, 1], NO_BOX])
    assert cropped["box_label"].numpy().tolist() == [-1, 0, -1]


def record_of(*boxes, label=7):
    """Box: xmin, ymin, xmax, ymax."""
    fields = (b"", 32, 40, label, "n01440764", "fish", "a.jpg", boxes)
    pieces = image_record.encode_image(image_record.ImageRecord(*fields))
    return b"".join(pieces)


def record_without_labels():
    example = tf.train.Example.FromString(record_of((0.1, 0.2, 0.3, 0.4)))
    del example.features.feature["image/object/class/label"]
    return example.SerializeToString()


def test_boxes_are_read_from_a_record_or_from_a_batch_of_them():
    records = [
        record_of((0.5, 0.25, 0.75, 1.5), (0.2, 0.3, 0.2, 0.4), (0, 0, 1, 1)),
        record_of(),
        record_without_labels(),
    ]
    parse = tfpipe.ParseBoxes(max_boxes=3, label_base=1)
    batch = {"record": tf.constant(records), "record_id": tf.range(3)}

    found = parse(batch)
    mapped = in_map(parse, batch)

    expected = [
        [[0.25, 0.5, 1.0, 0.75], NO_BOX, [0, 0, 1, 1]],
        [NO_BOX] * 3,
        [[0.2, 0.1, 0.4, 0.3], NO_BOX, NO_BOX],
    ]
    np.testing.assert_allclose(found["boxes"], expected)
    assert found["box_label"].numpy().tolist() == [[6, -1, 6], [-1] * 3, [0, -1, -1]]
    assert sorted(found) == ["box_label", "boxes", "record", "record_id"]
    for number, record in enumerate(records):
        one = parse({"record": tf.constant(record)})
        for name in ("boxes", "box_label"):
            np.testing.assert_array_equal(one[name], found[name][number])
            np.testing.assert_array_equal(mapped[name], found[name])


def test_boxes_have_a_static_shape_in_a_graph():
    dataset = tf.data.Dataset.from_tensors({"record": record_of()})

    spec = dataset.map(tfpipe.ParseBoxes(max_boxes=7)).element_spec

    assert spec["boxes"] == tf.TensorSpec([7, 4], tf.float32)
    assert spec["box_label"] == tf.TensorSpec([7], tf.int32)


def test_more_boxes_than_places_name_the_remedy():
    record = tf.constant(record_of(*[(0, 0, 1, 1)] * 3))

    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"max_boxes = 2 .*with_boxes=ParseBoxes"
    ):
        tfpipe.ParseBoxes(max_boxes=2)({"record": record})


@pytest.mark.parametrize(
    "op", [tfpipe.RandAugment(), tfpipe.MixUp(), tfpipe.CutMix()], ids=str
)
def test_an_op_that_moves_pixels_alone_refuses_boxes(op):
    with pytest.raises(ValueError, match=r"must get no boxes: .*Leave the op out"):
        op({"image": None, "label": None, "seed": None, "boxes": None})


@pytest.fixture(scope="module")
def boxes_dir(tmp_path_factory):
    """A data set of 8 images, each with a box over its left half."""
    folder = tmp_path_factory.mktemp("boxes")
    raw_dir = make_tree(folder / "raw", num_images=8)
    for path in (raw_dir / "train").rglob("*.JPEG"):
        width, height = PIL.Image.open(path).size
        corners = [(path.parent.name, 0, 0, width / 2, height)]
        xml = make_xml(corners, width=width, height=height) % path.stem.encode()
        box_path = raw_dir / "bbox" / path.parent.name / f"{path.stem}.xml"
        box_path.parent.mkdir(parents=True, exist_ok=True)
        box_path.write_bytes(xml)
    convert(raw_dir, folder / "records", num_train_shards=1)
    return folder / "records"


@pytest.mark.parametrize("options", [{"dtype": "float32"}, {"whole_batches": True}])
def test_with_boxes_gives_batches_of_boxes_with_labels(boxes_dir, options):
    pipeline = tfpipe.imagenet_eval(
        boxes_dir,
        split="train",
        image_size=(8, 16),
        batch_size=8,
        with_boxes=tfpipe.ParseBoxes(max_boxes=2),
        **options,
    )

    (batch,) = pipeline.build().as_numpy_iterator()

    assert batch["image"].shape == (8, 8, 16, 3)
    np.testing.assert_allclose(batch["boxes"][:, 0], [[0, 0, 1, 0.5]] * 8, atol=0.03)
    labels = np.stack([batch["label"], np.full(8, -1)], -1)
    np.testing.assert_array_equal(batch["box_label"], labels)
    assert set(batch["label"]) == set(range(len(SYNSETS)))
