"""Makes images by split and class of the rows of a table.

In: the Parquet file of `scan.scan`, the root of paths. Out: a `Listed`. A row without
an image or a label is an error or is left out, as the user chose. A path cannot lead
out of the root.
"""

import dataclasses
import functools
import itertools
import os
import pathlib
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from converters.inputs.classes import of_rows
from converters.inputs.image import NO_CLASS, Image
from converters.inputs.listed import ImageRows, Listed, ordered
from converters.inputs.listing import LeftOut, Reason
from converters.inputs.meaning import (
    MAX_CHARACTERS,
    Meaning,
    is_no_label,
    values_say_splits,
)
from converters.inputs.tables import columns, spool
from converters.inputs.tables.columns import Columns
from tfpipe import errors
from tfpipe.location import limits
from tfpipe.location.files import Files
from tfpipe.location.location import Location, shown, written_scheme
from tfpipe.shards import first_record
from tfpipe.shards.split_names import SPLIT_WORDS, split_of_name
from tfpipe.shards.sql import PARQUET, one_file, quoted

if TYPE_CHECKING:
    import duckdb

_BATCH_ROWS = 4096
# Sizes of a path without a file, and of a folder, a pipe or a device.
_MISSING, _NO_FILE = -1, -2
# Types of DuckDB, and of lists, that may hold a row of 0 and 1.
_NUMBERS = re.compile(r"(\w*INT(EGER)?|BOOLEAN|FLOAT|DOUBLE|VARCHAR)(\[\])?")


# Asks for columns of the rows, with the rest of a query; yields batches of rows.
_Ask = Callable[..., Iterator[Any]]


class _Row(NamedTuple):
    """A row of a table; `offset` is None for a path, and from the end for the spool."""

    row: int
    path: str | None
    file: str | None
    offset: int | None
    num_bytes: int | None
    labels: Sequence[str] | None
    name: str | None
    split: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Root:
    """Folder or URL that paths are relative to.

    If the user named the folder, every URL must be below it too.
    """

    location: Location
    is_given: bool
    num_folders: int = 1  # with files of the table

    def find(self, paths: Mapping[int, str]) -> dict[int, Image]:
        """Returns the files of paths by the numbers of their rows.

        A name is a path below the root, or a URL.
        """
        located = {row: self._locate(row, path) for row, path in paths.items()}
        with ThreadPoolExecutor(limits.connections()) as pool:
            sizes = [*pool.map(_size, (file for _, file in located.values()))]
        if _NO_FILE in sizes:
            row = list(paths)[sizes.index(_NO_FILE)]
            raise ValueError(
                f"Row {row} must name a regular file, got {paths[row]}: a folder, a "
                "pipe or a device."
            )
        found = zip(located.items(), sizes, strict=True)
        return {r: Image(n, NO_CLASS, f, 0, size) for (r, (n, f)), size in found}

    def _locate(self, row: int, path: str) -> tuple[str, str]:
        if "\0" in path:
            raise ValueError(
                f"Row {row} must name a file, got a name with a zero byte."
            )
        if written_scheme(path):
            image = Location.from_user(f"The image of row {row}", path)
            if not image.split()[1]:
                raise ValueError(f"Row {row} must name a file, got {image.shown}.")
            name, file = image.text.removeprefix(f"{self.location.text}/"), image.text
            is_outside = self.is_given and not image.is_in(self.location)
            is_outside = is_outside or "/../" in f"{file}/"
        elif self.num_folders > 1 and not (self.is_given or os.path.isabs(path)):
            raise ValueError(
                f"Row {row} names {shown(path)}, but the files of --input lie in "
                f"{self.num_folders} folders: say with --root to which folder paths "
                "are relative. If each folder has a table of its own, name these as "
                "sources of converters.merge."
            )
        else:
            is_local, text = self.location.is_local, self.location.text
            above = os.path.join(os.path.abspath(text), "") if is_local else ""
            file = os.path.normpath(os.path.join(above, path))
            name = file.removeprefix(above)
            is_outside = name in (".", "..") or name.startswith(("/", "../"))
            if not (is_local or is_outside):
                file = (self.location / name).text
        if is_outside:
            raise ValueError(
                f"Row {row} names {shown(path)}, which must be below --root="
                f"{self.location.shown}. Correct the row, or name the folder that "
                "holds all images."
            )
        return name, file


