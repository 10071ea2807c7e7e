"""Asks the catalog of a data set for the records that an expression of SQL chooses.

In: a data set, and a `Question`. Out: a connection to DuckDB with the table `chosen`,
one row a chosen record, and the view `catalog` of all records. The expressions come
from a person: they can neither open nor write a file, and no setting can
change the rule.
"""

import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from converters.catalog import added
from converters.catalog.added import Added
from converters.exports.source import Source
from tfpipe import errors
from tfpipe.shards import index, sql
from tfpipe.shards.sql import identifier, read_files

if TYPE_CHECKING:
    import duckdb

# The content of the columns of the catalog, for people.
COLUMN_HELP: Mapping[str, str] = {
    "split": "such as train",
    "shard": "number of the shard in its split",
    "record": "number of the record in its shard",
    "byte_offset": "of the record in its shard",
    "num_bytes": "of the record in its shard",
    "label": "as it is stored, from the label base on",
    "synset": "class as the record names it, such as n01440764",
    "height": "pixels",
    "width": "pixels",
    "filename": "source file, relative to the input",
    "decision": "what the converter did, such as kept",
    "digest": "of the stored image",
}
# Columns made from a label and the classes of the index.
CLASS_COLUMNS: Mapping[str, str] = {"class": "VARCHAR", "text": "VARCHAR"}
_CLASS_HELP = {
    "class": "name of the class: its folder or WordNet id",
    "text": "its name for people, such as tench",
}

# Columns of `chosen` taken from the catalog unchanged; texts stay in the file.
_KEPT = (
    *("split", "shard", "record", "byte_offset", "num_bytes", "label"),
    *("height", "width"),
)
_NEEDED = (*_KEPT, "filename", "decision")
_SHOWN_COLUMNS = 40
_LOST_COLUMN = re.compile(r'Referenced column "(.+?)" not found')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """A choice of records of a data set, in SQL over the columns of its catalog.

    Attributes:
        clause: Condition for a record; without a clause any records.
        weight: Number of each chosen record, for sampling; it may have window functions
            over the chosen records. None gives no weights.
        order_by: Terms by which `limit` takes the first records; None takes records at
            random.
        limit: Largest number of records; None takes all.
        seed: Seed of all random choices.
        added: Columns from other files.

    Raises:
        ValueError: If values do not fit together.
    """

    clause: str = "true"
    weight: str | None = None
    order_by: str | None = None
    limit: int | None = None
    seed: int = 0
    added: Sequence[Added] = ()

    def __post_init__(self) -> None:
        if self.order_by is not None and self.limit is None:
            raise ValueError(
                "--order_by says which records --limit takes first. Add --limit=N, or "
                "leave the order out: a subset has the order of the data set."
            )


def column_help() -> str:
    """Returns the columns for expressions, with their types, on lines of their own."""
    types = {**index.CATALOG_COLUMNS, **CLASS_COLUMNS}
    about = {**COLUMN_HELP, **_CLASS_HELP}
    return "\n".join(f"  {n:<12} {types[n]:<8} {about[n]}" for n in types)


@contextlib.contextmanager
def ask(
    source: Source,
    question: Question,
    *,
    num_threads: int,
    may_write: pathlib.Path | None = None,
) -> Iterator["duckdb.DuckDBPyConnection"]:
    """Chooses records, and yields a connection with the chosen records.

    Its table `chosen` has the columns place (number of the row in the catalog), split,
    shard, record, byte_offset, num_bytes, label, height, width and, with a weight,
    weight. The table `classes` has number (a label), class and text, the view `file`
    the other columns of the catalog, with file_row_number for the place.

    Args:
        source: The data set.
        question: The question.
        num_threads: Threads of DuckDB, >= 1.
        may_write: The only file for the connection to write; None allows no file.

    Raises:
        ValueError: If an expression is none or cannot be computed, or a file with
            columns is not as it must be.
        BadIndexError: If the catalog cannot be read.
    """
    with sql.connected(threads=num_threads) as connection:
        _open_catalog(connection, source, question.added)
        own = source.folder.absolute() / index.CATALOG_NAME
        sql.lock(connection, [own, *([may_write] if may_write else [])])
        catalog = connection.view("catalog")
        chosen = _filter(catalog, question)
        columns = ["place", *_KEPT]
        if question.weight is not None:
            columns.append(f"({_weight(chosen, question.weight)}\n)::DOUBLE AS weight")
        with named(f"The clause {question.clause!r}", catalog):
            chosen.project(", ".join(columns)).create("chosen")
        _check_shards(connection, source)
        if question.weight is not None:
            _check_weights(connection, question.weight)
        yield connection


