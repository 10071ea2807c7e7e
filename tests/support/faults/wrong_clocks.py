"""Wrong clocks for a command, by libfaketime.

In: the name of a clock. Out: variables of the environment, with which a command sees
the clock. A clock that stops or steps leaves the monotonic clock as it is, as NTP does.
"""

import contextlib
import pathlib
import threading
from collections.abc import Iterator, Mapping

_LIBRARY = "faketime/libfaketimeMT.so.1"
# The words of libfaketime.
CLOCKS: Mapping[str, str] = {
    "ten years ahead": "+3650d",
    "twenty years back": "-7300d",
    "fifty times as fast": "+0 x50",
    "stopped": "2030-01-01 00:00:00",
    "steps": "",
}
# With these, libfaketime 0.9.10 has an own fault: time.sleep of Python is an EINVAL.
WITHOUT_SLEEP = ("stopped", "steps")
# A clock that steps shows each of these in turn.
_STEPS = ("+0", "+2h", "-3h", "+400d")
_SECONDS_OF_A_STEP = 0.2


def library() -> pathlib.Path | None:
    """Returns the file of libfaketime, or None where it is not installed."""
    found = pathlib.Path("/usr/lib").glob(f"*/{_LIBRARY}")
    return next(found, None)


@contextlib.contextmanager
def clock(name: str, folder: pathlib.Path) -> Iterator[dict[str, str]]:
    """Yields the variables of a clock.

    Args:
        name: One of CLOCKS.
        folder: Folder for the file of a clock that steps.
    """
    variables = {"LD_PRELOAD": str(library())}
    if name in WITHOUT_SLEEP:
        variables["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
    if name != "steps":
        yield variables | {"FAKETIME": CLOCKS[name]}
        return
    path, ended = folder / "clock", threading.Event()

    def step() -> None:
        for number in range(1 << 30):
            path.write_text(_STEPS[number % len(_STEPS)])
            if ended.wait(_SECONDS_OF_A_STEP):
                return

    path.write_text(_STEPS[0])
    thread = threading.Thread(target=step)
    thread.start()
    try:
        own = {"FAKETIME_TIMESTAMP_FILE": str(path), "FAKETIME_NO_CACHE": "1"}
        yield variables | own
    finally:
        ended.set()
        thread.join()
