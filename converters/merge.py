"""Merges images from several sources into one data set of TFRecord shards.

  python -m converters.merge NAME=PLACE NAME=PLACE --output_dir=DIR
  python -m converters.merge own=photos web=crawl.parquet old=/data/records \\
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
source: --image_column --label_column --name_column --split_column --label_separator
--extra_columns --hive_columns --root --query --table for a table, --label_from
--label_key --image_part for tars, --image_key --label_key --name_key for TFRecords.

Further columns of the catalogs of data sets and of exports come along, and those that
--extra_columns names; so do all labels of an image. --extra_columns=NAME= keeps none.

Equal images, also of different sources, are listed in duplicates.jsonl, and left out
with --drop_duplicates=same_class or all. --near_duplicates=4 lists images that look
alike in near_duplicates.jsonl, and leaves none out.

All other flags are those of converters.folder, and DIR gets the same files. The same
input, options and seed give the same bytes, in whatever order the sources are named.
The last line on stdout is one JSON object. Exit code: 0 done, 1 an error.
"""

from typing import Any

from converters.conversion import steps
from converters.inputs.merged import HOW, MergeReader
from converters.options import shared
from converters.options.job import ConvertOptions, reader_of
from converters.options.shared import by_name, path_of
from tfpipe import cli

_input = cli.group(shared.INPUT)


def _how(what: str) -> Any:
    """Makes a field for NAME=VALUE, which says how a source is read."""
    text = f"{what} of the source NAME, as the command for its kind reads it."
    return _input((), text, shown="NAME=VALUE", repeated=True, url=True)


@cli.options
class MergeOptions(ConvertOptions):
    """Options of a merge."""

    sources: tuple[str, ...] = cli.argument(
        "Path, pattern or URL of each source, by its name.",
        shown="NAME=PLACE",
        url=True,
    )
    name: str = "merge"
    class_map: tuple[str, ...] = _input(
        (),
        "Other names for classes of the source NAME, as lines of a class, a tab and "
        "its new class. A class without a line keeps its name; a class with an empty "
        "new class is left out. May be given once for each source.",
        shown="NAME=FILE",
        repeated=True,
    )
    image_column: tuple[str, ...] = _how("Column of the images")
    label_column: tuple[str, ...] = _how("Column of the labels")
    name_column: tuple[str, ...] = _how("Column of the images' names")
    split_column: tuple[str, ...] = _how("Column of the split")
    root: tuple[str, ...] = _how("Folder of the paths")
    query: tuple[str, ...] = _how("SELECT over the table")
    label_from: tuple[str, ...] = _how("Part with the class")
    label_key: tuple[str, ...] = _how("Key or feature of the class")
    image_part: tuple[str, ...] = _how("Part with the image")
    image_key: tuple[str, ...] = _how("Feature with the image")
    name_key: tuple[str, ...] = _how("Feature with the name of the image")
    label_separator: tuple[str, ...] = _how("Text between labels")
    extra_columns: tuple[str, ...] = _how(
        "More columns for catalog.parquet, with commas between them,"
    )
    hive_columns: tuple[str, ...] = _how(
        "Columns that are folders NAME=VALUE, with commas between them,"
    )
    table: tuple[str, ...] = _input(
        (),
        "Another table for --query of the source NAME; may come several times.",
        shown="NAME=TABLE=PLACE",
        repeated=True,
        url=True,
    )
    extra_in_records: bool = _input(
        False, "Store the further columns of all sources in the records too."
    )
    on_null: str = shared.on_null()
    file_in_names: bool = shared.file_in_names()


def run(options: MergeOptions) -> None:
    """Converts the sources."""
    words = {flag: getattr(options, flag) for flag in HOW}
    tables: dict[str, list[str]] = {}
    for word in words.pop("table"):
        name, _, table = word.partition("=")
        tables.setdefault(name, []).append(table)
    how: dict[str, dict[str, Any]] = {
        flag: by_name(f"--{flag}", values, may_be_empty=True)
        for flag, values in words.items()
        if values
    }
    if tables:
        how["table"] = {
            name: by_name(f"--table={name}", values, form="TABLE=PLACE")
            for name, values in tables.items()
        }
    maps = by_name("--class_map", options.class_map, form="NAME=FILE")
    reader = reader_of(
        MergeReader,
        options,
        sources=by_name("Sources", options.sources, form="NAME=PLACE"),
        class_map={n: str(path_of("--class_map", maps[n])) for n in maps},
        how=how,
    )
    steps.run_command("converters.merge", options, reader)


COMMANDS = (shared.command(MergeOptions, run, arguments=("sources",)),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
