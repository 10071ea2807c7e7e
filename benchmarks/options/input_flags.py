"""The flags of benchmarks.input.

In: the command line. Out: an `InputConfig`.
"""

import dataclasses
import math

from absl import flags

from benchmarks.models import published
from benchmarks.options import command, preset_flag, shared_flags
from benchmarks.options.data_access import DataOptions

GROUPS = {
    "What to measure": (
        *("data_dir", "preset", "pipeline", "do", "seconds", "time_limit"),
        *("model", "image_size", "batch_size", "seed", "whole_batches"),
    ),
    "Where the records are": shared_flags.ACCESS,
    "How tune may search": (
        *("cpu_budget", "ram_budget_gb", "disk_budget_gb", "cache_dir", "any_order"),
        "demand",
    ),
    "What is kept": ("tuning", "report_dir"),
}

PRESETS = ("imagenet_train", "imagenet_eval")
PARTS = ("throughput", "profile", "tune", "headspace")

flags.adopt_module_key_flags(preset_flag)
flags.adopt_module_key_flags(shared_flags)

flags.DEFINE_string(
    "pipeline",
    None,
    "module:function that returns a tfpipe.Pipeline of your own, in place of a preset. "
    "It is called with rank and num_ranks if it takes them.",
)
flags.DEFINE_list(
    "do",
    list(PARTS),
    "Parts to run, one after the other. throughput: images/s and CPU time. profile: "
    "the cost of each stage, and the limit of the pipeline. tune: search the best "
    "tuning within the budgets. headspace: how far the input is from limiting --model.",
)
flags.DEFINE_float(
    "seconds", 3.0, "Approximate time of each measurement.", lower_bound=0.1
)
flags.DEFINE_float(
    "time_limit",
    None,
    "Seconds that the whole command may take, from its start on. The parts share them; "
    "tune is left out if less than 20 s are its share. A part that is not done at the "
    "end is cut off, and the result of the others is printed. Default: no limit, and a "
    "minute for tune.",
    lower_bound=1.0,
)
flags.DEFINE_integer(
    "cpu_budget",
    None,
    "Threads for the pipelines of all ranks of a host. Default: the host's cores.",
    lower_bound=1,
)
flags.DEFINE_float(
    "ram_budget_gb",
    None,
    "Memory for buffers and caches of these pipelines, in GB. Default: half of the "
    "free memory.",
    lower_bound=1e-9,
)
flags.DEFINE_float(
    "disk_budget_gb",
    None,
    "Disk space for a cache in --cache_dir, in GB. tune tries a cache on disk only if "
    "both flags are given.",
    lower_bound=1e-9,
)
flags.DEFINE_string(
    "cache_dir",
    None,
    "Folder on a disk of this host, for a cache that tune may add, or for the shards "
    "of benchmarks.storage warm.",
)
flags.DEFINE_bool(
    "any_order",
    False,
    "Whether tune may also try deterministic=False: elements in the order in which "
    "they are ready, which is not reproducible.",
)
flags.DEFINE_string(
    "demand",
    None,
    "Images/s that the training step of a rank could take, such as 1500, or one of "
    f"{', '.join(published.ACCELERATORS)}, for its published figure of --model. tune "
    "then says whether a tf.data service with cores of other hosts would pay.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputConfig(DataOptions):
    """The options of a measurement; a field has the name of its flag.

    Raises:
        ValueError: If options are contradictory.
    """

    pipeline: str | None = None
    preset: str = "imagenet_train"
    do: tuple[str, ...] = PARTS
    seconds: float = 3.0
    time_limit: float | None = None
    cpu_budget: int | None = None
    ram_budget_bytes: int | None = None
    disk_budget_bytes: int | None = None
    cache_dir: str | None = None
    any_order: bool = False
    demand: str | None = None

    def __post_init__(self) -> None:
        if (self.data_dir is None) == (self.pipeline is None):
            raise ValueError(
                "One of --data_dir and --pipeline must be given, and not both; got "
                f"data_dir={self.data_dir}, pipeline={self.pipeline}."
            )
        _ = self.access  # checks itself
        if self.preset not in PRESETS:
            raise ValueError(
                f"--preset must be of {', '.join(PRESETS)}, got {self.preset}."
            )
        if self.pipeline is not None and ":" not in self.pipeline:
            raise ValueError(
                f"--pipeline must be module:function, got {self.pipeline!r}."
            )
        if unknown := set(self.do) - set(PARTS):
            raise ValueError(
                f"--do must be of {', '.join(PARTS)}; got {', '.join(sorted(unknown))}."
            )
        if bool(self.disk_budget_bytes) != bool(self.cache_dir):
            raise ValueError(
                "--disk_budget_gb and --cache_dir must be given together, got "
                f"{(self.disk_budget_bytes or 0) / 1e9} and {self.cache_dir}."
            )
        _ = self.images_per_second_wanted  # checks itself

    @property
    def images_per_second_wanted(self) -> float | None:
        """Images per second that the step of a rank could take; None if unknown."""
        if self.demand is None:
            return None
        if accelerator := published.ACCELERATORS.get(self.demand):
            is_training = self.preset == "imagenet_train"
            figures = accelerator.train if is_training else accelerator.infer
            if self.model not in figures:
                raise ValueError(
                    f"--demand={self.demand} has figures of {', '.join(figures)} with "
                    f"--preset={self.preset}, none of --model={self.model}. Give the "
                    "images/s."
                )
            return figures[self.model].images_per_second
        try:
            rate = float(self.demand)
        except ValueError:
            rate = math.nan
        if not 0 < rate < math.inf:
            raise ValueError(
                "--demand must be images/s, a number above 0, or one of "
                f"{', '.join(published.ACCELERATORS)}; got {self.demand}."
            )
        return rate


def config_from_flags() -> InputConfig:
    """Returns the values of the flags; no other function reads them.

    Raises:
        ValueError: If flags are contradictory, or a flag is given and has no
            effect.
    """
    values = flags.FLAGS
    if values.pipeline is not None:
        names = ["preset", "image_size", "batch_size", "whole_batches"]
        command.refuse([*names, *shared_flags.ACCESS], "--pipeline")
    if "tune" not in values.do:
        names = [*GROUPS["How tune may search"], "tuning"]
        command.refuse(names, f"--do={','.join(values.do)}, which has no tune,")
    ram, disk = values.ram_budget_gb, values.disk_budget_gb
    own = {
        "preset": values.preset or PRESETS[0],
        "do": tuple(values.do),
        "ram_budget_bytes": None if ram is None else int(ram * 1e9),
        "disk_budget_bytes": None if disk is None else int(disk * 1e9),
    }
    return InputConfig(**shared_flags.fields_of(InputConfig, values) | own)
