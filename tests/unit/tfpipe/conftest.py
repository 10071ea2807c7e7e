"""The first pipeline of a process costs more than the next: no test pays for it."""

import pathlib

import pytest

import tfpipe


@pytest.fixture(autouse=True, scope="session")
def _first_pipeline(data_dir: pathlib.Path) -> None:
    """Lets AutoGraph convert, and TensorFlow load, what every pipeline needs."""
    # These import TensorFlow, which tests/unit/conftest.py sets up first.
    from tests.support.data.cached import DECODE, make
    from tests.support.data.presets import preset_over

    cache = tfpipe.Cache("ram")
    for pipeline in (
        preset_over(
            tfpipe.imagenet_train,
            data_dir,
            image_size=8,
            batch_size=2,
            on_error="skip",
        ),
        tfpipe.imagenet_eval(data_dir, image_size=8, batch_size=2, crop_op="stock"),
        make(data_dir, tfpipe.Map(*DECODE), cache, tfpipe.Batch(2), batch_size=2),
    ):
        list(pipeline.build())
