import dataclasses
import functools
import inspect
import itertools
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.presets import preset_over
from tfpipe.reading import order
from tfpipe.shards import index

SIZE = 12
NUM_TRAIN, NUM_VALIDATION = 24, 7
CLASS_OF = {"n01440764": 0, "n01443537": 1, "n01484850": 2, "n01491361": 3}

train = tfpipe.imagenet_train
evaluate = tfpipe.imagenet_eval


def make(preset, data_dir, **options):
    defaults = {"image_size": SIZE, "batch_size": 4, "with_record_id": True}
    return preset_over(preset, data_dir, **defaults | options)


@functools.cache  # of a pipeline that another test has read
def read(preset, data_dir, *, epoch=0, **options):
    """The element_spec and the batches of an epoch."""
    dataset = make(preset, data_dir, **options).build(epoch=epoch)
    return dataset.element_spec, list(dataset.as_numpy_iterator())


def batches(preset, data_dir, **options):
    return read(preset, data_dir, **options)[1]


def ranks(preset, data_dir, num_ranks, **options):
    """The batches of each rank."""
    return [
        batches(preset, data_dir, rank=rank, num_ranks=num_ranks, **options)
        for rank in range(num_ranks)
    ]


def records(preset, data_dir, **options):
    """The number of each record that a preset reads."""
    dataset = make(preset, data_dir, **options).prefix(1).build()
    return [int(record["record_id"]) for record in dataset.as_numpy_iterator()]


def joined(batch_list, name):
    return np.concatenate([batch[name] for batch in batch_list])


def same(first, second):
    """Whether two lists of batches hold the same bytes in the same order."""
    return len(first) == len(second) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(first, second, strict=True)
    )


def same_pixels(first, second):
    """Whether every record has the same pixels in both, wherever they are."""
    first, second = (
        dict(zip(joined(b, "record_id").tolist(), joined(b, "image"), strict=True))
        for b in (first, second)
    )
    assert first.keys() == second.keys()
    return all(np.array_equal(first[number], second[number]) for number in first)


@pytest.mark.parametrize(
    ("preset", "options"),
    [
        (train, {}),
        (train, {"dtype": "float16", "with_record_id": False}),
        (train, {"dtype": "bfloat16", "image_size": (8, 14)}),
        (
            train,
            {
                "dtype": "float32",
                "image_size": (8, 14),
                "recipe": tfpipe.recipes.inception,
            },
        ),
        (evaluate, {"image_size": (8, 14), "recipe": tfpipe.recipes.vgg}),
        (evaluate, {"dtype": "float32"}),
    ],
)
def test_element_specs(data_dir, preset, options):
    """Images need not be square; record_id is there if it is asked for."""
    height, width = options.get("image_size", (SIZE, SIZE))
    dtype = options.get("dtype", "uint8")
    features = {
        "image": tf.TensorSpec([4, height, width, 3], dtype),
        "label": tf.TensorSpec([4], tf.int32),
    }
    if preset is evaluate:
        features["mask"] = tf.TensorSpec([4], tf.float32)
    if options.get("with_record_id", True):
        features["record_id"] = tf.TensorSpec([4], tf.int64)

    if "image_size" in options:
        pipeline = make(preset, data_dir, **options)
        assert "image_size=(8, 14)" in str(pipeline)
        spec = pipeline.build().element_spec
    else:
        spec, _ = read(preset, data_dir, **options)

    assert spec == features


