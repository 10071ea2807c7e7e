"""Accelerators by name: how many images a second each model takes in on one of them.

In: an accelerator, a model and a mode. Out: the time of a step. Figures are of one
accelerator, synthetic input, half precision, and name where they were published; models
that nobody published for an accelerator are not there rather than guessed.
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
    """What is known of one accelerator.

    Attributes:
        train: Images per second, by model, of training.
        infer: Images per second, by model, of forward passes.
        source: Where it was published.
    """

    train: Mapping[str, float]
    infer: Mapping[str, float] = dataclasses.field(default_factory=dict)
    source: str


def _resnet50(rate: float) -> dict[str, float]:
    """MLPerf's ResNet-50 is v1.5; of v1, which takes 6 % less work, nothing is said."""
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
    # VGG-16 trained at 70 images/s there, which is a fault of the log.
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
    """Seconds that a step of a model takes on an accelerator.

    Raises:
        ValueError: If nothing is published for the model.
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
