"""Makes images by split and class of the values of a table.

In: the Parquet file of `scan.scan`, the root of paths. Out: a `Listed`. A row without
an image or a label is an error or is left out, as the user chose.
"""

import itertools
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from converters.inputs import class_lists, listing
from converters.inputs.image import NO_CLASS, Image
from converters.inputs.listed import ImageRows, Listed, ordered
from converters.inputs.listing import LeftOut
from converters.inputs.meaning import MAX_LABEL
from converters.inputs.reading import State
from converters.inputs.tables import columns, images, spool
from converters.inputs.tables.columns import Columns
from tfpipe.location.location import Location
from tfpipe.shards import label_rows
from tfpipe.shards.split_names import SPLIT_WORDS, split_of_word
from tfpipe.shards.sql import PARQUET, one_file

if TYPE_CHECKING:
    import duckdb

_BATCH_ROWS = 4096


class _Row(NamedTuple):
    row: int
    path: str | None
    file: str | None
    offset: int | None
    num_bytes: int | None
    label: Any
    name: str | None
    split: str | None


def read(
    connection: "duckdb.DuckDBPyConnection",
    rows: pathlib.Path,
    table: Columns,
    root: images.Root,
    split: str | None,
    states: Mapping[str, State],
) -> Listed:
    """Lists the images of a table.

    Args:
        connection: A connection of `sql.connected`.
        rows: The Parquet file of the table's values.
        table: How they become images.
        root: Folder or URL that paths are relative to.
        split: Split of all images, whatever the column says; None takes the column's.
        states: State of each file of the table, before it was read, by its path.

    Raises:
        ValueError: If a row is not as it must be; names the row.
    """

    def ask(what: str) -> "duckdb.DuckDBPyConnection":
        return connection.execute(f"SELECT {what}", [one_file(rows)])

    about = ask(
        'count(*), min(typeof(label)), bool_or("offset" IS NULL AND path IS NOT NULL) '
        f"FROM {PARQUET}"
    ).fetchone()
    if about is None or not about[0]:
        raise ValueError("The table must have a row, got none. Change --query.")
    num_rows, kind, has_paths = about
    length = 0
    if re.fullmatch(r"(\w*INT(EGER)?|BOOLEAN|FLOAT|DOUBLE)\[\]", kind):
        result = ask(f"DISTINCT label FROM {PARQUET} WHERE label IS NOT NULL")
        length = _row_length(row for (row,) in _fetched(result))
    own = f"DISTINCT file FROM {PARQUET} WHERE file <> '' AND \"offset\" >= 0"
    files = [pathlib.Path(file) for (file,) in ask(own).fetchall()]
    spooled = rows.with_name(spool.IMAGES_NAME)
    files += [spooled] if spooled.exists() else []
    folder = _folder_above(files, root.location, has_paths=bool(has_paths))
    classes_of = _classes_of(kind, table.label_separator, length)
    lister = _Lister(table, split, classes_of, root, folder, str(spooled.absolute()))
    result = ask(
        'row, path, file, "offset", num_bytes, label, name, split '
        f"FROM {PARQUET} ORDER BY row"
    )
    while batch := result.fetchmany(_BATCH_ROWS):
        lister.add([_Row._make(row) for row in batch])
    listed = lister.result(rows)._replace(
        num_rows=num_rows,
        states={os.path.relpath(file, folder): state for file, state in states.items()},
    )
    return listed.with_list(class_lists.of_rows(length)) if length else listed


def _fetched(result: "duckdb.DuckDBPyConnection") -> Iterator[tuple[Any, ...]]:
    batches = iter(lambda: result.fetchmany(_BATCH_ROWS), [])
    return itertools.chain.from_iterable(batches)


def _row_length(labels: Iterator[Sequence[Any]]) -> int:
    """Returns the number of classes if all labels are rows of 0 and 1, or else 0."""
    first = next(labels, ())
    is_row = label_rows.is_one_hot(itertools.chain([first], labels), None)
    return len(first) if is_row else 0


def _folder_above(
    files: Sequence[pathlib.Path], root: Location, *, has_paths: bool
) -> str:
    """Returns the folder that the files of all images are below."""
    folders = [str(file.parent.absolute()) for file in files]
    if (has_paths or not folders) and root.is_local and root.path.is_dir():
        folders.append(os.path.abspath(root.text))
    # The root may be a URL.
    return os.path.commonpath(folders or [os.getcwd()])


def _classes_of(
    kind: str, separator: str | None, row_length: int
) -> Callable[[_Row], list[str]]:
    """Returns a function that returns the classes of a row; none for NULL.

    Args:
        kind: Type of the labels in DuckDB.
        separator: Text between the labels of an image; None for one label.
        row_length: Number of classes if the labels are rows of 0 and 1, or else 0.
    """
    base, is_list = kind.removesuffix("[]"), kind.endswith("[]")
    integers = base.endswith(("INT", "INTEGER")) and base != "HUGEINT"
    text = base in ("VARCHAR", "BOOLEAN", "UUID", "DATE", '"NULL"', "NULL")
    if not (row_length or integers or text or base.startswith("ENUM")):
        raise ValueError(
            f"--label_column must hold text or whole numbers, or lists of them, "
            f"got {kind}. Cast the column in --query, as in label::VARCHAR."
        )

    def class_of(row: _Row, value: Any) -> str:
        if integers and not 0 <= value <= MAX_LABEL:
            raise ValueError(
                f"The label of row {row.row} must be 0 to {MAX_LABEL:,}, got {value}. "
                "Cast the column to text in --query if these are names."
            )
        text = str(value).strip()
        return text.lower() if isinstance(value, bool) else text

    def classes_of(row: _Row) -> list[str]:
        values = row.label if is_list else [row.label]
        if row_length:
            return [str(n) for n, is_there in enumerate(values or ()) if is_there]
        if separator is not None and isinstance(row.label, str):
            values = row.label.split(separator)
        classes = [class_of(row, each) for each in values or () if each is not None]
        return list(dict.fromkeys(filter(None, classes)))

    return classes_of


