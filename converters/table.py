"""Converts a table of images and labels into TFRecord shards with an index.

  python -m converters.table photos.parquet DIR --image_column=image \\
      --label_column=label

--input is a file (CSV, JSON lines, Parquet, SQLite, and Extended JSON or BSON of
mongoexport and mongodump), a folder, a pattern or a URL of such files, or
postgresql://user@host/database or mysql://user@host/database. Behind a
database, `#name` names a table. --query=SQL chooses and computes rows: over files it is
DuckDB's SQL, in which the input is the table `input`; over one database it runs there,
in its own SQL. --table=name=PLACE adds tables to join; DuckDB then reads all of them.

The image column (image by default) holds paths (relative to --root), URLs, bytes, or
structs with bytes and path as Hugging Face writes them. The label column (label by
default) holds text, whose sorted values are the classes; whole numbers from 0 or 1,
which stay the labels; or a list of these, or text divided by --label_separator: the
first one is the class, and all are stored as image/class/labels. --label_map gives
classes their labels, and numbers their names.

Image bytes are copied once to DIR/.converting while the rows are read, and are removed
when the data set is complete; the disk needs this room. Uncompressed bytes of a local
Parquet file are read in place without --query. Databases are opened read-only.
Passwords come from the URL, or better from PGPASSFILE, PGPASSWORD, MYSQL_PWD or
~/.my.cnf, and are neither printed nor stored.

DIR gets the same files as from converters.folder; --extra_columns become columns of
catalog.parquet. The last line on stdout is one JSON object. Exit code: 0 done, 1 an
error.
"""

from converters.conversion import steps
from converters.inputs.tables.reader import TableReader
from converters.options import shared
from converters.options.job import ConvertOptions, reader_of
from converters.options.shared import by_name
from tfpipe import cli

_input = cli.group(shared.INPUT)


@cli.options
class TableOptions(ConvertOptions):
    """Options of the conversion of a table."""

    input: tuple[str, ...] = shared.input_files(shown="FILE")
    name: str = "table"
    image_column: str = _input(
        TableReader.image_column, "Column of the images: paths, URLs, bytes or structs."
    )
    label_column: str = _input(TableReader.label_column, "Column of the labels.")
    name_column: str | None = _input(
        None,
        "Column of the images' names, which must all differ; the catalog has them as "
        "filename. Default: the path, or row-000000001 and so on where there are bytes "
        "alone.",
    )
    split_column: str | None = _input(
        None,
        "Column of the split: train, validation (val, valid, dev) or test. Default: "
        "a column named split whose values are splits, or else the names of the files.",
    )
    root: str | None = shared.root(None)
    query: str | None = _input(
        None,
        "SELECT over the table, which it names input; see above. Default: all its "
        "rows.",
        shown="SQL",
    )
    table: tuple[str, ...] = _input(
        (),
        "Another table for --query, as name=PLACE; may come several times.",
        shown="NAME=PLACE",
        repeated=True,
        url=True,
    )
    label_separator: str | None = _input(
        None, "Text between the labels of an image, such as a |."
    )
    extra_columns: tuple[str, ...] = _input(
        (), "More columns for catalog.parquet, with commas between them."
    )
    extra_in_records: bool = _input(
        False,
        "Store --extra_columns in the records too, as the features extra/NAME: int64, "
        "float or bytes.",
    )
    hive_columns: tuple[str, ...] = _input(
        (),
        "Columns that are folders NAME=VALUE above the files, with commas between "
        "them. Default: no name of a folder is a column.",
    )
    on_null: str = shared.on_null()


def run(options: TableOptions) -> None:
    """Converts the table."""
    if len(options.input) > 1:
        raise ValueError("--input must be given once; use --table for others.")
    tables = by_name("--table", options.table, form="name=PLACE")
    reader = reader_of(TableReader, options, input=options.input[0], table=tables)
    steps.run_command("converters.table", options, reader)


COMMANDS = (shared.command(TableOptions, run, arguments=("input", "output_dir")),)


if __name__ == "__main__":
    cli.run(*COMMANDS)
