"""Progress bars on stderr, by tqdm. A process without a terminal never imports tqdm.

In: the finished units of work. Out: a bar on a terminal, and nothing elsewhere.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import tqdm


class NoBar:
    """The progress bar without a terminal: shows and counts nothing."""

    n: float = 0
    total: float | None = 0

    def update(self, n: float | None = 1) -> None:
        """Shows nothing."""

    def clear(self) -> None:
        """Shows nothing."""

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        """Shows nothing."""


# NoBar or a bar of tqdm.
Bar: TypeAlias = "NoBar | tqdm.tqdm[Any]"


@contextlib.contextmanager
def bar(
    total: float | None, unit: str, *, done: float = 0, is_shown: bool = True
) -> Iterator[Bar]:
    """Shows a progress bar on stderr during the block, if stderr is a terminal.

    Args:
        total: Number of units; None if the number is not known yet.
        unit: Name of a unit. "B" is shown with prefixes such as M.
        done: Units of an earlier run.
        is_shown: Whether the process shows the bar.

    Yields:
        The bar, with `update`, `set_postfix_str`, `n` and `total`.
    """
    if not is_shown or not sys.stderr.isatty():
        yield NoBar()
        return
    import tqdm  # takes a tenth of the time of a small command

    # The bar is updated often enough without tqdm's thread, and a process with a
    # second thread cannot fork its workers.
    tqdm.tqdm.monitor_interval = 0
    with tqdm.tqdm(
        total=total,
        initial=done,
        unit=unit,
        unit_scale=unit == "B",
        file=sys.stderr,
        dynamic_ncols=True,
    ) as shown:
        yield shown


def say(line: str) -> None:
    """Prints a line on stderr, above a shown bar."""
    if "tqdm" in sys.modules:
        import tqdm

        tqdm.tqdm.write(line, file=sys.stderr)
    else:
        print(line, file=sys.stderr, flush=True)