def test_pixels_are_normalized_on_the_host_for_float_types(data_dir):
    pixels = joined(batches(evaluate, data_dir), "image")

    images = joined(batches(evaluate, data_dir, dtype="float32"), "image")

    mean, std = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
    real = joined(batches(evaluate, data_dir), "mask") == 1
    # Those that are normalized on the host were never rounded.
    expected, rounding = ((pixels - mean) / std)[real], 0.5 / min(std)
    np.testing.assert_allclose(images[real], expected, rtol=0, atol=rounding + 1e-5)


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_training_gives_every_record_to_one_rank(data_dir, num_ranks):
    shares = ranks(train, data_dir, num_ranks, seed=5, epoch=2)

    assert [len(share) for share in shares] == [NUM_TRAIN // num_ranks // 4] * num_ranks
    record_ids = np.concatenate([joined(share, "record_id") for share in shares])
    assert sorted(record_ids) == list(range(NUM_TRAIN))


def test_training_steps_are_equal_and_full_on_every_rank(data_dir):
    num_ranks, batch_size, num_steps = 2, 5, 2
    shares = [
        records(train, data_dir, rank=rank, num_ranks=num_ranks, batch_size=batch_size)
        for rank in range(num_ranks)
    ]

    assert [len(share) for share in shares] == [num_steps * batch_size] * num_ranks
    assert len({*shares[0], *shares[1]}) == num_ranks * batch_size * num_steps


@pytest.mark.parametrize(
    ("num_ranks", "batch_size", "num_steps"),
    [
        (1, 4, 2),
        (3, 2, 2),  # 2, 2 and 3 records: the second batch of two ranks is all padding
    ],
)
def test_evaluation_counts_every_record_once(
    data_dir, num_ranks, batch_size, num_steps
):
    shares = ranks(evaluate, data_dir, num_ranks, batch_size=batch_size)

    assert [len(share) for share in shares] == [num_steps] * num_ranks
    everything = list(itertools.chain(*shares))
    mask = joined(everything, "mask")
    assert mask.sum() == NUM_VALIDATION
    real = joined(everything, "record_id")[mask == 1]
    assert sorted(real) == list(range(NUM_VALIDATION))


def test_rank_beyond_the_number_of_records_has_padding_alone(data_dir):
    (one,), (nothing,) = (
        batches(evaluate, data_dir, rank=rank, num_ranks=8, batch_size=1)
        for rank in (6, 0)
    )

    assert {one["mask"].item(), nothing["mask"].item()} == {0, 1}


def test_evaluation_is_in_disk_order_and_the_same_in_every_epoch(data_dir):
    first = batches(evaluate, data_dir, epoch=0)

    assert joined(first, "record_id").tolist()[:NUM_VALIDATION] == list(range(7))
    assert same(first, batches(evaluate, data_dir, epoch=1))


def test_steps_are_known_before_they_are_made(data_dir):
    assert make(train, data_dir, batch_size=5).build(num_epochs=3).cardinality() == 12
    assert make(evaluate, data_dir, num_ranks=2).build().cardinality() == 1


@pytest.mark.parametrize(("preset", "numbers"), [(train, (1, 4)), (evaluate, (4,))])
def test_parallelism_does_not_change_a_byte(data_dir, preset, numbers):
    for number in numbers:
        tuning = tfpipe.Tuning(
            num_parallel_reads=number,
            num_parallel_maps=2 * number - 1,
            private_threadpool_size=2 * number - 1,
        )
        made = batches(preset, data_dir, tuning=tuning)
        assert same(made, batches(preset, data_dir))


@pytest.mark.parametrize("preset", [train, evaluate])
def test_skipping_changes_no_byte_of_sound_data(data_dir, preset):
    skipping = batches(preset, data_dir, on_error="skip")
    assert joined(skipping, "mask").sum() == {train: NUM_TRAIN}.get(
        preset, NUM_VALIDATION
    )
    common = [
        {name: value for name, value in batch.items() if name != "mask"}
        for batch in skipping
    ]
    stopping = [
        {name: value for name, value in batch.items() if name != "mask"}
        for batch in batches(preset, data_dir)
    ]
    assert same(stopping, common)


def test_seed_changes_order_and_pixels(data_dir):
    first, second = batches(train, data_dir), batches(train, data_dir, seed=3)

    assert joined(first, "record_id").tolist() != joined(second, "record_id").tolist()
    assert not same_pixels(first, second)


def test_epoch_changes_order_and_pixels(data_dir):
    first, second = batches(train, data_dir), batches(train, data_dir, epoch=1)

    assert joined(first, "record_id").tolist() != joined(second, "record_id").tolist()
    assert not same_pixels(first, second)


def test_augmentation_of_a_record_does_not_depend_on_the_number_of_ranks(data_dir):
    (alone,) = ranks(train, data_dir, 1, seed=5, epoch=2)
    shared = ranks(train, data_dir, 2, seed=5, epoch=2)

    assert same_pixels(alone, list(itertools.chain(*shared)))


@pytest.mark.parametrize("preset", [train, evaluate])
def test_a_build_goes_on_from_a_state_through_the_same_epochs(data_dir, preset):
    pipeline = make(preset, data_dir)
    alone = [batches(preset, data_dir, epoch=epoch) for epoch in (0, 1)]
    state = pipeline.source.advance(tfpipe.State(), 1)

    rest = list(pipeline.build(state=state, num_epochs=2).as_numpy_iterator())

    assert same(rest, alone[0][1:] + alone[1])


@pytest.mark.parametrize("label_offset", [0, 1])
def test_labels_are_those_of_the_folders(data_dir, label_offset):
    files = index.load_catalog(data_dir, "train", ["filename"])["filename"]
    folders = [filename.split("/")[1] for filename in files]

    options = {"parse": tfpipe.Parse(label_offset=label_offset)} if label_offset else {}
    result = batches(train, data_dir, **options)

    pairs = zip(joined(result, "record_id"), joined(result, "label"), strict=True)
    assert {number: label - label_offset for number, label in pairs} == {
        number: CLASS_OF[folder] for number, folder in enumerate(folders)
    }


def test_validation_labels_are_those_of_the_label_file(data_dir, raw_dir):
    synsets = (raw_dir / "synset_labels.txt").read_text().split()
    files = index.load_catalog(data_dir, "validation", ["filename"])["filename"]
    numbers = [int(name.removesuffix(".JPEG").split("_")[-1]) for name in files]

    labels = joined(batches(evaluate, data_dir), "label")[:NUM_VALIDATION]

    assert labels.tolist() == [CLASS_OF[synsets[number - 1]] for number in numbers]


def test_images_are_those_of_the_files(data_dir, raw_dir):
    files = index.load_catalog(data_dir, "validation", ["filename"])["filename"]
    crop = tfpipe.CenterCrop(image_size=SIZE, quality="exact")

    images = joined(batches(evaluate, data_dir), "image")[:NUM_VALIDATION]

    for image, name in zip(images, files, strict=True):
        data = (raw_dir / name).read_bytes()
        height, width, _ = tf.image.decode_jpeg(data).shape
        example = {"encoded": data, "height": height, "width": width}
        np.testing.assert_array_equal(image, crop(example)["image"])


def test_training_images_are_random_crops_flipped_half_of_the_time(data_dir, raw_dir):
    files = index.load_catalog(data_dir, "train", ["filename"])["filename"]
    epoch_seed = order.epoch_seed(seed=5, epoch=2)
    crop, flip = tfpipe.RandomCrop(image_size=SIZE, quality="exact"), tfpipe.Flip()

    (result,) = ranks(train, data_dir, 1, seed=5, epoch=2)

    pairs = zip(joined(result, "record_id"), joined(result, "image"), strict=True)
    for number, image in pairs:
        data = (raw_dir / files[number]).read_bytes()
        height, width, _ = tf.image.decode_jpeg(data).shape
        example = {"encoded": data, "height": height, "width": width}
        example["seed"] = tf.constant([epoch_seed, number], tf.int64)
        np.testing.assert_array_equal(image, flip(crop(example))["image"])


def test_any_split_can_be_trained_or_evaluated_on(data_dir):
    trained = batches(train, data_dir, split="validation", batch_size=7)

    assert sorted(trained[0]["record_id"]) == list(range(NUM_VALIDATION))
    evaluated = records(evaluate, data_dir, split="train", batch_size=24)
    assert evaluated == list(range(NUM_TRAIN))


def test_pipeline_can_be_taken_apart_and_put_together(data_dir):
    pipeline = make(train, data_dir)

    shorter = tfpipe.Pipeline(pipeline.source, [*pipeline.stages, tfpipe.Take(2)])

    expected = batches(train, data_dir)[:2]
    assert same(list(shorter.build().as_numpy_iterator()), expected)


@pytest.mark.parametrize(
    ("preset", "options", "message"),
    [
        (train, {"batch_size": 25}, "24 records cannot give 1 rank a batch of 25"),
        (train, {"batch_size": 13, "num_ranks": 2}, "cannot give 2 ranks a batch of"),
        (train, {"batch_size": 0}, "batch_size must be a whole number >= 1, got 0"),
        (train, {"num_ranks": 25}, "24 records cannot give 25 ranks a batch of 4"),
        (
            train,
            {"on_error": "ignore"},
            "on_error must be one of raise, skip, got 'ignore'",
        ),
        (
            train,
            {"on_error": "skip", "max_faults": -1},
            "max_faults must be a whole number >= 0",
        ),
        (train, {"rank": 2, "num_ranks": 2}, "rank must be 0 to .* 1, got 2"),
        (
            train,
            {"image_size": 0},
            "image_size must be a whole number from 1 to 16384, got 0",
        ),
        (train, {"dtype": "int8"}, "dtype must be one of uint8, .* got 'int8'"),
        (train, {"seed": -1}, "seed must be a whole number from 0 to"),
        (evaluate, {"batch_size": 0}, "batch_size must be a whole number >= 1, got 0"),
        (
            evaluate,
            {"image_size": -1},
            "image_size must be a whole number from 1 to 16384, got -1",
        ),
    ],
)
def test_what_cannot_work_is_refused_when_the_pipeline_is_made(
    data_dir, preset, options, message
):
    with pytest.raises(ValueError, match=message):
        make(preset, data_dir, **options)


@pytest.mark.parametrize("preset", [train, evaluate])
def test_split_that_is_not_there_is_refused(data_dir, preset):
    with pytest.raises(
        tfpipe.errors.BadIndexError, match="choose one of train, validation"
    ):
        make(preset, data_dir, split="test")


def test_shard_cut_short_is_named_before_the_first_step(data_dir, tmp_path):
    folder = shutil.copytree(data_dir, tmp_path / "copy")
    shard = folder / "train-00001-of-00003"
    shard.write_bytes(shard.read_bytes()[:-1])

    with pytest.raises(
        tfpipe.errors.BadIndexError, match=f"{shard} must have .* bytes"
    ):
        make(train, folder)
    assert len(records(evaluate, folder)) == 8  # the other split is whole


@pytest.mark.parametrize(("image_size", "quality"), [(10, "fast"), (12, "exact")])
def test_images_three_times_as_large_are_decoded_at_a_smaller_scale(
    data_dir, image_size, quality
):
    # Their short side is 32 to 34, 33 in the middle.
    assert f"quality='{quality}'" in str(make(train, data_dir, image_size=image_size))


@pytest.fixture(scope="module")
def record(data_dir):
    """One as it comes out of Interleave."""
    return next(iter(make(train, data_dir).prefix(1).build()))


def mapped(pipeline, record):
    """The example that the ops of a pipeline make of a record."""
    (stage,) = (s for s in pipeline.stages if isinstance(s, tfpipe.Map))
    for op in stage.ops:
        record = op(record)
    return record


@pytest.mark.parametrize(
    ("preset", "recipe"),
    [
        (train, tfpipe.recipes.resnet),
        (train, tfpipe.recipes.inception),
        (train, tfpipe.recipes.vgg),
        (evaluate, tfpipe.recipes.inception),
    ],
)
def test_recipes_give_normalized_pixels_on_the_host_and_on_the_device(
    data_dir, record, preset, recipe
):
    on_host, on_device = (
        make(preset, data_dir, recipe=recipe, dtype=dtype)
        for dtype in ("float32", "uint8")
    )
    host, device = (
        pipeline.on_device(mapped(pipeline, record))["image"].numpy()
        for pipeline in (on_host, on_device)
    )

    assert on_host.device_ops == ()
    assert host.dtype == device.dtype == np.float32
    # Pixels for the device are rounded, by half a level at most.
    half_a_level = 0.501 / min(on_device.device_ops[0].std)
    np.testing.assert_allclose(host, device, atol=half_a_level, rtol=0)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 224),
        ({"recipe": tfpipe.recipes.keras("Xception")}, 299),
        ({"recipe": tfpipe.recipes.keras("vgg_16"), "image_size": (8, 12)}, (8, 12)),
    ],
)
def test_images_have_the_size_of_the_recipe_unless_another_is_asked_for(
    data_dir, options, size
):
    pipeline = tfpipe.imagenet_train(data_dir, batch_size=4, **options)

    height, width = size if isinstance(size, tuple) else (size, size)
    assert pipeline.build().element_spec["image"].shape == (4, height, width, 3)


