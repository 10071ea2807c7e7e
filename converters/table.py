"""Converts a table of images and labels into TFRecord shards with index and catalog.

  python -m converters.table --input=photos.parquet --image_column=image \\
      --label_column=label --output_dir=DIR

--input is a file (CSV, JSON lines, Parquet, SQLite), a folder, a pattern or a URL of
such files, or postgresql://user@host/database or mysql://user@host/database. Behind a
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

from collections.abc import Sequence

from absl import app, flags

from converters.inputs.tables.reader import TableReader
from converters.options import command, job, shared

_TABLE = flags.DEFINE_multi_string(
    "table", [], "Another table for --query, as name=PLACE; may come several times."
)
shared.define("image_column", "label_column", "name_column", "split_column")
shared.define("query", "root", "input", "on_null")
flags.adopt_module_key_flags(job)
flags.adopt_module_key_flags(shared)
flags.DEFINE_string(
    "label_separator", None, "Text between the labels of an image, such as a |."
)
flags.DEFINE_list(
    "extra_columns", [], "More columns for catalog.parquet, with commas between them."
)
flags.DEFINE_list(
    "hive_columns",
    [],
    "Columns that are folders NAME=VALUE above the files, with commas between them. "
    "Default: no name of a folder is a column.",
)
flags.DEFINE_boolean(
    "extra_in_records",
    False,
    "Store --extra_columns in the records too, as the features extra/NAME: int64, "
    "float or bytes.",
)


def reader_from_flags() -> TableReader:
    """Returns the reader of the input.

    Raises:
        UsageError: If --input is missing, or a place is given in another form.
        ValueError: If values do not fit together.
    """
    places = shared.required_input()
    if len(places) > 1:
        raise app.UsageError("--input must be given once; use --table for others.")
    tables = dict(word.partition("=")[::2] for word in _TABLE.value)
    if len(tables) < len(_TABLE.value) or not all(map(str.isidentifier, tables)):
        raise app.UsageError("--table must be name=PLACE, with another name each time.")
    return shared.reader_from_flags(TableReader, input=places[0], table=tables)


def main(argv: Sequence[str]) -> int:
    return command.main(argv, "table", reader_from_flags)


if __name__ == "__main__":
    command.run_command(main)
