"""Warnings about images that are not upright, or that lost something by being turned.

In: the summary of a conversion. Out: lines for stderr, with counts and remedies.
"""

from collections.abc import Mapping
from typing import Any

from converters.images import lossless
from tfpipe.errors import count_of
from tfpipe.native import libraries

_NOT_UPRIGHT = frozenset({"kept_exif", "rewritten_exif"})


def warnings(summary: Mapping[str, Any]) -> list[str]:
    """Returns a line for each decision that the user may want to change.

    Args:
        summary: From `summary.summarize`.
    """
    decisions: Mapping[str, int] = summary.get("decisions", {})
    policy = summary["config"]["policy"]
    lines = []
    num_kept = sum(n for name, n in decisions.items() if _not_upright(name))
    if num_kept:
        lines.append(
            f"Warning: {count_of(num_kept, 'image')} stored turned or mirrored. "
            "Training ignores the EXIF orientation, which says so. To store them "
            "upright: --exif_orientation=apply "
            "(ImageNet's published results keep them)."
        )
    num_encoded = sum(n for name, n in decisions.items() if _only_turned(name))
    if num_encoded and not policy["lossless_rotation"] and not lossless.is_built():
        lines.append(
            f"Note: {count_of(num_encoded, 'JPEG')} turned upright by encoding again. "
            "To turn them without loss where their size allows, build the library for "
            f"it, then convert again with --overwrite. {libraries.remedy()}"
        )
    return lines


def _not_upright(decision: str) -> bool:
    return not _NOT_UPRIGHT.isdisjoint(decision.split("+"))


def _only_turned(decision: str) -> bool:
    """Whether an image was encoded again only to turn it."""
    parts = decision.split("+")
    other = any(part.startswith("converted_") or part == "shrunk" for part in parts)
    return "rotated_exif" in parts and not other
