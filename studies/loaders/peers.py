"""Popular loaders of images, for the same job: a function for a loader.

In: an `images.Job`. Out: endless batches (images, labels), images [batch_size,
image_size, image_size, 3]. A function imports its packages when called; `PEERS`
names them. Each loader is used as its own documentation recommends.
"""

import contextlib
import dataclasses
import functools
import pathlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil

from studies import harness
from studies.loaders import data as copies, images as image_work
from studies.loaders.images import Job, Load

Batches = Iterator[tuple[Any, Any]]

# Records in the shuffle buffer, where a loader has a buffer.
_SHUFFLE_RECORDS = 1024


def _tf_data(job: Job, variant: str) -> Batches:
    from studies import decode_variants

    dataset = decode_variants.VARIANTS[f"{variant}_{job.dtype}"](
        decode_variants.Job(
            data_dir=job.data_dir,
            entries_data_dir=job.entries_data_dir or None,
            image_size=job.image_size,
            batch_size=job.batch_size,
        )
    )
    for batch in dataset:
        pair = isinstance(batch, tuple)
        yield batch if pair else (batch["image"], batch["label"])


def dali(job: Job) -> Batches:
    """Loads by NVIDIA DALI on the CPU, from TFRecords and the converter's indexes."""
    from nvidia.dali import pipeline_def

    running = pipeline_def(
        functools.partial(_dali_graph, job),
        batch_size=job.batch_size,
        num_threads=job.num_workers,
        device_id=None,
    )()
    running.build()
    while True:
        images, labels = running.run()
        yield np.asarray(images.as_tensor()), np.asarray(labels.as_tensor())[:, 0]


def _dali_graph(job: Job) -> tuple[Any, Any]:
    from nvidia.dali import fn, tfrecord, types

    record = fn.readers.tfrecord(
        path=copies.shards(job.data_dir),
        index_path=copies.dali_indexes(job.data_dir),
        features={
            "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
            "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
        },
        random_shuffle=True,
        initial_fill=_SHUFFLE_RECORDS,
    )
    image = fn.decoders.image_random_crop(
        record["image/encoded"],
        device="cpu",
        random_area=list(image_work.AREA_RANGE),
        random_aspect_ratio=list(image_work.RATIO_RANGE),
    )
    size = [job.image_size, job.image_size]
    image = fn.resize(
        image, size=size, interp_type=types.INTERP_LINEAR, antialias=False
    )
    mirror = fn.random.coin_flip()
    if job.dtype == "uint8":
        return fn.flip(image, horizontal=mirror), record["image/class/label"]
    image = fn.crop_mirror_normalize(
        image,
        mirror=mirror,
        mean=list(image_work.MEAN),
        std=list(image_work.STD),
        dtype=types.FLOAT,
        output_layout="HWC",
    )
    return image, record["image/class/label"]


def ffcv(job: Job) -> Batches:
    """Loads by FFCV in its jpg mode, from the same JPEG bytes in a .beton."""
    from ffcv import fields, loader, transforms
    from ffcv.fields import decoders

    image: list[Any] = [
        decoders.RandomResizedCropRGBImageDecoder(
            (job.image_size, job.image_size),
            scale=image_work.AREA_RANGE,
            ratio=image_work.RATIO_RANGE,
        ),
        transforms.RandomHorizontalFlip(),
    ]
    if job.dtype == "float32":
        mean, std = np.array(image_work.MEAN), np.array(image_work.STD)
        image.append(transforms.NormalizeImage(mean, std, np.float32))
    epoch = loader.Loader(
        str(pathlib.Path(job.peer_dir) / "beton" / "train.beton"),
        batch_size=job.batch_size,
        num_workers=job.num_workers,
        order=loader.OrderOption.RANDOM,
        pipelines={"image": image, "label": [decoders.IntDecoder()]},
        custom_fields={
            "image": copies.stored_jpeg_field(),
            "label": fields.IntField,
        },
        drop_last=True,
    )
    while True:
        for images, labels in epoch:
            yield images, labels[:, 0]


@dataclasses.dataclass(frozen=True)
class _Files:
    """The JPEG files as a data set with random access: index -> (image, label)."""

    items: list[tuple[str, int]]
    job: Job
    load: Load

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.loaded(self.items[index], random.random)

    def loaded(self, item: tuple[str, int], draw: image_work.Draw) -> tuple[Any, int]:
        path, label = item
        return self.load(pathlib.Path(path).read_bytes(), self.job, draw), label


def _files(job: Job, load: Load) -> _Files:
    if load is image_work.load_cv:
        image_work.one_thread_each()
    return _Files(copies.files(job.peer_dir), job, load)


def _torch(job: Job, load: Load) -> Batches:
    from torch.utils import data

    files = _files(job, load)
    # An epoch of many permutations: DataLoader would start new workers at every epoch.
    sampler = data.RandomSampler(files, num_samples=len(files) * 10**6)
    yield from data.DataLoader(
        files,
        batch_size=job.batch_size,
        sampler=sampler,
        num_workers=job.num_workers,
        drop_last=True,
    )


