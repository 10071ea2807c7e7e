"""How fast accelerators are: published images a second, and figures scaled from them.

Figures are for one accelerator with synthetic input and half precision, unless the
source says otherwise. A scaled figure is a published one times a ratio of two other
published figures; docs/results.md explains each ratio.
"""

from collections.abc import Mapping

from benchmarks.models.accelerators import Accelerator, Figure

# tf_cnn_benchmarks, float16, synthetic, the largest batch: github.com/lambdal/
# lambda-tensorflow-benchmark at c17619d, logs of V100-SXM3 32GB and A100-SXM4 40GB.
_LAMBDA = "Lambda, tf_cnn_benchmarks logs c17619d, float16"
# The PCIe A100 of the same logs; those of the SXM4 say 70 for VGG-16, an error.
_LAMBDA_PCIE = f"{_LAMBDA}, A100-PCIe 40GB"
_DLE = "NVIDIA DeepLearningExamples, TensorFlow 20.06, ResNet-50 v1.5, AMP and XLA"
# github.com/mlcommons/storage at caa90c9, batch 400 in 0.224 s and in 0.435 s.
_MLPERF_STORAGE = "MLPerf Storage v2.0, ResNet-50, 400 images a step"
_H100_MLPERF = "MLPerf Training v3.0, DGX H100, 56,050 images/s on 8"
_H200_MLPERF = "MLPerf Training v4.0, HGX H200, 63,559 images/s on 8"
_WEKA = "WekaIO, DGX-1, TensorRT, just under 42,000 images/s on 8, read from storage"

# Ratios, each with its source.
_GOOGLENET = 2.0, "GoogLeNet over ResNet-50, float16 steps: 1.95 to 2.1, Paddle#20597"
_V1_5 = 3.858 / 4.089, "multiply-adds of ResNet-50 v1 over v1.5"
_RESNET101 = 11.3 / 7.6, "FLOPs of ResNet-152 over ResNet-101, He et al. 2015, table 1"
_A100_INFER = 6467 / 3857, f"A100 over V100, ResNet-50, {_LAMBDA}"
_H100_TRAIN = 0.435 / 0.224, f"H100 over A100, {_MLPERF_STORAGE}"
_H100_INFER = (
    703_770 / 335_144,
    "H100 over A100, MLPerf Inference v4.0 and v2.1, ResNet-50 offline, 8 bits",
)
_H200_TRAIN = (
    63_559 / 57_256,
    "H200 over H100, MLPerf Training v4.0, ResNet-50, NVIDIA on 8",
)
_H200_INFER = (
    756_960 / 703_770,
    "H200 over H100, MLPerf Inference v4.1 and v4.0, ResNet-50 offline, 8 bits",
)
_B200 = (
    37.009 / 21.5,
    "B200 over H100, MLPerf Training v5.1 and v3.0, RetinaNet on 8: 21.5 and 37.0 min",
)


def _published(rates: Mapping[str, float], source: str) -> dict[str, Figure]:
    return {
        model: Figure(images_per_second=rate, source=source)
        for model, rate in rates.items()
    }


def _scaled(base: Figure, name: str, ratio: tuple[float, str]) -> Figure:
    """Returns a figure times a ratio.

    Args:
        base: The figure to scale.
        name: What the base is the figure of, in words.
        ratio: The ratio, and its source.
    """
    factor, source = ratio
    return Figure(
        images_per_second=base.images_per_second * factor,
        source=f"{source}; {name}: {base.source}",
        ratio=factor,
        base=name,
    )


def _complete(
    figures: Mapping[str, Figure], name: str, *ratios: tuple[str, str, float, str]
) -> dict[str, Figure]:
    """Adds models that are scaled from another model on the same accelerator.

    Args:
        figures: Figures by model.
        name: Name of the accelerator.
        ratios: (model, model to scale from, ratio, source of the ratio) of each.
    """
    added = {
        model: _scaled(figures[base], f"{base} on {name}", (ratio, source))
        for model, base, ratio, source in ratios
    }
    return {**figures, **added}


def _faster(
    figures: Mapping[str, Figure], name: str, ratio: tuple[float, str]
) -> dict[str, Figure]:
    """Returns the figures of another accelerator, each times a ratio."""
    return {model: _scaled(figure, name, ratio) for model, figure in figures.items()}


_TRAIN_RATIOS = (
    ("resnet101", "resnet152", *_RESNET101),
    ("googlenet", "resnet50", *_GOOGLENET),
)
_INFER_RATIOS = (
    ("resnet101", "resnet152", *_RESNET101),
    ("resnet50_v1.5", "resnet50", *_V1_5),
)

_LAMBDA_MODELS = "resnet50", "resnet152", "inception_v3", "inception_v4", "vgg16"


def _lambda(*rates: float) -> dict[str, Figure]:
    """Returns the rates of Lambda's logs, in the order of `_LAMBDA_MODELS`."""
    return _published(dict(zip(_LAMBDA_MODELS, rates, strict=False)), _LAMBDA)


_V100 = Accelerator(
    train=_complete(
        _lambda(1276.0, 518.0, 771.0, 357.0, 456.0)
        | _published({"resnet50_v1.5": 1270.0}, _DLE),
        *("v100", *_TRAIN_RATIOS),
    ),
    infer=_complete(
        _lambda(3857.0, 1759.0, 2443.0, 1184.0, 1409.0)
        | _published({"googlenet": 42_000 / 8}, _WEKA),
        *("v100", *_INFER_RATIOS),
    ),
)

_A100 = Accelerator(
    train=_complete(
        _lambda(1990.0, 905.0, 1175.0, 639.0)
        | _published({"vgg16": 1190.0}, _LAMBDA_PCIE)
        | _published({"resnet50_v1.5": 2375.0}, _DLE),
        *("a100", *_TRAIN_RATIOS),
    ),
    infer=_complete(
        _lambda(6467.0, 2981.0, 3962.0, 1888.0, 2777.0)
        | {"googlenet": _scaled(_V100.infer["googlenet"], "v100", _A100_INFER)},
        *("a100", *_INFER_RATIOS),
    ),
)


def _resnet50(rate: float, source: str) -> dict[str, Figure]:
    """Returns the rate of MLPerf's ResNet-50, v1.5, for v1 as well.

    No figure is published for v1, which takes 6 % less work.
    """
    return _published({"resnet50": rate, "resnet50_v1.5": rate}, source)


_H100 = Accelerator(
    train=_faster(_A100.train, "a100", _H100_TRAIN)
    | _resnet50(400 / 0.224, _MLPERF_STORAGE),
    infer=_faster(_A100.infer, "a100", _H100_INFER),
)

ACCELERATORS = {
    "v100": _V100,
    "a100": _A100,
    "a100_mlperf_storage": Accelerator(train=_resnet50(400 / 0.435, _MLPERF_STORAGE)),
    "h100": _H100,
    "h100_mlperf": Accelerator(train=_resnet50(7006.0, _H100_MLPERF)),
    "h200": Accelerator(
        train=_faster(_H100.train, "h100", _H200_TRAIN),
        infer=_faster(_H100.infer, "h100", _H200_INFER),
    ),
    "h200_mlperf": Accelerator(train=_resnet50(63_559 / 8, _H200_MLPERF)),
    "b200": Accelerator(
        train=_faster(_H100.train, "h100", _B200),
        infer=_faster(_H100.infer, "h100", _B200),
    ),
}
