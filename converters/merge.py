"""Merges images from several sources into one data set of TFRecord shards.

  python -m converters.merge NAME=PLACE [NAME=PLACE ...] --output_dir=DIR
  python -m converters.merge own=photos web=crawl.parquet old=/data/old_records \\
      --image_column=web=img --label_column=web=breed --output_dir=DIR

A PLACE is a path, a pattern or a URL of one of these:
  a folder for each class, with or without train/, val/ and test/ above, as
      converters.folder reads it
  a table as converters.table reads it: CSV, TSV, JSON lines, Parquet, SQLite (behind it
      may be #table), postgresql://user@host/database#table, mysql://...
      Its columns are image and label, unless flags name others
  tars of a WebDataset, as converters.webdataset reads them
  TFRecord files of other tools, as converters.tfrecord reads them
  a data set of these converters: a folder with index.json; its classes keep their names
Before tars and TFRecord files may be their split: NAME=validation=PATTERN.

Classes of equal names become one class, splits of equal names one split. The name of an
image in the catalog begins with NAME/. Classes that are numbers need names, unless all
sources have numbers: --class_map or --label_map gives them.

  --class_map=NAME=FILE   other names for classes of a source: lines of a class, a tab
                          and its new class; an empty new class leaves the class out

The flags of the other commands say how a source is read, as NAME=VALUE, once for each
source: --image_column --label_column --name_column --split_column --root --query for a
table, --label_from --label_key --image_part for tars, --image_key --label_key
--name_key for TFRecord files.

Equal images, also of different sources, are listed in duplicates.jsonl, and left out
with --drop_duplicates=same_class or all. --near_duplicates=4 lists images that look
alike in near_duplicates.jsonl, and leaves none out; it needs
pip install 'tfpipe[near_duplicates]'.

All other flags are those of converters.folder, and DIR gets the same files. The same
input, options and seed give the same bytes, in whatever order the sources are named.
The last line on stdout is one JSON object. Exit code: 0 done, 1 an error.
"""

from collections.abc import Sequence

from absl import app, flags

from converters.inputs.merged.reader import MergeReader
from converters.inputs.merged.sources import FLAGS
from converters.options import command, job, shared

# Flags with values NAME=VALUE.
_HOW = tuple(dict.fromkeys(flag for names in FLAGS.values() for flag in names))
shared.define(*_HOW, "on_null", "file_in_names")
flags.adopt_module_key_flags(job)
flags.adopt_module_key_flags(shared)

_CLASS_MAP = flags.DEFINE_multi_string(
    "class_map",
    [],
    "NAME=FILE: other names for classes of the source NAME, as lines of a class, a tab "
    "and its new class. A class without a line keeps its name; a class with an empty "
    "new class is left out. May be given once for each source.",
)


def reader_from_flags(arguments: Sequence[str]) -> MergeReader:
    """Returns the reader of the sources, from arguments such as NAME=PLACE.

    Raises:
        ValueError: If values do not fit together.
    """
    how = {
        flag: shared.by_name(f"--{flag}", shared.value_of(flag), may_be_empty=True)
        for flag in _HOW
    }
    return shared.reader_from_flags(
        MergeReader,
        sources=shared.by_name(
            "Sources", arguments, form="NAME=PLACE", may_be_empty=False
        ),
        class_map=shared.by_name(
            "--class_map", _CLASS_MAP.value, form="NAME=FILE", may_be_empty=False
        ),
        how={flag: values for flag, values in how.items() if values},
    )


def main(argv: Sequence[str]) -> int:
    if len(argv) < 2:
        raise app.UsageError("Expected sources as NAME=PLACE, got none.")
    return command.converted("merge", lambda: reader_from_flags(argv[1:]))


if __name__ == "__main__":
    command.run_command(main)
