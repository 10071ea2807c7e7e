"""Options of the commands that convert images to a data set, and their flags."""

import dataclasses
from typing import Any, Literal

from absl import flags

from converters.images import lossless
from converters.images.policy import Policy
from converters.jobs import side_files
from converters.options import policy, shared

shared.define(*shared.WRITING_FLAGS)
for _module in (shared, policy):
    flags.adopt_module_key_flags(_module)

flags.DEFINE_integer(
    "num_train_shards",
    None,
    "Number of shards of the train split. Default: one for each 48 MB of images, at "
    "most 1024; ImageNet gets 1024.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "num_validation_shards",
    None,
    "Number of shards of the validation split. Default: one for each 48 MB of images, "
    "at most 128; ImageNet gets 128.",
    lower_bound=1,
)
flags.DEFINE_enum(
    "layout",
    "inception",
    sorted(side_files.LAYOUTS),
    "Names of the shards: inception is <split>-SSSSS-of-NNNNN, as most readers expect; "
    "tfds is <data set>-<split>.tfrecord-SSSSS-of-NNNNN, as TFDS names its shards.",
)
flags.DEFINE_float(
    "max_bad",
    None,
    "How many bad images may be left out before the job fails: a count from 1 on, or a "
    "fraction of all images below 1. Default: any number. rejects.jsonl names each "
    "image that is left out.",
    lower_bound=0.0,
)
flags.DEFINE_enum(
    "drop_duplicates",
    "none",
    ["none", "same_class", "all"],
    "Leave out exact copies of an image: those of the same class, or all. The copy in "
    "the test split stays, or else the one in validation, or else the first by name. "
    "This reads the input once more. duplicates.jsonl names the copies in any case.",
)
flags.DEFINE_boolean(
    "strict",
    False,
    "Make each warning about splits and classes an error: about those that do not fit "
    "together, and about the same image in two splits.",
)
flags.DEFINE_enum(
    "check_inputs",
    "times",
    ["times", "digest"],
    "How a job that goes on finds images that changed after their shard was written. "
    "times: by name, size, and the times at which content and attributes last changed. "
    "This does not find another file of the same size whose times are both older, for "
    "example after a folder was replaced by moving. digest: by reading the images of "
    "the complete shards again.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions(shared.WritingOptions):
    """Options of a conversion; the flags of the same names describe them.

    A command adds its own options.

    Raises:
        ValueError: If a library for the policy is not built, or see
            `shared.WritingOptions`.
    """

    num_train_shards: int | None = None
    num_validation_shards: int | None = None
    layout: str = "inception"
    policy: Policy = dataclasses.field(default_factory=policy.decided)
    max_bad: float | None = None
    drop_duplicates: Literal["none", "same_class", "all"] = "none"
    check_inputs: Literal["times", "digest"] = "times"
    strict: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        lossless.require(self.policy)

    @property
    def num_shards(self) -> dict[str, int | None]:
        """Number of shards by split; None lets the size of the split decide."""
        return {
            "train": self.num_train_shards,
            "validation": self.num_validation_shards,
        }

    def of_job(self) -> dict[str, Any]:
        """Returns the options that a `Job` has too."""
        return super().of_job() | {
            "max_bad": self.max_bad,
            "check_inputs": self.check_inputs,
            "strict": self.strict,
        }

    def to_json(self) -> dict[str, Any]:
        """Returns the options as JSON values."""
        return dataclasses.asdict(self)


def options_from_flags(kind: type[shared.Options], **own: Any) -> shared.Options:
    """Returns the options of a command.

    Args:
        kind: The command's options, a subclass of `JobOptions`.
        own: Values of the options that are not the value of their flag.

    Raises:
        ValueError: If values do not fit together.
    """
    return shared.options_from_flags(kind, policy=policy.policy_from_flags(), **own)
