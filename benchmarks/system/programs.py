"""Programs that a study runs and waits for.

In: a command line. Out: what it printed on stdout, or an error with its stderr.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence


def output_of(
    command: Sequence[str],
    *,
    name: str,
    time_limit: float | None = None,
    max_said: int = sys.maxsize,
) -> str:
    """Returns what a program printed on stdout.

    Args:
        command: Program and arguments.
        name: Name of the program, for errors.
        time_limit: Seconds until the program, with all that it started, is killed;
            None for no limit.
        max_said: Characters of the end of its stderr that an error holds.

    Raises:
        OSError: If the program fails or reaches the time limit; the message holds what
            it wrote on stderr.
    """
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that killpg reaches its children, and not us
    ) as process:
        try:
            out, said = process.communicate(timeout=time_limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise OSError(f"{name} took longer than {time_limit:.0f} s") from None
    if process.returncode:
        raise OSError(
            f"{name} ended with {process.returncode}: {said.strip()[-max_said:]}"
        )
    return out
