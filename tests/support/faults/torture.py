"""How long the torture tests run.

`make test` runs a few rounds of each. TORTURE=1 runs all rounds, as `make campaigns`
does, and TORTURE=0.1 a tenth of the rounds, as `make torture` does.
"""

import os
from collections.abc import Callable

# pytest's fixture: a test tells a campaign the number of its injected faults.
RecordProperty = Callable[[str, object], None]

SHARE = float(os.environ.get("TORTURE") or 0)
IS_LONG = SHARE > 0


def rounds(few: int, many: int) -> int:
    """Returns the number of rounds, `few` for a share of 0 and `many` for 1.

    Of steps, which are smaller in more rounds, the reciprocal grows with the share.

    Example, with TORTURE=0.5:
        >>> rounds(10, 110), rounds(few=9, many=1)
        (60, 2)
    """
    if many < few:
        return round(1 / (1 / few + SHARE * (1 / many - 1 / few)))
    return round(few + SHARE * (many - few))
