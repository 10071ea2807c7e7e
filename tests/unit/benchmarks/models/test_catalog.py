"""benchmarks.models.catalog: its recipes, and images that are too small."""

import pytest

import tfpipe
from benchmarks.models import catalog


@pytest.mark.parametrize(
    ("name", "least"),
    [("resnet50", 32), ("vgg16", 32), ("inception_v3", 75), ("inception_v4", 75)],
)
def test_images_too_small_for_a_model_are_an_error(name: str, least: int) -> None:
    with pytest.raises(
        ValueError, match=f"--image_size must be >= {least}.*got {least - 1}"
    ):
        catalog.MODELS[name].build(least - 1, 7)


@pytest.mark.parametrize("name", catalog.MODELS)
def test_recipe_is_one_of_tfpipe(name: str) -> None:
    recipe = getattr(tfpipe.recipes, catalog.MODELS[name].recipe)

    assert recipe(32, "uint8", "exact").train
