"""Wrong types and values of every public constructor and function, by one table."""

import inspect
import math
import pathlib
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
import tfpipe.ops.crop
from tfpipe import errors
from tfpipe.consumers import classes
from tfpipe.native import libraries
from tfpipe.training import headspace
from tfpipe.tuner import race, space

# Kinds of arguments: what is wrong for each.
INT = (2.5, 3.0, True, np.True_, "3", [3], math.nan, 10**30)
NUMBER = (math.nan, math.inf, -math.inf, True, "0.5", [0.5])
SWITCH = (1, 0, "no", None)
FUNCTION = (3, "op", [])
SEED = (*INT, -1, None)
SIZE = (*INT, 0, -1, None)
SIZE_OR_NONE = (*INT, 0, -1)
CALLS = (*INT, 0, -2)  # or AUTOTUNE, which is -1
IMAGE_SIZE = (*SIZE, 20_000, (8,), (8, 0), (8, 20_000), (8, 8, 3), (8, 2.5), "8x8")
SECONDS = (*NUMBER, 0, -1, None)
SHARE = (*NUMBER, -0.1, 1.1, None)
PAIR = (0.5, (0.5,), (0.5, 0.1), (math.nan, 1), (0.5, math.inf), (True, 1), "ab", None)
PIXEL = ((0, 0), (0, 0, 256), (0, 0, 0.5), (True, 0, 0), 7)
OBJECT = (3, "x", {})


def source(**options):
    return tfpipe.SyntheticSource(**{"batch_size": 2} | options)


def pipeline():
    return tfpipe.Pipeline(source(), [])


def datasets():
    return {"a": tf.data.Dataset.range(3).repeat()}


def crop(**others):
    return {
        "image_size": IMAGE_SIZE,
        "normalize": OBJECT,
        "quality": ("slow", 1, None),
        "dtype": ("int8", 1, None),
        "layout": ("CHW", 1, None),
        **others,
    }


def crop_image(**options):
    return tfpipe.ops.crop.crop_image(b"", (0, 0, 1, 1), **options)


