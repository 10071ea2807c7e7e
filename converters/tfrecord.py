"""Converts TFRecords of other tools and TFDS into shards with an index.

  python -m converters.tfrecord FOLDER DIR
  python -m converters.tfrecord 'train=s3://bucket/a-{000..099}.tfrecord' DIR \\
      --image_key=image_raw --label_key=class

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

from converters.conversion import steps
from converters.inputs.archives.example_images import TfrecordReader
from converters.options import shared
from converters.options.job import ConvertOptions, reader_of
from tfpipe import cli

_input = cli.group(shared.INPUT)


@cli.options
class TfrecordOptions(ConvertOptions):
    """Options of the conversion of TFRecords of other tools."""

    input: tuple[str, ...] = shared.input_files()
    name: str = "tfrecord"
    image_key: str | None = _input(
        None,
        "Feature with the encoded image. Default: image/encoded or image.",
        shown="KEY",
    )
    label_key: str | None = _input(
        None,
        "Feature with the class. Default: image/class/label or label.",
        shown="KEY",
    )
    name_key: str | None = _input(
        None,
        "Feature with the name of the image; an empty text numbers the records. "
        "Default: image/filename, file_name or filename, if a record has one.",
        shown="KEY",
    )
    file_in_names: bool = shared.file_in_names()


def run(options: TfrecordOptions) -> None:
    """Converts the records."""
    steps.run_command(
        "converters.tfrecord", options, reader_of(TfrecordReader, options)
    )


COMMANDS = (shared.command(TfrecordOptions, run, arguments=("input", "output_dir")),)


if __name__ == "__main__":
    cli.run(*COMMANDS)