def _size(file: str) -> int:
    """Returns the bytes of a file; or _MISSING, or _NO_FILE."""
    try:
        if not Location(file).is_local:
            folder, name = Location(file).split()
            return Files(folder).size(name)
        status = os.stat(file)
    except (FileNotFoundError, NotADirectoryError, errors.MissingFileError):
        return _MISSING
    return status.st_size if stat.S_ISREG(status.st_mode) else _NO_FILE


def read(
    connection: "duckdb.DuckDBPyConnection",
    path: pathlib.Path,
    table: Columns,
    root: Root,
    split: str | None,
    states: Mapping[str, str],
    meaning: Meaning,
) -> Listed:
    """Lists the images of the Parquet file of a table's values.

    `split` is the split of all images, unless a column named split may say the splits;
    None takes the column's. `states` are those of `Listed`, by absolute paths.
    """

    def ask(select: str, more: str = "") -> Iterator[Any]:
        query = f"SELECT {select} FROM {PARQUET} {more}"
        result = connection.execute(query, [one_file(path)])
        return iter(lambda: result.fetchmany(_BATCH_ROWS), [])

    (((num_rows, kind, has_paths, own),),) = ask(
        'count(*), min(typeof(label)), bool_or("offset" IS NULL AND path IS NOT NULL), '
        "list(DISTINCT file) FILTER (file <> '' AND \"offset\" >= 0)"
    )
    if not num_rows:
        raise ValueError("The table must have a row, got none. Change --query.")
    labels, length = _labels(ask, kind, table.label_separator)
    warning = ""
    if split is not None and meaning.split is None and meaning.split_names:
        values = ask("DISTINCT split")
        says, warning = values_say_splits(
            (value for (value,) in itertools.chain.from_iterable(values)), "column"
        )
        split = None if says else split
    spooled = path.with_name(spool.IMAGES_NAME).absolute()
    files = [*(own or ()), *([spooled] if spooled.exists() else [])]
    folders = [os.path.dirname(os.path.abspath(file)) for file in files]
    top = root.location
    if (has_paths or not files) and top.is_local and top.path.is_dir():
        folders.append(os.path.abspath(top.text))
    # The root may be a URL.
    folder = os.path.commonpath(folders or [os.getcwd()])
    lister = _Lister(table, split, root, folder, str(spooled))
    for batch in ask(
        f'row, path, file, "offset", num_bytes, ({labels})::VARCHAR[], name, split',
        "ORDER BY row",
    ):
        lister.add([_Row._make(row) for row in batch])
    listed = lister.result(path)._replace(
        num_rows=num_rows,
        warnings=[warning] if warning else [],
        states={os.path.relpath(file, folder): state for file, state in states.items()},
    )
    return listed.with_list(of_rows(length)) if length else listed


def _labels(ask: _Ask, kind: str, separator: str | None) -> tuple[str, int]:
    """Returns the expression of the list of a row's labels, of a type of DuckDB.

    Also returns the number of classes if labels are rows of 0 and 1, and 0 otherwise.
    """
    several = "label" if kind.endswith("[]") else None
    if separator is not None and kind == "VARCHAR":
        several = f"string_split(label, {quoted(separator)})"
    if several and _NUMBERS.fullmatch(kind):
        row = f"TRY_CAST({several} AS DOUBLE[])"
        batches = ask(f"DISTINCT {row}", "WHERE label IS NOT NULL")
        rows = (each for (each,) in itertools.chain.from_iterable(batches))
        first = next(rows, ())
        if first_record.is_one_hot(itertools.chain([first], rows), None):
            length = len(first)
            return f"list_filter(range({length}), lambda n: {row}[n + 1] = 1)", length
    base = kind.removesuffix("[]")
    is_integer = base.endswith(("INT", "INTEGER")) and "HUGEINT" not in base
    is_text = base in ("VARCHAR", "BOOLEAN", "UUID", "DATE", '"NULL"', "NULL")
    is_float = base in ("FLOAT", "DOUBLE")
    if not (is_integer or is_float or is_text or base.startswith("ENUM")):
        raise ValueError(
            f"--label_column must hold text or whole numbers, or lists of them, "
            f"got {kind}. Cast the column in --query, as in label::VARCHAR."
        )
    labels = several or "[label]"
    if is_text or base.startswith("ENUM"):
        return labels, 0
    is_label = "x BETWEEN 0 AND 1e15 AND x = floor(x) OR x = -1"
    wrong = f"list_filter({labels}, lambda x: NOT ({is_label}))"
    for ((row, (label, *_)),) in ask(f"row, {wrong}", f"WHERE {wrong} <> [] LIMIT 1"):
        raise ValueError(
            f"The label of row {row} must be a whole number from 0 on, got {label}. "
            "Cast the column to text in --query if these are names."
        )
    return labels, 0


