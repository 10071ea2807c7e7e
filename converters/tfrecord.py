"""Converts TFRecords of other tools, and TFDS data sets, into shards with an index.

  python -m converters.tfrecord --input=FOLDER --output_dir=DIR
  python -m converters.tfrecord --input=train='s3://bucket/a-{000..099}.tfrecord' \\
      --image_key=image_raw --label_key=class --output_dir=DIR

The input is TFRecord files of tf.train.Example records, not compressed, with an encoded
image and a class each. In a FOLDER, files such as train-00000-of-00008,
NAME-train.tfrecord-00000-of-00008 and *.tfrecord are taken, and their names say the
split. The keys are those of the Inception scripts or of TFDS (image/encoded or image,
image/class/label or label), or --image_key and --label_key.

Classes are texts or numbers. Numbers are the labels. Their names come from --label_map,
with lines `<label> <class>`, or from <label key>.labels.txt of TFDS. The name of an
image is its image/filename, file_name or filename, or --name_key; otherwise the file
and the number of the record.

All records are read and checked once, on a disk or by URL. The images are then read in
place: a copy of the input is not made. rejects.jsonl names each record that is damaged,
or has no image or class. Bounding boxes are not carried over.

DIR gets the same files as from converters.folder. The same input, options and seed give
the same bytes. The last line on stdout is one JSON object. Exit code: 0 done, 1 an
error.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import flags

from converters.inputs.archives import example_images
from converters.jobs.job import Job
from converters.options import archives, command, labelled, policy, shared, start

flags.adopt_module_key_flags(archives)

shared.define("image_key", "name_key")
flags.adopt_module_key_flags(shared)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfrecordOptions(archives.ArchiveOptions):
    """Options of one conversion; the flags of the same names describe them.

    Raises:
        ValueError: If values do not fit together.
    """

    name: str = "tfrecord"
    image_key: str | None = None
    name_key: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_key is not None and not self.image_key:
            raise ValueError("--image_key must be a key, got nothing.")
        if self.image_key is not None and self.image_key == self.label_key:
            raise ValueError(
                "--image_key and --label_key must be two keys, got "
                f"{self.image_key!r} for both."
            )


def config_from_flags() -> TfrecordOptions:
    """Returns the options that the flags describe.

    Raises:
        ValueError: If values do not fit together.
    """
    return archives.options_from_flags(
        TfrecordOptions,
        image_key=shared.only("image_key"),
        name_key=shared.only("name_key"),
    )


def convert(config: TfrecordOptions) -> dict[str, Any]:
    """Converts, and returns the summary that the command prints as JSON.

    Raises:
        ValueError: If the input or the output folder is not as it must be.
        OSError: If a file cannot be read or written.
        RemoteError: If a URL cannot be read or written.
    """
    return command.convert("converters.tfrecord", config, lambda: make_job(config))


def make_job(config: TfrecordOptions) -> Job:
    """Lists the input and plans the shards.

    Raises:
        ValueError: If the input is not as it must be.
        OSError: If something cannot be read.
        RemoteError: If a URL cannot be read.
    """
    keys = example_images.Keys(
        image=config.image_key, label=config.label_key, name=config.name_key
    )

    return archives.make_job(
        config,
        command_name="converters.tfrecord",
        reader=example_images.reader(keys),
        own_options={"image_key": config.image_key, "name_key": config.name_key},
    )


def main(argv: Sequence[str]) -> int:
    return command.main(argv, lambda: convert(config_from_flags()))


if __name__ == "__main__":
    policy.set_default("exif_orientation", labelled.EXIF_ORIENTATION)
    start.run(main)
