"""Makes the entry points of JPEGs: where in its codes a decoder may begin.

In: the bytes of a JPEG. Out: a small table, which `tfpipe.ops.crop.crop_image` takes
with the JPEG. The native op then starts near the crop box and does not read the codes
above it and beside it. `src/entry_points.h` describes the table. Imports no TensorFlow.
"""

from typing import NamedTuple

from tfpipe.native import libraries

_NEEDING = "Entry points need"


class EntryPointTable(NamedTuple):
    """The entry points of a JPEG.

    Attributes:
        table: The table; empty if the JPEG has none.
        reason: Why it has none: "damaged" (not sound up to its end), "precision" (not 8
            bits), "not_baseline" (progressive, arithmetic, or several scans),
            "restart_markers" (they serve the same purpose) or "too_large" (2^29 bytes).
            Empty if there is a table.
    """

    table: bytes
    reason: str


def find(encoded: bytes, *, distance: int = 0) -> EntryPointTable:
    """Returns the entry points of a JPEG.

    Args:
        encoded: The JPEG. Other bytes are "damaged".
        distance: Bytes of the JPEG between two entry points, about; 0 for the usual
            distance. A table takes about 6 bytes an entry point.

    Raises:
        ValueError: If `distance` is out of range, and as `libraries.made_of`.
        MemoryError: If there is not enough memory.
    """
    if not 0 <= distance < 1 << 29:
        raise ValueError(f"distance must be 0 to 2 ** 29 - 1 bytes, got {distance}.")
    function = "tfpipe_find_entry_points"
    table = libraries.made_of(encoded, function, distance, needing=_NEEDING)
    return EntryPointTable(*table)


def require() -> None:
    """Checks that entry points can be made on this machine.

    Raises:
        ValueError: If the library is not built or does not load; says what to do.
    """
    libraries.functions(_NEEDING)
