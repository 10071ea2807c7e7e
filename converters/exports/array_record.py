"""ArrayRecord shards: the whole records, as TFDS and Grain read them at random.

In: the records of a part. Out: a file with the serialized examples as they are, and
the files with which TFDS loads the folder. Needs the package array_record.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterable

from converters.checks import adopt
from converters.exports.plan import ExportedRecord, ExportPlan
from converters.exports.source import require_package
from converters.jobs import side_files
from tfpipe.shards import index, records

# A group has a single record, which is read without its neighbors.
_OPTIONS = "group_size:1"


def require() -> None:
    """Checks for the package.

    Raises:
        ValueError: If the package is not installed.
    """
    module = "array_record.python.array_record_module"
    require_package("--format=arrayrecord", module, "arrayrecord")


def write_part(items: Iterable[ExportedRecord], path: pathlib.Path) -> None:
    """Writes the file of a part.

    Raises:
        OSError: If the file cannot be written.
    """
    from array_record.python import array_record_module

    writer = array_record_module.ArrayRecordWriter(str(path), _OPTIONS)
    try:
        for item in items:
            writer.write(item.data)
    except BaseException:
        with contextlib.suppress(RuntimeError):  # the error of the records is the cause
            writer.close()
        raise
    try:
        writer.close()  # the package writes in the background, and fails here
    except RuntimeError as error:
        raise OSError(f"{path} cannot be written: {error}.") from None


def side_files_of(plan: ExportPlan) -> dict[str, bytes]:
    """Returns the files for TFDS by name; none if TFDS cannot read the records."""
    listed = plan.source.known
    features = _features(plan)
    if features is None:
        return {}
    frame = records.HEADER_BYTES + records.FOOTER_BYTES
    splits: dict[str, tuple[index.Shard, ...]] = {}
    for part in plan.parts:
        shard = index.Shard(
            name=part.name,
            num_records=part.num_records,
            num_bytes=max(part.num_bytes, frame * part.num_records),
            digest="",
        )
        splits[part.split] = (*splits.get(part.split, ()), shard)
    exported = dataclasses.replace(listed, splits=splits)
    names = side_files.label_names(plan.source.classes)
    info = side_files.dataset_info(exported) | {"fileFormat": "array_record"}
    return {
        side_files.DATASET_INFO_NAME: side_files.as_json(info),
        side_files.FEATURES_NAME: features,
        side_files.LABEL_NAMES_NAME: side_files.as_lines(names),
    }


def _features(plan: ExportPlan) -> bytes | None:
    """Returns the features of records; None for other tools' records at a URL."""
    path = plan.source.folder / side_files.FEATURES_NAME
    if path.is_file():
        return path.read_bytes()
    if plan.source.known.made_by.get("command") == adopt.COMMAND:
        return None
    names = side_files.label_names(plan.source.classes)
    return side_files.as_json(side_files.features(len(names)))