# What is made, with which arguments that are right, and what each must not be.
MADE = [
    (tfpipe.AssertCardinality, {"num_elements": 5}, {"num_elements": (*INT, -3)}),
    (
        tfpipe.Batch,
        {"batch_size": 4},
        {"batch_size": SIZE, "drop_remainder": SWITCH},
    ),
    (
        space.Budget,
        {"num_threads": 2, "ram_bytes": 9},
        {
            "num_threads": SIZE,
            "ram_bytes": SIZE,
            "disk_bytes": (*INT, -1),
            "any_order": SWITCH,
        },
    ),
    (
        tfpipe.Cache,
        {"where": "ram"},
        {
            "where": ("tape", 1),
            "max_bytes": SIZE_OR_NONE,
            "num_parallel_reads": SIZE_OR_NONE,
        },
    ),
    (tfpipe.Cast, {"dtype": "uint8"}, {"dtype": ("int8", 1, None)}),
    (
        tfpipe.CenterCrop,
        {"image_size": 8},
        crop(fraction=(*NUMBER, 0, 1.1, None)),
    ),
    (
        tfpipe.ColorJitter,
        {},
        {
            "brightness": (*NUMBER, -1),
            "contrast": (*NUMBER, -1),
            "saturation": (*NUMBER, -1),
            "hue": (*NUMBER, -1, 0.6),
        },
    ),
    (tfpipe.CutMix, {}, {"alpha": (*NUMBER, 0, None)}),
    (tfpipe.Cutout, {"size": 3}, {"size": SIZE, "fill": (*PIXEL, None)}),
    (tfpipe.DistortColor, {}, {"fast": SWITCH}),
    (tfpipe.EntryPoints, {"path": "/x"}, {"path": (*OBJECT[::2], None)}),
    (
        tfpipe.FaultLog,
        {"max_faults": 3},
        {"max_faults": (*INT, -1, None), "locate": FUNCTION},
    ),
    (
        tfpipe.Files,
        {"location": "folder"},
        {"location": (3, None, "ftp://host/x"), "time_limit": (*NUMBER, 0)},
    ),
    (
        tfpipe.Interleave,
        {},
        {
            "num_parallel_reads": SIZE_OR_NONE,
            "read_buffer_bytes": SIZE_OR_NONE,
            "faults": OBJECT,
        },
    ),
    (tfpipe.LogInput, {"timer": tfpipe.StepTimer(2)}, {"timer": OBJECT}),
    (tfpipe.MixUp, {}, {"alpha": (*NUMBER, 0, None)}),
    (
        tfpipe.Normalize,
        {},
        {
            "mean": (
                (1, 2),
                (1, 2, math.nan),
                (1, 2, math.inf),
                (1, 2, True),
                3,
                "abc",
            ),
            "std": ((1, 2), (1, 2, math.nan), (1, 2, 0), (1, 2, math.inf), 3, None),
            "bgr": SWITCH,
        },
    ),
    (
        tfpipe.OneHot,
        {"num_classes": 9},
        {"num_classes": SIZE, "smoothing": (*NUMBER, -0.1, 1)},
    ),
    (tfpipe.ParseBoxes, {}, {"max_boxes": SIZE, "label_base": INT}),
    (
        tfpipe.Parse,
        {"label_base": 1},
        {
            "label_base": INT,
            "label_offset": (*INT, None),
            "image_key": (*OBJECT[::2], None),
            "label_key": (*OBJECT[::2], None),
            "height_key": OBJECT[::2],
            "width_key": OBJECT[::2],
            "extra": (3, {"x": 3}),
            "multi_label": SWITCH,
            "num_classes": SIZE_OR_NONE,
        },
    ),
    (
        tfpipe.Pipeline,
        {"source": source(), "stages": []},
        {
            "source": FUNCTION,
            "stages": ([3], ["Batch"], [tfpipe.Batch]),
            "tuning": (*OBJECT, None),
            "device_ops": ([3], [tfpipe.Flip]),
        },
    ),
    (tfpipe.Prefetch, {}, {"buffer_size": CALLS}),
    (
        tfpipe.RandAugment,
        {},
        {
            "num_ops": SIZE,
            "magnitude": (*NUMBER, -1, 11),
            "translation": (*NUMBER, -1),
            "cutout": (*NUMBER, -1),
            "operations": ([], ["Nonsense"]),
        },
    ),
    (
        tfpipe.RandomCrop,
        {"image_size": 8},
        crop(
            area=(*PAIR, (0, 1), (0.5, 1.1)),
            ratio=(*PAIR, (0, 1)),
            max_attempts=SIZE,
            flip=SWITCH,
        ),
    ),
    (
        tfpipe.RandomErasing,
        {},
        {
            "probability": SHARE,
            "area": (*PAIR, (0, 1), (0.5, 1.1)),
            "ratio": (*PAIR, (0, 1)),
            "fill": PIXEL,
            "max_attempts": SIZE,
        },
    ),
    (
        tfpipe.RandomScaleCrop,
        {"image_size": 8},
        crop(short_side=(9, (7, 9), (9, 8), (8.5, 9), (True, 9)), flip=SWITCH),
    ),
    (
        tfpipe.recipes.Recipe,
        {
            "train": (tfpipe.Flip(),),
            "evaluate": (tfpipe.Flip(),),
            "normalize": tfpipe.Normalize(),
        },
        {
            "train": ((3,), (tfpipe.Flip,)),
            "evaluate": ((3,),),
            "normalize": (3, tfpipe.Normalize),
        },
    ),
    (
        tfpipe.Reseed,
        {"op": tfpipe.Flip(), "salt": 1},
        {"op": (*FUNCTION, tfpipe.Flip), "salt": (*INT, None)},
    ),
    (tfpipe.Resize, {"image_size": 8}, crop()),
    (
        tfpipe.Sampling,
        {"balance": 0.5},
        {"balance": SHARE, "num_draws": SIZE_OR_NONE},
    ),
    (
        tfpipe.Sampling,
        {"class_weights": {"cat": 1}},
        {
            "class_weights": (
                *({"cat": weight} for weight in (*NUMBER, -1, 0, None)),
                *({label: 1} for label in (2.5, None, True)),
                *({}, None, 3, [1.0]),
            )
        },
    ),
    (
        tfpipe.Sampling,
        {"record_weights": [1, 0.5]},
        {
            "record_weights": (
                *([1.0, weight] for weight in (math.nan, math.inf, -1, "x")),
                *([], [0, 0], [[1.0]], [True], 3, None, {0: 1}),
            )
        },
    ),
    (tfpipe.CheckpointState, {}, {"state": OBJECT}),
    (
        tfpipe.ServicePayoff,
        {"rate": 1, "num_cores": 2},
        {
            "rate": SECONDS,
            "num_cores": SECONDS,
            "demand": SECONDS[:-1],
            "cpu_seconds": SECONDS[:-1],
            "bytes_per_image": SECONDS[:-1],
            "unit": OBJECT[:1],
        },
    ),
    (
        space.Setting,
        {"tuning": tfpipe.Tuning()},
        {"tuning": (*OBJECT, None), "cache": OBJECT},
    ),
    (
        tfpipe.Service,
        {"address": "127.0.0.1:5050"},
        {
            "address": (3, None, "5050", "host", "a/b:1", "h:70000"),
            "lost_after_s": SECONDS[:-1],
            "compress": SWITCH,
        },
    ),
    (
        tfpipe.ShardCache,
        {"directory": "cache"},
        {
            "directory": (3, None, "", "s3://bucket/cache", "file:///cache"),
            "max_bytes": SIZE_OR_NONE,
            "num_connections": (*SIZE, 2000),
            "time_limit": SECONDS,
        },
    ),
    (tfpipe.Shuffle, {"buffer_size": 8}, {"buffer_size": SIZE, "seed": SEED}),
    (
        tfpipe.State,
        {},
        {
            "epoch": SEED,
            "step": SEED,
            "num_ranks": SIZE_OR_NONE,
            "batch_size": SIZE_OR_NONE,
            "phases": (((0, 1),), ((1, -1),), ((1, 2.5),)),
            "digest": (3, None),
        },
    ),
    (
        tfpipe.StepTimer,
        {"batch_size": 2},
        {
            "batch_size": SIZE,
            "every": SIZE,
            "rank": SEED,
            "first_step": SEED,
            "parallelism": FUNCTION,
            "report": FUNCTION,
        },
    ),
    (
        tfpipe.SyntheticSource,
        {"batch_size": 2},
        {
            "batch_size": SIZE,
            "steps_per_epoch": SIZE,
            "image_size": (*SIZE, (8,), (8, 0)),
            "num_classes": SIZE,
            "dtype": ("nonsense", None),
            "seed": SEED,
        },
    ),
    (tfpipe.Take, {"count": 3}, {"count": SIZE}),
    (
        tfpipe.Tuning,
        {},
        {
            "num_parallel_reads": (*SIZE, [1, 2]),
            "num_parallel_maps": (*(x for x in CALLS if x != [3]), (1, 2.5), None),
            "prefetch_buffer_size": (*CALLS, None),
            "read_buffer_bytes": SIZE,
            "private_threadpool_size": (*SIZE_OR_NONE, 1 << 31),
            "max_intra_op_parallelism": (*SIZE, 1 << 31),
            "ram_budget_bytes": SIZE_OR_NONE,
            "fuse_map_and_batch": SWITCH,
            "deterministic": SWITCH,
        },
    ),
]

