"""Feeds images from TFRecords to training: exact order, plain tf.data, measured.

    import tfpipe
    pipeline = tfpipe.imagenet_train("DIR", batch_size=256)
    print(pipeline)               # one line a stage
    dataset = pipeline.build()    # a plain tf.data.Dataset

Names are imported when they are first used, so that reading an index or encoding
records (all that the converters do) needs no TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfpipe.agreement import preflight
    from tfpipe.augment import (
        ColorJitter,
        Cutout,
        DistortColor,
        RandAugment,
        RandomErasing,
    )
    from tfpipe.bottleneck import Bottleneck
    from tfpipe.bound import StageCost
    from tfpipe.cache import Cache
    from tfpipe.callbacks import LogInput, SaveState
    from tfpipe.costs import Profile
    from tfpipe.crop import CenterCrop, RandomCrop, RandomScaleCrop, Resize
    from tfpipe.errors import BadIndexError, BadRecordError, TfpipeError
    from tfpipe.faults import Fault, FaultLog
    from tfpipe.host import cpu_model, cpu_quota, ram_bytes, ram_left
    from tfpipe.interleave import Interleave
    from tfpipe.measure import Throughput, profile, throughput
    from tfpipe.mix import CutMix, MixUp
    from tfpipe.mixture import Mixture
    from tfpipe.nodes import chosen_parallelism
    from tfpipe.ops import (
        Cast,
        Flip,
        Normalize,
        OneHot,
        Parse,
        Reseed,
        Select,
        ToNCHW,
    )
    from tfpipe.pipeline import Pipeline
    from tfpipe.presets import imagenet_eval, imagenet_train
    from tfpipe.race import Turns, compare
    from tfpipe.recipes import Recipe, inception, resnet, vgg
    from tfpipe.search import Search, load_tuned
    from tfpipe.shuffle import Shuffle
    from tfpipe.source import SyntheticSource, TFRecordSource
    from tfpipe.space import Budget, Setting, opened
    from tfpipe.stages import (
        AssertCardinality,
        Batch,
        Map,
        Prefetch,
        Take,
    )
    from tfpipe.state import SavedState, State
    from tfpipe.step_times import StepFigures, StepTime, StepTimer
    from tfpipe.training.headspace import Headspace, headspace
    from tfpipe.tuner import search_tuning, tune
    from tfpipe.tuning import Tuning
    from tfpipe.view import before_and_after, contact_sheet

__version__ = "0.1.0"

_MODULES = {
    "agreement": ("preflight",),
    "augment": (
        "ColorJitter",
        "Cutout",
        "DistortColor",
        "RandAugment",
        "RandomErasing",
    ),
    "crop": ("CenterCrop", "RandomCrop", "RandomScaleCrop", "Resize"),
    "bottleneck": ("Bottleneck",),
    "bound": ("StageCost",),
    "cache": ("Cache",),
    "callbacks": ("LogInput", "SaveState"),
    "errors": ("BadIndexError", "BadRecordError", "TfpipeError"),
    "costs": ("Profile",),
    "faults": ("Fault", "FaultLog"),
    "host": ("cpu_model", "cpu_quota", "ram_bytes", "ram_left"),
    "interleave": ("Interleave",),
    "measure": ("Throughput", "profile", "throughput"),
    "mix": ("CutMix", "MixUp"),
    "mixture": ("Mixture",),
    "nodes": ("chosen_parallelism",),
    "ops": (
        "Cast",
        "Flip",
        "Normalize",
        "OneHot",
        "Parse",
        "Reseed",
        "Select",
        "ToNCHW",
    ),
    "pipeline": ("Pipeline",),
    "presets": ("imagenet_eval", "imagenet_train"),
    "race": ("Turns", "compare"),
    "recipes": ("Recipe", "inception", "resnet", "vgg"),
    "search": ("Search", "load_tuned"),
    "shuffle": ("Shuffle",),
    "source": ("SyntheticSource", "TFRecordSource"),
    "space": ("Budget", "Setting", "opened"),
    "stages": (
        "AssertCardinality",
        "Batch",
        "Map",
        "Prefetch",
        "Take",
    ),
    "state": ("SavedState", "State"),
    "step_times": ("StepFigures", "StepTime", "StepTimer"),
    "training.headspace": ("Headspace", "headspace"),
    "tuner": ("search_tuning", "tune"),
    "tuning": ("Tuning",),
    "view": ("before_and_after", "contact_sheet"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AssertCardinality",
    "BadIndexError",
    "BadRecordError",
    "Batch",
    "Bottleneck",
    "Budget",
    "Cache",
    "Cast",
    "CenterCrop",
    "ColorJitter",
    "CutMix",
    "Cutout",
    "DistortColor",
    "Fault",
    "FaultLog",
    "Flip",
    "Headspace",
    "Interleave",
    "LogInput",
    "Map",
    "MixUp",
    "Mixture",
    "Normalize",
    "OneHot",
    "Parse",
    "Pipeline",
    "Prefetch",
    "Profile",
    "RandAugment",
    "RandomCrop",
    "RandomErasing",
    "RandomScaleCrop",
    "Recipe",
    "Reseed",
    "Resize",
    "SaveState",
    "SavedState",
    "Search",
    "Select",
    "Setting",
    "Shuffle",
    "StageCost",
    "State",
    "StepFigures",
    "StepTime",
    "StepTimer",
    "SyntheticSource",
    "TFRecordSource",
    "Take",
    "TfpipeError",
    "Throughput",
    "ToNCHW",
    "Tuning",
    "Turns",
    "before_and_after",
    "chosen_parallelism",
    "compare",
    "contact_sheet",
    "cpu_model",
    "cpu_quota",
    "headspace",
    "imagenet_eval",
    "imagenet_train",
    "inception",
    "load_tuned",
    "opened",
    "preflight",
    "profile",
    "ram_bytes",
    "ram_left",
    "resnet",
    "search_tuning",
    "throughput",
    "tune",
    "vgg",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tfpipe' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tfpipe.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
