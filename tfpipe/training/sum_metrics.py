"""Metrics of `model.evaluate` on several ranks, summed to those of all their records.

In: a Keras model that was evaluated on the records of its rank, and a function that
sums an array over ranks. Out: the metrics of all records, the same on every rank.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfpipe import errors

# The state of these metrics and of their subclasses is made of sums over records.
_SUMS = (
    *(keras.metrics.Mean, keras.metrics.Sum),
    *(keras.metrics.AUC, keras.metrics.Precision, keras.metrics.Recall),
    *(keras.metrics.TruePositives, keras.metrics.TrueNegatives),
    *(keras.metrics.FalsePositives, keras.metrics.FalseNegatives),
    *(keras.metrics.PrecisionAtRecall, keras.metrics.RecallAtPrecision),
    *(keras.metrics.SensitivityAtSpecificity, keras.metrics.SpecificityAtSensitivity),
    *(keras.metrics.IoU, keras.metrics.FBetaScore, keras.metrics.R2Score),
)


def sum_metrics(
    model: Any, all_reduce_sum: Callable[[tf.Tensor], Any]
) -> dict[str, Any]:
    """Returns the loss and the metrics over the records of all ranks.

        model.evaluate(val.for_keras())
        results = tfpipe.sum_metrics(model, lambda v: hvd.allreduce(v, op=hvd.Sum))

    Call it on every rank after `evaluate`, with the rank's own pipeline. Each rank's
    totals, counts and confusion matrices are summed, so the results equal those of one
    rank that evaluates all records. The model keeps the state of its own rank.

    Example:
        >>> import keras
        >>> model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        >>> model.compile(loss="mse")
        >>> _ = model.evaluate(tf.ones([4, 1]), tf.ones([4, 1]), verbose=0)
        >>> [*tfpipe.sum_metrics(model, lambda value: value)]  # a single rank
        ['loss']

    Args:
        model: A compiled Keras model that was evaluated on this rank.
        all_reduce_sum: Callable float64 [n] -> the sum over ranks, [n], as a tensor or
            an array. It is called once.

    Returns:
        The results by name, as `model.evaluate(..., return_dict=True)` gives them:
        floats, or lists of floats.

    Raises:
        TypeError: If `all_reduce_sum` cannot be called.
        ValueError: If the state of a metric is not known to be a sum, or the model was
            not evaluated.
    """
    errors.require_callable("", "all_reduce_sum", all_reduce_sum)
    metrics = [one for each in model.metrics for one in _parts(each)]
    for metric in metrics:
        if not isinstance(metric, _SUMS):
            raise ValueError(
                f"sum_metrics needs metrics whose state is a sum over records, got "
                f"{metric!r}. Make it a subclass of keras.metrics.Mean or Sum, or "
                "gather the predictions of all ranks."
            )
    variables = [variable for metric in metrics for variable in metric.variables]
    if not variables:
        raise ValueError(
            "sum_metrics needs a model that was evaluated on this rank, got one "
            "without metrics: call model.evaluate(...) before."
        )
    own = [np.asarray(variable) for variable in variables]
    together = np.concatenate([value.astype(np.float64).ravel() for value in own])
    summed = np.asarray(all_reduce_sum(tf.constant(together)))
    ends = np.cumsum([value.size for value in own])[:-1]
    try:
        for variable, part in zip(variables, np.split(summed, ends), strict=True):
            variable.assign(part.reshape(variable.shape).astype(variable.dtype))
        results = model.get_metrics_result()
        return {name: np.asarray(value).tolist() for name, value in results.items()}
    finally:
        for variable, value in zip(variables, own, strict=True):
            variable.assign(value)


def _parts(metric: Any) -> list[Any]:
    """Returns the metrics of the container that `compile` makes, or the metric."""
    if isinstance(metric, keras.metrics.Metric) and not hasattr(metric, "metrics"):
        return [metric]
    return list(metric.metrics)
