"""Old public names: each works for one more version, with a warning.

In: a name that `tfpipe` had. Out: the object under its new name. docs/upgrading.md
shows the same table.
"""

import importlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

# Old names, without `tfpipe.`, that are the new names too, by their module.
_MOVED: Mapping[str, Sequence[str]] = {
    "errors": (
        *("BadIndexError", "BadRecordError", "BadSubsetError", "MissingFileError"),
        *("RemoteError", "TfpipeError"),
    ),
    "host": (
        *("cpu_model", "cpu_quota", "git_revision", "keep_freed_memory", "ram_bytes"),
        "ram_left",
    ),
    "profiling.bottleneck": ("Bottleneck",),
    "profiling.dataset_nodes": ("chosen_parallelism",),
    "profiling.limits": ("StageCost",),
    "recipes": ("Recipe", "inception", "resnet", "vgg"),
    "service.workers": ("service_worker_answers", "service_workers"),
    "shard_cache.open_cache": ("CacheStatistics",),
    "stages.faults": ("Fault",),
    "training.step_timer": ("StepFigures", "StepTime"),
    "tuner.race": ("Turns", "compare"),
    "tuner.space": ("Budget", "Setting", "opened"),
    "view": ("before_and_after", "contact_sheet"),
}
# Old names, and where each object is now.
RENAMED: Mapping[str, str] = {
    **{name: f"{home}.{name}" for home, names in _MOVED.items() for name in names},
    "Filled": "shard_cache.settings.FillFigures",
    "Headspace": "training.headspace.HeadspaceFigures",
    "Profile": "profiling.profile.PipelineProfile",
    "SaveState": "StateCallback",
    "SavedState": "CheckpointState",
    "Throughput": "profiling.measure.ThroughputFigures",
}


def look_up(name: str) -> Any:
    """Returns the object that has an old name, and warns the caller of `tfpipe.NAME`.

    Raises:
        KeyError: If the name is no old name.
    """
    new = RENAMED[name]
    warnings.warn(
        f"tfpipe.{name} is now tfpipe.{new}. The next version knows the new name only.",
        DeprecationWarning,
        stacklevel=3,
    )
    module, _, attribute = f"tfpipe.{new}".rpartition(".")
    return getattr(importlib.import_module(module), attribute)
