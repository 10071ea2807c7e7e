"""WebDataset shards: tars with the members .jpg, .cls and .json of each record.

In: the records of a part. Out: a tar whose bytes depend on nothing else. The key of a
sample has no dot, .cls is the number of its class from 0, and .json has the rest.
"""

import io
import json
import pathlib
import tarfile
from collections.abc import Iterable
from typing import Any

from converters.exports.plan import ExportedRecord, ExportPlan, Part


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
            texts = [text for _, text in known.classes[number : number + 1]]
            facts = _facts(item, part.split, texts[0] if texts else "")
            _add(tar, f"{item.path}.{item.suffix}", item.encoded)
            _add(tar, f"{item.path}.cls", str(number).encode())
            text = json.dumps(facts, sort_keys=True, ensure_ascii=False)
            _add(tar, f"{item.path}.json", text.encode(errors="replace"))


def _facts(item: ExportedRecord, split: str, text: str) -> dict[str, Any]:
    """Returns what the record says beside its image, as JSON values."""
    row = item.row
    facts: dict[str, Any] = {
        "class": row.synset,
        "filename": row.filename,
        "height": row.height,
        "label": row.label,
        "split": split,
        "text": text,
        "width": row.width,
    }
    if item.boxes:
        facts |= {"boxes": item.boxes, "box_labels": item.box_labels}
    return facts


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)  # time, owner and mode are the same everywhere
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
