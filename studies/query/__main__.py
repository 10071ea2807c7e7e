"""How long does converters.query take on a catalog of ImageNet's size?

  python -m studies.query --query_turns=5 --query_result=result.json

Question: does a query over 1.33 million records answer in 1 s? The study makes a
catalog of --num_rows records with the classes, sizes and names of ILSVRC-2012, and with
no picture. It runs `python -m converters.query DIR CLAUSE` for each clause, in turns,
each time in a fresh process, with the catalog in the page cache. Each answer must be
the number of records that a query of the file itself counts.

`query` is the time from the first look at the catalog to all counts, as the command
gives it. `total` is the time of the whole process, with Python's start and the imports.
`start` is that of a command that does nothing but import DuckDB. Figures are medians
over the turns, in seconds, with the least and the most.

The goal is 1 s for `query` of the clause `classes`. The last line on stdout is one JSON
object. Exit code: 0 done, 1 an error, 2 if the median is above the goal.
"""

import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from absl import flags

from benchmarks.options import command
from benchmarks.reporting import output
from benchmarks.system import programs
from studies.query import catalog

GOAL_SECONDS = 1.0
GATED = "classes"
_TIME_LIMIT = 300.0

_NUM_ROWS = flags.DEFINE_integer(
    "num_rows", catalog.NUM_RECORDS, "Records of the catalog.", lower_bound=1000
)
_QUERY_TURNS = flags.DEFINE_integer(
    "query_turns", 5, "Runs of each clause; figures are medians.", lower_bound=1
)
_QUERY_RESULT = flags.DEFINE_string(
    "query_result", None, "File to write the JSON object to as well."
)

Figures = dict[str, dict[str, Any]]


def clauses(synsets: Sequence[str]) -> dict[str, str]:
    """Returns the clauses of the study by their names.

    Args:
        synsets: Names of the classes that `classes` chooses.
    """
    listed = ", ".join(f"'{name}'" for name in synsets)
    return {
        "all": "true",
        GATED: f"width >= 500 AND class IN ({listed})",
        "names": "filename LIKE '%77.JPEG'",
    }


def measure(folder: pathlib.Path, turns: int) -> Figures:
    """Runs the command for each clause, in turns, and returns the figures.

    Args:
        folder: Folder of the data set.
        turns: Runs of each clause.

    Raises:
        OSError: If a run fails, or counts other records than there are.
    """
    known = json.loads((folder / "index.json").read_text())
    asked = clauses([known["classes"][n]["synset"] for n in (0, 151, 999)])
    counts = _counts(folder, asked)
    seconds: dict[str, list[dict[str, float]]] = {name: [] for name in asked}
    for _ in range(turns):
        for name, clause in asked.items():
            run, num_chosen = _run(folder, clause)
            if num_chosen != counts[name]:
                raise OSError(
                    f"The clause {clause!r} must choose {counts[name]} records, got "
                    f"{num_chosen}."
                )
            seconds[name].append(run)
    return {
        name: {"clause": asked[name], "num_chosen": counts[name], **spreads(runs)}
        for name, runs in seconds.items()
    }


def _counts(folder: pathlib.Path, asked: dict[str, str]) -> dict[str, int]:
    """Counts the records of each clause in the file, which warms the page cache too."""
    import duckdb

    with duckdb.connect() as connection:
        path = str(folder / "catalog.parquet").replace("'", "''")
        rows = f"(SELECT *, synset AS class FROM read_parquet('{path}'))"
        found = {}
        for name, clause in asked.items():
            query = f"SELECT count(*) FROM {rows} WHERE {clause}"
            ((found[name],),) = connection.execute(query).fetchall()
    return found


def _run(folder: pathlib.Path, clause: str) -> tuple[dict[str, float], int]:
    """Runs the command once; returns its seconds, and the number of chosen records."""
    start = [sys.executable, "-c", "import duckdb"]
    began = time.perf_counter()
    programs.output_of(start, name="import duckdb", time_limit=_TIME_LIMIT)
    started = time.perf_counter()
    words = [sys.executable, "-m", "converters.query", str(folder), clause]
    out = programs.output_of(words, name=clause, time_limit=_TIME_LIMIT)
    total = time.perf_counter() - started
    done = json.loads(out.splitlines()[-1])
    run = {
        "query": done["query_seconds"],
        "query_cpu": done["query_cpu_seconds"],
        "total": total,
        "start": started - began,
    }
    return run, done["num_chosen"]


def spreads(runs: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Returns median, least and most of each figure of some runs."""
    return {
        key: {
            "median": round(statistics.median(run[key] for run in runs), 3),
            "min": round(min(run[key] for run in runs), 3),
            "max": round(max(run[key] for run in runs), 3),
        }
        for key in runs[0]
    }


def table(figures: Figures) -> str:
    """Returns a table with one line a clause."""
    keys = ("query", "query_cpu", "total", "start")
    lines = [f"{'clause':<10}{'chosen':>10}" + "".join(f"{key:>11}" for key in keys)]
    for name, row in figures.items():
        medians = "".join(f"{row[key]['median']:>9.3f} s" for key in keys)
        lines.append(f"{name:<10}{row['num_chosen']:>10,}{medians}")
    return "\n".join(lines)


def exit_code(figures: Figures) -> int:
    """Returns 2 if the gated query took longer than the goal, 0 if not."""
    return 0 if figures[GATED]["query"]["median"] <= GOAL_SECONDS else 2


def main(argv: Sequence[str]) -> int:
    """Prints the figures that the flags describe."""
    command.refuse_arguments(argv)
    number, turns = _NUM_ROWS.value, _QUERY_TURNS.value
    load = os.getloadavg()[0]
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            catalog.make(folder, number)
            figures = measure(folder, turns)
    except OSError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    from benchmarks.reporting import environment

    result = {
        "command": "studies.query",
        "schema_version": 1,
        "config": {"num_rows": number, "turns": turns},
        "goal_seconds": GOAL_SECONDS,
        "load_average_before": round(load, 2),
        "clauses": figures,
        "environment": environment.describe(),
    }
    output.finish(result, table(figures), path=_QUERY_RESULT.value)
    return exit_code(figures)


if __name__ == "__main__":
    command.run(main, {})
