"""pipeline.preprocess: image files as the pipeline for evaluation delivers them."""

import io
import pathlib

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import tfpipe
from converters.images.policy import Policy
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.trees import make_jpeg


def encode(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def gradient(height=48, width=64, mode="RGB"):
    """A smooth picture whose four corners differ."""
    down, right = np.mgrid[:height, :width]
    parts = (down * 255 / height, right * 255 / width, (down + right) % 256)
    pixels = np.stack(parts, -1).astype(np.uint8)
    return PIL.Image.fromarray(pixels).convert(mode)


def transparent(image):
    """The picture, clearer to the right."""
    image.putalpha(gradient(mode="L"))
    return image


def sideways(image):
    """The picture as a phone stores it: turned, with EXIF orientation 6."""
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    turned = image.transpose(PIL.Image.Transpose.ROTATE_90)
    return encode(turned, "JPEG", quality=98, subsampling=0, exif=exif)


def convert(made, output_dir, files, **policy):
    """Converts files, by name and content, in this order: no shuffling, one shard."""
    raw = made / f"raw-{output_dir}" / "one"
    raw.mkdir(parents=True)
    for name, content in files.items():
        (raw / name).write_bytes(content)
    config = conversion(
        "folder",
        input_dir=str(raw.parent),
        output_dir=str(made / output_dir),
        num_train_shards=1,
        num_workers=1,
        fsync=False,
        policy=Policy(**policy),
    )
    conversions.convert(config)
    return made / output_dir


def rows(pipeline):
    """Each row that the pipeline delivers, by the name of its file."""
    source = pipeline.source
    files = tfpipe.shards.index.load_catalog(
        source.data_dir, source.split, ["filename"]
    )["filename"]
    found = {}
    for batch in pipeline.build():
        images = pipeline.on_device(batch)["image"].numpy()
        for record_id, is_real, image in zip(
            batch["record_id"].numpy(), batch["mask"].numpy(), images, strict=True
        ):
            if is_real:
                found[pathlib.Path(files[record_id]).name] = image
    return found


FILES = {
    "plain.jpg": make_jpeg(1),
    "gray.jpg": make_jpeg(2, mode="L"),
    "wide.jpg": make_jpeg(3, height=40, width=160),
    "color.png": encode(gradient(), "PNG"),
    "gray.png": encode(gradient(mode="L"), "PNG"),
    "clear.png": encode(transparent(gradient()), "PNG"),
    "deep.png": encode(
        PIL.Image.fromarray((np.mgrid[:40, :50][1] * 1300).astype(np.uint16)), "PNG"
    ),
    "sideways.jpg": sideways(gradient()),
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return convert(
        tmp_path_factory.mktemp("preprocess"),
        "records",
        FILES,
        exif_orientation="apply",
    )


def evaluation(photos, **options):
    return tfpipe.imagenet_eval(
        photos,
        split="train",
        **{"image_size": 16, "batch_size": 3, "with_record_id": True} | options,
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "float32", "crop_op": "stock"},
        {"dtype": "bfloat16", "quality": "fast", "whole_batches": True},
        {"recipe": tfpipe.recipes.vgg},
        {"recipe": tfpipe.recipes.keras("vgg16")},
        {"recipe": tfpipe.recipes.keras("convnext")},
    ],
    ids=["uint8", "float32 stock", "bfloat16 whole batches", "vgg", "caffe", "0..255"],
)
def test_a_file_gives_the_row_that_its_record_gives(photos, options):
    pipeline = evaluation(photos, **options)
    delivered = rows(pipeline)
    delivered.pop("sideways.jpg")  # was encoded again

    made = pipeline.preprocess([FILES[name] for name in delivered])

    assert made.dtype == next(iter(delivered.values())).dtype
    assert {
        name: np.array_equal(a, b)
        for (name, a), b in zip(delivered.items(), made, strict=True)
    } == dict.fromkeys(delivered, True)


def test_a_path_and_bytes_give_one_image_and_a_list_gives_a_batch(photos, tmp_path):
    pipeline = evaluation(photos)
    path = tmp_path / "plain.jpg"
    path.write_bytes(FILES["plain.jpg"])

    one = pipeline.preprocess(path)
    batch = pipeline.preprocess([str(path), FILES["wide.jpg"]])

    assert (one.shape, one.dtype) == ((16, 16, 3), np.float32)
    assert batch.shape == (2, 16, 16, 3)
    assert np.array_equal(batch[0], one)
    assert np.array_equal(pipeline.preprocess(FILES["plain.jpg"]), one)


def test_a_model_with_the_device_ops_in_it_gets_pixels(photos):
    pipeline = evaluation(photos)

    pixels = pipeline.preprocess([FILES["plain.jpg"]], apply_device_ops=False)

    assert pixels.dtype == np.uint8
    normalized = pipeline.on_device({"image": tf.constant(pixels)})["image"]
    assert np.array_equal(normalized, pipeline.preprocess([FILES["plain.jpg"]]))


def test_a_sideways_photo_is_upright_if_those_of_training_were(photos, tmp_path):
    kept = convert(tmp_path, "kept", FILES, exif_orientation="keep")
    upright = encode(gradient(), "PNG")

    for made, expected in ((photos, upright), (kept, None)):
        pipeline = evaluation(made, dtype="uint8")
        photo = pipeline.preprocess(FILES["sideways.jpg"], apply_device_ops=False)
        delivered = rows(evaluation(made, recipe=_unnormalized))["sideways.jpg"]
        assert np.abs(photo.astype(int) - delivered).max() <= 6
        if expected:
            image = pipeline.preprocess(expected, apply_device_ops=False)
            assert np.abs(photo.astype(int) - image).max() <= 6