def test_an_unknown_model_of_keras_is_told_the_names():
    with pytest.raises(ValueError, match=r"got 'mobilnet_v2'. Did you mean mobilene"):
        tfpipe.recipes.keras("mobilnet_v2")
    with pytest.raises(ValueError, match=r"The names are densenet, .*V2L\.$"):
        tfpipe.recipes.keras("alexnet")
    assert tfpipe.recipes.keras("MobileNet_V2") == tfpipe.recipes.keras("mobilenet_v2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tuning": {}}, r"tuning must be of type Tuning or None, got \{\}"),
        ({"cache": "ram"}, r'Write cache=tfpipe.Cache\("ram"\)'),
        ({"data": None}, "data_dir must be a path or a URL, got NoneType"),
        ({"data": ["a", "b"]}, "data_dir must be a path or a URL, got"),
        ({"recipe": "resnet"}, r"or for a model of Keras tfpipe.recipes.keras\('resn"),
        ({"dtype": "int8"}, "^dtype must be one of uint8, .* got 'int8'"),
        ({"image_size": 0, "batch_size": 99}, "^image_size must be"),
        ({"quality": "fats"}, "^quality must be one of .* Did you mean fast"),
        ({"crop_op": "nativ"}, "^crop_op must be one of .* Did you mean native"),
        ({"split": 5}, "^split must be of type str or None, got 5"),
        ({"batch_size": 99}, r"The largest batch_size is 24\.$"),
    ],
)
def test_a_usual_mistake_is_told_what_to_write(data_dir, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        tfpipe.imagenet_train(**{"data": data_dir} | options)
    assert tfpipe.imagenet_eval(data_dir).source.batch_size == 32


@pytest.mark.parametrize("preset", [train, evaluate])
def test_a_wrong_name_fails_before_any_work_and_suggests_the_near_one(preset):
    with pytest.raises(
        TypeError, match=r"no argument 'imagesize'\. Did you mean image_s"
    ):
        preset("no folder", imagesize=8)
    with pytest.raises(
        TypeError, match=r"^tfpipe\.imagenet_.*: missing a .* 'data'\.$"
    ):
        preset(image_size=8)


def test_the_presets_have_one_signature_with_the_options_of_images():
    parameters = inspect.signature(train).parameters

    assert inspect.signature(evaluate).parameters == parameters
    assert {*inspect.signature(tfpipe.ImageOptions).parameters} < {*parameters}
    assert parameters["image_size"].annotation == int | tuple[int, int] | None


def test_options_give_several_sources_the_images_of_the_preset(data_dir):
    options = tfpipe.ImageOptions(image_size=SIZE, with_record_id=True)
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=4)

    own = options.pipeline(source, "train")

    made = list(own.build().as_numpy_iterator())
    assert same(made, batches(train, data_dir))
    with pytest.raises(ValueError, match=r"must have remainder='pad', got 'drop'"):
        options.pipeline(source, "evaluate")
    with pytest.raises(ValueError, match=r"purpose must be one of train, evaluate"):
        options.pipeline(source, "eval")