# Functions, which are only called with what is wrong.
CALLED = [
    (
        tfpipe.view.before_and_after,
        {"pipeline": pipeline()},
        {"pipeline": OBJECT, "num_images": SIZE, "num_columns": SIZE, "epoch": SEED},
    ),
    (
        pipeline().for_keras,
        {},
        {
            "epoch": SEED,
            "num_epochs": SIZE_OR_NONE,
            "state": OBJECT,
            "one_hot": SWITCH,
            "device_ops": ("gpu", 1, None),
            "class_weights": ([], [math.nan], [-1.0], ["1"], {1: 1.0}),
        },
    ),
    (
        race.compare,
        {"datasets": datasets(), "seconds": 1, "num_rounds": 1},
        {"datasets": ({}, {"a": 3}), "seconds": SECONDS, "num_rounds": SIZE},
    ),
    (
        tfpipe.view.contact_sheet,
        {"batch": {"image": np.zeros([1, 2, 2, 3], np.uint8), "label": [0]}},
        {"num_columns": SIZE, "max_images": SIZE, "pipeline": OBJECT},
    ),
    (crop_image, {}, {"image_size": IMAGE_SIZE}),
    (
        headspace.headspace,
        {"pipeline": pipeline(), "step": len},
        {
            "pipeline": OBJECT,
            "step": FUNCTION,
            "seconds": SECONDS,
            "num_rounds": SIZE,
            "fewer_cores": SWITCH,
        },
    ),
    (tfpipe.load_tuned, {"path": "none", "pipeline": pipeline()}, {"pipeline": OBJECT}),
    (space.opened, {"pipeline": pipeline()}, {"pipeline": OBJECT}),
    (
        pipeline().build,
        {},
        {
            "epoch": SEED,
            "num_epochs": SIZE_OR_NONE,
            "start_step": SEED,
            "state": OBJECT,
        },
    ),
    (pipeline().prefix, {}, {"num_stages": (*INT, -1, 1, None)}),
    (pipeline().preprocess, {"images": b""}, {"apply_device_ops": SWITCH}),
    (pipeline().to_numpy, {}, {"writable": SWITCH, "epoch": SEED}),
    (
        classes.weights,
        {"label_counts": {0: 3}, "label_names": ["cat"], "power": 1},
        {"power": SHARE},
    ),
    (
        tfpipe.preflight,
        {"pipeline": pipeline(), "all_gather": lambda value: [value]},
        {"pipeline": OBJECT, "all_gather": FUNCTION, "state": OBJECT},
    ),
    (
        tfpipe.profile,
        {"pipeline": pipeline()},
        {
            "pipeline": OBJECT,
            "num_elements": SIZE_OR_NONE,
            "seconds": SECONDS,
            "repeats": SIZE,
            "per_op": SWITCH,
            "consumer_seconds": (*NUMBER, -1, None),
            "storage_bytes_per_second": (*NUMBER, 0),
            "progress": SWITCH,
        },
    ),
    (
        tfpipe.search_tuning,
        {"pipeline": pipeline()},
        {
            "pipeline": OBJECT,
            "cpu_budget": SIZE_OR_NONE,
            "ram_budget_bytes": SIZE_OR_NONE,
            "disk_budget_bytes": (*INT, -1, 0),
            "num_local_ranks": SIZE,
            "any_order": SWITCH,
            "time_limit": SECONDS,
        },
    ),
    (
        tfpipe.sum_metrics,
        {"model": None, "all_reduce_sum": len},
        {"all_reduce_sum": FUNCTION},
    ),
    (
        tfpipe.throughput,
        {"dataset": tf.data.Dataset.range(3)},
        {
            "dataset": OBJECT,
            "num_elements": SIZE_OR_NONE,
            "seconds": SECONDS,
            "num_warmup": SIZE_OR_NONE,
            "repeats": SIZE,
        },
    ),
    (tfpipe.Tuning.for_local_ranks, {}, {"num_local_ranks": SIZE}),
    *(
        (recipe, {"dtype": "uint8", "quality": "fast"}, {"image_size": IMAGE_SIZE})
        for recipe in (
            tfpipe.recipes.inception,
            tfpipe.recipes.resnet,
            tfpipe.recipes.vgg,
        )
    ),
]

