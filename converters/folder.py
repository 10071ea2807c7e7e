"""Converts any class-per-directory tree into TFRecord shards with index and catalog.

  python -m converters.folder --input_dir=RAW --output_dir=DIR

RAW holds a directory for each class, nested or not: a class is a directory with images
in it, named by its path. If RAW has train/ with directories in it, RAW/train, RAW/val
(or RAW/valid, RAW/validation) and RAW/test are the splits. Otherwise all images are one
split, train. --validation_fraction takes a part of it as the validation split, and
--split_fractions divides it into train, validation and test.

Images end as those of JPEG and of any format that Pillow reads do, in any case: .jpg,
.png, .webp, .tif, .avif, .jp2, .ppm, .tga and others; .heic needs `pip install
pillow-heif`. docs/convert.md names the formats that are left out. The content decides
what an image is. rejects.jsonl names each file that is left out, with the reason and
what to do.

Labels count up from --label_base in the order of the class names, or come from
--label_map: a file of lines `<label> <class>`, or of classes in label order. --classes
takes a part of the classes and leaves their labels as they are.

DIR gets the same files as from converters.imagenet. Photographs are stored upright, as
their EXIF orientation says, without loss where possible: see --exif_orientation. The
same input, options and seed give the same bytes. The last line on stdout is one JSON
object. Exit code: 0 done, 1 an error.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import flags

from converters.inputs import class_lists, classtree, folders
from converters.inputs.labels import Listed
from converters.jobs.job import Job
from converters.options import command, labelled, policy, shared, start

shared.define("input_dir")
flags.adopt_module_key_flags(labelled)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderOptions(labelled.LabelledOptions):
    """Options of one conversion; the flags of the same names describe them."""

    input_dir: str
    name: str = "folder"


def config_from_flags() -> FolderOptions:
    """Returns the options that the flags describe.

    Raises:
        ValueError: If values do not fit together.
    """
    input_dir = shared.required_input_dir()
    return labelled.options_from_flags(FolderOptions, input_dir=input_dir)


def convert(config: FolderOptions) -> dict[str, Any]:
    """Converts, and returns the summary that the command prints as JSON.

    Raises:
        ValueError: If the input or the output folder is not as it must be.
        OSError: If a file cannot be read or written.
    """
    return command.convert("converters.folder", config, lambda: make_job(config))


def make_job(config: FolderOptions) -> Job:
    """Lists the input and plans the shards.

    Raises:
        ValueError: If the input is not as it must be.
        OSError: If something cannot be looked at.
    """
    input_dir = shared.input_of(config.input_dir)
    listed = Listed(input_dir, classtree.read_class_tree(input_dir, config.meaning))
    own_list = class_lists.exported(folders.open_folder(input_dir))
    own_list = own_list._replace(names={})  # folders are names, also `7`
    return labelled.make_job(
        config,
        labelled.give_labels(config, listed.with_list(own_list)),
        command_name="converters.folder",
        own_options={},
    )


def main(argv: Sequence[str]) -> int:
    return command.main(argv, lambda: convert(config_from_flags()))


if __name__ == "__main__":
    policy.set_default("exif_orientation", labelled.EXIF_ORIENTATION)
    start.run(main)
