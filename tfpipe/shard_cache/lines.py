"""The lines on stderr that a shard cache says, some of them once.

In: texts. Out: lines of a process. Imports no TensorFlow.
"""

import sys
import threading


def say(text: str) -> None:
    """Prints a line on stderr; lines of several threads do not mix."""
    # By default `print` writes the end of the line by itself.
    print(f"shard cache: {text}\n", end="", file=sys.stderr, flush=True)


class Lines:
    """Lines that are said once; several threads use the object."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._saying = threading.Lock()

    def say_once(self, text: str, kind: str = "") -> None:
        """Prints the first line of a kind.

        Args:
            text: The line.
            kind: Its kind; "" is the text itself.
        """
        with self._saying:
            if (kind or text) not in self._said:
                self._said.add(kind or text)
                say(text)
