"""The rank behind a slow network: its bytes wait where those of the others do not.

In: the seconds of each rank in which its bytes were sent and not yet acknowledged. Out:
the rank with the most, if these seconds explain the communication of the job. All ranks
have an average at the same time, so the times of their steps cannot name the rank.
"""

import statistics
from collections.abc import Sequence

from benchmarks.results.train_result import SlowLink

_NAMED = 0.05  # share of the time of the job, from which on a wait is named
_FACTOR = 2.0  # smallest ratio to the median of the other ranks


def find(
    sending_seconds: Sequence[float | None], communicated: float, total: float
) -> SlowLink | None:
    """Returns the rank behind a slow network; None without such a rank.

    Args:
        sending_seconds: For each rank, seconds in which its bytes were on their way;
            None if unknown.

    Example:
        >>> find([0.2, 8.0, 0.3], communicated=8.5, total=20.0).rank
        1
    """
    ranks = [seconds for seconds in sending_seconds if seconds is not None]
    if len(ranks) < max(2, len(sending_seconds)):
        return None
    most = max(ranks)
    rank = ranks.index(most)
    others = statistics.median(ranks[:rank] + ranks[rank + 1 :])
    if min(communicated, most) < _NAMED * total or most < _FACTOR * others:
        return None
    return SlowLink(
        rank=rank,
        seconds=most,
        text=(
            f"Rank {rank} is behind a slow network: its bytes waited {most:.3g} s for "
            f"their receiver, those of the other ranks {others:.3g} s. The link of its "
            "host, or that of the receiver, is slow."
        ),
    )
