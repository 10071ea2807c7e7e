"""Converts any class-per-directory tree into TFRecord shards with index and catalog.

  python -m converters.folder --input_dir=RAW --output_dir=DIR

RAW holds a directory for each class, nested or not: a class is a directory with images
in it (.jpeg .jpg .png .gif .bmp .webp in any case), named by its path. If RAW has
train/ with directories in it, RAW/train and RAW/val or RAW/validation are the splits;
otherwise all is one split, train, of which --validation_fraction holds a part out.

Labels count up from --label_base in the order of the class names, or are those of
--label_map: a file of lines `<label> <class>`, or of classes in label order. --classes
takes a part of the classes and leaves their labels as they are.

DIR gets what converters.imagenet writes. The same input, options and seed give the same
bytes. The last line on stdout is one JSON object. Exit code: 0 done, 1 an error.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from converters.inputs import classtree, ilsvrc
from converters.jobs import run, side_files
from converters.options import command, input_flags, job as job_options, paths

flags.adopt_module_key_flags(input_flags)
flags.adopt_module_key_flags(job_options)

_NAME = flags.DEFINE_string(
    "name",
    "folder",
    "Name of the data set: lower-case letters, digits and underscores.",
)
_LABEL_MAP = flags.DEFINE_string(
    "label_map",
    None,
    "File of lines `<label> <class>`, or of classes in label order. Default: the "
    "classes that are there, by name.",
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
_VALIDATION_FRACTION = flags.DEFINE_float(
    "validation_fraction",
    0.0,
    "Share of the images of each class, 0 to 1, that becomes a validation split; at "
    "least one image of a class of two or more, and never all. 0: no such split.",
    lower_bound=0.0,
    upper_bound=1.0,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """One conversion as its flags say; see the flags' help.

    Raises:
        ValueError: If the fraction is 1, or the name is none that TFDS knows.
    """

    input_dir: str
    job: job_options.JobConfig
    name: str = "folder"
    label_map: str | None = None
    label_base: int | None = None
    classes: Sequence[str] = ()
    validation_fraction: float = 0.0

    def __post_init__(self) -> None:
        side_files.require_name(self.name)
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                "--validation_fraction must be at least 0 and below 1, so that images "
                f"are left to train on, got {self.validation_fraction}."
            )

    def to_json(self) -> dict[str, Any]:
        """The options as JSON values, those of the job among them."""
        fields = dataclasses.asdict(self) | {"classes": list(self.classes)}
        job: dict[str, Any] = fields.pop("job")
        return job | fields


def config_from_flags() -> Config:
    """The only reader of the values of this module's flags.

    Raises:
        ValueError: If a value does not fit the others.
    """
    if input_flags.INPUT_DIR.value is None:
        raise app.UsageError("--input_dir must be given: the folder to convert.")
    return Config(
        input_dir=input_flags.INPUT_DIR.value,
        job=job_options.job_config_from_flags(),
        name=_NAME.value,
        label_map=_LABEL_MAP.value,
        label_base=_LABEL_BASE.value,
        classes=tuple(_CLASSES.value),
        validation_fraction=_VALIDATION_FRACTION.value,
    )


def convert(config: Config) -> dict[str, Any]:
    """Converts and returns the summary that the command prints as JSON.

    Raises:
        ValueError: If the input or the output folder is not as it must be.
        OSError: If a file cannot be read or written.
    """
    return command.convert(
        "converters.folder", config.to_json(), lambda: make_job(config)
    )


def make_job(config: Config) -> run.Job:
    """Lists the input and plans the shards.

    Raises:
        ValueError: If the input is not as it must be.
        OSError: If something cannot be looked at.
    """
    input_dir = paths.path_of("--input_dir", config.input_dir)
    labels, tree = _read_input(input_dir, config)
    return command.make_job(
        config.job,
        command="converters.folder",
        name=config.name,
        input_dir=input_dir,
        tree=tree,
        classes=classtree.make_classes(labels),
        options={"validation_fraction": config.validation_fraction},
    )


def _read_input(
    input_dir: pathlib.Path, config: Config
) -> tuple[dict[str, int], ilsvrc.Tree]:
    """Label of each class, in label order, and the images of each split."""
    found = classtree.read_class_tree(input_dir)
    if config.validation_fraction and "validation" in found.splits:
        raise ValueError(
            f"{input_dir} already has a validation split. Leave --validation_fraction "
            "out, or move the split away."
        )
    labels = _labels(config, found)
    tree = classtree.make_tree(
        found,
        labels,
        chosen=config.classes,
        validation_fraction=config.validation_fraction,
        seed=config.job.seed,
    )
    return labels, tree


def _labels(config: Config, found: classtree.ClassTree) -> dict[str, int]:
    """Label of each class on disk, in label order."""
    if config.label_map is not None:
        path = paths.path_of("--label_map", config.label_map)
        return classtree.read_label_map(path, config.label_base)
    base = 1 if config.label_base is None else config.label_base
    return classtree.sorted_labels(found.class_names(), base)


def main(argv: Sequence[str]) -> int:
    return command.main(argv, lambda: convert(config_from_flags()))


if __name__ == "__main__":
    app.run(main)
