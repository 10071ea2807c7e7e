"""Records of one part, read and checked: the image as it is stored, and its boxes.

In: a plan and a part of it. Out: an `ExportedRecord` each, in order. The CRC of the
record and the digest of the image are compared first, so that no damage is exported.
"""

from collections.abc import Iterator
from typing import NamedTuple

import xxhash

from converters.checks import record as keys
from converters.checks.record import CatalogRow
from converters.engines import processes
from converters.exports.plan import ExportPlan, Part
from converters.exports.source import Source
from converters.images import formats, jpeg_header
from converters.inputs.boxes import Box
from tfpipe import errors
from tfpipe.shards import index, records
from tfpipe.shards.example import Located, locate

_SIDES = tuple(f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax"))
_BOX_LABELS = ("image/object/bbox/label", "image/object/class/label")
_KEYS = (*keys.ENCODED_KEYS, *_SIDES, *_BOX_LABELS)


class ExportedRecord(NamedTuple):
    """A record to export.

    Attributes:
        row: Its row of the catalog.
        path: Path of its image in the export.
        data: The serialized example.
        encoded: The image, as stored.
        boxes: (xmin, ymin, xmax, ymax) of each box, relative, 0 to 1.
        box_labels: Label of each box, as stored.
    """

    row: CatalogRow
    path: str
    data: bytes
    encoded: bytes
    boxes: list[Box]
    box_labels: list[int]

    @property
    def suffix(self) -> str:
        """Suffix of the image by its content, without a dot: jpg, png and so on."""
        if self.encoded.startswith(jpeg_header.MAGIC):
            return "jpg"
        return (formats.sniff(self.encoded) or "bin").lower()


def read_items(plan: ExportPlan, part: Part) -> Iterator[ExportedRecord]:
    """Yields the items of a part, and counts each one as done.

    Raises:
        BadRecordError: If a record is damaged, or is not the one of the catalog.
        OSError: If the shard cannot be read.
        RemoteError: If the shard cannot be read from its URL.
    """
    source = plan.source
    shard = source.known.splits[part.split][part.source_number]
    with source.reading(shard) as pread:
        for row, path in plan.rows(part):
            data = pread(row.num_bytes, row.byte_offset)
            try:
                yield _item(row, path, data)
            except errors.BadRecordError as error:
                raise _damaged(source, shard, row, error) from None
            processes.image_done()


def _item(row: CatalogRow, path: str, framed: bytes) -> ExportedRecord:
    """Returns the item of a record, from its bytes with header and footer."""
    if records.record_bytes(framed[: records.HEADER_BYTES]) != row.num_bytes:
        raise errors.BadRecordError("its header is damaged, or another record is there")
    if len(framed) != row.num_bytes:
        raise errors.BadRecordError("the shard ends within the record")
    data = framed[records.HEADER_BYTES : -records.FOOTER_BYTES]
    if fault := records.data_fault(data, framed[-records.FOOTER_BYTES :]):
        raise errors.BadRecordError(fault)
    found = locate(data, _KEYS)
    key = next((key for key in keys.ENCODED_KEYS if key in found.entries), None)
    values = found.feature(key).values if key else []
    if len(values) != 1 or not isinstance(values[0], bytes):
        listed = " or ".join(keys.ENCODED_KEYS)
        raise errors.BadRecordError(f"it has no single image under {listed}")
    encoded = values[0]
    if row.digest and xxhash.xxh3_128_hexdigest(encoded) != row.digest:
        raise errors.BadRecordError(
            f"its image must have the digest {row.digest} of {index.CATALOG_NAME}, got "
            "another one"
        )
    boxes, labels = _boxes(found)
    return ExportedRecord(row, path, data, encoded, boxes, labels)


def _boxes(found: Located) -> tuple[list[Box], list[int]]:
    """Returns the boxes of a record and their labels; none if it has none."""
    if any(side not in found.entries for side in _SIDES):
        return [], []
    sides = [found.feature(side).values for side in _SIDES]
    if len({len(side) for side in sides}) != 1:
        raise errors.BadRecordError("its boxes have not four sides each")
    boxes = list(zip(*sides, strict=True))
    key = next((key for key in _BOX_LABELS if key in found.entries), None)
    labels = list(found.feature(key).values) if key else []
    return boxes, labels if len(labels) == len(boxes) else []


def _damaged(
    source: Source, shard: index.Shard, row: CatalogRow, error: errors.BadRecordError
) -> errors.BadRecordError:
    return errors.BadRecordError(
        f"{source.name}/{shard.name}: record {row.record} at byte {row.byte_offset} "
        f"({row.filename}) is damaged: {str(error).rstrip('.')}. Mend the data set "
        "with python -m converters.verify --repair, and run the same command again to "
        "go on."
    )
