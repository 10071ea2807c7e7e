"""WebDataset shards: tars with the members .jpg, .cls and .json of each record.

In: the records of a part. Out: a tar whose bytes depend on nothing else. The key of a
sample has no dot, .cls is the number of its class from 0, and .json has the rest.
"""

import io
import json
import math
import pathlib
import tarfile
from collections.abc import Iterable
from typing import Any

from converters.exports.plan import ExportedRecord, ExportPlan, Part
from tfpipe.shards import index
from tfpipe.shards.catalog import LABELS


def write_part(
    plan: ExportPlan, part: Part, items: Iterable[ExportedRecord], path: pathlib.Path
) -> None:
    """Writes the tar of a part.

    Raises:
        OSError: If it cannot be written.
    """
    known = plan.source.known
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for item in items:
            number = item.row.label - known.label_base
            facts = _facts(item, part.split, known)
            _add(tar, f"{item.path}.{item.suffix}", item.encoded)
            _add(tar, f"{item.path}.cls", str(number).encode())
            text = json.dumps(facts, sort_keys=True, ensure_ascii=False)
            _add(tar, f"{item.path}.json", text.encode(errors="replace"))


def _facts(item: ExportedRecord, split: str, known: index.Index) -> dict[str, Any]:
    """Returns what the record says beside its image, as JSON values."""
    row, more = item.row, dict(item.more)
    texts = dict(enumerate((text for _, text in known.classes), known.label_base))
    facts: dict[str, Any] = {
        "class": row.synset,
        "filename": row.filename,
        "height": row.height,
        "label": row.label,
        "split": split,
        "text": texts.get(row.label, ""),
        "width": row.width,
    }
    if (labels := more.pop(LABELS, None)) is not None:
        facts["labels"] = labels
    if more:
        facts["columns"] = _plain(more)
    if item.boxes:
        facts |= {"boxes": item.boxes, "box_labels": item.box_labels}
    return facts


def _plain(value: Any) -> Any:
    """Returns a value of DuckDB as JSON has it; other values as text."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value if value is None or isinstance(value, int | str) else str(value)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)  # time, owner and mode are the same everywhere
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
