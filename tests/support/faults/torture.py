"""How long the torture tests run.

`make test` runs a few rounds of each, `make torture` sets TORTURE=1 and runs hundreds.
"""

import os
from collections.abc import Callable

# pytest's fixture: a test tells a campaign the number of its injected faults.
RecordProperty = Callable[[str, object], None]

IS_LONG = os.environ.get("TORTURE", "0") not in ("", "0")


def rounds(few: int, many: int) -> int:
    """Returns the number of rounds: `few` in `make test`, `many` in `make torture`."""
    return many if IS_LONG else few
