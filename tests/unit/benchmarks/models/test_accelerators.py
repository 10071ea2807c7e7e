"""benchmarks.models.accelerators: the time of a step, as published."""

import pytest

from benchmarks.models import accelerators, catalog


def test_step_of_mlperf_storage_takes_its_published_time() -> None:
    assert accelerators.step_seconds("h100", "resnet50", "train", 400) == pytest.approx(
        0.224
    )
    assert accelerators.step_seconds(
        "a100_mlperf_storage", "resnet50", "train", 400
    ) == pytest.approx(0.435)


def test_inference_takes_less_than_training() -> None:
    for name, accelerator in accelerators.ACCELERATORS.items():
        for model in accelerator.infer.keys() & accelerator.train.keys():
            train, infer = (
                accelerators.step_seconds(name, model, mode, 128)
                for mode in ("train", "infer")
            )
            assert infer < train / 2


def test_model_without_a_published_figure_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"knows how fast resnet50, resnet50_v1\.5 is"):
        accelerators.step_seconds("h100", "vgg16", "train", 128)
    with pytest.raises(ValueError, match=r"knows how fast nothing is with"):
        accelerators.step_seconds("h100", "resnet50", "infer", 128)


def test_models_are_in_the_catalog() -> None:
    known = {
        model
        for accelerator in accelerators.ACCELERATORS.values()
        for model in (*accelerator.train, *accelerator.infer)
    }

    assert known <= catalog.MODELS.keys()
