"""Artificial sources and ops of known cost, and made-up costs of stages."""

import dataclasses
import pathlib
import time
from typing import Any

import tensorflow as tf

import tfpipe
from tfpipe.profiling.limits import Host, StageCost
from tfpipe.profiling.profile import PipelineProfile, Rate


@dataclasses.dataclass(frozen=True)
class Numbers:
    """A source of so many numbers an epoch."""

    count: int = 1000

    def __call__(self, state: Any, num_epochs: int | None) -> tf.data.Dataset:
        return tf.data.Dataset.range(self.count).repeat(num_epochs)


@dataclasses.dataclass(frozen=True)
class Busy:
    """CPU work in proportion to `work`; passes the element on."""

    work: int

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        # Its square is itself.
        matrix = tf.fill([256, 256], 1 / 256 + 0 * tf.cast(x, tf.float32))
        for _ in range(self.work):
            matrix = tf.linalg.matmul(matrix, matrix)
        return x + tf.cast(matrix[0, 0] * 0, tf.int64)


@dataclasses.dataclass(frozen=True)
class Sleep:
    """Waits, as for a disk; passes the element on."""

    seconds: float

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        def wait(x: Any) -> Any:
            time.sleep(self.seconds)
            return x

        y = tf.numpy_function(wait, [x], tf.int64)
        y.set_shape([])
        return y


@dataclasses.dataclass(frozen=True)
class Work:
    """An op that takes some milliseconds of CPU and leaves the example as it is."""

    def __call__(self, example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        matrix = tf.fill([400, 400], tf.cast(example["label"], tf.float32))
        product = tf.linalg.matmul(matrix, tf.linalg.matmul(matrix, matrix))
        zero = tf.cast(tf.reduce_sum(product) < -1.0, tf.int32)
        return example | {"label": example["label"] + zero}


def decoded_again_and_again(data_dir: pathlib.Path) -> tfpipe.Pipeline:
    """Decodes small images and works on them, one at a time, in each epoch."""
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=4)
    return tfpipe.Pipeline(
        source,
        [
            tfpipe.Interleave(),
            tfpipe.Map(
                tfpipe.Parse(label_base=1, as_converted=True),
                tfpipe.CenterCrop(image_size=8, jpeg_only=True),
                Work(),
                num_parallel_calls=1,
            ),
            tfpipe.Map(tfpipe.Select("image", "label")),
            tfpipe.Batch(4),
        ],
    )


def busy_function(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A stage of CPU work that is a plain function."""
    return dataset.map(Busy(3))


def keep_even(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A stage that passes every other number on."""
    return dataset.filter(lambda x: x % 2 == 0)


def cost_of(
    number: int,
    cpu: float,
    *,
    wait: float = 0.0,
    calls: int = 1,
    kind: str = "parallel",
    **values: Any,
) -> StageCost:
    """The made-up cost of a stage; CPU time and wait in ms for an output."""
    return StageCost(
        **{
            "number": number,
            "name": f"stage{number}",
            "visit_ratio": 1.0,
            "cpu_seconds_per_output": cpu * 1e-3,
            "wall_seconds_per_output": (cpu + wait) * 1e-3,
            "bytes_in_per_output": 0.0,
            "bytes_out_per_output": 0.0,
            "buffered_bytes": 0,
            "parallelism": calls,
            "kind": kind,
            "share": 0.0,
            "max_rate": 0.0,
            **values,
        }
    )


def made_profile(
    *costs: StageCost, num_cores: int = 2, **values: Any
) -> PipelineProfile:
    """A profile of Map, Map, Prefetch with made-up figures."""
    stages = [tfpipe.Map(Busy(1)), tfpipe.Map(Busy(3)), tfpipe.Prefetch()]
    rate = Rate(median=90.0, least=80.0, most=95.0, cpu_seconds_per_element=0.02)
    host_ = Host(num_cores=num_cores, num_threads=num_cores)
    return PipelineProfile(
        **{
            "stages": costs,
            "rate": rate,
            "examples_per_output": 10,
            "num_elements": 5,
            "host": host_,
            "storage": None,
            "consumer_seconds": 0.0,
            "ram_left_bytes": 10**9,
            "notes": (),
            "pipeline": tfpipe.Pipeline(Numbers(), stages),
            **values,
        }
    )