class _Lister:
    """Images so far."""

    def __init__(
        self, table: Columns, split: str | None, root: Root, folder: str, spooled: str
    ) -> None:
        self._table, self._split, self._root = table, split, root
        self._above, self._spooled = os.path.join(folder, ""), spooled
        self._splits: dict[str, dict[str, list[Image]]] = {}
        self._left_out: list[LeftOut] = []
        self._several: dict[str, Sequence[str]] = {}
        self._rows: dict[str, int] = {}
        self._tops: set[str] = set()

    def add(self, rows: Sequence[_Row]) -> None:
        """Adds the images of a batch of rows."""
        paths = {row.row: row.path for row in rows if row.offset is None and row.path}
        files = self._root.find(paths)
        for row in rows:
            self._add(row, files.get(row.row))

    def _add(self, row: _Row, file: Image | None) -> None:
        name = row.name or (file.name if file else row.path) or f"row-{row.row:09d}"
        classes, reason = _classes(*row.labels or ())
        if row.offset is None and file is None:
            reason = Reason.NULL_IMAGE
        elif file is not None and file.num_bytes == _MISSING:
            reason = Reason.MISSING_FILE
        elif reason is None and not (row.split or self._split):
            reason = Reason.NULL_SPLIT
        if reason is not None:
            self._leave_out(row, LeftOut(name, reason))
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
        split = self._splits.setdefault(self._split or _split(row), {})
        split.setdefault(classes[0], []).append(self._image(name, row, file))

    def _leave_out(self, row: _Row, item: LeftOut) -> None:
        if self._table.on_null != columns.FAIL:
            self._left_out.append(item)
            return
        must, remedy = item.reason.value.removeprefix("a row "), ""
        if item.reason == Reason.BAD_LABEL:
            must = f"has a label that is no class: {must}"
        if item.reason == Reason.MISSING_FILE:
            must += f", got {row.path}: no such file"
            remedy = (
                f" Paths are relative to {self._root.location.shown}: name another "
                "folder with --root. If each folder has a table of its own, name "
                "these as sources of converters.merge."
            )
        raise ValueError(
            f"Row {row.row} ({item.name}) {must}. Correct the table, or leave such "
            f"rows out with --on_null=skip.{'' if self._root.is_given else remedy}"
        )

    def _image(self, name: str, row: _Row, found: Image | None) -> Image:
        file, offset, num_bytes = row.file or "", row.offset or 0, row.num_bytes or 0
        if found is not None:
            file, offset, num_bytes = found[2:]
        is_spooled = offset < 0 or not file
        if is_spooled:
            offset, file = ~offset, self._spooled
        if "://" not in file:
            file = _absolute(file).removeprefix(self._above)
            if not is_spooled:  # the spool lies below the output
                self._tops.add(file.partition("/")[0])
        # One object for both saves memory.
        return Image(name, NO_CLASS, name if name == file else file, offset, num_bytes)

    def result(self, path: pathlib.Path) -> Listed:
        """Returns all images of the rows in a file."""
        if not self._splits:
            raise ValueError(
                "The table must have a row with an image and a label, got none."
            )
        table, folder = self._table, Location(self._above)
        extra = {name: f"extra_{n}" for n, name in enumerate(table.extra_columns)}
        return Listed(
            folder,
            ordered(self._splits),
            self._left_out,
            several=self._several,
            rows=[ImageRows(path, self._rows, extra, table.extra_in_records, "row")],
            apart=[folder.resolve(top) for top in sorted(self._tops)],
        )


# A row after another is mostly in the same file, and a class has many rows.
_absolute = functools.lru_cache(maxsize=64)(os.path.abspath)


@functools.lru_cache(maxsize=4096)
def _classes(*labels: str | None) -> tuple[Sequence[str], Reason | None]:
    """Returns the classes of an image, or why the labels are none."""
    texts = dict.fromkeys((each or "").strip() for each in labels)
    classes = [each for each in texts if not is_no_label(each)]
    # A table may hold the names of folders, also with line breaks.
    if any("\0" in each or len(each) > MAX_CHARACTERS for each in classes):
        return classes, Reason.BAD_LABEL
    return classes, None if classes else Reason.NULL_LABEL


def _split(row: _Row) -> str:
    if (split := split_of_name(str(row.split))) is None:
        raise ValueError(
            f"The split of row {row.row} must be one of {', '.join(SPLIT_WORDS)}, "
            f"got {row.split!r}. Rename it in --query, or say --split for all."
        )
    return split
