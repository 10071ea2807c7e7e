"""Percentiles of many latencies, counted in buckets.

In: nanoseconds of reads. Out: counts, which add up over threads and processes, and the
percentiles of a sum of counts. A bucket is 1 % wide, so a percentile is right within
0.5 %, and a million reads take no more room than a hundred.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}

_BUCKETS_PER_E = 100  # buckets for each factor of 2.718
_NUM_BUCKETS = 2800  # up to exp(28) ns = 24 minutes


def count(nanoseconds: Sequence[int] | npt.NDArray[np.int64]) -> Counts:
    """Counts latencies in buckets.

    Args:
        nanoseconds: int64 [num_reads], cut to 1 ns at least and 24 minutes at most.

    Returns:
        int64 [2800], the number of latencies by bucket.
    """
    logs = np.log(np.maximum(np.asarray(nanoseconds, np.int64), 1))
    buckets = np.rint(logs * _BUCKETS_PER_E).astype(np.int64)
    return np.bincount(np.minimum(buckets, _NUM_BUCKETS - 1), minlength=_NUM_BUCKETS)


def percentiles(counts: Counts) -> dict[str, float | None]:
    """Returns the percentiles in seconds, by the names of `PERCENTILES`.

    A percentile without a read beyond is None: p99_9 needs 1000 reads.
    """
    total = int(counts.sum())
    up_to = np.cumsum(counts)
    seconds: dict[str, float | None] = {}
    for name, share in PERCENTILES.items():
        if total * (1 - share) < 1 - 1e-9:
            seconds[name] = None
            continue
        bucket = int(np.searchsorted(up_to, np.ceil(share * total - 1e-9)))
        seconds[name] = float(np.exp(bucket / _BUCKETS_PER_E)) / 1e9
    return seconds
