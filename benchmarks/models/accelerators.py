"""Accelerators by name: published numbers of images a second for each model.

In: an accelerator, a model and a mode. Out: the time of a step. The figures are for one
accelerator with synthetic input and half precision, and name their source. A model
without a published figure is left out; no figure is guessed.
"""

import dataclasses
from collections.abc import Mapping

# tf_cnn_benchmarks, float16, synthetic, the largest batch: github.com/lambdal/
# lambda-tensorflow-benchmark at c17619d, logs of V100-SXM3 32GB and A100-SXM4 40GB.
_LAMBDA = "Lambda, tf_cnn_benchmarks logs c17619d, float16"
# ResNet-50 only: github.com/mlcommons/storage at caa90c9, batch 400 in 0.224 s.
_MLPERF_STORAGE = "MLPerf Storage v2.0, ResNet-50, 400 images a step"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accelerator:
    """The published figures of one accelerator.

    Attributes:
        train: Images per second in training, by model.
        infer: Images per second in forward passes, by model.
        source: Where the figures were published.
    """

    train: Mapping[str, float]
    infer: Mapping[str, float] = dataclasses.field(default_factory=dict)
    source: str


def _resnet50(rate: float) -> dict[str, float]:
    """Returns the rate of MLPerf's ResNet-50, v1.5, for v1 as well.

    No figure is published for v1, which takes 6 % less work.
    """
    return {"resnet50": rate, "resnet50_v1.5": rate}


ACCELERATORS = {
    "v100": Accelerator(
        train={
            "resnet50": 1276.0,
            "resnet152": 518.0,
            "vgg16": 456.0,
            "inception_v3": 771.0,
            "inception_v4": 357.0,
        },
        infer={
            "resnet50": 3857.0,
            "resnet152": 1759.0,
            "vgg16": 1409.0,
            "inception_v3": 2443.0,
            "inception_v4": 1184.0,
        },
        source=_LAMBDA,
    ),
    # VGG-16 is left out of training: the log's 70 images/s must be an error of the log.
    "a100": Accelerator(
        train={
            "resnet50": 1990.0,
            "resnet152": 905.0,
            "inception_v3": 1175.0,
            "inception_v4": 639.0,
        },
        infer={
            "resnet50": 6467.0,
            "resnet152": 2981.0,
            "vgg16": 2777.0,
            "inception_v3": 3962.0,
            "inception_v4": 1888.0,
        },
        source=_LAMBDA,
    ),
    "h100": Accelerator(train=_resnet50(400 / 0.224), source=_MLPERF_STORAGE),
    "a100_mlperf_storage": Accelerator(
        train=_resnet50(400 / 0.435), source=_MLPERF_STORAGE
    ),
    "h100_mlperf": Accelerator(
        train=_resnet50(7006.0),
        source="MLPerf Training v3.0, DGX H100, 56,050 images/s on 8",
    ),
}


def step_seconds(name: str, model: str, mode: str, batch_size: int) -> float:
    """Returns the seconds that a step of a model takes on an accelerator.

    Args:
        name: A key of ACCELERATORS.
        model: A key of `catalog.MODELS`.
        mode: "train" or "infer".
        batch_size: Examples in a step.

    Raises:
        ValueError: If no figure is published for the model.
    """
    accelerator = ACCELERATORS[name]
    rates = accelerator.infer if mode == "infer" else accelerator.train
    if model not in rates:
        known = ", ".join(sorted(rates)) or "nothing"
        raise ValueError(
            f"--emulate={name} knows how fast {known} is with --mode={mode}, got "
            f"--model={model}. Give --step_time_ms instead."
        )
    return batch_size / rates[model]
