"""Prints of a stand-in for benchmarks.train, whose figures follow from its ranks."""

import dataclasses
import json
from typing import Any

import tfpipe
from benchmarks.results import gates, tree
from benchmarks.results.train_result import TrainResult

ERROR = "[1]<stderr>:Error: --model=bad must be good."


def result(num_ranks: int, require: str = "") -> dict[str, Any]:
    """The result of a run; its storage feeds each further rank 5 % less."""
    figures = {
        "command": "benchmarks.train",
        "num_ranks": num_ranks,
        "examples_per_second": 100.0 * num_ranks * (0.9 if num_ranks > 1 else 1),
        "timed_seconds": 2.0,
        "stall_fraction": 0.25,
        "accelerator_utilization": 1 - 0.05 * num_ranks,
        "cache": {"state": "as_is", "label": "warm"},
        "environment": {"cpu": tfpipe.host.cpu_model()},
    }
    required = [gates.Gate.parse(text) for text in require.split(",") if text]
    typed = tree.read(TrainResult, figures)
    return figures | {"gates": [dataclasses.asdict(g.check(typed)) for g in required]}


def printed(num_ranks: int, require: str = "") -> str:
    """The lines on stdout of a run that ends."""
    prefix = "[0]<stdout>:" if num_ranks > 1 else ""
    text = json.dumps(result(num_ranks, require))
    return f"Img/sec per rank: 1\n{prefix}{text}\n"


def exit_code(num_ranks: int, require: str = "") -> int:
    """The exit code of that run."""
    checked = result(num_ranks, require)["gates"]
    return 0 if all(gate["passed"] for gate in checked) else 2
