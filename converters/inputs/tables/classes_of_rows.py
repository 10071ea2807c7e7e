"""Makes images by split and class of the values of a table.

In: the Parquet file of `scan.scan`, the root of paths. Out: a `Listed`. A row without
an image or a label is an error or is left out, as the user chose.
"""

import dataclasses
import itertools
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from converters.inputs import class_lists, listing
from converters.inputs.files import State
from converters.inputs.image import NO_CLASS, Image
from converters.inputs.listed import Listed, TableRows, ordered
from converters.inputs.listing import LeftOut
from converters.inputs.meaning import MAX_LABEL
from converters.inputs.tables import columns, images, spool
from tfpipe.location.location import Location
from tfpipe.shards import label_rows
from tfpipe.shards.split_names import SPLIT_WORDS, TRAIN, split_of_word
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """How the values of a row become an image.

    Attributes:
        root: Folder or URL that paths are relative to.
        folder: Folder with the spool.
        has_splits: Whether the table has a column of splits.
        on_null: `columns.FAIL` or `columns.SKIP`.
        split: Split of all images, whatever the column says; None takes the column's.
        separator: Text between the labels of an image; None for one label.
        states: State of each file of the table, before it was read, by its path.
    """

    root: images.Root
    folder: pathlib.Path
    has_splits: bool
    on_null: str
    separator: str | None = None
    split: str | None = None
    states: Mapping[str, State] = dataclasses.field(default_factory=dict)

    @property
    def needs_split(self) -> bool:
        """Whether each row must say its split."""
        return self.has_splits and self.split is None


def read(
    connection: "duckdb.DuckDBPyConnection", rows: pathlib.Path, reading: Reading
) -> Listed:
    """Lists the images of a table.

    Args:
        connection: A connection of `sql.connected`.
        rows: The Parquet file of the table's values.
        reading: How they become images.

    Raises:
        ValueError: If a row is not as it must be; names the row.
    """
    kind = connection.execute(
        f"SELECT typeof(label) FROM {PARQUET} LIMIT 1", [one_file(rows)]
    ).fetchone()
    if kind is None:
        raise ValueError("The table must have a row, got none. Change --query.")
    labels = _Labels(str(kind[0]), reading, _row_length(connection, rows, str(kind[0])))
    lister = _Lister(reading, labels, _input_dir(connection, rows, reading))
    result = connection.execute(
        'SELECT row, path, file, "offset", num_bytes, label, name, split '
        f"FROM {PARQUET} ORDER BY row",
        [one_file(rows)],
    )
    num_rows = 0
    while batch := result.fetchmany(_BATCH_ROWS):
        lister.add([_Row._make(row) for row in batch])
        num_rows += len(batch)
    return lister.result(rows)._replace(num_rows=num_rows)


def _row_length(
    connection: "duckdb.DuckDBPyConnection", rows: pathlib.Path, kind: str
) -> int:
    """Returns the number of classes if all labels are rows of 0 and 1, or else 0."""
    if re.fullmatch(r"(\w*INT(EGER)?|BOOLEAN|FLOAT|DOUBLE)\[\]", kind) is None:
        return 0
    result = connection.execute(
        f"SELECT DISTINCT label FROM {PARQUET} WHERE label IS NOT NULL",
        [one_file(rows)],
    )
    batches = iter(lambda: result.fetchmany(_BATCH_ROWS), [])
    first: list[Any] = []

    def values() -> Iterator[list[Any]]:
        for (row,) in itertools.chain.from_iterable(batches):
            first[:] = first or row
            yield row

    return len(first) if label_rows.is_one_hot(values(), None) else 0


def _input_dir(
    connection: "duckdb.DuckDBPyConnection", rows: pathlib.Path, reading: Reading
) -> str:
    """Returns the folder that the files of all images are below."""
    files = connection.execute(
        f"SELECT DISTINCT file FROM {PARQUET} WHERE file IS NOT NULL",
        [one_file(rows)],
    ).fetchall()
    has_paths = connection.execute(
        f'SELECT 1 FROM {PARQUET} WHERE "offset" IS NULL AND path IS NOT NULL LIMIT 1',
        [one_file(rows)],
    ).fetchone()
    folders = [os.path.dirname(file) for (file,) in files]
    if (reading.folder / spool.IMAGES_NAME).exists():
        folders.append(os.path.abspath(reading.folder))
    root = reading.root.location
    if (has_paths or not folders) and root.is_local and root.path.is_dir():
        folders.append(os.path.abspath(root.text))
    # The root may be a URL.
    return os.path.commonpath(folders) if folders else os.path.abspath(reading.folder)


