"""Variants of the path from JPEG records to batches.

In: the name of a variant and a `Job`. Out: its seconds and CPU-seconds.
`studies.decode` measures each variant in a process of its own.
"""

import dataclasses
import os
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any, Literal

import tensorflow as tf

import tfpipe
from studies import harness

Reading = Literal["auto", "native", "tensorflow"]
Whole = bool | Literal["auto"]

_MEAN, _STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(harness.Job):
    """Work of every variant: batches of random crops of the shuffled train split.

    Attributes:
        rewritten_data_dir: Folder of the same images, converted with --restart_rows;
            None if no variant reads them.
        entries_data_dir: Folder of the same data set with entry points, or None.
    """

    rewritten_data_dir: str | None = None
    entries_data_dir: str | None = None


def measure(name: str, job: Job) -> dict[str, float]:
    """Measures a variant in this process; see `harness.time_batches`."""
    return harness.time_batches(iter(VARIANTS[name](job)), job, time.process_time)


def _records(
    job: Job, function: Callable[[tf.Tensor], Any], *, shuffled: bool = True
) -> tf.data.Dataset:
    """Makes the tuned pipeline that people write by hand, around a map function."""
    paths = sorted(map(str, pathlib.Path(job.data_dir).glob("train-*-of-*")))
    dataset = tf.data.Dataset.from_tensor_slices(paths).interleave(
        lambda path: tf.data.TFRecordDataset(path, buffer_size=1 << 20),
        cycle_length=4,
        num_parallel_calls=4,
    )
    dataset = dataset.repeat()
    if shuffled:
        dataset = dataset.shuffle(1024)
    dataset = dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.threading.max_intra_op_parallelism = 1
    dataset = dataset.batch(job.batch_size, drop_remainder=True)
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)


def _parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
    integer = tf.io.FixedLenFeature([], tf.int64)
    text = tf.io.FixedLenFeature([], tf.string)
    keys = ("image/height", "image/width", "image/class/label")
    return tf.io.parse_single_example(
        record, {"image/encoded": text} | dict.fromkeys(keys, integer)
    )


def _crop_box(shape: tf.Tensor) -> tf.Tensor:
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        shape,
        tf.zeros([1, 0, 4]),
        min_object_covered=0.1,
        aspect_ratio_range=(0.75, 1.33),
        area_range=(0.08, 1.0),
        max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.stack([begin[0], begin[1], size[0], size[1]])


def _garden(job: Job, dtype: str) -> tf.data.Dataset:
    """Reads as TensorFlow Model Garden's ResNet does: size from the JPEG header."""
    size = [job.image_size, job.image_size]

    def load(record: tf.Tensor) -> Any:
        parsed = _parse(record)
        encoded = parsed["image/encoded"]
        crop_box = _crop_box(tf.image.extract_jpeg_shape(encoded))
        image = tf.image.decode_and_crop_jpeg(encoded, crop_box, channels=3)
        image = tf.image.random_flip_left_right(image)
        image = tf.image.resize(image, size)
        image = tf.ensure_shape(image, [*size, 3])
        if dtype == "uint8":
            image = tf.cast(tf.round(image), tf.uint8)
        else:
            image = (image - tf.constant(_MEAN)) / tf.constant(_STD)
        return image, tf.cast(parsed["image/class/label"], tf.int32)

    return _records(job, load)


def _hand(
    job: Job,
    *,
    dtype: str = "uint8",
    dct: str = "INTEGER_FAST",
    fancy: bool = False,
    resize: str = "image",
    rounding: str = "round",
) -> tf.data.Dataset:
    """Takes the size from the record; uses the fastest options of stock TensorFlow."""
    size = [job.image_size, job.image_size]

    def load(record: tf.Tensor) -> Any:
        parsed = _parse(record)
        sides = [parsed["image/height"], parsed["image/width"], tf.constant(3, "int64")]
        image = tf.image.decode_and_crop_jpeg(
            parsed["image/encoded"],
            _crop_box(tf.cast(tf.stack(sides), tf.int32)),
            channels=3,
            dct_method=dct,
            fancy_upscaling=fancy,
        )
        image = tf.ensure_shape(_RESIZE[resize](image, size), [*size, 3])
        if dtype == "uint8":
            image = _ROUND[rounding](image)
        image = tf.image.random_flip_left_right(image)
        if dtype == "float32":
            image *= tf.constant([1 / std for std in _STD])
            image += tf.constant([-m / s for m, s in zip(_MEAN, _STD, strict=True)])
        return image, tf.cast(parsed["image/class/label"], tf.int32)

    return _records(job, load)