def test_images_can_be_left_encoded(data_dir):
    batch = next(iter(make(train, data_dir, recipe=None).build()))

    for encoded, height, width in zip(
        *(batch[name].numpy() for name in ("encoded", "height", "width")), strict=True
    ):
        assert tf.io.decode_jpeg(encoded).shape == (height, width, 3)


@pytest.mark.parametrize(
    ("preset", "options"),
    [(train, {"seed": 3}), (evaluate, {})],
)
def test_a_source_of_ones_own_gives_the_batches_of_a_folder(data_dir, preset, options):
    split = "train" if preset is train else "validation"
    kind = {} if preset is train else {"shuffle": "none", "remainder": "pad"}
    source = tfpipe.TFRecordSource(data_dir, split, batch_size=4, **kind, **options)

    own = preset(source, image_size=SIZE, with_record_id=True)

    made = list(own.build().as_numpy_iterator())
    assert same(made, batches(preset, data_dir, **options))


@pytest.mark.parametrize("recipe", [tfpipe.recipes.resnet, tfpipe.recipes.inception])
def test_training_stretches_wide_images_no_more_than_square_ones(recipe):
    square, wide = (
        recipe(image_size, "uint8", "exact").train[0] for image_size in (16, (8, 20))
    )

    assert wide.ratio == pytest.approx([2.5 * ratio for ratio in square.ratio])


