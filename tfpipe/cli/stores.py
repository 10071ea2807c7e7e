"""The flags of all commands with locations by URL.

In: the values of the flags. Out: variables of the environment. `tfpipe.location` reads
the variables in the process of the command and in child processes.
"""

from tfpipe.cli import fields
from tfpipe.cli.flags import options
from tfpipe.cli.help import STORES

_store = fields.group(STORES)


@options
class StoreOptions:
    """How a command asks a store; a base class of options."""

    store_connections: int | None = _store(
        None,
        "Requests to a store that a process has under way at once. Default: "
        "$TFPIPE_STORE_CONNECTIONS, or 16.",
        variable="TFPIPE_STORE_CONNECTIONS",
        least=1,
        most=1024,
    )
    store_time_limit: float | None = _store(
        None,
        "Seconds that a request to a store may take with all its retries. Default: "
        "$TFPIPE_STORE_TIME_LIMIT, or 60, and 120 for a piece of a shard cache.",
        variable="TFPIPE_STORE_TIME_LIMIT",
        above=0,
        most=86_400,
    )
