"""Exact metrics in Keras: 31 records, any batch size, one and two Horovod ranks."""

import functools
import pathlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks
from tests.support.data.trees import convert, make_tree
from tests.support.processes.rank_pool import RankPool

NUM_RECORDS = 31
CLASS_WEIGHTS = [1.0 + label % 4 for label in range(1000)]


@pytest.fixture(scope="module")
def uneven_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("uneven")
    make_tree(folder / "raw", num_images=8, num_validation_images=NUM_RECORDS)
    convert(folder / "raw", folder / "records", num_validation_shards=2)
    return folder / "records"


def _model() -> Any:
    """A model with the same weights on every rank, evaluated in three ways at once."""
    keras.utils.set_random_seed(1)
    layers = [keras.Input((8, 8, 3)), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(1000, activation="softmax")])
    model.compile(
        loss="categorical_crossentropy",
        metrics=["accuracy", keras.metrics.AUC(name="auc")],
        weighted_metrics=[
            keras.metrics.CategoricalAccuracy(name="weighted_accuracy"),
            keras.metrics.AUC(name="weighted_auc"),
        ],
        jit_compile=False,
    )
    return model


@functools.cache
def _evaluated(
    data_dir: pathlib.Path, batch_size: int, **ranks: int
) -> tuple[Any, tf.data.Dataset, dict[str, float]]:
    model = _model()
    pipeline = tfpipe.imagenet_eval(
        data_dir, image_size=8, batch_size=batch_size, **ranks
    )
    dataset = pipeline.for_keras(one_hot=True, class_weights=CLASS_WEIGHTS)
    return model, dataset, model.evaluate(dataset, return_dict=True, verbose=0)


def _by_hand(model: Any, dataset: tf.data.Dataset) -> dict[str, float]:
    """The metrics of the rows that `predict` returns, in one piece."""
    shares = model.predict(dataset, verbose=0)
    rows = [(y.numpy(), weight.numpy()) for _, y, weight in dataset]
    truth, weights = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    assert len(shares) == len(truth) == NUM_RECORDS
    labels = truth.argmax(1)
    assert weights.tolist() == [CLASS_WEIGHTS[label] for label in labels]
    right = shares.argmax(1) == labels
    losses = -np.log(shares[np.arange(NUM_RECORDS), labels])
    auc, weighted_auc = keras.metrics.AUC(), keras.metrics.AUC()
    auc.update_state(truth, shares)
    weighted_auc.update_state(truth, shares, weights)
    return {
        "accuracy": right.mean(),
        "loss": (losses * weights).mean(),
        "auc": float(auc.result()),
        "weighted_accuracy": (right * weights).sum() / weights.sum(),
        "weighted_auc": float(weighted_auc.result()),
    }


@pytest.mark.parametrize("batch_size", [8, 256])
def test_metrics_are_those_counted_by_hand_whatever_the_batch(
    uneven_dir: pathlib.Path, batch_size: int
) -> None:
    model, dataset, found = _evaluated(uneven_dir, batch_size)

    assert found == pytest.approx(_by_hand(model, dataset), rel=1e-5)
    assert dataset.cardinality() == -(-NUM_RECORDS // batch_size)


def _on_rank(ranks: Ranks, data_dir: pathlib.Path) -> list[dict[str, float]]:
    """The metrics of this rank, those of all ranks, and again those of all ranks."""
    import horovod.tensorflow as hvd

    numbers = {"rank": ranks.rank, "num_ranks": ranks.num_ranks}
    model, _, own = _evaluated(data_dir, 8, **numbers)
    both = [
        tfpipe.sum_metrics(model, lambda v: hvd.allreduce(v, op=hvd.Sum))
        for _ in range(2)
    ]
    return [own, *both]


def test_two_ranks_with_uneven_shares_have_the_metrics_of_one(
    uneven_dir: pathlib.Path, rank_pool: RankPool
) -> None:
    _, _, alone = _evaluated(uneven_dir, 8)

    (own, *first), (_, *second) = rank_pool.run(_on_rank, uneven_dir)

    for found in (*first, *second):
        assert found == pytest.approx(alone, rel=1e-6)
    assert own["loss"] != pytest.approx(alone["loss"], rel=1e-4)


class Largest(keras.metrics.Metric):
    """A metric that is no sum."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.largest = self.add_weight(name="largest", initializer="zeros")

    def update_state(self, y: Any, shares: Any, sample_weight: Any = None) -> None:
        self.largest.assign(tf.maximum(self.largest, tf.reduce_max(shares)))

    def result(self) -> Any:
        return self.largest


def test_metric_that_is_no_sum_is_refused() -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse", metrics=[Largest()])
    with pytest.raises(ValueError, match=r"call model\.evaluate"):
        tfpipe.sum_metrics(keras.Sequential([]), lambda v: v)

    model.evaluate(tf.ones([4, 3]), tf.ones([4, 1]), verbose=0)

    with pytest.raises(
        ValueError, match=r"sum over records, got <Largest name=largest"
    ):
        tfpipe.sum_metrics(model, lambda v: v)
