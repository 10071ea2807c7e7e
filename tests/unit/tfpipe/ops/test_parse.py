import re

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.foreign import make_image, make_record, write_shard
from tests.support.data.trees import make_jpeg
from tfpipe.shards import image_record

OWN = {"img": make_image(0), "y": 7, "name": b"a.png", "box": [1, 2]}
PARSE = {"image_key": "img", "label_key": "y", "label_base": 0}


def raw(records):
    """A record as `Interleave` gives it, or a batch of them."""
    shape = np.shape(records)
    return {
        "record": tf.constant(records),
        "record_id": tf.zeros(shape, tf.int64),
        "epoch_seed": tf.zeros(shape, tf.int64),
        "is_real": tf.ones(shape, tf.bool),
    }


def parsed(op, records):
    return {name: value.numpy() for name, value in op(raw(records)).items()}


def mapped(op, records):
    """As `parsed`, in the graph of a dataset."""
    dataset = tf.data.Dataset.from_tensors(raw(records)).map(op)
    return next(dataset.as_numpy_iterator())


def own_source(folder, records=(OWN,) * 4, **options):
    write_shard(folder / "part-0.tfrecord", records)
    return tfpipe.TFRecordSource(folder, files="*.tfrecord", batch_size=2, **options)


def test_own_keys_and_extra_features_are_parsed_alone_and_in_batches():
    op = tfpipe.Parse(**PARSE, extra={"name": tf.string, "box": ("int64", [2])})
    record = make_record(OWN)

    one, batch = mapped(op, record), mapped(op, [record, record])

    assert (one["encoded"], one["label"], one["name"]) == (OWN["img"], 7, b"a.png")
    assert (one["height"], one["width"], one["box"].tolist()) == (32, 40, [1, 2])
    assert batch["box"].tolist() == [[1, 2], [1, 2]]
    assert batch["name"].tolist() == [b"a.png", b"a.png"]
    assert list(zip(batch["height"], batch["width"], strict=True)) == [(32, 40)] * 2


@pytest.mark.parametrize(
    ("stated", "keys", "size"),
    [
        ({"h": 3, "w": 4}, ("h", "w"), (32, 40)),
        ({"h": 3, "w": 4}, ("h", "w", True), (3, 4)),
        ({"h": 3}, ("h", "w"), (32, 40)),
        ({}, ("h", "w"), (32, 40)),
        ({"h": 3, "w": 4}, (None, "w"), (32, 40)),
    ],
)
def test_size_is_of_the_header_or_else_of_a_converted_record(stated, keys, size):
    op = tfpipe.Parse(
        **PARSE, height_key=keys[0], width_key=keys[1], as_converted=keys[2:] == (True,)
    )
    record = make_record(OWN | stated)

    one, batch = parsed(op, record), parsed(op, [record, record])

    assert (one["height"], one["width"]) == size
    assert list(zip(batch["height"], batch["width"], strict=True)) == [size, size]
    assert one["height"].dtype == np.int32


@pytest.mark.parametrize(
    ("labels", "row"),
    [([], [0, 0, 0, 0]), ([1], [1, 0, 0, 0]), ([3, 1, 3], [1, 0, 1, 0])],
)
def test_several_labels_become_a_row(labels, row):
    op = tfpipe.Parse(label_base=1, multi_label=True, num_classes=4)
    image = image_record.ImageRecord(make_jpeg(0), 32, 40, labels, "", "", "a.JPEG")
    record = b"".join(image_record.encode_image(image))

    one, batch = parsed(op, record), parsed(op, [record, record])

    assert one["label"].dtype == np.float32
    assert one["label"].tolist() == row
    assert batch["label"].tolist() == [row, row]


def test_several_labels_count_from_the_offset_and_keep_a_static_shape():
    op = tfpipe.Parse(**PARSE | {"label_base": 5}, **MULTI, label_offset=1)
    records = tf.data.Dataset.from_tensors(raw(make_record(OWN))).map(op)

    assert records.element_spec["label"].shape == [4]
    (one,) = records.as_numpy_iterator()
    assert one["label"].tolist() == [0, 0, 0, 1]


MULTI = {"multi_label": True, "num_classes": 4}


@pytest.mark.parametrize("labels", [[-1], [0, 4]])
def test_label_out_of_range_is_refused(labels):
    op = tfpipe.Parse(**PARSE, **MULTI)

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"labels must be 0 to 3"):
        op(raw(make_record(OWN | {"y": labels})))


def test_label_out_of_range_names_the_record(tmp_path):
    source = own_source(tmp_path, [OWN, OWN | {"y": [1, 9]}], shuffle="none")
    parse = tfpipe.Parse(**PARSE, multi_label=True, num_classes=9)
    pipeline = tfpipe.imagenet_train(source, parse=parse, image_size=8)

    with pytest.raises(
        tf.errors.UnknownError,
        match=r"(?s)part-0\.tfrecord: record 1 .*labels must be 0 to 8, got .* 9 ",
    ):
        list(pipeline.build())


def test_rows_and_extra_features_pass_through_a_preset(tmp_path):
    parse = tfpipe.Parse(
        **PARSE, multi_label=True, num_classes=9, extra={"name": tf.string}
    )
    source = own_source(tmp_path)
    batches = [
        next(
            tfpipe.imagenet_train(
                source, parse=parse, image_size=8, whole_batches=whole
            )
            .build()
            .as_numpy_iterator()
        )
        for whole in (False, True)
    ]

    for batch in batches:
        assert batch.keys() == {"image", "label", "name"}
        assert batch["label"].tolist() == [[0] * 7 + [1, 0]] * 2
        assert batch["name"].tolist() == [b"a.png"] * 2


