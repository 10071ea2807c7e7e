"""Service refuses what workers cannot do, before any work."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import tfpipe
from tfpipe.service import on_workers


def _pipeline(data_dir: pathlib.Path, **fields: Any) -> tfpipe.Pipeline:
    fields = {"window_size": 8, "batch_size": 4} | fields
    source = tfpipe.TFRecordSource(data_dir, **fields)
    return tfpipe.imagenet_train(source, image_size=8)


def _build(pipeline: tfpipe.Pipeline, *before: Any) -> tf.data.Dataset:
    stages = [*pipeline.stages, *before, tfpipe.Service("127.0.0.1:1")]
    return dataclasses.replace(pipeline, stages=stages).build()


def _with_python(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    image = tf.numpy_function(lambda pixels: pixels, [example["image"]], tf.uint8)
    return example | {"image": image}


@pytest.mark.parametrize(
    ("fields", "before", "message"),
    [
        ({"on_error": "skip"}, (), 'the source must have on_error="raise"'),
        ({"window_size": 6}, (), "window_size must be a multiple of the batch size 4"),
        ({}, (tfpipe.Take(3),), r"may stand before Service, got Take\(count=3\)"),
        ({}, (tfpipe.Map(_with_python),), "Stage 6 before Service must not call Py"),
    ],
)
def test_what_workers_cannot_do_is_refused(
    data_dir: pathlib.Path,
    fields: dict[str, Any],
    before: tuple[Any, ...],
    message: str,
) -> None:
    pipeline = _pipeline(data_dir, **fields)

    with pytest.raises(ValueError, match=message):
        _build(pipeline, *before)


def test_a_shard_cache_is_refused(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    pipeline = _pipeline(data_dir, shard_cache=tfpipe.ShardCache(tmp_path / "cache"))

    with pytest.raises(ValueError, match="data_dir must be a URL, or a folder"):
        _build(pipeline)


def test_a_pipeline_of_synthetic_batches_is_refused() -> None:
    source = tfpipe.SyntheticSource(batch_size=2)

    with pytest.raises(ValueError, match="Service needs a TFRecordSource"):
        _build(tfpipe.Pipeline(source, stages=[]))


@pytest.mark.parametrize("address", ["5050", "grpc://host:5050", "host:99999", ":1"])
def test_an_address_has_a_host_and_a_port(address: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        tfpipe.Service(address)


def test_the_connection_is_the_last_check(
    data_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ops in a worker are checked without a service; nobody answers at the address."""
    asked: list[object] = []

    def refuse(address: object, _: float) -> Callable[[], None]:
        asked.append(address)
        raise OSError("refused")

    monkeypatch.setattr("tfpipe.service.stage.socket.create_connection", refuse)

    with pytest.raises(ConnectionError, match=r"got: refused\. Start one: python"):
        _build(_pipeline(data_dir))

    assert asked == [("127.0.0.1", 1)]


def test_workers_get_absolute_paths_of_a_relative_folder(
    data_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data_dir.parent)
    source = tfpipe.TFRecordSource(data_dir.name, "train")
    given: list[str] = []
    monkeypatch.setattr(
        on_workers.epoch_windows,
        "dataset",
        lambda arrays, paths, **options: given.extend(paths),
    )

    on_workers.OnWorkers(source, []).windows({})

    assert given == [str(data_dir / shard.name) for shard in source.shards]
