"""Limits of the requests to stores: their number at once, and their time.

In: variables of the environment. The flags --store_connections and --store_time_limit
of a command set the variables, and child processes inherit the variables. Out: the
default limits of all files and caches.
"""

import contextlib
import os

from tfpipe import errors

CONNECTIONS, TIME_LIMIT = "TFPIPE_STORE_CONNECTIONS", "TFPIPE_STORE_TIME_LIMIT"
MOST_CONNECTIONS, MOST_SECONDS = 1024, 86_400
_CONNECTIONS = 16
# Default time limits of a request and of a piece of a shard cache, with all retries.
REQUEST_SECONDS, PIECE_SECONDS = 60.0, 120.0


def remedy(seconds: float) -> str:
    """Returns the advice for a time limit too short for a store."""
    return f"give a --store_time_limit (in Python: time_limit) above {seconds:g} s"


def connections() -> int:
    """Returns the number of requests of a process at once.

    Raises:
        ValueError: If the variable is no number, or out of range.
    """
    text = os.environ.get(CONNECTIONS)
    count = int(text) if text and text.isdecimal() else text or _CONNECTIONS
    most = MOST_CONNECTIONS
    return int(errors.require_int("", CONNECTIONS, count, least=1, most=most))


def seconds(*, default: float = REQUEST_SECONDS) -> float:
    """Returns the time limit in the variable, or the default.

    Raises:
        ValueError: If the variable is no number, or out of range.
    """
    limit: float | str = os.environ.get(TIME_LIMIT) or default
    with contextlib.suppress(ValueError):  # the check names the text
        limit = float(limit)
    most = MOST_SECONDS
    return float(errors.require_number("", TIME_LIMIT, limit, above=0, most=most))
