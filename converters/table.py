"""Converts a table of images and labels into TFRecord shards with index and catalog.

  python -m converters.table --input=photos.parquet --image_column=image \\
      --label_column=label --output_dir=DIR

--input is a file (CSV, JSON lines, Parquet, SQLite), a folder, a pattern or a URL of
such files, or postgresql://user@host/database or mysql://user@host/database. Behind a
database, `#name` names a table. --query=SQL chooses and computes rows: over files it is
DuckDB's SQL, in which the input is the table `input`; over one database it runs there,
in its own SQL. --table=name=PLACE adds tables to join; DuckDB then reads all of them.

The image column holds paths (relative to --root), URLs, bytes, or structs with bytes
and path as Hugging Face writes them. The label column holds text, whose sorted values
are the classes; whole numbers from 0 or 1, which stay the labels; or a list of these,
or text divided by --label_separator: the first one is the class, and all are stored as
image/class/labels. --label_map gives classes their labels, and numbers their names.

Image bytes are copied once to DIR/.converting while the rows are read, and are removed
when the data set is complete; the disk needs this room. Uncompressed bytes of a local
Parquet file are read in place without --query. Databases are opened read-only.
Passwords come from the URL, or better from PGPASSFILE, PGPASSWORD, MYSQL_PWD or
~/.my.cnf, and are neither printed nor stored.

DIR gets the same files as from converters.folder; --extra_columns become columns of
catalog.parquet. The last line on stdout is one JSON object. Exit code: 0 done, 1 an
error.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import app, flags

from converters.inputs.class_lists import ClassList
from converters.inputs.labels import Labelled
from converters.inputs.tables import (
    classes_of_rows,
    columns,
    extras,
    scan,
    sql,
    table_sources,
)
from converters.jobs.job import Job
from converters.options import command, labelled, policy, shared, spooled, start

if TYPE_CHECKING:
    import duckdb

_COMMAND = "converters.table"
flags.adopt_module_key_flags(labelled)
# Flags whose value is that of the only input.
_OWN_FLAGS = (
    "image_column",
    *("label_column", "name_column", "split_column", "query", "root"),
)
_TABLE = flags.DEFINE_multi_string(
    "table", [], "Another table for --query, as name=PLACE; may come several times."
)
shared.define(*_OWN_FLAGS, "input", "on_null")
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions(labelled.LabelledOptions):
    """Options of one conversion; the flags of the same names describe them.

    Raises:
        ValueError: If columns do not fit together.
    """

    input: str = dataclasses.field(repr=False)
    image_column: str
    label_column: str
    name: str = "table"
    query: str | None = None
    table: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    name_column: str | None = None
    split_column: str | None = None
    root: str | None = None
    label_separator: str | None = None
    extra_columns: Sequence[str] = ()
    hive_columns: Sequence[str] = ()
    extra_in_records: bool = False
    on_null: str = columns.FAIL

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.columns
        if self.label_separator == "":
            raise ValueError("--label_separator must be a text, got nothing.")
        if self.table and self.query is None:
            raise ValueError("--table is for --query, which must name it. Add --query.")
        if scan.INPUT in self.table:
            raise ValueError(
                f"--table must not be named {scan.INPUT}: --input is that."
            )

    @property
    def columns(self) -> columns.Columns:
        """The columns that have a meaning."""
        return columns.Columns(
            image=self.image_column,
            label=self.label_column,
            name=self.name_column,
            split=self.split_column,
            extra=tuple(self.extra_columns),
        )

    def sources(self) -> dict[str, table_sources.TableSource]:
        """Returns the tables by the name that a query gives them.

        Raises:
            ValueError: If one is not there or of an unknown kind.
            OSError: If one cannot be looked at.
        """
        found = {scan.INPUT: table_sources.find("--input", self.input)}
        for name, value in self.table.items():
            found[name] = table_sources.find(f"--table={name}", value)
        return found

    def to_json(self) -> dict[str, Any]:
        """Returns the options as JSON values, without passwords."""
        return super().to_json() | self.shown()

    def shown(self) -> dict[str, Any]:
        """Returns the options that say what is read, without passwords."""
        names = (
            *("query", "image_column", "label_column", "name_column", "split_column"),
            *("label_separator", "extra_columns", "extra_in_records", "on_null"),
        )
        return {
            "input": table_sources.shown(self.input),
            "table": {n: table_sources.shown(value) for n, value in self.table.items()},
            **{name: getattr(self, name) for name in names},
            "extra_columns": list(self.extra_columns),
            "hive_columns": list(self.hive_columns),
        }


def config_from_flags() -> TableOptions:
    """Returns the options that the flags describe.

    Raises:
        app.UsageError: If a flag is missing.
        ValueError: If values do not fit together.
    """
    places = shared.value_of("input")
    for name in ("input", "image_column", "label_column"):
        if not shared.value_of(name):
            raise app.UsageError(f"--{name} must be given, see --help.")
    if len(places) > 1:
        raise app.UsageError("--input must be given once; use --table for others.")
    tables = dict(word.partition("=")[::2] for word in _TABLE.value)
    if len(tables) < len(_TABLE.value) or not all(map(str.isidentifier, tables)):
        raise app.UsageError("--table must be name=PLACE, with another name each time.")
    return labelled.options_from_flags(
        TableOptions,
        input=places[0],
        table=tables,
        **{name: shared.only(name) for name in _OWN_FLAGS},
    )


def convert(config: TableOptions) -> dict[str, Any]:
    """Converts, and returns the summary that the command prints as JSON.

    Raises:
        ValueError: If the table or the output folder is not as it must be.
        OSError: If a file or a database cannot be read, or a file not be written.
        RemoteError: If a URL cannot be read or written.
    """
    return spooled.convert(
        config, lambda: command.convert(_COMMAND, config, lambda: make_job(config))
    )


def make_job(config: TableOptions) -> Job:
    """Reads the table and plans the shards.

    Raises:
        ValueError: If the table is not as it must be.
        OSError: If it cannot be read.
        RemoteError: If a URL cannot be read.
    """
    sources = config.sources()
    recorded = {"command": _COMMAND, **config.shown()}
    spooled.require_free(config, recorded, sources.values())
    root = spooled.root_of("--root", config.root, sources[scan.INPUT])
    states = sources[scan.INPUT].states()
    state = [config.shown(), [source.state() for source in sources.values()]]
    columns, split, by_file = scan.by_names(
        sources[scan.INPUT], config.columns, config.meaning, config.hive_columns
    )
    with spooled.folder_of(config, [state, root.place, by_file]) as folder:
        rows = scan.scan(sources, config.query, columns, folder, by_file)
        how = classes_of_rows.Reading(
            root=root,
            folder=folder,
            has_splits=columns.split is not None,
            on_null=config.on_null,
            separator=config.label_separator,
            split=split,
            states=states,
        )
        known = classes_of_rows.class_list(
            sources[scan.INPUT], columns.label, config.query
        )
        return _make_job(config, how, rows, known)


def _make_job(
    config: TableOptions,
    how: classes_of_rows.Reading,
    rows: pathlib.Path,
    known: ClassList,
) -> Job:
    """Plans the shards of a table whose rows were read."""
    with sql.connected(rows.parent) as connection:
        table = classes_of_rows.read(connection, rows, how)
        given = labelled.give_labels(config, table.listed.with_list(known))
        job = labelled.make_job(
            config, given, command_name=_COMMAND, own_options=config.shown()
        )
        more = _more_columns(config, connection, rows, table.rows, given)
    return dataclasses.replace(job, more_columns=more)


def _more_columns(
    config: TableOptions,
    connection: "duckdb.DuckDBPyConnection",
    rows: pathlib.Path,
    row_of: Mapping[str, int],
    given: Labelled,
) -> extras.MoreColumns | None:
    """Returns what the catalog and the records get beside the images and classes."""
    in_records = tuple(config.extra_columns) if config.extra_in_records else ()
    labels_of = None
    if several := given.listed.several:
        classes_of = {
            place.name: several.get(place.name, [name])
            for classes in given.listed.tree.splits.values()
            for name, places in classes.items()
            for place in places
        }
        labels_of = {
            image: [given.labels[name] for name in classes]
            for image, classes in classes_of.items()
        }
        in_records = (extras.LABELS, *in_records)
    if not (config.extra_columns or labels_of):
        return None
    path = extras.write(connection, rows, row_of, labels_of, config.extra_columns)
    return extras.MoreColumns(path=path, in_records=in_records)


def main(argv: Sequence[str]) -> int:
    return command.main(argv, lambda: convert(config_from_flags()))


if __name__ == "__main__":
    policy.set_default("exif_orientation", labelled.EXIF_ORIENTATION)
    start.run(main)
