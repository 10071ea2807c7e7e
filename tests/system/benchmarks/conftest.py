"""Data that shows a model something to learn, made once a session."""

import pathlib
from collections.abc import Iterator

import pytest

from converters import synthesize
from tests.support.data.made_once import made_once
from tests.support.data.trees import convert
from tests.support.servers import cluster


@pytest.fixture(scope="session")
def synthesized_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Synthesized images of 10 classes at a quarter of ImageNet's size.

    All workers of the session share them.
    """
    return made_once(tmp_path_factory, "synthesized", _synthesize) / "raw"


def _synthesize(folder: pathlib.Path) -> None:
    synthesize.synthesize(
        synthesize.SynthesizeOptions(
            output_dir=folder / "raw",
            num_images=500,
            num_classes=10,
            num_validation_images=100,
            size_scale=0.25,
        )
    )


@pytest.fixture(scope="session")
def records_dir(
    synthesized_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """The synthesized images as shards: 500 records of train, 100 of validation."""
    folder = tmp_path_factory.mktemp("learnable") / "records"
    convert(synthesized_dir, folder, num_train_shards=3)
    return folder


@pytest.fixture(scope="session")
def two_hosts(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[cluster.Cluster]:
    """Two hosts of their own network, with links of 1 Gb/s."""
    folder = tmp_path_factory.mktemp("cluster")
    with cluster.cluster_or_skip(folder, num_hosts=2, link="1gbit") as made:
        yield made
