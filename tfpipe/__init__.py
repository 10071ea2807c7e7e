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
    from tfpipe.errors import BadIndexError, BadRecordError, TfpipeError
    from tfpipe.ops import (
        Cast,
        CenterCrop,
        Flip,
        Normalize,
        Parse,
        RandomCrop,
        Select,
    )
    from tfpipe.pipeline import Pipeline
    from tfpipe.presets import imagenet_eval, imagenet_train
    from tfpipe.source import SyntheticSource, TFRecordSource
    from tfpipe.stages import (
        AssertCardinality,
        Batch,
        Cache,
        Interleave,
        Map,
        Pad,
        Prefetch,
        Repeat,
        Shuffle,
        Take,
    )
    from tfpipe.tuning import Tuning
    from tfpipe.view import contact_sheet

__version__ = "0.1.0"

_MODULES = {
    "errors": ("BadIndexError", "BadRecordError", "TfpipeError"),
    "ops": (
        "Cast",
        "CenterCrop",
        "Flip",
        "Normalize",
        "Parse",
        "RandomCrop",
        "Select",
    ),
    "pipeline": ("Pipeline",),
    "presets": ("imagenet_eval", "imagenet_train"),
    "source": ("SyntheticSource", "TFRecordSource"),
    "stages": (
        "AssertCardinality",
        "Batch",
        "Cache",
        "Interleave",
        "Map",
        "Pad",
        "Prefetch",
        "Repeat",
        "Shuffle",
        "Take",
    ),
    "tuning": ("Tuning",),
    "view": ("contact_sheet",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AssertCardinality",
    "BadIndexError",
    "BadRecordError",
    "Batch",
    "Cache",
    "Cast",
    "CenterCrop",
    "Flip",
    "Interleave",
    "Map",
    "Normalize",
    "Pad",
    "Parse",
    "Pipeline",
    "Prefetch",
    "RandomCrop",
    "Repeat",
    "Select",
    "Shuffle",
    "SyntheticSource",
    "TFRecordSource",
    "Take",
    "TfpipeError",
    "Tuning",
    "contact_sheet",
    "imagenet_eval",
    "imagenet_train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tfpipe' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tfpipe.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
