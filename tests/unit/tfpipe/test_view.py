import io

import numpy as np
import PIL.Image
import PIL.ImageDraw
import pytest
import tensorflow as tf

import tfpipe
from tfpipe.consumers import captions


def make_batch(num_images, *, height=32, width=48):
    """Images of one color each: image i is (5 * i, 20, 200)."""
    pixels = np.empty((num_images, height, width, 3), np.uint8)
    pixels[:] = [[[[5 * number, 20, 200]]] for number in range(num_images)]
    return {"image": pixels, "label": np.arange(num_images)}


@pytest.mark.parametrize(
    ("num_images", "options", "columns", "rows"),
    [
        (5, {}, 5, 1),
        (16, {}, 8, 2),
        (5, {"num_columns": 2}, 2, 3),
        (20, {"max_images": 4}, 4, 1),
        (40, {}, 8, 4),  # 32 at most
        (1, {}, 1, 1),
    ],
)
def test_sheet_has_room_for_rows_of_captioned_images(
    num_images, options, columns, rows
):
    sheet = tfpipe.view.contact_sheet(make_batch(num_images), **options)

    assert sheet.size == (columns * (48 + 4) + 4, rows * (32 + 4 + 14) + 4)


def test_images_are_on_the_sheet_in_order():
    sheet = tfpipe.view.contact_sheet(make_batch(3), num_columns=2)

    assert sheet.getpixel((4, 4)) == (0, 20, 200)
    assert sheet.getpixel((4 + 52 + 47, 4 + 31)) == (5, 20, 200)
    assert sheet.getpixel((4, 4 + 50)) == (10, 20, 200)
    assert sheet.getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_normalized_batch_looks_like_the_pixels(dtype):
    batch = make_batch(4)
    normalized = tfpipe.Normalize()({"image": tf.constant(batch["image"])})["image"]
    batch["image"] = tf.cast(normalized, dtype)

    sheet = tfpipe.view.contact_sheet(batch)

    difference = np.array(sheet.getpixel((4 + 3 * 52, 4))) - (15, 20, 200)
    assert np.abs(difference).max() <= (1 if dtype == "bfloat16" else 0)


def test_values_out_of_range_are_clipped():
    batch = {"image": np.full((1, 32, 48, 3), [-100, 0, 100.0]), "label": [0]}

    sheet = tfpipe.view.contact_sheet(batch)

    assert sheet.getpixel((4, 4)) == (0, 116, 255)


def test_caption_shows_the_name_of_the_class():
    batch = make_batch(1)

    plain = tfpipe.view.contact_sheet(batch)
    named = tfpipe.view.contact_sheet(batch, class_names=["cat"])
    without_name = tfpipe.view.contact_sheet(batch, class_names=[])

    assert named.tobytes() != plain.tobytes()
    assert without_name.tobytes() == plain.tobytes()


def test_caption_is_cut_to_the_width_of_the_image():
    batch = make_batch(2)

    sheet = np.asarray(
        tfpipe.view.contact_sheet(batch, class_names=["very long " * 9] * 2)
    )

    caption = sheet[4 + 32 + 1 : -4]
    assert (caption[:, 4 : 4 + 48] < 255).any()
    assert (caption[:, 4 + 48 : 4 + 52] == 255).all()  # the gap between the two


@pytest.mark.parametrize(
    ("row", "caption"),
    [
        ([0, 1, 0], "1 cat"),
        ([1, 0, 1], "0 ant, 2 dog"),
        ([0, 0, 0], "no label"),
        ([0.75, 0, 0.25], "75% 0 ant, 25% 2 dog"),
        ([0.02, 0.96, 0.02], "96% 1 cat"),  # smoothed
        ([0.4, 0.3, 0.3], "40% 0 ant, 30% 1 cat"),
    ],
)
def test_row_of_labels_is_shown_as_its_labels(row, caption):
    batch = make_batch(1, width=150)
    rows = batch | {"label": tf.constant([row], tf.float32)}

    sheet = tfpipe.view.contact_sheet(rows, class_names=["ant", "cat", "dog"])

    expected = tfpipe.view.contact_sheet(batch)
    canvas = PIL.ImageDraw.Draw(expected)
    canvas.rectangle((0, 36, 160, 60), fill="white")
    captions.draw(canvas, (4, 37), caption, 150)
    assert sheet.tobytes() == expected.tobytes()


