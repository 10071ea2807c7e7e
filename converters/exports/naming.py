"""Names of exported images: from the catalog, safe, and no name twice.

In: a DuckDB table `chosen` with the catalog's rows of the records to export. Out: the
same rows with a `path` each. A name of the catalog may be hostile or missing: no path
leads out of a folder, and equal paths are numbered. Opens no file.
"""

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Literal

from converters.exports.source import Source
from converters.inputs.classes import LABEL_BASE
from tfpipe.shards import split_names

if TYPE_CHECKING:
    import duckdb

# source: the names that the images had. split: <split>/<class>/<file>. key: as source,
# without a suffix and without dots, as WebDataset needs it.
Style = Literal["source", "split", "key"]

# Folders of the splits, as the converters read them.
SPLIT_FOLDERS: Mapping[str, str] = {"validation": "val"}
IMAGENET = "converters.imagenet"

# More rounds than any numbering of equal paths takes.
_MAX_ROUNDS = 20

_UNNAMED = "format('record-{}-{:05d}-{:05d}.jpg', split, shard, record)"
# A path without empty, "." and ".." parts, and without a dot in front.
_SAFE = r"""regexp_replace(array_to_string(list_filter(
    string_split(replace(coalesce(filename, ''), chr(0), ''), '/'),
    lambda part: part NOT IN ('', '.', '..')), '/'), '^\.+', '_')"""
_SAFE_CLASS = r"""array_to_string(list_filter(
    string_split(replace(coalesce(synset, ''), chr(0), ''), '/'),
    lambda part: part NOT IN ('', '.', '..')), '/')"""


def add_paths(connection: "duckdb.DuckDBPyConnection", style: Style) -> None:
    """Makes the table `named`: the rows of `chosen` with a column `path`.

    Args:
        connection: Connection with the table `chosen`: all columns of the catalog that
            a path is made from (split, shard, record, label, synset, filename).
        style: How paths are made.

    Raises:
        ValueError: If equal paths cannot be numbered.
    """
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE named AS SELECT *, {_expression(style)} AS path "
        f"FROM (SELECT *, {_SAFE} AS safe, {_SAFE_CLASS} AS class FROM chosen)"
    )
    for _ in range(_MAX_ROUNDS):
        if not _number_equal_paths(connection):
            return
    raise ValueError("Equal names of images cannot be numbered. Rename them.")


def _expression(style: Style) -> str:
    """Returns the SQL of a path, from columns of the catalog, `safe` and `class`."""
    name = f"coalesce(nullif(safe, ''), {_UNNAMED})"
    if style == "source":
        return name
    if style == "key":
        stem = rf"regexp_replace({name}, '\.[^./]*$', '')"
        return f"replace({stem}, '.', '_')"
    folder = "CASE split "
    for split, path in SPLIT_FOLDERS.items():
        folder += f"WHEN '{split}' THEN '{path}' "
    folder += "ELSE split END"
    of_class = "coalesce(nullif(class, ''), format('class_{:04d}', label))"
    base = rf"regexp_extract({name}, '[^/]*$')"
    return f"({folder}) || '/' || {of_class} || '/' || {base}"


def _number_equal_paths(connection: "duckdb.DuckDBPyConnection") -> bool:
    """Numbers paths that several records have; returns whether there were any."""
    ((found,),) = connection.execute(
        "SELECT count(*) - count(DISTINCT path) FROM named"
    ).fetchall()
    if not found:
        return False
    # a.jpg, a-2.jpg, a-3.jpg; the suffix follows the last dot behind the last slash.
    connection.execute(
        r"""CREATE OR REPLACE TEMP TABLE named AS SELECT * EXCLUDE (path, turn),
        CASE WHEN turn = 1 THEN path ELSE
            regexp_replace(path, '(\.[^./]*)?$', format('-{}', turn) || '\1')
        END AS path
        FROM (SELECT *, row_number() OVER (
            PARTITION BY path ORDER BY split, shard, record) AS turn FROM named)"""
    )
    return True


def is_readable(connection: "duckdb.DuckDBPyConnection", *, imagenet: bool) -> bool:
    """Whether the names of the source make a tree with the same splits and classes.

    Args:
        connection: Connection with the table `chosen`.
        imagenet: Whether converters.imagenet reads the tree, which takes val/ without
            folders of classes, and no tree without train/.
    """
    ((same,),) = connection.execute(
        f"SELECT bool_and({_SAFE} = filename) AND count(DISTINCT filename) = count(*) "
        "FROM chosen"
    ).fetchall()
    rows = connection.execute(
        f"SELECT DISTINCT split, {_SAFE_CLASS}, regexp_replace({_SAFE}, '/?[^/]*$', '')"
        " FROM chosen"
    ).fetchall()
    tops = split_names.splits_of_folders([*{row[2].partition("/")[0] for row in rows}])
    if not same or (imagenet and tops is None):
        return False
    return all(
        (imagenet and (split, parent) == (split_names.VALIDATION, "val"))
        or (split, name) == _read_as(parent, tops)
        for split, name, parent in rows
    )


def _read_as(parent: str, tops: Mapping[str, str] | None) -> tuple[str, str]:
    """Returns the split and the class that a converter reads in a folder of images."""
    top, _, rest = parent.partition("/")
    return (split_names.TRAIN, parent) if tops is None else (tops[top], rest)


def is_imagenet(source: Source, splits: Collection[str]) -> bool:
    """Whether converters.imagenet reads the tree; converters.folder reads any other.

    Args:
        source: The data set.
        splits: Splits of the tree.
    """
    known = source.known
    is_one = known.made_by.get("command") == IMAGENET
    in_order = known.label_base == LABEL_BASE and split_names.TRAIN in splits
    allowed = {split_names.TRAIN, split_names.VALIDATION}
    synsets = [synset for synset, _ in known.classes]
    plain = all(synset and synset.split() == [synset] for synset in synsets)
    return is_one and in_order and allowed.issuperset(splits) and plain


def on_disk(path: str) -> str:
    r"""Returns the name of a file whose bytes are not UTF-8 as Python writes it.

    The catalog has the text `\udcXX` for such a byte: see `image.catalog_name`.
    """
    if "\\udc" not in path:
        return path
    raw = path.encode("utf-8", "surrogateescape")
    for byte in range(0x80, 0x100):
        raw = raw.replace(b"\\udc%02x" % byte, bytes((byte,)))
    return os.fsdecode(raw)
