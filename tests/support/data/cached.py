"""Pipelines with a cache, and an op that notes its calls."""

import dataclasses
import pathlib
import time

import numpy as np
import tensorflow as tf

import tfpipe

DECODE = (
    tfpipe.Parse(label_base=1, as_converted=True),
    tfpipe.CenterCrop(image_size=8, fraction=1.0, jpeg_only=True),
)


@dataclasses.dataclass(frozen=True)
class Note:
    """An op that writes down the record of each call."""

    path: str
    delay: float = 0.0
    repeatable = True  # calls Python, but for nothing that is kept

    def __call__(self, example):
        def note(record_id, label):
            time.sleep(self.delay)
            with open(self.path, "a") as file:
                file.write(f"{record_id}\n")
            return label

        label = tf.numpy_function(
            note, [example["record_id"], example["label"]], tf.int32
        )
        return example | {"label": tf.ensure_shape(label, [])}


def noted(path):
    """The record of each call so far."""
    path = pathlib.Path(path)
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def make(data_dir, *stages, split="train", interleave=None, **source):
    source = {"seed": 3, "block_length": 2, "window_size": 7, **source}
    return tfpipe.Pipeline(
        tfpipe.TFRecordSource(data_dir, split, **source),
        [interleave or tfpipe.Interleave(), *stages],
    )


def as_list(dataset):
    return [
        {name: np.asarray(value).tolist() for name, value in example.items()}
        for example in dataset.as_numpy_iterator()
    ]
