"""Options of commands whose input names a class for each image, and their flags.

In: images by split and class. Out: labels, splits and a `Job`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from converters.images.policy import Policy
from converters.inputs import classtree, fractions, labels, meaning
from converters.inputs.labels import Labelled, Listed
from converters.inputs.meaning import NUMBER, TEXT, LabelType, Meaning
from converters.jobs import side_files
from converters.jobs.job import Job
from converters.options import command, job, policy, shared
from tfpipe.shards.split_names import SPLITS, TRAIN

# Photographs of phones are stored as the sensor was held.
EXIF_ORIENTATION = "apply"

flags.adopt_module_key_flags(shared)
flags.adopt_module_key_flags(job)

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledOptions(job.JobOptions):
    """Options of one conversion; the flags of the same names describe them.

    Raises:
        ValueError: If the fractions are wrong, or TFDS does not accept the name.
    """

    name: str
    policy: Policy = dataclasses.field(
        default_factory=lambda: policy.decided(exif_orientation=EXIF_ORIENTATION)
    )
    label_map: str | None = None
    label_base: int | None = None
    label_type: LabelType | None = None
    split: str | None = None
    no_split_names: bool = False
    class_depth: int | None = None
    classes: Sequence[str] = ()
    validation_fraction: float = 0.0
    split_fractions: Mapping[str, float] = dataclasses.field(default_factory=dict)
    num_test_shards: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
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
        """Number of shards of each split; None lets the size of the split decide."""
        return super().num_shards | {"test": self.num_test_shards}

    def to_json(self) -> dict[str, Any]:
        """Returns the options as JSON values."""
        return super().to_json() | {"classes": list(self.classes)}


def options_from_flags(kind: type[shared.Options], **own: Any) -> shared.Options:
    """Returns the options of a command.

    Args:
        kind: The command's options, a subclass of `LabelledOptions`.
        own: Values of the options that are not the value of their flag.

    Raises:
        ValueError: If values do not fit together.
    """
    parts = fractions.parse(_SPLIT_FRACTIONS.value)
    return job.options_from_flags(kind, split_fractions=parts, **own)


def give_labels(options: LabelledOptions, listed: Listed) -> Labelled:
    """Gives the classes of an input their labels, see `labels.give_labels`."""
    path = options.label_map
    return labels.give_labels(
        listed,
        label_map=None if path is None else shared.path_of("--label_map", path),
        label_base=options.label_base,
        label_type=options.label_type,
    )


def make_job(
    options: LabelledOptions,
    labelled: Labelled,
    *,
    command_name: str,
    own_options: Mapping[str, Any],
    is_apart: bool = False,
) -> Job:
    """Divides the splits, and plans the shards.

    Args:
        options: Options of the conversion.
        labelled: The images and the labels of the classes.
        command_name: Module of the command.
        own_options: Options of the command alone that decide the bytes; JSON values.
        is_apart: Whether it is known already that the output folder is in no folder of
            images.

    Raises:
        ValueError: If the input is not as it must be.
        OSError: If something cannot be looked at.
    """
    listed = labelled.listed
    for split in options.fractions:
        if split != TRAIN and split in listed.tree.splits:
            raise ValueError(
                f"The input already has a {split} split, which --validation_fraction "
                "or --split_fractions must not make again. Leave it out of the flag, "
                "or move the split away."
            )
    meaning.warn(meaning.disagreements(listed.tree.splits), strict=options.strict)
    tree = classtree.make_tree(
        listed.tree,
        labelled.labels,
        chosen=options.classes,
        split_fractions=options.fractions,
        seed=options.seed,
    )._replace(states=listed.states, num_rows=listed.num_rows)
    classes = [
        dataclasses.replace(each, text=listed.texts.get(each.synset, each.text))
        for each in classtree.make_classes(labelled.labels)
    ]
    return command.make_job(
        options,
        command=command_name,
        name=options.name,
        input_dir=listed.folder,
        tree=tree,
        classes=classes,
        own_options={**_deciding(options), **own_options},
        label_reason=labelled.reason,
        is_apart=is_apart,
    )


def _deciding(options: LabelledOptions) -> dict[str, Any]:
    """Returns the options of labels and splits that decide the bytes."""
    deciding: dict[str, Any] = {"validation_fraction": options.validation_fraction}
    if options.split_fractions:
        deciding["split_fractions"] = dict(options.split_fractions)
    return deciding
