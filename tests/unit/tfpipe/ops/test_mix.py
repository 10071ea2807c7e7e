import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.trees import make_jpeg
from tfpipe.ops.basic import op_seed

CutMix, MixUp, OneHot = tfpipe.CutMix, tfpipe.MixUp, tfpipe.OneHot

SIZE = 4
IMAGES = tf.stack([tf.image.decode_jpeg(make_jpeg(number)) for number in range(SIZE)])
each_op = pytest.mark.parametrize(
    "op", [MixUp(), MixUp(alpha=1), CutMix(), CutMix(alpha=0.3)], ids=str
)


def batch(*, images=IMAGES, first=0, dtype="uint8"):
    count = images.shape[0]
    return {
        "image": tf.cast(images, dtype),
        "label": tf.one_hot(tf.range(count), count),
        "seed": tf.constant([[7, first + n] for n in range(count)], tf.int64),
        "record_id": tf.range(count),
    }


def black_and_white(count, *, size=(32, 40)):
    """A batch of images that are all black or all white, by turns."""
    number = np.arange(count)
    white = (255 * (number % 2)).astype(np.uint8)
    return {
        "image": tf.constant(np.tile(white[:, None, None, None], (1, *size, 3))),
        "label": tf.one_hot(number % 2, 2),
        "seed": tf.constant(np.stack([np.full(count, 7), number], 1), tf.int64),
    }


def mixed(op, count, *, size=(32, 40)):
    """[count]: share of white in the images of a batch, and in the labels."""
    found = op(black_and_white(count, size=size))
    white = found["image"].numpy().mean((1, 2, 3)) / 255
    return white, found["label"].numpy()[:, 1]


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (MixUp(), "uint8"),
        (MixUp(alpha=1), "bfloat16"),
        (CutMix(), "float32"),
        (CutMix(alpha=0.3), "uint8"),
    ],
    ids=str,
)
def test_op_does_the_same_eagerly_and_in_a_parallel_map(op, dtype):
    batches = [batch(first=first, dtype=dtype) for first in range(3)]
    eager = [op(b) for b in batches]
    stacked = tf.nest.map_structure(lambda *values: tf.stack(values), *batches)

    dataset = tf.data.Dataset.from_tensor_slices(stacked).map(op, num_parallel_calls=8)

    assert dataset.element_spec == {
        "image": tf.TensorSpec([SIZE, 32, 40, 3], dtype),
        "label": tf.TensorSpec([SIZE, SIZE], tf.float32),
        "record_id": tf.TensorSpec([SIZE], tf.int32),
    }
    for mapped, expected in zip(dataset.as_numpy_iterator(), eager, strict=True):
        for name in expected:
            np.testing.assert_array_equal(mapped[name], expected[name])
    assert len({result["label"].numpy().tobytes() for result in eager}) == 3


@pytest.mark.parametrize("op", [MixUp(), CutMix()], ids=str)
def test_op_takes_a_batch_of_unknown_length(op):
    examples = tf.data.Dataset.from_tensor_slices(black_and_white(7))
    dataset = examples.batch(4).map(op)

    first, last = dataset.as_numpy_iterator()

    assert (len(first["image"]), len(last["image"])) == (4, 3)
    assert last["label"][1].tolist() == [0, 1]  # blended with itself


@each_op
def test_op_leaves_its_input_as_it_is(op):
    example = batch()
    before = dict(example)

    op(example)

    assert list(example) == list(before)
    assert all(example[name] is before[name] for name in before)


@each_op
def test_labels_are_shared_with_the_batch_from_its_end(op):
    labels = op(batch())["label"].numpy()

    np.testing.assert_allclose(labels.sum(1), 1, rtol=1e-6)
    others = labels + labels[::-1]
    assert (others[(np.eye(4) + np.eye(4)[::-1]) == 0] == 0).all()
    assert (labels.max(1) < 1).any()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_mixup_blends_images_as_their_labels(dtype):
    example = batch(dtype=dtype)

    result = MixUp(alpha=1)(example)

    share = np.diag(result["label"])[:, None, None, None]
    image = example["image"].numpy().astype(np.float32)
    expected = share * image + (1 - share) * image[::-1]
    if dtype == "uint8":
        expected = np.round(expected)
    np.testing.assert_allclose(result["image"], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("alpha", "mean", "deviation"),
    [
        (1, 0.75, 0.1443),
        (0.2, 0.8988, 0.1398),
        (8, 0.5983, 0.0712),
        (0.01, 0.9932, 0.0431),
    ],
)
def test_mixup_keeps_the_larger_share_of_beta(alpha, mean, deviation):
    """Compares with max(x, 1 - x), where numpy drew x from Beta(alpha, alpha)."""
    _, white = mixed(MixUp(alpha=alpha), 800, size=(1, 1))

    shares = np.where(np.arange(800) % 2, white, 1 - white)

    assert shares.min() >= 0.5
    assert abs(shares.mean() - mean) < 4 * deviation / np.sqrt(800)
    assert abs(shares.std() - deviation) < 0.02


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_cutmix_takes_a_rectangle_of_the_other_image(dtype):
    example = batch(dtype=dtype)
    image = example["image"].numpy()

    result = CutMix()(example)

    for number in range(SIZE):
        blended, own = result["image"][number].numpy(), image[number]
        other = image[SIZE - 1 - number]
        cut = np.any(blended != own, axis=-1)
        rows, columns = np.flatnonzero(cut.any(1)), np.flatnonzero(cut.any(0))
        rectangle = np.ix_(rows, columns)
        np.testing.assert_array_equal(blended[rectangle], other[rectangle])
        np.testing.assert_array_equal(blended[~cut], own[~cut])
        share = len(rows) * len(columns) / (32 * 40)
        assert abs(result["label"][number, number] - (1 - share)) < 0.02