def _unnormalized(image_size, dtype, quality):
    nothing = tfpipe.Normalize(mean=(0, 0, 0), std=(1, 1, 1))
    crop = tfpipe.CenterCrop(image_size=image_size, dtype=dtype, quality=quality)
    return tfpipe.recipes.Recipe(train=(crop,), evaluate=(crop,), normalize=nothing)


def test_a_photo_is_scaled_down_as_those_of_training_were(tmp_path):
    """Stripes become gray with the filter of the converter, and noise without one."""
    stripes = np.zeros((300, 400, 3), np.uint8)
    stripes[:, ::3] = 255
    photo = encode(PIL.Image.fromarray(stripes), "JPEG", quality=95, subsampling=0)
    files = {
        "stripes.png": encode(PIL.Image.fromarray(stripes), "PNG"),
        "wide.png": encode(gradient(200, 500), "PNG"),
        "photo.jpg": photo,
    }
    made = convert(tmp_path, "small", files, short_side=20, max_side=40)
    pipeline = evaluation(made, recipe=_unnormalized)
    delivered = rows(pipeline)

    for name in ("stripes.png", "wide.png"):
        assert np.array_equal(pipeline.preprocess(files[name]), delivered[name])
    assert np.abs(pipeline.preprocess(photo) - delivered["photo.jpg"]).mean() < 2


def test_the_stages_of_a_list_of_ones_own_run_too(photos):
    def brighter(dataset):
        return dataset.map(lambda e: e | {"image": e["image"] // 2 + 100})

    def make(*stages, batch_size=1):
        source = tfpipe.TFRecordSource(
            photos, "train", shuffle="none", batch_size=batch_size
        )
        first = tfpipe.Map(tfpipe.Parse(label_base=1))
        crop = tfpipe.Map(tfpipe.CenterCrop(image_size=16))
        return tfpipe.Pipeline(source, [tfpipe.Interleave(), first, crop, *stages])

    plain = make().preprocess(FILES["plain.jpg"])
    chosen = tfpipe.Map(tfpipe.OneHot(3), tfpipe.Select("image", "label", "boxes"))
    bright = make(chosen, brighter, tfpipe.Batch(2), tfpipe.Prefetch(), batch_size=2)

    assert plain.dtype == np.uint8
    assert np.array_equal(bright.preprocess(FILES["plain.jpg"]), plain // 2 + 100)


def test_ops_on_whole_batches_get_batches(photos):
    def whole(batch):
        assert batch["image"].shape[1:] == (16, 16, 3)
        return {"image": batch["image"], "label": batch["label"]}

    source = tfpipe.TFRecordSource(photos, "train", batch_size=2)
    ops = tfpipe.Parse(label_base=1), tfpipe.CenterCrop(image_size=16), whole
    stages = [tfpipe.Interleave(), tfpipe.Batch(2), tfpipe.Map(*ops)]
    images = [FILES["plain.jpg"], FILES["gray.jpg"], FILES["wide.jpg"]]

    made = tfpipe.Pipeline(source, stages).preprocess(images)

    assert np.array_equal(
        made, [tfpipe.Pipeline(source, stages).preprocess(i) for i in images]
    )


def test_a_pipeline_for_training_is_refused_with_the_remedy(photos):
    pipeline = tfpipe.imagenet_train(photos, image_size=16, batch_size=2)

    with pytest.raises(ValueError, match=r"without random ops, .*RandomCrop.* eval"):
        pipeline.preprocess(FILES["plain.jpg"])


def test_an_op_that_needs_more_than_an_image_is_named(photos):
    def weighted(example):
        return example | {"image": example["image"] * example["weight"]}

    source = tfpipe.TFRecordSource(photos, "train")
    ops = tfpipe.Parse(label_base=1), tfpipe.Resize(image_size=8), weighted
    pipeline = tfpipe.Pipeline(source, [tfpipe.Interleave(), tfpipe.Map(*ops)])

    with pytest.raises(
        ValueError, match=r"weighted.* needs 'weight'\. Make a pipeline"
    ):
        pipeline.preprocess(FILES["plain.jpg"])


def test_wrong_files_and_pipelines_are_refused_by_name(photos, tmp_path):
    pipeline = evaluation(photos)
    encoded = evaluation(photos, recipe=None)
    synthetic = tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=2), [])
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "cut.jpg").write_bytes(FILES["plain.jpg"][:-700])

    for name in ("text.jpg", "cut.jpg"):
        with pytest.raises(ValueError, match=rf"must get images that .*got .*{name}"):
            pipeline.preprocess([FILES["plain.jpg"], tmp_path / name])
    with pytest.raises(FileNotFoundError, match=r"none\.jpg"):
        pipeline.preprocess(tmp_path / "none.jpg")
    with pytest.raises(ValueError, match="at least one image, got an empty list"):
        pipeline.preprocess([])
    with pytest.raises(TypeError, match="a path or bytes, or a list of them, got 3"):
        pipeline.preprocess(3)
    with pytest.raises(ValueError, match=r"must deliver image .* got encoded, height"):
        encoded.preprocess(FILES["plain.jpg"])
    with pytest.raises(ValueError, match="must be a TFRecordSource for preprocess"):
        synthetic.preprocess(FILES["plain.jpg"])
