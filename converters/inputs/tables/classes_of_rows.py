"""Makes images by split and class of the values of a table.

In: the Parquet file of `scan.scan`, the root of paths, the labels of classes. Out: a
`classtree.ClassTree`, and for each image its row. A row without an image or a label is
an error or is left out, as the user chose.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from converters.inputs import listing
from converters.inputs.classtree import ClassTree, Place
from converters.inputs.listing import LeftOut
from converters.inputs.tables import columns, images, spool
from tfpipe.shards.sql import one_file

if TYPE_CHECKING:
    import duckdb

_BATCH_ROWS = 4096
_MAX_INTEGER_LABEL = 1_000_000
_SPLITS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
}


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
        separator: Text between the labels of an image; None for one label.
        class_of: Class by the integer that stands for it; None takes its digits.
    """

    root: images.Root
    folder: pathlib.Path
    has_splits: bool
    on_null: str
    separator: str | None = None
    class_of: Mapping[int, str] | None = None


class ListedTable(NamedTuple):
    """Images of a table.

    Attributes:
        tree: The images by split and class.
        input_dir: Folder that their files are relative to.
        integers: Whether classes are digits of integer labels.
        several: Row and classes of each image with several, by its name; the first
            is the class of the image.
        rows: Row of each image, by its name.
    """

    tree: ClassTree
    input_dir: pathlib.Path
    integers: bool
    several: Mapping[str, tuple[int, Sequence[str]]]
    rows: Mapping[str, int]


def read(
    connection: "duckdb.DuckDBPyConnection", rows: pathlib.Path, reading: Reading
) -> ListedTable:
    """Lists the images of a table.

    Args:
        connection: A connection of `sql.connected`.
        rows: The Parquet file of the table's values.
        reading: How they become images.

    Raises:
        ValueError: If a row is not as it must be; names the row.
        OSError: If a file cannot be looked at.
    """
    kind = connection.execute(
        "SELECT typeof(label) FROM read_parquet(?) LIMIT 1", [one_file(rows)]
    ).fetchone()
    if kind is None:
        raise ValueError("The table must have a row, got none. Change --query.")
    labels = _Labels(str(kind[0]), reading)
    lister = _Lister(reading, labels, _input_dir(connection, rows, reading))
    result = connection.execute(
        'SELECT row, path, file, "offset", num_bytes, label, name, split '
        "FROM read_parquet(?) ORDER BY row",
        [one_file(rows)],
    )
    while batch := result.fetchmany(_BATCH_ROWS):
        lister.add([_Row._make(row) for row in batch])
    return lister.result()


def _input_dir(
    connection: "duckdb.DuckDBPyConnection", rows: pathlib.Path, reading: Reading
) -> str:
    """Returns the folder that the files of all images are below."""
    files = connection.execute(
        "SELECT DISTINCT file FROM read_parquet(?) WHERE file IS NOT NULL",
        [one_file(rows)],
    ).fetchall()
    has_paths = connection.execute(
        'SELECT 1 FROM read_parquet(?) WHERE "offset" IS NULL AND path IS NOT NULL '
        "LIMIT 1",
        [one_file(rows)],
    ).fetchone()
    folders = [os.path.dirname(file) for (file,) in files]
    if not folders and (reading.folder / spool.IMAGES_NAME).exists():
        return os.path.abspath(reading.folder)
    if (has_paths or not folders) and os.path.isdir(reading.root.place):
        folders.append(os.path.abspath(reading.root.place))
    # The root may be a URL.
    return os.path.commonpath(folders) if folders else os.path.abspath(reading.folder)


def integer_labels(numbers: Sequence[int], label_base: int | None) -> dict[str, int]:
    """Returns the labels of classes that are digits: they are their own labels.

    Labels from 0 on become labels from 1 on if --label_base=1 says so. Integers that no
    image has are classes too, so that the labels have no gap.

    Args:
        numbers: The integers, in order.
        label_base: Value of --label_base.

    Raises:
        ValueError: If the labels cannot begin at `label_base`.
    """
    lowest = min(1, numbers[0])
    base = lowest if label_base is None else label_base
    if base < lowest:
        raise ValueError(
            f"--label_base={base} needs labels from 0 on, got {numbers[0]} as the "
            "lowest. Leave the flag out."
        )
    return {
        str(number): number - lowest + base for number in range(lowest, numbers[-1] + 1)
    }


