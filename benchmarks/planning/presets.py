"""Published tests of storage for deep learning, to start a sweep from.

In: the name of a preset, and settings of a `Sweep` that replace its own. Out: settings.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.planning.plan import TIERS

# The batch of a rank is each model's own, as in the publications.
_MODELS = (
    *("resnet50", "resnet152", "vgg16", "googlenet"),
    *("inception_v3", "inception_v4"),
)
_RANKS = (1, 2, 4, 8)  # a host of the tests had eight accelerators
# In the tests by Dell and NVIDIA, the GPUs were busy for at least 97 % of the time.
GATE = "--require=au>=0.97"
PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Five repeats: with fewer, an interval of confidence is wide.
    "scaling": {"models": ("resnet50",), "ranks": _RANKS, "repeats": 5},
    "models": {"models": _MODELS, "modes": ("train",), "ranks": _RANKS},
    "inference": {"models": _MODELS, "modes": ("infer",), "ranks": _RANKS},
    "tiers": {"tiers": tuple(TIERS)},
}


def with_preset(name: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a preset, replaced by those of a file and of flags.

    Each preset has the gate `GATE`, unless the settings have a gate. --placements and
    --find_ranks choose the numbers of ranks themselves, so they exclude the ranks of
    the preset.
    """
    if name is None:
        return dict(settings)
    excluded = set()
    if settings.get("find_ranks"):
        excluded = {"ranks", "repeats"}
    elif settings.get("placements"):
        excluded = {"ranks"}
    own = {key: value for key, value in PRESETS[name].items() if key not in excluded}
    arguments = tuple(settings.get("arguments", ()))
    names = {word.lstrip("-").partition("=")[0] for word in arguments}
    if "require" not in names and not settings.get("find_ranks"):
        arguments += (GATE,)
    return {**own, **settings, "arguments": arguments}