# Of a data set: see `on_data`.
SOURCE = {
    "files": ("", "/a", 3),
    "seed": SEED,
    "rank": (*SEED, 1),
    "num_ranks": SIZE,
    "batch_size": SIZE,
    "block_length": SIZE,
    "window_size": (*SIZE, 1e3),
    "shuffle": ("all", 1, None),
    "remainder": ("keep", 1, None),
    "sampling": OBJECT,
    "on_error": ("ignore", 1, None),
    "max_faults": (*INT, -1, None),
    "part": ("train", ("test", 0.1), ("train",), *(("train", x) for x in (0, 1, "a"))),
}
PRESET = {
    "image_size": [size for size in IMAGE_SIZE if size is not None],
    "validation_fraction": (*NUMBER, 0, 1),
    "batch_size": SIZE,
    "seed": SEED,
    "rank": (*SEED, 1),
    "num_ranks": SIZE,
    "recipe": (3, "op"),
    "dtype": ("int8", 1, None),
    "quality": ("slow", 1),
    "ops": (3, "op", [3], [tfpipe.Flip]),
    "batch_ops": (3, "op", [3], [tfpipe.MixUp]),
    "with_boxes": SWITCH,
    "cache": OBJECT[:2],
    "parse": OBJECT[:2],
    "with_record_id": SWITCH,
    "whole_batches": SWITCH,
    "tuning": OBJECT[:2],
}

# What users get and do not make; exceptions; names of functions without such arguments.
NOT_MADE = {
    *("errors", "host", "view", "Flip", "ToNCHW", "Subset"),
    "Search",
}
# Below, or takes the arguments of another.
ELSEWHERE = {
    *(
        "EachExample",
        "Map",
        "Select",
        "Mixture",
        "StateCallback",
        "TFRecordSource",
        "tune",
    ),
    *("imagenet_train", "imagenet_eval", "ImageOptions", "recipes", "Location"),
}