class _Labels:
    """The classes of a row by the value of its label."""

    def __init__(self, kind: str, reading: Reading) -> None:
        base = kind.removesuffix("[]")
        self.integers = base.endswith(("INT", "INTEGER")) and base != "HUGEINT"
        self._is_list = kind.endswith("[]")
        self._reading = reading
        text = base in ("VARCHAR", "BOOLEAN", "UUID", "DATE", '"NULL"', "NULL")
        if not (self.integers or text or base.startswith("ENUM")):
            raise ValueError(
                f"--label_column must hold text or whole numbers, or lists of them, "
                f"got {kind}. Cast the column in --query, as in label::VARCHAR."
            )

    @property
    def are_digits(self) -> bool:
        """Whether the classes are integers without names."""
        return self.integers and self._reading.class_of is None

    def of(self, row: int, value: Any) -> list[str]:
        """Returns the classes; none for NULL."""
        separator = self._reading.separator
        values = value if self._is_list else [value]
        if separator is not None and isinstance(value, str):
            values = [each.strip() for each in value.split(separator)]
        found = [
            self._class(row, each) for each in values or () if each not in (None, "")
        ]
        return list(dict.fromkeys(found))

    def _class(self, row: int, value: Any) -> str:
        if not self.integers:
            if isinstance(value, bool):
                return str(value).lower()
            return str(value)
        if not 0 <= value <= _MAX_INTEGER_LABEL:
            raise ValueError(
                f"The label of row {row} must be 0 to {_MAX_INTEGER_LABEL:,}, got "
                f"{value}. Cast the column to text in --query if these are names."
            )
        if self._reading.class_of is None:
            return str(value)
        if value not in self._reading.class_of:
            raise ValueError(
                f"--label_map must name the class of each label, got {value} in row "
                f"{row}, which is not in it."
            )
        return self._reading.class_of[value]


class _Lister:
    """Images so far."""

    def __init__(self, reading: Reading, labels: _Labels, input_dir: str) -> None:
        self._reading, self._labels = reading, labels
        self._found: dict[str, dict[str, list[Place]]] = {}
        self._left_out: list[LeftOut] = []
        self._several: dict[str, tuple[int, Sequence[str]]] = {}
        self._rows: dict[str, int] = {}
        self._input_dir = input_dir

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
        elif self._reading.has_splits and not row.split:
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
            self._several[name] = (row.row, classes)
        split = self._found.setdefault(self._split(row), {})
        split.setdefault(classes[0], []).append(self._place(name, row, found))

    def _place(self, name: str, row: _Row, found: images.Found | None) -> Place:
        if found is None:
            file = row.file or spool.IMAGES_NAME
            if row.file:
                file = os.path.relpath(file, self._input_dir)
            return Place(name, file, row.offset or 0, row.num_bytes or 0)
        file = found.file
        if "://" not in file:
            file = os.path.relpath(file, self._input_dir)
        return Place(name, name if name == file else file, 0, found.num_bytes)

    def _split(self, row: _Row) -> str:
        if not self._reading.has_splits:
            return "train"
        if (split := _SPLITS.get(str(row.split).strip().lower())) is None:
            raise ValueError(
                f"The split of row {row.row} must be one of {', '.join(_SPLITS)}, got "
                f"{row.split!r}. Rename it in --query."
            )
        return split

    def result(self) -> ListedTable:
        """Returns all images."""
        if not self._found:
            raise ValueError(
                "The table must have a row with an image and a label, got none."
            )
        order = [
            split for split in dict.fromkeys(_SPLITS.values()) if split in self._found
        ]
        tree = ClassTree(
            {
                split: {
                    name: self._found[split][name]
                    for name in sorted(self._found[split])
                }
                for split in order
            },
            self._left_out,
        )
        return ListedTable(
            tree,
            pathlib.Path(self._input_dir),
            self._labels.are_digits,
            self._several,
            self._rows,
        )