def _cropping(data_dir, *ops, device_ops=(), **options):
    """The first three images in a batch, cropped and then changed by these ops."""
    crop = tfpipe.CenterCrop(image_size=16, jpeg_only=True, **options)
    select = tfpipe.Select("image", "label")
    source = tfpipe.TFRecordSource(data_dir, "train", shuffle="none", batch_size=3)
    ops = [tfpipe.Parse(label_base=1, as_converted=True), crop, *ops, select]
    stages = [tfpipe.Interleave(), tfpipe.Map(*ops), tfpipe.Batch(3), tfpipe.Take(1)]
    return tfpipe.Pipeline(source, stages, device_ops=device_ops)


@pytest.mark.parametrize(
    ("ops", "options"),
    [
        ([tfpipe.Normalize.inception()], {"dtype": "float32"}),
        ([], {"device_ops": [tfpipe.Normalize.caffe()]}),
        ([], {"dtype": "float32"}),
    ],
    ids=str,
)
def test_float_pixels_of_a_pipeline_look_like_its_photos(
    data_dir, first_three, ops, options
):
    pipeline = _cropping(data_dir, *ops, **options)
    (batch,) = pipeline.build()

    sheet = tfpipe.view.contact_sheet(pipeline.on_device(batch), pipeline=pipeline)

    for number, (_, halved) in enumerate(first_three):
        image = sheet.crop((4 + 20 * number, 4, 20 + 20 * number, 20))
        assert np.abs(np.asarray(image) / 2 - halved).max() <= 1


def test_after_of_a_pair_is_normalized_as_the_pipeline_does(data_dir, first_three):
    normalize = tfpipe.Normalize.caffe()
    pipeline = _cropping(data_dir, dtype="float32", normalize=normalize)

    sheet = tfpipe.view.before_and_after(pipeline, num_images=3)

    _, after = halves_of_pairs(sheet, 3)
    assert np.abs(after / 2 - [image for _, image in first_three]).max() <= 1


def test_sheet_of_a_pipeline_has_its_class_names(data_dir):
    pipeline = make_pipeline(data_dir)
    batch, names = make_batch(2), pipeline.class_names

    sheet = tfpipe.view.contact_sheet(batch, pipeline=pipeline)

    assert sheet.tobytes() == (
        tfpipe.view.contact_sheet(batch, class_names=names).tobytes()
    )
    assert sheet.tobytes() != tfpipe.view.contact_sheet(batch).tobytes()


def test_pairs_of_a_pipeline_have_its_class_names(data_dir, three_pairs):
    without_names = tfpipe.view.before_and_after(
        make_pipeline(data_dir), num_images=3, class_names=[]
    )

    assert three_pairs.tobytes() != without_names.tobytes()
    assert three_pairs.size == without_names.size


def test_sheet_of_a_pipeline_without_names_has_numbers():
    pipeline = tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=2, image_size=32), [])
    (batch,) = pipeline.prefix(0).to_numpy(start_step=999)

    sheet = tfpipe.view.contact_sheet(batch, pipeline=pipeline)

    assert sheet.tobytes() == tfpipe.view.contact_sheet(batch).tobytes()


@pytest.mark.parametrize(
    ("shape", "got"),
    [
        ((2, 32, 48), r"\[2, 32, 48\]"),
        ((2, 32, 48, 1), r"\[2, 32, 48, 1\]"),
        ((32, 48, 3), r"\[32, 48, 3\]"),
        ((0, 32, 48, 3), r"\[0, 32, 48, 3\]"),
    ],
)
def test_other_shapes_are_refused(shape, got):
    batch = {"image": np.zeros(shape, np.uint8), "label": np.zeros(shape[:1], int)}

    with pytest.raises(ValueError, match=rf"\[batch, height, width, 3\].*got {got}"):
        tfpipe.view.contact_sheet(batch)