def _taken(make, right, name, values):
    """Those of the wrong values that are not refused by the name of the argument."""
    taken = []
    for value in values:
        try:
            make(**right | {name: value})
        except (ValueError, TypeError) as error:
            said = str(error)
            # Of what is a stage, its number says enough.
            if "must be" in said and (name in said or said.startswith("Stage ")):
                continue
            taken.append(f"{value!r}: {error}")
        else:
            taken.append(f"{value!r}")
    return taken


@pytest.mark.parametrize(
    ("make", "right", "name", "values"),
    [
        pytest.param(make, right, name, values, id=f"{make.__name__}.{name}")
        for make, right, wrong in [*MADE, *CALLED]
        for name, values in wrong.items()
    ],
)
def test_what_is_wrong_is_refused_by_its_name(make, right, name, values):
    assert _taken(make, right, name, values) == []


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (tfpipe.TFRecordSource, SOURCE),
        (tfpipe.imagenet_train, PRESET),
        (tfpipe.imagenet_eval, PRESET),
        (tfpipe.ImageOptions, PRESET),
    ],
)
def test_what_is_wrong_is_refused_on_a_data_set(make, wrong, data_dir):
    right = {"data_dir": data_dir, "split": "train"}
    if make is tfpipe.ImageOptions:
        right = {}
    elif make is not tfpipe.TFRecordSource:
        right = {"data": data_dir, "split": "train"}
        right |= {"image_size": 8, "batch_size": 2}
        # The source checks these; one wrong value shows that it gets them.
        wrong = wrong | {name: wrong[name][:1] for name in SOURCE if name in wrong}
    known = inspect.signature(make).parameters

    assert [
        (name, taken)
        for name, values in wrong.items()
        if name in known and (taken := _taken(make, right, name, values))
    ] == []


@pytest.mark.parametrize(
    ("make", "right", "wrong"), MADE, ids=[make.__name__ for make, _, _ in MADE]
)
def test_numbers_of_numpy_are_numbers(make, right, wrong):
    """An object made of them prints, and so is known, as one of plain numbers."""

    def as_numpy(value):
        kinds = {int: np.int64, float: np.float64, bool: np.bool_}
        return kinds.get(type(value), lambda other: other)(value)

    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(make).parameters.items()
        if type(parameter.default) in (int, float, bool)
    }
    values = defaults | right
    made = make(**{name: as_numpy(value) for name, value in values.items()})

    if type(made).__repr__ is not object.__repr__:
        assert repr(made) == repr(make(**values))


def test_every_public_name_is_in_a_table():
    tables = {getattr(make, "__name__", "") for make, _, _ in [*MADE, *CALLED]}

    assert set(tfpipe.__all__) <= tables | NOT_MADE | ELSEWHERE


@pytest.mark.parametrize(
    ("ops", "options"),
    [
        *(((op,), {}) for op in (*FUNCTION, tfpipe.Flip, None)),
        *(((tfpipe.Flip(),), {"num_parallel_calls": value}) for value in CALLS),
        *(((tfpipe.Flip(),), {"faults": value}) for value in OBJECT),
    ],
    ids=str,
)
def test_a_map_has_ops_that_can_be_called(ops, options):
    if not options:
        with pytest.raises((ValueError, TypeError), match=r"EachExample\..* must be"):
            tfpipe.EachExample(*ops)
    with pytest.raises((ValueError, TypeError), match=r"Map\..* must be"):
        tfpipe.Map(*ops, **options)


