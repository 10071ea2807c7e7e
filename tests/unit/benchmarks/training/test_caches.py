"""benchmarks.training.caches: images that are decoded once."""

import pathlib

import numpy as np
import pytest

import tfpipe
from benchmarks.training import caches

OPTIONS = {"image_size": 32, "batch_size": 4, "whole_batches": False}


def _pipeline(data_dir: pathlib.Path, recipe=tfpipe.recipes.resnet) -> tfpipe.Pipeline:
    return tfpipe.imagenet_train(
        str(data_dir), recipe=recipe, with_record_id=True, **OPTIONS
    )


def _epochs(pipeline: tfpipe.Pipeline, number: int) -> list[dict[int, np.ndarray]]:
    """The image of each record in the first epochs."""
    batches = [*pipeline.build(num_epochs=number).as_numpy_iterator()]
    steps = pipeline.source.steps_per_epoch
    return [
        {
            int(record): image
            for batch in batches[begin : begin + steps]
            for record, image in zip(batch["record_id"], batch["image"], strict=True)
        }
        for begin in range(0, len(batches), steps)
    ]


@pytest.fixture(scope="module")
def filled(data_dir: pathlib.Path) -> tfpipe.Pipeline:
    """A pipeline whose decoded images are in RAM."""
    pipeline = caches.with_images(_pipeline(data_dir))
    caches.fill(pipeline)
    return pipeline


def test_records_come_once_and_their_parts_differ_from_epoch_to_epoch(
    filled: tfpipe.Pipeline,
) -> None:
    (cache,) = [s for s in filled.stages if isinstance(s, tfpipe.Cache)]
    assert "24" in cache.describe()

    first, second = _epochs(filled, 2)

    assert len(first) == len(second) == 24
    assert first[0].shape == (32, 32, 3)
    changed = [np.any(first[record] != second[record]) for record in first]
    assert np.mean(changed) > 0.9


def test_a_center_crop_is_kept_as_it_is(data_dir: pathlib.Path) -> None:
    plain = tfpipe.imagenet_eval(str(data_dir), **OPTIONS)

    kept = caches.with_images(plain)

    for wanted, found in zip(plain.build(), kept.build(), strict=True):
        assert np.array_equal(wanted["image"], found["image"])


def test_a_pipeline_without_a_crop_is_refused(data_dir: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="needs a map with a crop"):
        caches.with_images(_pipeline(data_dir, recipe=None))


def test_batches_are_read_between_start_and_stop_alone(data_dir: pathlib.Path) -> None:
    batches = caches.Batches(_pipeline(data_dir))
    unread = "Batches.start must be called"

    with pytest.raises(RuntimeError, match=unread):
        next(batches)
    batches.start(tfpipe.State(), 1)
    assert next(batches)["image"].shape[0] == 4
    batches.stop()
    with pytest.raises(RuntimeError, match=unread):
        next(batches)
