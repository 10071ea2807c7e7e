"""Converts the tars of a WebDataset into TFRecord shards with index and catalog.

  python -m converters.webdataset --input='shards-{000..099}.tar' --output_dir=DIR
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

from collections.abc import Sequence

from absl import flags

from converters.inputs.archives.samples import TarReader
from converters.options import command, job, shared

shared.define("input", "file_in_names", "label_key")
shared.define("label_from", "image_part", "on_null")
flags.adopt_module_key_flags(job)
flags.adopt_module_key_flags(shared)


def reader_from_flags() -> TarReader:
    """Returns the reader of the input.

    Raises:
        UsageError: If --input is missing.
        ValueError: If values do not fit together.
    """
    return shared.reader_from_flags(TarReader, input=shared.required_input())


def main(argv: Sequence[str]) -> int:
    return command.main(argv, "webdataset", reader_from_flags)


if __name__ == "__main__":
    command.run_command(main)