def test_cutmix_shares_labels_by_pixels():
    white, labels = mixed(CutMix(), 200)

    np.testing.assert_allclose(white, labels, atol=1e-5)


@pytest.mark.parametrize("number", range(6))
def test_cutmix_equals_its_definition(number):
    op = CutMix()
    example = batch(first=number)
    seed = op_seed(op, example["seed"][0])
    gammas = tf.random.stateless_gamma([2, SIZE], seed, 1.0, dtype=tf.float64).numpy()
    side = np.sqrt(gammas[1] / gammas.sum(0))
    centers = tf.random.stateless_uniform([2, SIZE], seed[::-1]).numpy()

    shares = np.diag(op(example)["label"])

    for i in range(SIZE):
        sizes = int(32 * side[i]), int(40 * side[i])
        middles = int(32 * centers[0, i]), int(40 * centers[1, i])
        area = 1
        for size, middle, length in zip(sizes, middles, (32, 40), strict=True):
            start = middle - size // 2
            area *= min(start + size, length) - max(start, 0)
        assert abs(shares[i] - (1 - area / (32 * 40))) < 1e-5


def test_cutmix_reaches_small_and_large_areas():
    white, _ = mixed(CutMix(), 400)
    areas = np.where(np.arange(400) % 2, 1 - white, white)

    assert areas.min() < 0.02
    assert areas.max() > 0.8
    assert 0.2 < areas.mean() < 0.4  # below 1/2: what lies outside is cut off


@each_op
def test_batches_of_the_same_records_are_mixed_alike(op):
    assert np.array_equal(op(batch())["image"], op(batch())["image"])
    assert not np.array_equal(op(batch())["image"], op(batch(first=9))["image"])


def test_ops_work_in_a_pipeline(data_dir):
    train = tfpipe.imagenet_train(
        data_dir, image_size=12, batch_size=4, whole_batches=False
    )
    *read, map_stage, _, prefetch = train.stages
    *ops, select = map_stage.ops
    assert isinstance(select, tfpipe.Select)
    label_ops = [OneHot(4, smoothing=0.1), tfpipe.Select("image", "label", "seed")]
    stages = [
        *read,
        tfpipe.Map(*ops, *label_ops),
        tfpipe.Batch(4),
        tfpipe.Map(MixUp(), tfpipe.ToNCHW()),
        prefetch,
    ]

    dataset = tfpipe.Pipeline(train.source, stages).build()

    assert dataset.element_spec == {
        "image": tf.TensorSpec([4, 3, 12, 12], tf.uint8),
        "label": tf.TensorSpec([4, 4], tf.float32),
    }
    labels = np.concatenate([b["label"] for b in dataset.as_numpy_iterator()])
    np.testing.assert_allclose(labels.sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("op", [MixUp, CutMix])
@pytest.mark.parametrize("alpha", [0, -1.0])
def test_alpha_is_large_enough(op, alpha):
    with pytest.raises(
        ValueError, match=rf"{op.__name__}.alpha must be a finite number >= 0.01, got"
    ):
        op(alpha=alpha)


@pytest.mark.parametrize("op", [MixUp(), CutMix()])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": None}, "must get seed, got image, label, record_id: name it in Sel"),
        ({"mask": tf.ones([SIZE])}, "must get no mask"),
        (
            {"label": tf.range(SIZE)},
            r"got \(4, 32, 40, 3\) and int32 \(4,\): put OneHot",
        ),
        ({"label": tf.ones([SIZE, 3], tf.int32)}, r"and int32 \(4, 3\): put OneHot"),
        ({"image": IMAGES[0]}, r"got \(32, 40, 3\) and .* Batch and \w+ after it"),
    ],
)
def test_a_wrong_batch_is_refused(op, change, message):
    changed = batch() | change
    wrong = {name: value for name, value in changed.items() if value is not None}

    with pytest.raises(ValueError, match=message):
        op(wrong)
