"""The flags that every converter command line shares, each defined once.

absl refuses to define a flag name twice in one process, so a command line imports
these holders and calls `flags.adopt_module_key_flags` on this module, which also
makes its `--help` list them.
"""

from absl import flags

OUTPUT_DIR = flags.DEFINE_string(
    "output_dir",
    None,
    "Folder to write to. What it is to hold appears only when all of it is complete.",
    required=True,
)
SEED = flags.DEFINE_integer(
    "seed",
    0,
    "Seed of every random choice. The same flags and seed write the same bytes.",
    lower_bound=0,
)
OVERWRITE = flags.DEFINE_boolean(
    "overwrite",
    False,
    "Replace what an earlier run left in --output_dir. The old content stays until the "
    "new one is complete.",
)
