"""The largest number of ranks that meets the gates, found with few runs.

In: a function that runs N ranks and says whether the ranks met the gates. Out: the
largest N that met the gates, and the smallest N that did not. The search assumes that
more ranks never meet the gates where fewer do not: the search doubles the ranks until a
run misses a gate, and then halves the gap.

Noise: both numbers of ranks next to the answer are run twice. If two runs on a number
of ranks disagree, a third run decides.
"""

from collections.abc import Callable
from typing import NamedTuple

RULE = (
    "The search assumes that more ranks never meet the gates where fewer do not. Both "
    "numbers of ranks next to the answer are run twice; a third run decides if two "
    "disagree."
)


MAX_REPEATS = 3  # runs on a number of ranks


class Answer(NamedTuple):
    """The end of a search.

    Attributes:
        meets: Largest number of ranks that meets the gates; 0 if a single rank fails.
        fails: Smallest number of ranks that fails; None if the largest allowed number
            meets the gates.
    """

    meets: int
    fails: int | None


def search(meets: Callable[[int, int], bool], max_ranks: int) -> Answer:
    """Finds the largest number of ranks that meets the gates.

    Args:
        meets: (number of ranks, number of the run from 1) -> whether the gates are met.
    """
    votes: dict[int, list[bool]] = {}

    def ask(num_ranks: int) -> None:
        before = votes.setdefault(num_ranks, [])
        before.append(meets(num_ranks, len(before) + 1))

    # Ends because no number of ranks is run more than MAX_REPEATS times.
    while True:
        low = max((n for n in votes if _is_met(votes[n])), default=0)
        high = min((n for n in votes if n > low), default=None)
        if (following := _next(low, high, max_ranks)) is not None:
            ask(following)
            continue
        once = [n for n in (low, high) if n and len(votes[n]) == 1]
        if not once:
            return Answer(low, high)
        ask(once[0])
        if len(set(votes[once[0]])) > 1:
            ask(once[0])


def _is_met(votes: list[bool]) -> bool:
    """Returns the answer of most runs; without a majority, the gates are not met."""
    return 2 * sum(votes) > len(votes)


def _next(low: int, high: int | None, max_ranks: int) -> int | None:
    """Returns the number of ranks to run next; None if low and high are neighbors."""
    if high is None:
        return min(max(1, 2 * low), max_ranks) if low < max_ranks else None
    return (low + high) // 2 if high - low > 1 else None
