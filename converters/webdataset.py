"""Converts the tars of a WebDataset into TFRecord shards with an index.

  python -m converters.webdataset 'shards-{000..099}.tar' DIR
  python -m converters.webdataset --input=train='s3://bucket/train-*.tar' \\
      --input=validation='s3://bucket/val-*.tar' --output_dir=DIR

Members of a tar whose names differ only after the first dot of the file name are parts
of one sample: a/b.jpg, a/b.cls and a/b.json have the key a/b. The image is the part
that ends as that of an image, or --image_part. --label_from says where the class is:
  cls   the part .cls, a number or a text (default)
  json  the value of --label_key in the part .json, such as label or meta.class.name
  key   the folders of the key; of a key without folders, all before its first _
Classes that are texts get labels in their order, or from --label_map. Classes that are
numbers are the labels; --label_map names them, with lines `<label> <class>`.

Tars are read in place, on a disk or by URL; they are neither unpacked nor copied. A
compressed tar is refused, and so is an image without the part that holds its class;
--on_null=skip leaves such images out. rejects.jsonl names each sample without image or
class, and each member that is a link or a device, or whose name is absolute or has `..`
in it.

DIR gets the same files as from converters.folder. The same input, options and seed give
the same bytes. The last line on stdout is one JSON object. Exit code: 0 done, 1 an
error.
"""

from converters.conversion import steps
from converters.inputs.archives.samples import LabelPart, TarReader
from converters.options import shared
from converters.options.job import ConvertOptions, reader_of
from tfpipe import cli

_input = cli.group(shared.INPUT)


@cli.options
class TarOptions(ConvertOptions):
    """Options of the conversion of the tars of a WebDataset."""

    input: tuple[str, ...] = shared.input_files()
    name: str = "webdataset"
    label_from: LabelPart | None = _input(
        None,
        "Where the class of a sample is: in its part cls, in its part json or in its "
        "key. Default: json if --label_key is given, otherwise cls.",
    )
    label_key: str | None = _input(
        None,
        "Key of the class in the .json part, with dots between the keys of nested "
        "objects. Default: label.",
        shown="KEY",
    )
    image_part: str | None = _input(
        None,
        "Part of a sample that is its image, such as jpg or left.png. Default: the one "
        "that ends as that of an image.",
    )
    on_null: str = shared.on_null()
    file_in_names: bool = shared.file_in_names()


def run(options: TarOptions) -> None:
    """Converts the tars."""
    steps.run_command("converters.webdataset", options, reader_of(TarReader, options))


COMMANDS = (shared.command(TarOptions, run, arguments=("input", "output_dir")),)


if __name__ == "__main__":
    cli.run(*COMMANDS)
