"""The first pipeline of a process costs more than those after it: no test pays for it."""

import pathlib

import pytest

import tfpipe


@pytest.fixture(autouse=True, scope="session")
def _first_pipeline(data_dir: pathlib.Path) -> None:
    """Lets AutoGraph convert, and TensorFlow load, what every pipeline needs."""
    for crop_op in ("auto", "stock"):
        pipeline = tfpipe.imagenet_train(
            data_dir,
            image_size=8,
            batch_size=2,
            crop_op=crop_op,
            cache=tfpipe.Cache("ram"),
            on_error="skip",
        )
        next(iter(pipeline.build()))
