"""Sweeps by name: the published tests of storage for deep learning, to start from.

In: a name, and the settings that a file and flags give. Out: settings of a `Sweep`;
file and flags take precedence. The batch of a rank is each model's own: that of the
publications.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.sweeps.tiers import TIERS

# Models of the published tests of storage for deep learning.
_MODELS = [
    *("resnet50", "resnet152", "vgg16", "googlenet"),
    *("inception_v3", "inception_v4"),
]
# A host of the tests had eight accelerators.
_RANKS = [1, 2, 4, 8]
# In the tests by Dell and NVIDIA, the GPUs were busy for at least 97 % of the time.
GATE = "--require=au>=0.97"

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Five repeats: with fewer, an interval of confidence is wide.
    "scaling": {"models": ["resnet50"], "ranks": _RANKS, "repeats": 5},
    "models": {"models": _MODELS, "modes": ["train"], "ranks": _RANKS},
    "inference": {"models": _MODELS, "modes": ["infer"], "ranks": _RANKS},
    "tiers": {"tiers": list(TIERS)},
}


def settings(name: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a preset with those that were given.

    Each preset has the gate `GATE`, unless a gate is given. A setting of the preset
    that excludes a given one is left out: --placements and --find_ranks choose the
    numbers of ranks themselves.

    Args:
        name: A key of `PRESETS`; None for the given settings alone.
        given: Settings of a `Sweep`, by name.

    Raises:
        ValueError: If there is no preset of this name.
    """
    if name is None:
        return dict(given)
    if name not in PRESETS:
        raise ValueError(f"--preset must be of {', '.join(PRESETS)}, got {name}.")
    excluded = set()
    if given.get("find_ranks"):
        excluded = {"ranks", "repeats"}
    elif given.get("placements"):
        excluded = {"ranks"}
    own = {key: value for key, value in PRESETS[name].items() if key not in excluded}
    return {**own, **given, "arguments": _with_gate(given)}


def _with_gate(given: Mapping[str, Any]) -> Sequence[str] | Any:
    """Returns the flags after -- with the gate, unless they or a search have one."""
    arguments = given.get("arguments", ())
    if given.get("find_ranks") or not isinstance(arguments, list | tuple):
        return arguments
    names = {str(word).lstrip("-").partition("=")[0] for word in arguments}
    return arguments if "require" in names else [*arguments, GATE]