def make_pipeline(data_dir, *stages, batch_size=1):
    """Each image whole, half as bright, in the order on disk."""

    def halve(example):
        return {"image": example["image"] // 2, "label": example["label"]}

    source = tfpipe.TFRecordSource(
        data_dir, "train", shuffle="none", batch_size=batch_size
    )
    crop = tfpipe.CenterCrop(image_size=16, jpeg_only=True)
    ops = [tfpipe.Parse(label_base=1, as_converted=True), crop, halve]
    return tfpipe.Pipeline(source, [tfpipe.Interleave(), tfpipe.Map(*ops), *stages])


def halves_of_pairs(sheet, num_pairs, size=16):
    """float [pair, size, size, 3] before and after, of a sheet of one row."""
    cell = 2 * size + 2 * 4
    pixels = np.asarray(sheet, np.float64)[4 : 4 + size, 4:]
    pairs = [pixels[:, cell * n : cell * (n + 1)] for n in range(num_pairs)]
    before = np.stack([pair[:, :size] for pair in pairs])
    return before, np.stack([pair[:, size + 4 : 2 * size + 4] for pair in pairs])


@pytest.fixture(scope="module")
def first_three(data_dir):
    """The first three images: encoded, and after the ops of `make_pipeline`."""
    pipeline = make_pipeline(data_dir)
    made = [example["image"] for example in pipeline.build().take(3)]
    source = pipeline.source
    parse = tfpipe.Pipeline(
        source,
        [
            tfpipe.Interleave(),
            tfpipe.Map(tfpipe.Parse(label_base=1, as_converted=True)),
        ],
    )
    return [
        (example["encoded"].numpy(), image.numpy().tolist())
        for example, image in zip(parse.build().take(3), made, strict=True)
    ]


@pytest.fixture(scope="module")
def three_pairs(data_dir):
    return tfpipe.view.before_and_after(make_pipeline(data_dir), num_images=3)


def test_each_image_is_beside_what_became_of_it(three_pairs, first_three):
    assert three_pairs.size == (3 * (2 * 16 + 2 * 4) + 4, 16 + 4 + 14 + 4)
    before, after = halves_of_pairs(three_pairs, 3)
    assert after.tolist() == [image for _, image in first_three]
    # The images are 40 pixels wide and 32 to 34 high: white above and below.
    assert (before[:, [0, -1]] == 255).all()
    for picture, (encoded, _) in zip(before, first_three, strict=True):
        image = PIL.Image.open(io.BytesIO(encoded))
        height = round(image.height * 16 / 40)
        top = (16 - height) // 2
        expected = np.asarray(image.resize((16, height)), float)
        assert np.abs(picture[top : top + height] - expected).mean() < 2


def test_pairs_of_a_preset(data_dir):
    preset = tfpipe.imagenet_train(
        data_dir, image_size=16, batch_size=4, dtype="float32"
    )

    assert tfpipe.view.before_and_after(preset, num_columns=2).size == (84, 8 * 34 + 4)


def test_pairs_of_batches_with_vectors_of_labels(data_dir, three_pairs):
    one_hot = make_pipeline(
        data_dir,
        tfpipe.Map(tfpipe.OneHot(num_classes=4)),
        tfpipe.Batch(2),
        batch_size=2,
    )

    sheet = tfpipe.view.before_and_after(one_hot, num_images=3)

    assert sheet.tobytes() == three_pairs.tobytes()


def test_epoch_is_that_of_the_pipeline(data_dir):
    ops = [
        tfpipe.Parse(label_base=1, as_converted=True),
        tfpipe.RandomCrop(image_size=16, jpeg_only=True),
        tfpipe.Select("image", "label"),
    ]
    source = tfpipe.TFRecordSource(data_dir, "train")
    pipeline = tfpipe.Pipeline(source, [tfpipe.Interleave(), tfpipe.Map(*ops)])
    made = list(pipeline.build(epoch=1).take(3).as_numpy_iterator())

    sheet = tfpipe.view.before_and_after(pipeline, num_images=3, epoch=1)

    _, after = halves_of_pairs(sheet, 3)
    assert after.tolist() == [example["image"].tolist() for example in made]


def test_pipeline_without_a_parse_and_no_images_are_refused(data_dir):
    synthetic = tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=2), [])

    with pytest.raises(ValueError, match="must have a Map with a Parse"):
        tfpipe.view.before_and_after(synthetic)
    with pytest.raises(
        ValueError, match="num_images must be a whole number >= 1, got 0"
    ):
        tfpipe.view.before_and_after(make_pipeline(data_dir), num_images=0)
