"""Side files for other readers. None matches a glob that readers use for shards."""

from collections.abc import Sequence

from converters.classes import Class

LABELS_NAME = "labels.txt"


def labels_text(classes: Sequence[Class]) -> str:
    """Label map as slim's dataset_utils reads it: `<label>:<name>`, one a line."""
    background = [Class(0, "", "background")] if classes[0].label == 1 else []
    return "".join(f"{c.label}:{c.text}\n" for c in [*background, *classes])