class _Lister:
    """Images so far."""

    def __init__(
        self,
        table: Columns,
        split: str | None,
        classes_of: Callable[[_Row], list[str]],
        root: images.Root,
        folder: str,
        spooled: str,
    ) -> None:
        self._table, self._split, self._classes_of = table, split, classes_of
        self._root, self._folder, self._spooled = root, folder, spooled
        self._found: dict[str, dict[str, list[Image]]] = {}
        self._left_out: list[LeftOut] = []
        self._several: dict[str, Sequence[str]] = {}
        self._rows: dict[str, int] = {}

    def add(self, rows: Sequence[_Row]) -> None:
        """Adds the images of a batch of rows."""
        wanted = [
            (row.row, row.path) for row in rows if row.offset is None and row.path
        ]
        numbers = (row for row, _ in wanted)
        files = dict(zip(numbers, self._root.find(wanted), strict=True))
        for row in rows:
            self._add(row, files.get(row.row))

    def _add(self, row: _Row, found: images.Found | None) -> None:
        name = row.name or (found.name if found else row.path) or f"row-{row.row:09d}"
        classes = self._classes_of(row)
        reason, what, remedy = "", "", ""
        if row.offset is None and found is None:
            reason, what = listing.NULL_IMAGE, "an image, got NULL"
        elif found is not None and found.num_bytes < 0:
            reason = listing.MISSING_FILE
            what = f"an image that exists, got {row.path}: no such file"
            if not self._root.is_given:
                remedy = (
                    f"Paths are relative to {self._root.location.shown}: name another "
                    "folder with --root. If each folder has a table of its own, name "
                    "these as sources of converters.merge."
                )
        elif not classes:
            reason, what = listing.NULL_LABEL, "a label, got NULL"
        elif not (row.split or self._split):
            reason, what = listing.NULL_SPLIT, "a split, got NULL"
        if reason:
            if self._table.on_null == columns.FAIL:
                raise ValueError(
                    f"Row {row.row} ({name}) must have {what}. Correct the table, or "
                    f"leave such rows out with --on_null=skip. {remedy}".rstrip()
                )
            self._left_out.append(LeftOut(name, reason))
            return
        if name in self._rows:
            raise ValueError(
                f"Each image must have a name of its own, got {name} in rows "
                f"{self._rows[name]} and {row.row}. Name another column with "
                "--name_column, or make names in --query."
            )
        self._rows[name] = row.row
        if len(classes) > 1:
            self._several[name] = classes
        split = self._found.setdefault(self._split or _split(row), {})
        split.setdefault(classes[0], []).append(self._image(name, row, found))

    def _image(self, name: str, row: _Row, found: images.Found | None) -> Image:
        if found is not None:
            file = self._below(found.file)
            file = name if name == file else file  # one object saves memory
            return Image(name, NO_CLASS, file, 0, found.num_bytes)
        offset, num_bytes = row.offset or 0, row.num_bytes or 0
        if offset >= 0 and row.file:
            return Image(name, NO_CLASS, self._below(row.file), offset, num_bytes)
        return Image(name, NO_CLASS, self._below(self._spooled), ~offset, num_bytes)

    def _below(self, file: str) -> str:
        """Returns a path relative to the folder of all images; a URL stays."""
        if "://" in file:
            return file
        path = file if file.startswith("/") else os.path.abspath(file)
        return path.removeprefix(os.path.join(self._folder, ""))

    def result(self, path: pathlib.Path) -> Listed:
        """Returns all images of the rows in a file."""
        if not self._found:
            raise ValueError(
                "The table must have a row with an image and a label, got none."
            )
        listed = Listed(
            Location(self._folder),
            ordered(self._found),
            self._left_out,
            several=self._several,
            rows=[ImageRows(path, self._rows, key="row")],
        )
        # The spool of other images lies below the output.
        spooled = self._below(self._spooled)
        if "/" in spooled and os.path.exists(self._spooled):
            files = {each.file for each in listed.images()} - {spooled}
            tops = {file.partition("/")[0] for file in files if "://" not in file}
            listed = listed._replace(apart=[listed.folder / top for top in tops])
        return listed


def _split(row: _Row) -> str:
    if (split := split_of_word(str(row.split))) is None:
        raise ValueError(
            f"The split of row {row.row} must be one of {', '.join(SPLIT_WORDS)}, "
            f"got {row.split!r}. Rename it in --query, or say --split for all."
        )
    return split