def _hand_eval(job: Job) -> tf.data.Dataset:
    """Crops the center, as `_hand` crops at random."""
    size = [job.image_size, job.image_size]

    def load(record: tf.Tensor) -> Any:
        parsed = _parse(record)
        sides = tf.stack([parsed["image/height"], parsed["image/width"]])
        side = tf.cast(0.875 * tf.cast(tf.reduce_min(sides), tf.float32), tf.int64)
        image = tf.image.decode_and_crop_jpeg(
            parsed["image/encoded"],
            tf.cast(tf.concat([(sides - side) // 2, [side, side]], 0), tf.int32),
            channels=3,
            dct_method="INTEGER_FAST",
            fancy_upscaling=False,
        )
        image = tf.ensure_shape(tf.image.resize(image, size), [*size, 3])
        return _ROUND["round"](image), tf.cast(parsed["image/class/label"], tf.int32)

    return _records(job, load, shuffled=False)


def _quantize(image: tf.Tensor) -> tf.Tensor:
    options = {"mode": "SCALED", "round_mode": "HALF_TO_EVEN"}
    return tf.bitcast(
        tf.raw_ops.QuantizeV2(
            input=image, min_range=0.0, max_range=255.0, T=tf.quint8, **options
        ).output,
        tf.uint8,
    )


def _crop_and_resize(image: tf.Tensor, size: list[int]) -> tf.Tensor:
    whole = [[0.0, 0.0, 1.0, 1.0]]
    return tf.image.crop_and_resize(image[tf.newaxis], whole, [0], size)[0]


_RESIZE: dict[str, Callable[[tf.Tensor, list[int]], tf.Tensor]] = {
    "image": tf.image.resize,
    "kernel": lambda image, size: tf.raw_ops.ResizeBilinear(
        images=image[tf.newaxis], size=size, half_pixel_centers=True
    )[0],
    "crop_and_resize": _crop_and_resize,
}
_ROUND: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "round": lambda image: tf.cast(tf.round(image), tf.uint8),
    "quantize": _quantize,
}


def _tfpipe(
    job: Job,
    dtype: str = "uint8",
    quality: str | None = None,
    crop_op: str = "stock",
    *,
    whole: Whole = "auto",
    reading: Reading = "auto",
) -> tf.data.Dataset:
    source = tfpipe.TFRecordSource(
        job.data_dir, batch_size=job.batch_size, reading=reading
    )
    pipeline = tfpipe.imagenet_train(
        source,
        image_size=job.image_size,
        dtype=dtype,
        quality=quality,
        crop_op=crop_op,
        whole_batches=whole,
    )
    return pipeline.build(num_epochs=None)


def _other(
    kind: str,
    job: Job,
    crop_op: str = "native",
    dtype: str = "uint8",
    *,
    whole: bool = False,
    reading: Reading = "auto",
) -> tf.data.Dataset:
    """Reads the folder of another kind of the same images."""
    folder = getattr(job, FOLDERS[kind])
    if folder is None:
        raise ValueError(f"A variant named {kind} needs --{FOLDERS[kind]}.")
    other = dataclasses.replace(job, data_dir=folder)
    return _tfpipe(other, dtype, crop_op=crop_op, whole=whole, reading=reading)


def _default(job: Job, folder: str | None) -> tf.data.Dataset:
    """Makes the preset of a user who sets nothing but the sizes."""
    pipeline = tfpipe.imagenet_train(
        folder or job.data_dir, image_size=job.image_size, batch_size=job.batch_size
    )
    return pipeline.build(num_epochs=None)


def _foreign(
    job: Job, *, has_sizes: bool = True, reading: Reading = "auto"
) -> tf.data.Dataset:
    """Reads the shards as those of another tool: without the index."""
    source = tfpipe.TFRecordSource(
        job.data_dir, files="train-*", batch_size=job.batch_size, reading=reading
    )
    no_sizes = {} if has_sizes else {"height_key": None, "width_key": None}
    parse = tfpipe.Parse(label_base=1, **no_sizes)
    pipeline = tfpipe.imagenet_train(source, parse=parse, image_size=job.image_size)
    return pipeline.build(num_epochs=None)


def _eval(job: Job, folder: str | None) -> tf.data.Dataset:
    """Reads the train split in order and crops the centers."""
    pipeline = tfpipe.imagenet_eval(
        folder or job.data_dir,
        split="train",
        image_size=job.image_size,
        batch_size=job.batch_size,
        crop_op="native",
        whole_batches=True,
    )
    return pipeline.build(num_epochs=None)


def _single(dtype: str, quality: str | None = None) -> Callable[[Job], tf.data.Dataset]:
    return lambda job: _tfpipe(job, dtype, quality, "native", whole=False)


def _whole(dtype: str) -> Callable[[Job], tf.data.Dataset]:
    return lambda job: _tfpipe(job, dtype, crop_op="native", whole=True)


def _without_native_op(job: Job) -> tf.data.Dataset:
    """Makes the preset as where the native op was never built."""
    with tempfile.TemporaryDirectory() as empty:
        os.environ |= {"TFPIPE_NATIVE_DIR": empty, "TFPIPE_NATIVE_BUILD": "0"}
        return _tfpipe(job)


def _read_by_tensorflow(job: Job) -> tf.data.Dataset:
    return _tfpipe(job, crop_op="native", whole=True, reading="tensorflow")


def _on_one_core(
    variant: Callable[[Job], tf.data.Dataset],
) -> Callable[[Job], tf.data.Dataset]:
    def make(job: Job) -> tf.data.Dataset:
        # Threads inherit the affinity; the threads of the pipeline do not run yet.
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        return variant(job)

    return make


# Fields of `Job` with the folder of the variants whose names begin like this.
FOLDERS = {"rewritten_": "rewritten_data_dir", "entries_": "entries_data_dir"}

_LEAN = {"resize": "kernel", "rounding": "quantize"}

# Name -> dataset. The last words of a name say how it differs from a shorter name.
VARIANTS: dict[str, Callable[[Job], tf.data.Dataset]] = {
    "garden_float32": lambda job: _garden(job, "float32"),
    "garden_uint8": lambda job: _garden(job, "uint8"),
    "hand_uint8": _hand,
    "hand_float32": lambda job: _hand(job, dtype="float32"),
    "hand_uint8_accurate_fancy": lambda job: _hand(
        job, dct="INTEGER_ACCURATE", fancy=True
    ),
    "hand_uint8_crop_and_resize": lambda job: _hand(job, resize="crop_and_resize"),
    "lean_uint8": lambda job: _hand(job, **_LEAN),
    "lean_uint8_accurate": lambda job: _hand(job, dct="INTEGER_ACCURATE", **_LEAN),
    "lean_uint8_accurate_fancy": lambda job: _hand(
        job, dct="INTEGER_ACCURATE", fancy=True, **_LEAN
    ),
    "tfpipe_default_uint8": lambda job: _default(job, None),
    "entries_default_uint8": lambda job: _default(job, job.entries_data_dir),
    "tfpipe_foreign_uint8": _foreign,
    "tfpipe_foreign_uint8_without_sizes": lambda job: _foreign(job, has_sizes=False),
    "tfpipe_foreign_uint8_read_by_tensorflow": lambda job: _foreign(
        job, reading="tensorflow"
    ),
    "tfpipe_uint8": _tfpipe,
    "tfpipe_uint8_examples": lambda job: _tfpipe(job, whole=False),
    "tfpipe_uint8_without_native_op": _without_native_op,
    "tfpipe_uint8_fast": lambda job: _tfpipe(job, quality="fast"),
    "tfpipe_float32": lambda job: _tfpipe(job, "float32"),
    "tfpipe_bfloat16": lambda job: _tfpipe(job, "bfloat16"),
    "tfpipe_native_uint8": _single("uint8"),
    "tfpipe_native_uint8_fast": _single("uint8", "fast"),
    "tfpipe_native_float32": _single("float32"),
    "tfpipe_native_bfloat16": _single("bfloat16"),
    "tfpipe_whole_uint8": _whole("uint8"),
    "tfpipe_whole_float32": _whole("float32"),
    "tfpipe_whole_bfloat16": _whole("bfloat16"),
    "tfpipe_whole_uint8_read_by_tensorflow": _read_by_tensorflow,
    "tfpipe_whole_uint8_one_core": _on_one_core(_whole("uint8")),
    "rewritten_uint8": lambda job: _other("rewritten_", job, "stock"),
    "rewritten_native_uint8": lambda job: _other("rewritten_", job),
    "rewritten_whole_uint8": lambda job: _other("rewritten_", job, whole=True),
    "rewritten_native_float32": lambda job: _other("rewritten_", job, dtype="float32"),
    "entries_native_uint8": lambda job: _other("entries_", job),
    "entries_whole_uint8": lambda job: _other("entries_", job, whole=True),
    "entries_whole_uint8_read_by_tensorflow": lambda job: _other(
        "entries_", job, whole=True, reading="tensorflow"
    ),
    "entries_whole_float32": lambda job: _other(
        "entries_", job, dtype="float32", whole=True
    ),
    "hand_eval_uint8": _hand_eval,
    "tfpipe_eval_uint8": lambda job: _eval(job, None),
    "entries_eval_uint8": lambda job: _eval(job, job.entries_data_dir),
}


def base_of(name: str) -> str:
    """Returns the variant that a variant is compared with: a pipeline by hand.

    Args:
        name: Name of a variant.
    """
    return "hand_eval_uint8" if "_eval_" in name else "hand_uint8"


def folder_of(name: str) -> str | None:
    """Returns the field of `Job` with the folder that a variant reads, if not its own.

    Args:
        name: Name of a variant.
    """
    return next((FOLDERS[kind] for kind in FOLDERS if name.startswith(kind)), None)
