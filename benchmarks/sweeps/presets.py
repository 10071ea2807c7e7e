"""Sweeps by name: settings to start from.

In: a name. Out: settings of a `Sweep`; flags and --sweep_file take precedence.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.sweeps.tiers import TIERS

# Models of the published tests of storage for deep learning.
_MODELS = [
    *("resnet50", "resnet152", "vgg16", "googlenet"),
    *("inception_v3", "inception_v4"),
]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Five repeats: with fewer, an interval of confidence is wide.
    "scaling": {"ranks": [1, 2, 4, 8], "repeats": 5},
    "models": {"models": _MODELS},
    "inference": {"models": _MODELS, "modes": ["infer"]},
    "tiers": {"tiers": list(TIERS)},
}