def _open_catalog(
    connection: "duckdb.DuckDBPyConnection", source: Source, files: Sequence[Added]
) -> None:
    """Makes the view `catalog`: the file, the classes and the added columns."""
    import duckdb

    path = source.folder.absolute() / index.CATALOG_NAME
    connection.execute("CREATE TABLE classes (number INTEGER, class TEXT, text TEXT)")
    rows = [(c.label, c.synset, c.text) for c in source.classes]
    connection.execute(
        "INSERT INTO classes SELECT unnest(?), unnest(?), unnest(?)",
        [[row[column] for row in rows] for column in range(3)],
    )
    try:
        file = connection.sql(
            f"FROM {read_files('parquet', [path], 'file_row_number = true')}"
        )
        missing = [name for name in _NEEDED if name not in file.columns]
    except (duckdb.Error, OSError) as error:
        if system := sql.system_error(error):
            raise index.unreadable(path, system) from error
        raise errors.BadIndexError(
            f"{path} cannot be read: {first_line(error)} Convert the data set again."
        ) from error
    if missing:
        raise errors.BadIndexError(
            f"{path} must have the columns {', '.join(_NEEDED)}, got none named "
            f"{', '.join(missing)}. Convert the data set again."
        )
    # A table with extra columns of these names was converted with the columns: the
    # names of the classes are then the names to rely on.
    mine = [n for n in file.columns if n.lower() in (*CLASS_COLUMNS, "place")]
    exclude = ["file_row_number", *mine]
    listed = ", ".join(map(identifier, exclude))
    file.create_view("file")
    own = [n for n in file.columns if n not in exclude] + [*CLASS_COLUMNS, "place"]
    joins, names = added.load(connection, files, known=own)
    more = "".join(f", {name}" for name in names)
    connection.execute(
        f"CREATE VIEW catalog AS SELECT file.* EXCLUDE ({listed}), classes.class, "
        f"classes.text, file.file_row_number AS place{more} FROM file LEFT JOIN "
        f"classes ON file.label = classes.number {' '.join(joins)}"
    )
    added.require_matches(connection, files)


def _filter(
    catalog: "duckdb.DuckDBPyRelation", question: Question
) -> "duckdb.DuckDBPyRelation":
    """Returns the chosen rows of the catalog."""
    with named(f"The clause {question.clause!r}", catalog):
        chosen = catalog.filter(question.clause)
    if question.limit is None:
        return chosen
    order = random_order(question.seed)
    if question.order_by is not None:
        with named(f"--order_by={question.order_by!r}", catalog):
            chosen.order(question.order_by)
            # The line break ends a comment.
            chosen = chosen.order(f"{question.order_by}\n, {order}")
    else:
        chosen = chosen.order(order)
    return chosen.limit(question.limit)


def random_order(seed: int) -> str:
    """Returns the expression of SQL for a random order of records.

    The order depends on the seed and on the places of the records alone, and is the
    same in every version of DuckDB.
    """
    return f"md5(concat_ws('/', {seed}, split, shard, record))"


def _weight(chosen: "duckdb.DuckDBPyRelation", weight: str) -> str:
    with named(f"--weight={weight!r}", chosen):
        columns = chosen.project(weight).columns
    if len(columns) != 1:
        raise ValueError(
            f"--weight must be one expression of SQL, got {len(columns)}: {weight!r}."
        )
    return weight


def _check_shards(connection: "duckdb.DuckDBPyConnection", source: Source) -> None:
    """Checks the shards of the chosen records against the index."""
    query = "SELECT split, min(shard), max(shard) FROM chosen GROUP BY split"
    for split, first, last in connection.execute(query).fetchall():
        count = len(source.known.splits.get(split, ()))
        if first is None or not 0 <= first <= last < count:
            raise errors.BadIndexError(
                f"The catalog of {source.name} must name shards of {index.INDEX_NAME}, "
                f"which has {count} of split {split!r}, got {first} to {last}. Make "
                "the data set again."
            )


def _check_weights(connection: "duckdb.DuckDBPyConnection", weight: str) -> None:
    query = (
        "SELECT chosen.split, file.filename, chosen.weight FROM chosen JOIN file ON "
        "chosen.place = file.file_row_number WHERE chosen.weight IS NULL OR NOT "
        "isfinite(chosen.weight) OR chosen.weight < 0 ORDER BY chosen.place LIMIT 1"
    )
    if (row := connection.execute(query).fetchone()) is not None:
        got = "NULL" if row[2] is None else row[2]
        raise ValueError(
            f"--weight={weight!r} must be a finite number >= 0 for each chosen record, "
            f"got {got} for {row[1]} of split {row[0]}. coalesce(column, 0) gives NULL "
            "a value."
        )


@contextlib.contextmanager
def named(what: str, rows: "duckdb.DuckDBPyRelation") -> Iterator[None]:
    """Turns DuckDB's errors about a text of SQL into a line that names the text."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        columns = [name for name in rows.columns if name != "place"]
        listed, why = ", ".join(columns[:_SHOWN_COLUMNS]), first_line(error)
        lost = _LOST_COLUMN.search(why)
        near = errors.did_you_mean(lost[1], columns) if lost else ""
        raise ValueError(
            f"{what} cannot be computed: {why}{near} It must be one expression of SQL "
            f"over the columns {listed}. Texts stand in quotes: split = 'train'."
        ) from error


def first_line(error: Exception) -> str:
    """Returns the text of an error of DuckDB, on a single line with a full stop."""
    lines = str(error).splitlines() or [type(error).__name__]
    return f"{lines[0].rstrip('.! ')}."