def _webdataset(job: Job, load: Load) -> Batches:
    import torch
    import webdataset

    if load is image_work.load_cv:
        image_work.one_thread_each()

    def pair(sample: dict[str, Any]) -> tuple[Any, int]:
        image = load(sample["jpg"], job, random.random)
        # Workers pass tensors through shared memory, but arrays through a pipe.
        return torch.from_numpy(image), int(sample["cls"])

    tars = sorted(map(str, (pathlib.Path(job.peer_dir) / "tar").glob("*.tar")))
    dataset = (
        webdataset.WebDataset(tars, resampled=True)
        .shuffle(_SHUFFLE_RECORDS)
        .map(pair)
        .batched(job.batch_size, partial=False)
    )
    yield from webdataset.WebLoader(
        dataset, batch_size=None, num_workers=job.num_workers
    )


def _grain(job: Job, load: Load) -> Batches:
    import grain

    files = _files(job, load)
    images = (
        grain.MapDataset.source(files.items)
        .shuffle(seed=0)
        .repeat()
        .random_map(lambda item, rng: files.loaded(item, rng.random), seed=1)
    )
    options = grain.ReadOptions(
        num_threads=job.num_workers, prefetch_buffer_size=2 * job.batch_size
    )
    yield from images.to_iter_dataset(options).batch(
        job.batch_size, drop_remainder=True
    )


def _spdl(job: Job, load: Load) -> Batches:
    from spdl import pipeline

    files = _files(job, load)

    def stack(samples: list[tuple[Any, int]]) -> tuple[Any, Any]:
        images, labels = zip(*samples, strict=True)
        return np.stack(images), np.array(labels)

    running = (
        pipeline.PipelineBuilder()
        .add_source(_forever(len(files)))
        .pipe(files.__getitem__, concurrency=job.num_workers)
        .aggregate(job.batch_size)
        .pipe(stack)
        .add_sink(2)
        .build(num_threads=job.num_workers)
    )
    with running.auto_stop():
        yield from running


def _forever(count: int) -> Iterator[int]:
    while True:
        yield from random.sample(range(count), count)


@dataclasses.dataclass(frozen=True)
class Peer:
    """A loader and its requirements.

    Attributes:
        load: Job -> endless batches.
        note: Difference from the other loaders, for the table.
        data: Kind of its copy, see `data.make`; None for the TFRecords.
        modules: Import names of its packages.
    """

    load: Callable[[Job], Batches]
    note: str
    data: str | None = None
    modules: tuple[str, ...] = ()


def _python(
    name: str, function: Callable[[Job, Load], Batches], data: str, *modules: str
) -> dict[str, Peer]:
    """Returns a loader written in Python, once with every decoder."""
    return {
        f"{name}_pil": Peer(
            functools.partial(function, load=image_work.load_pillow),
            f"{data} files, Pillow: full decode, antialias",
            data,
            modules,
        ),
        f"{name}_cv": Peer(
            functools.partial(function, load=image_work.load_cv),
            f"{data} files, simplejpeg: full decode, fast DCT; OpenCV",
            data,
            (*modules, "simplejpeg", "cv2"),
        ),
    }


PEERS: dict[str, Peer] = {
    "hand": Peer(
        functools.partial(_tf_data, variant="hand"), "the tuned pipeline by hand"
    ),
    "tfpipe": Peer(
        functools.partial(_tf_data, variant="tfpipe"), "imagenet_train, stock ops"
    ),
    "tfpipe_native": Peer(
        functools.partial(_tf_data, variant="tfpipe_native"),
        "imagenet_train, native op",
    ),
    "tfpipe_whole": Peer(
        functools.partial(_tf_data, variant="tfpipe_whole"),
        "imagenet_train, native op on whole batches, as with nothing set",
    ),
    "tfpipe_entries": Peer(
        functools.partial(_tf_data, variant="entries_whole"),
        "the same on data with entry points",
    ),
    "garden": Peer(
        functools.partial(_tf_data, variant="garden"), "tf.data as Model Garden reads"
    ),
    "dali": Peer(dali, "on the CPU, the same TFRecords", None, ("nvidia.dali",)),
    "ffcv": Peer(ffcv, "the same JPEG bytes: full decode", "beton", ("ffcv",)),
    **_python("torch", _torch, "jpeg", "torch"),
    **_python("webdataset", _webdataset, "tar", "torch", "webdataset"),
    **_python("grain", _grain, "jpeg", "grain"),
    **_python("spdl", _spdl, "jpeg", "spdl"),
}


def measure(name: str, job: Job) -> dict[str, float]:
    """Measures a loader with its worker processes; see `harness.time_batches`."""
    with contextlib.closing(PEERS[name].load(job)) as batches:
        return harness.time_batches(batches, job, tree_cpu_seconds)


def tree_cpu_seconds() -> float:
    """Returns user and system time of the current process and of all processes below.

    Ended processes count as well. Linux counts in ticks of 10 ms (proc(5),
    /proc/PID/stat).
    """
    root = psutil.Process()
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        # A process may end before the look at it; its parent then has its time.
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
            total += times.children_user + times.children_system
    return total
