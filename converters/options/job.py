"""Options of the commands that convert images to a data set.

In: flags. Out: `ConvertOptions`, the same for all inputs. The options of a command add
the flags about its input, with the names of the fields of its `Reader`.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from converters.images import lossless
from converters.images.policy import Policy
from converters.inputs.meaning import LabelType, Meaning
from converters.inputs.reader import Reader
from converters.jobs import division, expected, side_files
from converters.options import shared
from tfpipe import cli
from tfpipe.native import libraries
from tfpipe.shards.split_names import SPLITS

AnyReader = TypeVar("AnyReader", bound=Reader)

_labels, _shards = cli.group(shared.LABELS), cli.group(shared.SHARDS)


def decided(
    *, lossless_rotation: bool | None = None, corrupt: str | None = None, **fields: Any
) -> Policy:
    """Returns a policy with fixed choices, whatever host reads the policy.

    Args:
        lossless_rotation: The field of the policy; None is yes if images are turned and
            the library is built on this host.
        corrupt: The field of the policy; None is "skip" if images may be decoded and
            the library is built on this host, else "ignore".
        fields: Other fields of the policy.
    """
    plain = Policy(**fields)
    if lossless_rotation is None:
        lossless_rotation = plain.exif_orientation == "apply" and libraries.is_built()
    if corrupt is None:
        finds = plain.decode != "header" and libraries.is_built()
        corrupt = "skip" if finds else "ignore"
    chosen: dict[str, Any] = {"corrupt": corrupt}
    return dataclasses.replace(plain, lossless_rotation=lossless_rotation, **chosen)


# The library of the host decides where these two flags are not given.
policy = functools.partial(
    cli.nested, Policy, make=decided, lossless_rotation=None, corrupt=None
)


@cli.options
class ConvertOptions(shared.WritingOptions):
    """Options of a conversion of photographs, which are stored upright.

    Raises:
        ValueError: If values do not fit together, TFDS does not accept the name, or a
            library is missing.
    """

    validation_fraction: float = _labels(
        0.0,
        "Share of the images of each class, 0 to 1, that becomes a validation split. "
        "Short for --split_fractions with train and validation. A class of two or more "
        "images gives at least one image, and never all. 0: no such split.",
        least=0,
        below=1,
    )
    split_fractions: Mapping[str, float] = _labels(
        {},
        "Share of the images of each class that each split gets, as in "
        "train=0.8,validation=0.1,test=0.1. The shares add up to 1. A class with fewer "
        "images than splits gives one to train first, then to validation. Default: all "
        "images stay in their split.",
        parse=lambda text: division.parse(text.split(",")),
        shown="PARTS",
    )
    classes: tuple[str, ...] = _labels(
        (), "Classes to take, with commas between them. Default: all."
    )
    label_map: str | None = _labels(
        None,
        "File of lines `<label> <class>`, or of classes in label order. Default: the "
        "classes of the input, by name.",
        shown="FILE",
    )
    label_base: int | None = _labels(
        None,
        "Label of the first class: 1 leaves 0 to the background, as ImageNet has it. "
        "Default: the lowest in --label_map, or 1.",
        least=0,
        most=1,
    )
    label_type: LabelType | None = _labels(
        None,
        "Whether labels are numbers, which stay the labels, or names of classes. "
        "Default: numbers if all are plain integers, names if none is or one has a "
        "leading zero or a point.",
    )
    split: str | None = _labels(
        None,
        "Split of all images, whatever the names of files and folders say.",
        choices=SPLITS,
        shown="SPLIT",
    )
    no_split_names: bool = _labels(
        False,
        "Take no name of a file or folder for a split: all images are of the train "
        "split.",
    )
    class_depth: int | None = _labels(
        None,
        "Number of folders, from the split on, whose names are the class of an image. "
        "Default: all folders above the image.",
        least=1,
    )
    expect: str = _labels(
        expected.NONE,
        "Data set that the input must hold completely; an error names what is missing. "
        "ilsvrc2012: 1,281,167 and 50,000 images, 1000 classes, 615,299 boxes.",
        choices=expected.EXPECTATIONS,
    )
    strict: bool = _labels(
        False,
        "Make each warning about splits and classes an error: about those that do not "
        "fit together, and about the same image in two splits.",
    )
    name: str = _shards(
        "images", "Name of the data set: lower-case letters, digits and underscores."
    )
    num_train_shards: int | None = _shards(
        None,
        "Shards of the train split. Default: one for each 48 MB of images, at most "
        "1024; ImageNet gets 1024.",
        least=1,
    )
    num_validation_shards: int | None = _shards(
        None,
        "Shards of the validation split. Default: one for each 48 MB of images, at "
        "most 128; ImageNet gets 128.",
        least=1,
    )
    num_test_shards: int | None = _shards(
        None,
        "Shards of the test split. Default: one for each 48 MB of images, at most 128.",
        least=1,
    )
    layout: str = _shards(
        "inception",
        "Names of the shards. inception: <split>-SSSSS-of-NNNNN, as most readers "
        "expect. tfds: <data set>-<split>.tfrecord-SSSSS-of-NNNNN, as TFDS names its "
        "shards.",
        choices=sorted(side_files.LAYOUTS),
    )
    max_bad: float | None = shared.kinds(
        None,
        "How many bad images may be left out before the job fails: a count from 1 on, "
        "or a fraction of all images below 1. Default: any number. rejects.jsonl names "
        "each image that is left out.",
        least=0,
    )
    drop_duplicates: Literal["none", "same_class", "all"] = shared.kinds(
        "none",
        "Leave out exact copies of an image: those of the same class, or all. The copy "
        "in the test split stays, or else the one in validation, or else the first by "
        "name. This reads the input once more. duplicates.jsonl names the copies in "
        "any case.",
    )
    near_duplicates: int | None = shared.kinds(
        None,
        "Decode all images at the end, and list those whose 64-bit hashes of pixels "
        "differ in at most this many bits in near_duplicates.jsonl. 0 finds copies "
        "that were scaled or encoded again; 4 finds small changes too, and some chance "
        "pairs. Default: no such list.",
        least=0,
        most=8,
    )
    policy: Policy = policy(exif_orientation="apply")
    check_inputs: Literal["times", "digest"] = shared.running(
        "times",
        "How a job that goes on finds images that changed after their shard was "
        "written. times: by name, size, and the times at which content and attributes "
        "last changed. This does not find another file of the same size whose times "
        "are both older, for example after a folder was replaced by moving. digest: by "
        "reading the images of the complete shards again.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        lossless.require(self.policy)
        side_files.require_name(self.name)
        division.check(self.split_fractions)
        if self.validation_fraction and self.split_fractions:
            raise ValueError(
                "--validation_fraction and --split_fractions exclude each other. Leave "
                "out --validation_fraction."
            )
        if self.near_duplicates is not None and not self.output.is_local:
            raise ValueError(
                "--near_duplicates needs an --output_dir that is a folder. Convert to "
                "a folder, and copy that to the store."
            )

    @property
    def meaning(self) -> Meaning:
        """The options about the meaning of the input."""
        path = self.label_map
        return Meaning(
            split=self.split,
            split_names=not self.no_split_names,
            class_depth=self.class_depth,
            label_type=self.label_type,
            label_map=None if path is None else shared.path_of("--label_map", path),
            label_base=self.label_base,
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
        """Returns the options of every conversion as JSON values."""
        values = dataclasses.asdict(self) | {"classes": list(self.classes)}
        shared_names = (field.name for field in dataclasses.fields(ConvertOptions))
        return {name: values[name] for name in shared_names}


def reader_of(kind: type[AnyReader], options: ConvertOptions, **own: Any) -> AnyReader:
    """Returns the reader whose fields have the values of the options of their names.

    Args:
        kind: Class of the reader.
        options: Options of a command.
        own: Fields with other values.

    Raises:
        ValueError: If values do not fit together.
    """
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name not in own and hasattr(options, field.name):
            own[field.name] = getattr(options, field.name)
    return kind(**own)