def first_batch(pipeline):
    return next(pipeline.build().as_numpy_iterator())


@pytest.mark.parametrize(
    ("op", "whole_batches"), [(tfpipe.MixUp(), False), (tfpipe.CutMix(), True)]
)
def test_mixup_needs_no_rebuilt_list_of_stages(data_dir, op, whole_batches):
    options = {"batch_ops": [op], "whole_batches": whole_batches}

    batch = first_batch(make(train, data_dir, **options))

    plain = dict(batches(train, data_dir)[0])
    assert batch.keys() == plain.keys()  # no seed
    epoch_seed = order.epoch_seed(seed=0, epoch=0)
    seed = [[epoch_seed, number] for number in plain["record_id"]]
    plain["label"] = np.eye(1000, dtype=np.float32)[plain["label"]]
    expected = op(
        tf.nest.map_structure(tf.constant, plain)
        | {"seed": tf.constant(seed, tf.int64)}
    )
    for name, values in batch.items():
        np.testing.assert_array_equal(values, expected[name])


def test_mixup_takes_the_smoothed_labels_of_an_op(data_dir):
    smooth = tfpipe.OneHot(9, smoothing=0.9)
    for options in ({"ops": (), "batch_ops": [smooth]}, {"ops": [smooth]}):
        mixing = [*options.pop("batch_ops", []), tfpipe.MixUp()]
        pipeline = make(train, data_dir, batch_ops=mixing, **options)

        assert str(pipeline).count("OneHot") == 1
        assert str(pipeline).index("OneHot") < str(pipeline).index("MixUp")
    assert first_batch(pipeline)["label"].min() == pytest.approx(0.1)


