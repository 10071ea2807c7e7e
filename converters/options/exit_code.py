"""The end of a command: from its work to its exit code.

In: the work of a command. Out: the exit code; an expected failure is one line on
stderr that says what to do. A fault of the program itself is not caught.
"""

import os
import sys
from collections.abc import Callable

from converters.engines import processes
from converters.jobs import work_dir
from converters.options import shared
from tfpipe import errors
from tfpipe.remote import urls


def of(work: Callable[[], int]) -> int:
    """Does the work of a command, and returns its exit code; 1 for expected failures.

    An expected failure is one line on stderr.
    """
    try:
        with processes.terminate_as_interrupt():
            return work()
    except (
        ValueError,
        FileExistsError,
        errors.BadIndexError,
        errors.BadRecordError,
        errors.BadSubsetError,
    ) as error:
        message = str(error)  # the same command would fail again
    except (OSError, errors.RemoteError) as error:
        message = f"{error}{_how_to_go_on('Mend the cause, then run')}"
    except MemoryError:
        message = f"out of memory.{_how_to_go_on('Try fewer --num_workers, or run')}"
    except KeyboardInterrupt:
        message = f"interrupted.{_how_to_go_on('Run')}"
    print(f"Error: {message}", file=sys.stderr)
    return 1


def _how_to_go_on(what_to_do: str) -> str:
    """Returns a sentence on how to go on with the job; empty if it was not begun."""
    # Functions of os.path raise no error, even where the folder cannot be looked at.
    output_dir = os.path.expanduser(shared.output_dir().value)
    if urls.is_url(output_dir):
        output_dir = str(shared.work_folder(output_dir, shared.work_dir().value))
    if not os.path.exists(os.path.join(output_dir, work_dir.WORK_DIR_NAME)):
        return ""
    return f" Complete shards are kept. {what_to_do} the same command again to go on."
