"""The flag --preset, which benchmarks.input and benchmarks.sweep share.

In: the command line. Out: the name of a preset, which each command checks itself.
"""

from absl import flags

PRESET = flags.DEFINE_string(
    "preset",
    None,
    "For benchmarks.input: pipeline to measure over --data_dir, imagenet_train (the "
    "default) or imagenet_eval. For benchmarks.sweep: a published test to start from, "
    "with the gate au>=0.97: scaling (ResNet-50 on 1 to 8 ranks, five repeats), models "
    "(six of them), inference (the same, forward only) or tiers (all places of the "
    "data).",
)
