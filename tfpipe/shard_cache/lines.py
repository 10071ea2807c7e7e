"""The lines on stderr that a shard cache says, some of them once.

In: texts. Out: lines of a process. Imports no TensorFlow.
"""

import sys


class Lines:
    """Prints lines; several threads use the object."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, text: str) -> None:
        """Prints a line on stderr."""
        print(f"shard cache: {text}", file=sys.stderr, flush=True)

    def say_once(self, text: str, kind: str = "") -> None:
        """Prints the first line of a kind.

        Args:
            text: The line.
            kind: Its kind; "" is the text itself.
        """
        if (kind or text) not in self._said:
            self._said.add(kind or text)
            self.say(text)
