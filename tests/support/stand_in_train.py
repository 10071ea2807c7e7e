"""Prints of a stand-in for benchmarks.train, whose speed follows from its ranks."""

import json
from typing import Any

ERROR = "[1]<stderr>:Error: --model=bad must be good."


def result(num_ranks: int) -> dict[str, Any]:
    """The result of a run."""
    return {
        "command": "benchmarks.train",
        "num_ranks": num_ranks,
        "examples_per_second": 100.0 * num_ranks * (0.9 if num_ranks > 1 else 1),
        "timed_seconds": 2.0,
        "stall_fraction": 0.25,
        "environment": {"cpu": "none"},
    }


def printed(num_ranks: int) -> str:
    """The lines on stdout of a run that succeeds."""
    prefix = "[0]<stdout>:" if num_ranks > 1 else ""
    return f"Img/sec per rank: 1\n{prefix}{json.dumps(result(num_ranks))}\n"
