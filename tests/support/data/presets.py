"""Pipelines of the presets, for tests that vary how records are read."""

import inspect
import pathlib
from collections.abc import Callable
from typing import Any

import tfpipe

_BESIDE_SOURCE = ("split", "batch_size", "seed", "rank", "num_ranks")


def preset_over(
    preset: Callable[..., tfpipe.Pipeline], data_dir: pathlib.Path, **options: Any
) -> tfpipe.Pipeline:
    """Returns the pipeline of a preset, with a source of its own if options need it.

    Args:
        preset: `tfpipe.imagenet_train` or `tfpipe.imagenet_eval`.
        data_dir: Folder of a data set.
        options: Options of the preset and of `tfpipe.TFRecordSource`.
    """
    known = inspect.signature(preset).parameters
    own = {name: value for name, value in options.items() if name not in known}
    if not own:
        return preset(data_dir, **options)
    is_eval = preset is tfpipe.imagenet_eval
    fields: dict[str, Any] = {
        "split": "validation" if is_eval else "train",
        "batch_size": 256,
        "shuffle": "none" if is_eval else "window",
        "remainder": "pad" if is_eval else "drop",
    }
    fields |= own
    fields |= {name: options.pop(name) for name in _BESIDE_SOURCE if name in options}
    rest = {name: value for name, value in options.items() if name not in own}
    return preset(tfpipe.TFRecordSource(data_dir, **fields), **rest)