def test_mixup_and_then_cutmix_count_labels_as_parse_delivers_them(data_dir):
    parse = tfpipe.Parse(label_offset=2)
    mixing = [tfpipe.MixUp(alpha=1), tfpipe.CutMix()]

    batch = first_batch(make(train, data_dir, parse=parse, batch_ops=mixing))

    assert batch["label"].shape == (4, 1002)
    assert batch["label"][:, :2].max() == 0
    np.testing.assert_allclose(batch["label"].sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("preset", "options"),
    [(evaluate, {}), (train, {"on_error": "skip"}), (train, {"recipe": None})],
)
def test_mixup_of_padding_is_refused_when_the_pipeline_is_made(
    data_dir, preset, options
):
    mixing = [tfpipe.Reseed(tfpipe.CutMix(), 1)]

    with pytest.raises(ValueError, match=r"images that are all real, got .*on_error"):
        make(preset, data_dir, batch_ops=mixing, **options)


def test_mixup_without_known_classes_says_what_to_add(data_dir, monkeypatch):
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=4)
    nameless = dataclasses.replace(source.index, classes=())
    monkeypatch.setattr(tfpipe.TFRecordSource, "index", nameless)

    with pytest.raises(ValueError, match=r"Add OneHot\(num_classes\) to ops"):
        train(source, image_size=SIZE, batch_ops=[tfpipe.MixUp()])


def invert(example):
    """An op of a user: it needs whole pixels, 0 to 255."""
    assert example["image"].dtype == tf.uint8
    return example | {"image": 255 - example["image"]}


@pytest.mark.parametrize(
    ("preset", "recipe"),
    [(train, tfpipe.recipes.inception), (evaluate, tfpipe.recipes.resnet)],
)
def test_extra_ops_change_pixels_before_they_are_normalized(
    data_dir, record, preset, recipe
):
    normalized, pixels, plain = (
        mapped(make(preset, data_dir, recipe=recipe, **options), record)["image"]
        for options in ({"ops": [invert], "dtype": "float32"}, {"ops": [invert]}, {})
    )

    np.testing.assert_array_equal(pixels, 255 - plain)
    normalize = recipe(SIZE, "uint8", "exact").normalize
    expected = normalize({"image": pixels})["image"]
    np.testing.assert_array_equal(normalized, expected)


def test_a_second_flip_is_refused_as_it_would_undo_the_first(data_dir):
    with pytest.raises(ValueError, match=r"no Flip\(\), since the recipe mirrors"):
        make(train, data_dir, ops=[tfpipe.Flip()])
    assert "Flip()" in str(make(evaluate, data_dir, ops=[tfpipe.Flip()]))


def test_an_op_for_labels_leaves_float_pixels_as_they_are(data_dir):
    options = {"dtype": "float32", "ops": [tfpipe.OneHot(4)], "whole_batches": True}

    batch = first_batch(make(evaluate, data_dir, **options))

    assert batch["label"].shape == (4, 4)
    plain = batches(evaluate, data_dir, dtype="float32")[0]["image"]
    np.testing.assert_array_equal(batch["image"], plain)


def test_numbers_beside_a_source_are_refused(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=4)

    with pytest.raises(ValueError, match="got batch_size=4, rank=0"):
        train(source, batch_size=4, rank=0)
    with pytest.raises(ValueError, match=r"must have remainder='pad', got 'drop'"):
        evaluate(source)


def test_parse_without_a_label_base_says_where_it_is():
    with pytest.raises(ValueError, match=r"label_base=source\.index\.label_base"):
        tfpipe.Parse()({})
