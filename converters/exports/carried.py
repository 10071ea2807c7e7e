"""The file of an export with all labels and further columns: columns.pqt, of Parquet.

In: a plan whose catalog has columns beside the usual columns, and its items. Out: a row
for each image, by the name that a converter gives the image of the export. The
converters find the file beside the images. Types are the types of the catalog; labels
are names of classes.
"""

import json
import pathlib

from converters.exports.plan import ExportedRecord, ExportPlan, Part, read_items
from converters.inputs.exported import IN_RECORDS
from converters.jobs import more_columns
from tfpipe.shards import index
from tfpipe.shards.catalog import LABELS
from tfpipe.shards.example import locate
from tfpipe.shards.sql import identifier, quoted, read_files

_KINDS = "{name: 'VARCHAR', split: 'VARCHAR', shard: 'INTEGER', record: 'INTEGER'}"


def line_of(plan: ExportPlan, part: Part, item: ExportedRecord) -> str:
    """Returns the line of a record for the file of names of its part."""
    name = item.path if plan.kind == "tree" else f"{item.path}.{item.suffix}"
    if plan.kind == "webdataset":
        name = f"{part.split}/{name}"
    place = {"split": part.split, "shard": part.source_number}
    return json.dumps({"name": name, **place, "record": item.row.record}) + "\n"


def names_path(folder: pathlib.Path, part: Part) -> pathlib.Path:
    """Returns the path of the file of names of a part."""
    return folder / f"{part.name}.names"


def write(plan: ExportPlan, folder: pathlib.Path, path: pathlib.Path) -> None:
    """Writes the file.

    Args:
        plan: The plan.
        folder: Folder of the files of names.
        path: The file.
    """
    names = [names_path(folder, part) for part in plan.parts]
    lines = read_files(
        "json", names, "format = 'newline_delimited'", f"columns = {_KINDS}"
    )
    known = plan.source.known
    classes = ", ".join(quoted(synset) for synset, _ in known.classes)
    values = [f"r.more_{n}" for n in range(len(plan.columns))]
    if LABELS in plan.columns:
        at = plan.columns.index(LABELS)
        number = f"x - {known.label_base} + 1"
        values[at] = f"list_transform({values[at]}, lambda x: [{classes}][{number}])"
    listed = ", ".join(
        f"{value} AS {identifier(name)}"
        for value, name in zip(values, plan.columns, strict=True)
    )
    metadata = quoted(json.dumps(_in_records(plan)))
    with index.catalog_connection() as connection:
        connection.execute(
            f"COPY (SELECT n.name AS filename, {listed} FROM {lines} n "
            f"JOIN {read_files('parquet', [plan.rows_path])} r "
            "USING (split, shard, record) ORDER BY n.split, n.shard, n.record) "
            f"TO {quoted(path)} (FORMAT parquet, COMPRESSION zstd, "
            f"KV_METADATA {{{IN_RECORDS}: {metadata}}})"
        )


def _in_records(plan: ExportPlan) -> list[str]:
    """Returns the columns that the first record has as features, too."""
    keys = {more_columns.key_of(name): name for name in plan.columns}
    entries = locate(next(read_items(plan, plan.parts[0])).data).entries
    return [name for key, name in keys.items() if key in entries]
