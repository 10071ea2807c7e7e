"""The further columns of an export of ours, for its images in another data set.

In: images of a reader, and the file of columns beside them, if there is one. Out: the
same images with the rows of the file and with all their labels.
"""

from converters.inputs.image import catalog_name
from converters.inputs.listed import ImageRows, Listed
from converters.inputs.reader import Workspace
from tfpipe import errors
from tfpipe.shards import catalog, index
from tfpipe.shards.sql import PARQUET_ROWS, about_parquet, one_file, quoted

# The file, and its metadata: a list of the columns that are in records. No reader
# takes a file of this ending for a table.
COLUMNS_NAME, IN_RECORDS = "columns.pqt", "in_records"


def with_columns(listed: Listed, workspace: Workspace) -> Listed:
    """Returns the same images, by the names of classes, with columns of their export.

    The workspace keeps a copy of the columns until the catalog is written.
    """
    export = listed.classes.export
    has_own = listed.several or any(each.columns for each in listed.rows)
    if export is None or has_own or not export.is_file(COLUMNS_NAME):
        return listed
    path = workspace.stack.enter_context(export.near(COLUMNS_NAME))
    columns = {name: name for name in catalog.further_columns(path)}
    labels = catalog.LABELS if columns.pop(catalog.LABELS, None) else "NULL"
    with index.catalog_connection() as connection:
        query = f"SELECT filename, file_row_number, {labels} FROM {PARQUET_ROWS}"
        found = connection.execute(query, [one_file(path)]).fetchall()
        rows = {name: row for name, *row in found}
        metadata = connection.execute(
            f"SELECT decode(value) FROM {about_parquet('kv_metadata', path)} "
            f"WHERE decode(key) = {quoted(IN_RECORDS)}"
        ).fetchone()
    row_of, several = {}, {}
    for image in listed.images():
        if (row := rows.get(catalog_name(image.name))) is None:
            raise ValueError(
                f"{export.shown(COLUMNS_NAME)} must have a row for each image of the "
                f"export, got none for {image.name}. Leave out flags that change "
                "names, such as --name_column and --file_in_names, or remove the file "
                "to go without its columns."
            )
        row_of[image.name], classes = row
        if classes:
            several[image.name] = classes
    kept = errors.from_json(metadata[0]) if metadata else ()
    in_records = not columns.keys().isdisjoint(kept)
    carried = ImageRows(path, row_of, columns, in_records)
    return listed._replace(rows=[carried], several=several)
