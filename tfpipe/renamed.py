"""Old public names: each works for one more version, with a warning.

In: a name that `tfpipe` had. Out: the object under its new name. docs/upgrading.md
shows the same table.
"""

import importlib
import warnings
from collections.abc import Mapping
from typing import Any

# Old names, without `tfpipe.`, and where each is now.
RENAMED: Mapping[str, str] = {
    "BadIndexError": "errors.BadIndexError",
    "BadRecordError": "errors.BadRecordError",
    "BadSubsetError": "errors.BadSubsetError",
    "Bottleneck": "profiling.bottleneck.Bottleneck",
    "Budget": "tuner.space.Budget",
    "CacheStatistics": "shard_cache.open_cache.CacheStatistics",
    "Fault": "stages.faults.Fault",
    "Filled": "shard_cache.settings.FillFigures",
    "Headspace": "training.headspace.HeadspaceFigures",
    "MissingFileError": "errors.MissingFileError",
    "Profile": "profiling.profile.PipelineProfile",
    "Recipe": "recipes.Recipe",
    "RemoteError": "errors.RemoteError",
    "SaveState": "StateCallback",
    "SavedState": "CheckpointState",
    "Setting": "tuner.space.Setting",
    "StageCost": "profiling.limits.StageCost",
    "StepFigures": "training.step_timer.StepFigures",
    "StepTime": "training.step_timer.StepTime",
    "TfpipeError": "errors.TfpipeError",
    "Throughput": "profiling.measure.ThroughputFigures",
    "Turns": "tuner.race.Turns",
    "before_and_after": "view.before_and_after",
    "chosen_parallelism": "profiling.dataset_nodes.chosen_parallelism",
    "compare": "tuner.race.compare",
    "contact_sheet": "view.contact_sheet",
    "cpu_model": "host.cpu_model",
    "cpu_quota": "host.cpu_quota",
    "git_revision": "host.git_revision",
    "inception": "recipes.inception",
    "keep_freed_memory": "host.keep_freed_memory",
    "opened": "tuner.space.opened",
    "ram_bytes": "host.ram_bytes",
    "ram_left": "host.ram_left",
    "resnet": "recipes.resnet",
    "service_worker_answers": "service.workers.service_worker_answers",
    "service_workers": "service.workers.service_workers",
    "vgg": "recipes.vgg",
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
