"""The flag --preset, which benchmarks.input and benchmarks.sweep share.

In: the command line. Out: the name of a preset, which each command checks itself.
"""

from absl import flags

PRESET = flags.DEFINE_string(
    "preset",
    None,
    "For benchmarks.input: pipeline to measure over --data_dir, imagenet_train (the "
    "default) or imagenet_eval. For benchmarks.sweep: settings to start from, scaling "
    "(1 to 8 ranks, five repeats), models (the published ones), inference (the same, "
    "forward only) or tiers (all places of the data).",
)
