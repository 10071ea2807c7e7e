"""Options of the commands that convert images to a data set, and their flags.

In: flags. Out: `ConvertOptions`, the same for all inputs. A `Reader` has the options
about its input.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from absl import flags

from converters.images import lossless
from converters.images.policy import Policy
from converters.inputs import expected, fractions
from converters.inputs.meaning import NUMBER, TEXT, LabelType, Meaning
from converters.jobs import side_files
from converters.options import policy, shared
from tfpipe.shards.split_names import SPLITS

# Most bits of 64 in which hashes of images that look alike differ.
_MAX_DISTANCE = 8

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
flags.DEFINE_string(
    "name",
    None,
    "Name of the data set: lower-case letters, digits and underscores. Default: the "
    "last word of the command.",
)
flags.DEFINE_string(
    "label_map",
    None,
    "File of lines `<label> <class>`, or of classes in label order. Default: the "
    "classes of the input, by name.",
)
flags.DEFINE_integer(
    "label_base",
    None,
    "Label of the first class: 1 leaves 0 to the background, as ImageNet has it. "
    "Default: the lowest in --label_map, or 1.",
    lower_bound=0,
    upper_bound=1,
)
flags.DEFINE_enum(
    "label_type",
    None,
    [NUMBER, TEXT],
    "Whether labels are numbers, which stay the labels, or names of classes. Default: "
    "numbers if all are plain integers, names if none is or one has a leading zero or "
    "a point.",
)
flags.DEFINE_enum(
    "split",
    None,
    SPLITS,
    "Split of all images, whatever the names of files and folders say.",
)
flags.DEFINE_boolean(
    "no_split_names",
    False,
    "Take no name of a file or folder for a split: all images are of the train split.",
)
flags.DEFINE_integer(
    "class_depth",
    None,
    "Number of folders, from the split on, whose names are the class of an image. "
    "Default: all folders above the image.",
    lower_bound=1,
)
flags.DEFINE_list(
    "classes", [], "Classes to take, with commas between them. Default: all."
)
_SPLIT_FRACTIONS = flags.DEFINE_list(
    "split_fractions",
    [],
    "Share of the images of each class that each split gets, as in "
    "train=0.8,validation=0.1,test=0.1; the shares add up to 1. A class with fewer "
    "images than splits gives one to train first, then to validation. Default: all "
    "images stay in their split.",
)
flags.DEFINE_float(
    "validation_fraction",
    0.0,
    "Share of the images of each class, 0 to 1, that becomes a validation split: short "
    "for --split_fractions with train and validation. A class of two or more images "
    "gives at least one image, and never all. 0: no such split.",
    lower_bound=0.0,
    upper_bound=1.0,
)
flags.DEFINE_integer(
    "num_test_shards",
    None,
    "Number of shards of the test split. Default: one for each 48 MB of images, at "
    "most 128.",
    lower_bound=1,
)
flags.DEFINE_enum(
    "expect",
    expected.NONE,
    expected.EXPECTATIONS,
    "Data set that the input must hold completely; an error names what is missing. "
    "ilsvrc2012: 1,281,167 and 50,000 images, 1000 classes, 615,299 boxes.",
)
flags.DEFINE_integer(
    "near_duplicates",
    None,
    "Decode all images at the end, and list those whose 64-bit hashes of pixels differ "
    "in at most this many bits in near_duplicates.jsonl. 0 finds copies that were "
    "scaled or encoded again; 4 finds small changes too, and some chance pairs. "
    "Default: no such list.",
    lower_bound=0,
    upper_bound=_MAX_DISTANCE,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions(shared.WritingOptions):
    """Options of a conversion; flags of the same names describe them.

    Raises:
        ValueError: If values do not fit together, TFDS does not accept the name, or a
            library is missing.
    """

    name: str
    num_train_shards: int | None = None
    num_validation_shards: int | None = None
    num_test_shards: int | None = None
    layout: str = "inception"
    policy: Policy = dataclasses.field(default_factory=policy.decided)
    max_bad: float | None = None
    drop_duplicates: Literal["none", "same_class", "all"] = "none"
    near_duplicates: int | None = None
    check_inputs: Literal["times", "digest"] = "times"
    label_map: str | None = None
    label_base: int | None = None
    label_type: LabelType | None = None
    split: str | None = None
    no_split_names: bool = False
    class_depth: int | None = None
    strict: bool = False
    classes: Sequence[str] = ()
    expect: str = expected.NONE
    validation_fraction: float = 0.0
    split_fractions: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        lossless.require(self.policy)
        side_files.require_name(self.name)
        _ = self.meaning
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                "--validation_fraction must be at least 0 and below 1, so that images "
                f"are left to train on, got {self.validation_fraction}."
            )
        fractions.check(self.split_fractions)
        if self.validation_fraction and self.split_fractions:
            raise ValueError(
                "--validation_fraction and --split_fractions exclude each other. Leave "
                "out --validation_fraction."
            )
        if self.near_duplicates is not None:
            # The comparison needs NumPy and Pillow.
            from converters.catalog import near_duplicates

            near_duplicates.require()
            if not self.output.is_local:
                raise ValueError(
                    "--near_duplicates needs an --output_dir that is a folder. Convert "
                    "to a folder, and copy that to the store."
                )

    @property
    def meaning(self) -> Meaning:
        """The options about the meaning of the input."""
        return Meaning(
            split=self.split,
            split_names=not self.no_split_names,
            class_depth=self.class_depth,
            label_type=self.label_type,
        )

    @property
    def fractions(self) -> Mapping[str, float]:
        """Fraction of each split, train included; empty divides nothing."""
        if part := self.validation_fraction:
            return {"train": 1 - part, "validation": part}
        return self.split_fractions

    @property
    def num_shards(self) -> dict[str, int | None]:
        """Number of shards by split; None lets the size of the split decide."""
        return {
            "train": self.num_train_shards,
            "validation": self.num_validation_shards,
            "test": self.num_test_shards,
        }

    def of_job(self) -> dict[str, Any]:
        """Returns the options that a `Job` has too."""
        return super().of_job() | {
            "max_bad": self.max_bad,
            "check_inputs": self.check_inputs,
            "strict": self.strict,
        }

    def recorded(self) -> dict[str, Any]:
        """Returns the deciding options beside the policy, as JSON values."""
        recorded: dict[str, Any] = {
            "layout": self.layout,
            "dataset_name": self.name,
            "seed": self.seed,
            "drop_duplicates": self.drop_duplicates,
            "validation_fraction": self.validation_fraction,
        }
        if self.split is not None:
            recorded["split"] = self.split
        if self.no_split_names:
            recorded["no_split_names"] = True
        if self.split_fractions:
            recorded["split_fractions"] = dict(self.split_fractions)
        return recorded

    def to_json(self) -> dict[str, Any]:
        """Returns the options as JSON values."""
        return dataclasses.asdict(self) | {"classes": list(self.classes)}


def options_from_flags(name: str) -> ConvertOptions:
    """Returns the options by the flags.

    Args:
        name: Name of the data set without --name.

    Raises:
        ValueError: If values do not fit together.
    """
    chosen = shared.value_of("name")
    return shared.options_from_flags(
        ConvertOptions,
        name=name if chosen is None else chosen,
        policy=policy.policy_from_flags(),
        split_fractions=fractions.parse(_SPLIT_FRACTIONS.value),
    )
