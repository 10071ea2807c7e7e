"""Converts any class-per-directory tree into TFRecord shards with index and catalog.

  python -m converters.folder --input_dir=RAW --output_dir=DIR

RAW holds a directory for each class, nested or not: a class is a directory with images
in it, named by its path. If RAW has train/ with directories in it, RAW/train, RAW/val
(or RAW/valid, RAW/validation) and RAW/test are the splits. Otherwise all images are one
split, train. --validation_fraction takes a part of it as the validation split, and
--split_fractions divides it into train, validation and test.

Images end in .jpeg .jpg .jpe .jfif .jif .mpo .png .gif .bmp .dib .webp .tif .tiff .avif
.jp2 .j2k .jpf .jpx .heic .heif or .hif, in any case; .heic needs `pip install
pillow-heif`. Their content decides what they are. rejects.jsonl names each file that is
left out, with the reason and what to do.

Labels count up from --label_base in the order of the class names, or come from
--label_map: a file of lines `<label> <class>`, or of classes in label order. --classes
takes a part of the classes and leaves their labels as they are.

DIR gets the same files as from converters.imagenet. Photographs are stored upright, as
their EXIF orientation says, without loss where possible: see --exif_orientation. The
same input, options and seed give the same bytes. The last line on stdout is one JSON
object. Exit code: 0 done, 1 an error.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from converters.images.policy import Policy
from converters.inputs import classtree, fractions, ilsvrc
from converters.jobs import side_files
from converters.jobs.job import Job
from converters.options import command, job, policy, shared, start

# Photographs of phones are stored as the sensor was held.
_EXIF_ORIENTATION = "apply"

shared.input_dir()
flags.adopt_module_key_flags(shared)
flags.adopt_module_key_flags(job)

_NAME = flags.DEFINE_string(
    "name",
    "folder",
    "Name of the data set: lower-case letters, digits and underscores.",
)
_LABEL_MAP = flags.DEFINE_string(
    "label_map",
    None,
    "File of lines `<label> <class>`, or of classes in label order. Default: the "
    "classes of the input, by name.",
)
_LABEL_BASE = flags.DEFINE_integer(
    "label_base",
    None,
    "Label of the first class: 1 leaves 0 to the background, as ImageNet has it. "
    "Default: the lowest in --label_map, or 1.",
    lower_bound=0,
    upper_bound=1,
)
_CLASSES = flags.DEFINE_list(
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
_VALIDATION_FRACTION = flags.DEFINE_float(
    "validation_fraction",
    0.0,
    "Share of the images of each class, 0 to 1, that becomes a validation split: short "
    "for --split_fractions with train and validation. A class of two or more images "
    "gives at least one image, and never all. 0: no such split.",
    lower_bound=0.0,
    upper_bound=1.0,
)
_NUM_TEST_SHARDS = flags.DEFINE_integer(
    "num_test_shards",
    None,
    "Number of shards of the test split. Default: one for each 48 MB of images, at "
    "most 128.",
    lower_bound=1,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(job.JobOptions):
    """Options of one conversion; the flags of the same names describe them.

    Raises:
        ValueError: If the fractions are wrong, or TFDS does not accept the name.
    """

    input_dir: str
    policy: Policy = dataclasses.field(
        default_factory=lambda: policy.decided(exif_orientation=_EXIF_ORIENTATION)
    )
    name: str = "folder"
    label_map: str | None = None
    label_base: int | None = None
    classes: Sequence[str] = ()
    validation_fraction: float = 0.0
    split_fractions: Mapping[str, float] = dataclasses.field(default_factory=dict)
    num_test_shards: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        side_files.require_name(self.name)
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


def config_from_flags() -> Config:
    """Returns the options that the flags describe.

    Raises:
        ValueError: If values do not fit together.
    """
    return job.options_from_flags(
        Config,
        input_dir=shared.required_input_dir(),
        name=_NAME.value,
        label_map=_LABEL_MAP.value,
        label_base=_LABEL_BASE.value,
        classes=tuple(_CLASSES.value),
        validation_fraction=_VALIDATION_FRACTION.value,
        split_fractions=fractions.parse(_SPLIT_FRACTIONS.value),
        num_test_shards=_NUM_TEST_SHARDS.value,
    )


def convert(config: Config) -> dict[str, Any]:
    """Converts, and returns the summary that the command prints as JSON.

    Raises:
        ValueError: If the input or the output folder is not as it must be.
        OSError: If a file cannot be read or written.
    """
    return command.convert("converters.folder", config, lambda: make_job(config))


def make_job(config: Config) -> Job:
    """Lists the input and plans the shards.

    Raises:
        ValueError: If the input is not as it must be.
        OSError: If something cannot be looked at.
    """
    input_dir = shared.path_of("--input_dir", config.input_dir)
    labels, tree = _read_input(input_dir, config)
    return command.make_job(
        config,
        command="converters.folder",
        name=config.name,
        input_dir=input_dir,
        tree=tree,
        classes=classtree.make_classes(labels),
        own_options=_own_options(config),
    )


def _own_options(config: Config) -> dict[str, Any]:
    """Returns the options of this command that decide the bytes."""
    options: dict[str, Any] = {"validation_fraction": config.validation_fraction}
    if config.split_fractions:
        options["split_fractions"] = dict(config.split_fractions)
    return options


def _read_input(
    input_dir: pathlib.Path, config: Config
) -> tuple[dict[str, int], ilsvrc.Tree]:
    """Returns the label of each class, in label order, and the images of each split."""
    found = classtree.read_class_tree(input_dir)
    for split in config.fractions:
        if split != fractions.TRAIN and split in found.splits:
            raise ValueError(
                f"{input_dir} already has a {split} split, which --validation_fraction "
                "or --split_fractions must not make again. Leave it out of the flag, "
                "or move the split away."
            )
    labels = _labels(config, found)
    tree = classtree.make_tree(
        found,
        labels,
        chosen=config.classes,
        split_fractions=config.fractions,
        seed=config.seed,
    )
    return labels, tree


def _labels(config: Config, found: classtree.ClassTree) -> dict[str, int]:
    """Returns the label of each class on disk, in label order."""
    if config.label_map is not None:
        path = shared.path_of("--label_map", config.label_map)
        return classtree.read_label_map(path, config.label_base)
    base = 1 if config.label_base is None else config.label_base
    return classtree.sorted_labels(found.class_names(), base)


def main(argv: Sequence[str]) -> int:
    return command.main(argv, lambda: convert(config_from_flags()))


if __name__ == "__main__":
    policy.set_default("exif_orientation", _EXIF_ORIENTATION)
    start.run(main)
