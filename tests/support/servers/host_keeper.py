"""The process that keeps the namespaces of a host, and ends the host.

In: stdin, a pipe whose other end is in the process that made the host. Out: "ready".
When the pipe closes, also by a kill of that process, every process of the host is
killed: those that share the network of the keeper.
"""

import os
import pathlib
import signal
import sys
import time

_END_SECONDS = 20.0


def _others() -> list[int]:
    """Returns the other processes on the network of this process."""
    own, found = os.readlink("/proc/self/ns/net"), []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            is_here = os.readlink(path / "ns/net") == own
        except OSError:  # it has ended
            continue
        if is_here and int(path.name) != os.getpid():
            found.append(int(path.name))
    return found


def main() -> None:
    """Waits for the end of stdin, and kills until nobody is left."""
    print("ready", flush=True)
    sys.stdin.buffer.read()
    end = time.monotonic() + _END_SECONDS
    while (others := _others()) and time.monotonic() < end:
        for process_id in others:
            try:
                os.kill(process_id, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


if __name__ == "__main__":
    main()
