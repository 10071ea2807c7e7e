"""Paying: how many cores of other hosts a service would need.

In: the rate that a training step could take, and the rate of the pipeline on some
cores. Out: a number of cores. Nothing is measured.
"""

import math

from tfpipe import errors

# Rate a core with a service over that without it: what is sent between two processes is
# copied, and costs CPU time on both sides. `benchmarks.studies.service` measures it.
EFFICIENCY = 0.85


def cores_elsewhere(demand: float, rate: float, num_cores: int) -> int:
    """Returns the cores that the workers of a service need to meet a demand.

    Args:
        demand: Batches or images per second that the training step could take, > 0.
        rate: The same that the pipeline gives on this host, without a step, > 0.
        num_cores: Cores of this host that gave this rate.

    Returns:
        The number of cores on other hosts, of the speed of those here; 0 if the cores
        of this host meet the demand, where a service does not pay.

    Raises:
        ValueError: If a number is not positive.
    """
    errors.require_number("", "demand", demand, above=0)
    errors.require_number("", "rate", rate, above=0)
    errors.require_int("", "num_cores", num_cores, least=1)
    if rate >= demand:
        return 0
    return math.ceil(demand / (rate / num_cores * EFFICIENCY))
