"""Converts an ImageNet-style tree into TFRecord shards with an index and a catalog.

  python -m converters.imagenet --input_dir=RAW --output_dir=DIR

RAW holds, as it comes or unpacked, in any mix:
  ILSVRC2012_img_train.tar, or train/ with <synset>/*.JPEG or <synset>.tar
  ILSVRC2012_img_val.tar, val/*.JPEG or val/<synset>/*.JPEG: validation split, if any
  synset_labels.txt (line i is the synset of the i-th validation image by name) or
    ILSVRC2012_devkit_t12.tar.gz: labels of a validation split without class folders
  ILSVRC2012_bbox_train_v2.tar.gz, bbox/ or Annotation/: bounding boxes (XML), if any
or the folder of Kaggle, with ILSVRC/Data/CLS-LOC and LOC_val_solution.csv beside it.
Tars are read without being unpacked. RAW may be a URL, such as s3://bucket/raw; its
images must then be unpacked, and its boxes packed. Labels are those of ILSVRC-2012 (1
to 1000 in the order of the synsets), also for a part of its classes. RAW/synsets.txt
(one synset a line, in label order) and RAW/synset_words.txt (synset, tab, name) replace
these labels.

DIR gets train-SSSSS-of-NNNNN and validation-SSSSS-of-NNNNN, or with --layout=tfds
imagenet-train.tfrecord-SSSSS-of-NNNNN and so on (tf.train.Example records with the keys
of the Inception scripts), catalog.parquet (one row a record), files for other readers
and, last and only on success, index.json. Sound JPEG files are stored byte for byte. A
flag for each other kind of image says what is done about it. changes.jsonl names each
image that is stored in another form; rejects.jsonl names each image that is left out,
and the files and boxes of RAW that are left out. The same input, options and seed give
the same bytes, whatever the number of workers and tasks. A command that was cut off
goes on when it is run again.

The last line on stdout is one JSON object. Exit code: 0 done, 1 an error.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import flags

from converters.inputs import boxes, classes, expected, folders, ilsvrc, kaggle
from converters.jobs.job import Job
from converters.options import command, job, shared, start
from tfpipe import host

shared.define("input_dir")
flags.adopt_module_key_flags(shared)
flags.adopt_module_key_flags(job)

flags.DEFINE_enum(
    "expect",
    expected.NONE,
    expected.EXPECTATIONS,
    "Data set that the input must hold completely; an error names what is missing. "
    "ilsvrc2012: 1,281,167 and 50,000 images, 1000 classes, 615,299 boxes.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImagenetOptions(job.JobOptions):
    """Options of one conversion; the flags of the same names describe them."""

    input_dir: str
    expect: str = expected.NONE


def config_from_flags() -> ImagenetOptions:
    """Returns the options that the flags describe.

    Raises:
        ValueError: If values do not fit together.
    """
    input_dir = shared.required_input_dir()
    return job.options_from_flags(ImagenetOptions, input_dir=input_dir)


def convert(config: ImagenetOptions) -> dict[str, Any]:
    """Converts, and returns the summary that the command prints as JSON.

    Raises:
        ValueError: If the input or the output folder is not as it must be.
        OSError: If a file cannot be read or written.
    """
    return command.convert("converters.imagenet", config, lambda: make_job(config))


def make_job(config: ImagenetOptions) -> Job:
    """Lists the input and plans the shards.

    Raises:
        ValueError: If the input is not as it must be.
        OSError: If something cannot be looked at.
    """
    input_dir = shared.input_of(config.input_dir)
    num_workers = config.num_workers or host.num_cores()
    source = folders.open_folder(input_dir)
    images = source
    if kaggle.is_root(source):
        input_dir /= kaggle.IMAGES
        images = folders.open_folder(input_dir)
    kaggle.refuse(images, reader="converters.imagenet")
    with ilsvrc.lists_near(source) as lists_dir:
        class_list = classes.read_classes(lists_dir)
        tree = ilsvrc.read_tree(images, class_list, lists_dir=lists_dir)
        found_boxes = boxes.read_boxes(lists_dir, num_workers=num_workers)
    expected.check_expected(config.expect, tree, class_list, found_boxes)
    return command.make_job(
        config,
        command="converters.imagenet",
        name="imagenet",
        input_dir=input_dir,
        tree=tree,
        classes=class_list,
        own_options=_options(found_boxes),
        label_reason="ImageNet has the label 0 for the background",
        found_boxes=found_boxes,
    )


def _options(found: boxes.Boxes) -> dict[str, Any]:
    """Returns what identifies the boxes: a job must not go on with other boxes."""
    options: dict[str, Any] = {"boxes": found.decisions}
    return options | ({"boxes_digest": found.digest()} if found.num_boxes else {})


def main(argv: Sequence[str]) -> int:
    return command.main(argv, lambda: convert(config_from_flags()))


if __name__ == "__main__":
    start.run(main)