@pytest.mark.parametrize("name", [3, None, ["image"]])
def test_what_is_selected_has_a_name(name):
    with pytest.raises(TypeError, match=r"Select.names must be of type str"):
        tfpipe.Select("label", name)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("batch_size", SIZE),
        ("epoch_steps", SIZE_OR_NONE),
        ("weights", ([weight] for weight in (*NUMBER, 0, -1, None))),
        ("pipelines", ([3], ["x"])),
    ],
)
def test_a_mixture_is_of_numbers_and_pipelines(data_dir, name, values):
    part = tfpipe.Pipeline(
        tfpipe.TFRecordSource(data_dir, "train"), [tfpipe.Interleave()]
    )
    right = {"pipelines": [part], "weights": [Fraction(1, 3)]}

    for value in values:
        with pytest.raises((ValueError, TypeError), match=f"(?i){name}.* must be"):
            tfpipe.Mixture(**right | {name: value})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pipeline", OBJECT),
        ("saved", (*OBJECT, None)),
        ("save_freq", (*(value for value in SIZE if value != "3"), "step")),
    ],
)
def test_what_saves_a_state_has_one(data_dir, name, values):
    source = tfpipe.TFRecordSource(data_dir, "train")
    right = {"pipeline": tfpipe.Pipeline(source, []), "saved": tfpipe.CheckpointState()}

    for value in values:
        with pytest.raises(
            (ValueError, TypeError), match=f"StateCallback.{name} must be"
        ):
            tfpipe.StateCallback(**right | {name: value})


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (
            lambda: tfpipe.Batch(2.5),
            "Batch.batch_size must be a whole number >= 1",
        ),
        (lambda: tfpipe.Batch(10**30), "from 1 to 2**63 - 1, got 1000000"),
        (
            lambda: tfpipe.Shuffle(3, seed=-1),
            "Shuffle.seed must be a whole number from 0 to 2**64 - 1, got -1.",
        ),
        (
            lambda: tfpipe.Resize(image_size=20_000),
            "Resize.image_size must be a whole number from 1 to 16384, got 20000.",
        ),
        (
            lambda: errors.require_number("f", "x", 1, above=0, below=1),
            "f.x must be a finite number > 0 and < 1, got 1.",
        ),
        (
            lambda: tfpipe.Map(tfpipe.Flip),
            "number 1, must be an object, got the class Flip: write Flip(...).",
        ),
        (
            lambda: tfpipe.State(step=-(10**30)),
            "State.step must be a whole number >= 0, got -1000",
        ),
        (
            lambda: tfpipe.Parse(label_offset=-(10**30)),
            "from -9223372036854775808 to 2**63 - 1, got",
        ),
    ],
)
def test_errors_say_what_must_hold_and_what_was_got(check, said):
    with pytest.raises((ValueError, TypeError)) as raised:
        check()

    assert said in str(raised.value)


def test_a_class_that_is_no_op_may_be_called():
    errors.require_callable("f", "x", dict)


def test_a_state_of_numpy_numbers_is_saved():
    state = tfpipe.State(epoch=np.int64(3), phases=((np.int32(2), np.int64(10)),))

    assert tfpipe.State.from_json(state.to_json()) == state


def test_the_bound_of_image_sizes_is_that_of_the_native_op():
    source = next(path for path in libraries.SOURCES if path.name == "crop.cc")

    assert "kMaxImageSize = 1 << 14;" in source.read_text()
    assert tfpipe.ops.crop.MAX_IMAGE_SIZE == 1 << 14


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("s3://bucket/photos", "Mount that place as a folder"),
        ("gs://bucket", "A URL cannot be given here"),
        (pathlib.Path("s3://bucket/photos"), "got s3:/bucket/photos"),
        ("HDFS://host/x", "copy its files"),
        ("file:///data/x", "Write the path: /data/x."),
        (["here", "https://host/x"], "got https://host/x"),
    ],
)
def test_url_in_the_place_of_a_path_is_refused(path: object, remedy: str) -> None:
    with pytest.raises(ValueError, match=f"^Cache.directory must be a path.*{remedy}"):
        errors.require_local_path("Cache", "directory", path)


@pytest.mark.parametrize(
    "url",
    [
        "s3://me:se/cret@bucket/x",
        "s3:/me:secret@bucket/x",
        "https://host/x?signature=secret",
        "https://host/x#secret",
    ],
)
def test_a_refused_url_is_shown_without_its_secret(url: str) -> None:
    with pytest.raises(ValueError, match=r"got (s3:/|https://host/x)") as refused:
        errors.require_local_path("", "path", url)
    assert "cret" not in str(refused.value)


def test_paths_that_look_a_little_like_urls_are_paths() -> None:
    names = (
        "a:b",
        "C:/photos",
        "/data/s3:/x",
        "./s3://x",
        "10:30/x",
        "~/x",
        ["x"],
        None,
    )
    for path in names:
        errors.require_local_path("", "path", path)


def test_library_refuses_a_bucket_before_it_makes_a_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for make in (
        lambda url: tfpipe.ShardCache(url),
        lambda url: tfpipe.Cache("disk", url),
        lambda url: tfpipe.load_tuned(url, pipeline()),
        lambda url: tfpipe.Tuning().save(url, made_for={}),
        lambda url: tfpipe.tune(pipeline(), cache_dir=url, disk_budget_bytes=1 << 30),
    ):
        with pytest.raises(ValueError, match="must be a path on this machine"):
            make("s3://bucket/x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("check", [errors.require_int, errors.require_number])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_whole_number_that_is_no_float_is_refused(check, sign):
    with pytest.raises(ValueError, match="count must be a"):
        check("", "count", sign * 10**400, least=0, most=10)
