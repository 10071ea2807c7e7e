"""The flag of every command that starts worker processes."""

from absl import flags

NUM_WORKERS = flags.DEFINE_integer(
    "num_workers",
    None,
    "Number of worker processes; does not change what is written. "
    "Default: one for each CPU that this process may use.",
    lower_bound=1,
)