def test_rows_are_mixed_and_refused_by_one_hot():
    rows = tf.constant([[1.0, 0.0], [1.0, 1.0]])
    batch = {
        "image": tf.zeros([2, 4, 4, 3]),
        "label": rows,
        "seed": tf.constant([[1, 2], [1, 3]], tf.int64),
    }

    mixed = tfpipe.MixUp()(batch)["label"].numpy()

    assert mixed[:, 0].tolist() == [1, 1]
    assert np.all((mixed[:, 1] >= 0) & (mixed[:, 1] <= 1))
    with pytest.raises(ValueError, match=r"multi_label=True.*leave OneHot out"):
        tfpipe.OneHot(2)(batch)


def test_boxes_of_several_labels_have_labels_of_their_own():
    image = image_record.ImageRecord(
        b"", 1, 1, [3, 7], "", "", "a", [(0.0, 0.0, 1.0, 1.0)]
    )

    with pytest.raises(ValueError, match=r"one label for each of the 1 boxes of a"):
        image_record.encode_image(image)
    found = b"".join(image_record.encode_image(image._replace(box_labels=[7])))
    features = tf.train.Example.FromString(found).features.feature
    assert features["image/class/label"].int64_list.value == [3, 7]
    assert features["image/object/bbox/label"].int64_list.value == [7]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"image_key": "image"}, "image_key names 'image', which is missing."),
        ({"label_key": "x"}, "label_key names 'x', which is missing."),
        ({"image_key": "imgs"}, "missing. Did you mean 'img'?"),
        ({"label_key": "name"}, "must hold int64, got bytes such as b'a.png'. A label"),
        ({"label_key": "box"}, "must have 1 values, got 2. For any number of labels"),
        ({"image_key": "box"}, "must hold bytes, got int64 such as 1."),
        ({"extra": {"box": "int64"}}, "extra names 'box', which must have 1 values"),
        ({"extra": {"z": "string"}}, "extra names 'z', which is missing."),
    ],
)
def test_wrong_key_is_refused_before_training_with_the_keys_found(
    tmp_path, change, said
):
    source = own_source(tmp_path)

    with pytest.raises(ValueError, match=re.escape(said)) as raised:
        tfpipe.imagenet_train(source, parse=tfpipe.Parse(**PARSE | change))

    assert str(raised.value).endswith(
        f"The first record, {tmp_path}/part-0.tfrecord at byte 0, has 'box' (int64, 2),"
        " 'img' (bytes, 1), 'name' (bytes, 1), 'y' (int64, 1)."
    )


@pytest.mark.parametrize(
    ("change", "meant"),
    [
        ({"image_key": "image"}, "'image/encoded'"),
        ({"label_key": "label"}, "'image/class/label'?"),
    ],
)
def test_keys_that_fit_are_proposed(data_dir, change, meant):
    with pytest.raises(ValueError, match=re.escape(f"Did you mean {meant}")):
        tfpipe.imagenet_train(data_dir, batch_size=4, parse=tfpipe.Parse(**change))


def test_damaged_first_records_are_left_to_the_reader(tmp_path):
    source = own_source(tmp_path, on_error="skip")
    path = tmp_path / "part-0.tfrecord"
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)

    tfpipe.imagenet_train(source, parse=tfpipe.Parse(**PARSE))
    with pytest.raises(ValueError, match=r"at byte [1-9]"):
        tfpipe.imagenet_train(source, parse=tfpipe.Parse(label_base=0))


def test_index_fills_label_base_and_number_of_classes(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train")

    filled = tfpipe.Parse(multi_label=True, label_offset=1).for_source(source)

    classes = source.index.num_classes
    assert (filled.label_base, filled.num_classes) == (1, classes + 1)
    shifted = tfpipe.Parse(multi_label=True, label_base=0).for_source(source)
    assert shifted.num_classes == classes + 1  # labels 1 to `classes`
    assert repr(tfpipe.Parse().for_source(source)) == (
        "Parse(as_converted=True, label_base=1, label_offset=0)"
    )


def test_without_an_index_the_error_says_what_to_write(tmp_path):
    source = own_source(tmp_path)
    keys = {"image_key": "img", "label_key": "y"}

    with pytest.raises(
        tfpipe.errors.BadIndexError, match=r"parse=tfpipe.Parse\(label_base=0"
    ):
        tfpipe.imagenet_train(source, parse=tfpipe.Parse(**keys))
    with pytest.raises(tfpipe.errors.BadIndexError, match=r"Write Parse\(num_classes="):
        tfpipe.imagenet_train(
            source, parse=tfpipe.Parse(**keys, label_base=0, multi_label=True)
        )


@pytest.mark.parametrize(
    "extra",
    [
        3,
        {"label": tf.string},
        {"img": tf.string},
        {"x": tf.io.VarLenFeature(tf.string)},
        {"x": tf.uint8},
        {"x": ("int64", [None])},
        {3: "int64"},
    ],
)
def test_extra_features_that_no_batch_can_hold_are_refused(extra):
    with pytest.raises((ValueError, TypeError), match=r"^Parse.extra"):
        tfpipe.Parse(image_key="img", extra=extra)


def test_extra_features_are_equal_by_value():
    given = tf.io.FixedLenFeature([2], tf.int64, [1, 2])
    one, other = (tfpipe.Parse(extra={"x": given}) for _ in range(2))

    assert one == other
    assert hash(one) == hash(other)
    record = make_record({k: v for k, v in OWN.items() if k != "box"})
    op = tfpipe.Parse(**PARSE, extra={"box": given})
    assert parsed(op, record)["box"].tolist() == [1, 2]