class _Labels:
    """The classes of a row by the value of its label."""

    def __init__(self, kind: str, reading: Reading, row_length: int) -> None:
        base = kind.removesuffix("[]")
        self._integers = base.endswith(("INT", "INTEGER")) and base != "HUGEINT"
        self._is_list = kind.endswith("[]")
        self._reading = reading
        self.row_length = row_length
        if row_length:
            return
        text = base in ("VARCHAR", "BOOLEAN", "UUID", "DATE", '"NULL"', "NULL")
        if not (self._integers or text or base.startswith("ENUM")):
            raise ValueError(
                f"--label_column must hold text or whole numbers, or lists of them, "
                f"got {kind}. Cast the column in --query, as in label::VARCHAR."
            )

    def of(self, row: int, value: Any) -> list[str]:
        """Returns the classes; none for NULL."""
        if self.row_length:
            return [str(n) for n, is_there in enumerate(value or ()) if is_there]
        separator = self._reading.separator
        values = value if self._is_list else [value]
        if separator is not None and isinstance(value, str):
            values = value.split(separator)
        found = [self._class(row, each) for each in values or () if each is not None]
        return list(dict.fromkeys(filter(None, found)))

    def _class(self, row: int, value: Any) -> str:
        if self._integers and not 0 <= value <= MAX_LABEL:
            raise ValueError(
                f"The label of row {row} must be 0 to {MAX_LABEL:,}, got {value}. Cast "
                "the column to text in --query if these are names."
            )
        text = str(value).strip()
        return text.lower() if isinstance(value, bool) else text


class _Lister:
    """Images so far."""

    def __init__(self, reading: Reading, labels: _Labels, input_dir: str) -> None:
        self._reading, self._labels = reading, labels
        self._found: dict[str, dict[str, list[Image]]] = {}
        self._left_out: list[LeftOut] = []
        self._several: dict[str, Sequence[str]] = {}
        self._rows: dict[str, int] = {}
        self._input_dir = input_dir
        self._spool = str(reading.folder / spool.IMAGES_NAME)

    def add(self, rows: Sequence[_Row]) -> None:
        """Adds the images of a batch of rows."""
        wanted = [
            (row.row, row.path) for row in rows if row.offset is None and row.path
        ]
        files = dict(
            zip(
                (row for row, _ in wanted), self._reading.root.find(wanted), strict=True
            )
        )
        for row in rows:
            self._add(row, files.get(row.row))

    def _add(self, row: _Row, found: images.Found | None) -> None:
        name = row.name or (found.name if found else row.path) or f"row-{row.row:09d}"
        classes = self._labels.of(row.row, row.label)
        reason, what = "", ""
        if row.offset is None and found is None:
            reason, what = listing.NULL_IMAGE, "an image, got NULL"
        elif found is not None and found.num_bytes < 0:
            reason = listing.MISSING_FILE
            what = f"an image that exists, got {row.path}: no such file"
        elif not classes:
            reason, what = listing.NULL_LABEL, "a label, got NULL"
        elif self._reading.needs_split and not row.split:
            reason, what = listing.NULL_SPLIT, "a split, got NULL"
        if reason:
            if self._reading.on_null == columns.FAIL:
                raise ValueError(
                    f"Row {row.row} ({name}) must have {what}. Correct the table, or "
                    "leave such rows out with --on_null=skip."
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
        split = self._found.setdefault(self._split(row), {})
        split.setdefault(classes[0], []).append(self._image(name, row, found))

    def _image(self, name: str, row: _Row, found: images.Found | None) -> Image:
        if found is None:
            file = os.path.relpath(row.file or self._spool, self._input_dir)
            return Image(name, NO_CLASS, file, row.offset or 0, row.num_bytes or 0)
        file = found.file
        if "://" not in file:
            file = os.path.relpath(file, self._input_dir)
        file = name if name == file else file  # one object saves memory
        return Image(name, NO_CLASS, file, 0, found.num_bytes)

    def _split(self, row: _Row) -> str:
        if not self._reading.needs_split:
            return self._reading.split or TRAIN
        if (split := split_of_word(str(row.split))) is None:
            raise ValueError(
                f"The split of row {row.row} must be one of {', '.join(SPLIT_WORDS)}, "
                f"got {row.split!r}. Rename it in --query, or say --split for all."
            )
        return split

    def result(self, path: pathlib.Path) -> Listed:
        """Returns all images of the rows in a file."""
        if not self._found:
            raise ValueError(
                "The table must have a row with an image and a label, got none."
            )
        states = {
            os.path.relpath(file, self._input_dir): state
            for file, state in self._reading.states.items()
        }
        listed = Listed(
            Location(self._input_dir),
            ordered(self._found),
            self._left_out,
            several=self._several,
            states=states,
            rows=TableRows(path, self._rows),
        )
        # The spool of other images lies below the output.
        spooled = os.path.relpath(self._spool, self._input_dir)
        if "/" in spooled and os.path.exists(self._spool):
            files = {each.file for each in listed.images()} - {spooled}
            tops = {file.partition("/")[0] for file in files if "://" not in file}
            listed = listed._replace(apart=[listed.folder / top for top in tops])
        if length := self._labels.row_length:
            return listed.with_list(class_lists.of_rows(length))
        return listed
