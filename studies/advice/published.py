r"""Does the advisor find what published tests found, from their hardware alone?

  python -m studies.advice.published --advice_result=result.json

Question: are the predictions of `benchmarks.advise` those that were measured, elsewhere
and by others? Each published test is a scenario with the hardware that the publication
states (published_tests.py). The rate of an accelerator and the CPU time of an image
come from other publications and from stored results, and the table names them. A
figure marked "given" went into the scenario, so that only the binding resource of its
row is a test.

Each row has the predicted figure, the published one, and their ratio. The column
"simulated" has the images/s of the event simulation over those of the closed form.
Exit code 2 if a figure is more than 15 % off and no reason is given, or if another
resource binds than the publication says. The last line on stdout is one JSON object.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from benchmarks.advisor import ceilings, simulation
from benchmarks.advisor.scenario import Scenario
from benchmarks.options import command
from benchmarks.reporting import output
from studies.advice.published_tests import TESTS, Published, PublishedTest

_RESULT = flags.DEFINE_string(
    "advice_result", None, "File to write the JSON object to as well."
)

LIMIT = 0.15
_BUSY = 0.90  # MLPerf Storage: an accelerator counts if it is busy for so long
_MOST_ACCELERATORS = 100_000
_UNITS: Mapping[str, tuple[float, str]] = {
    "images_per_second": (1.0, "images/s"),
    "storage_bytes_per_second": (1e9, "GB/s"),
    "cpu_share": (0.01, "% CPU"),
    "busy_share": (0.01, "% busy"),
    "num_accelerators": (1.0, "accelerators"),
}


def num_busy_accelerators(scenario: Scenario) -> int:
    """Returns how many accelerators a shared storage keeps busy for 90 % of the time.

    Args:
        scenario: One host; others like it are added.
    """

    def is_busy(num_hosts: int) -> bool:
        wider = dataclasses.replace(scenario, num_hosts=num_hosts)
        return ceilings.predict(wider).busy_share >= _BUSY

    most = _MOST_ACCELERATORS // scenario.host.num_accelerators
    low, high = 0, most + 1  # busy with `low` hosts, not busy with `high`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_busy(middle) else (low, middle)
    return low * scenario.host.num_accelerators


def _cpu_share(scenario: Scenario) -> float:
    cores = ceilings.predict(scenario).demand.cores
    return cores / (scenario.num_hosts * scenario.host.num_cores)


_PREDICT: Mapping[str, Callable[[Scenario], float]] = {
    "images_per_second": lambda s: ceilings.predict(s).images_per_second,
    "storage_bytes_per_second": lambda s: (
        ceilings.predict(s).demand.storage_bytes_per_second
    ),
    "cpu_share": _cpu_share,
    "busy_share": lambda s: ceilings.predict(s).busy_share,
    "num_accelerators": num_busy_accelerators,
}


def compare(test: PublishedTest) -> dict[str, Any]:
    """Returns the predicted figures of a test beside the published ones, for JSON.

    Args:
        test: The published test.
    """
    prediction = ceilings.predict(test.scenario)
    simulated = simulation.simulate(test.scenario, max_steps=200).steady
    return {
        "test": test.name,
        "source": test.source,
        "inputs": test.inputs,
        "binding": prediction.binding,
        "binding_published": test.binding,
        "next_binding": prediction.next_binding,
        "next_binding_published": test.next_binding,
        "images_per_second": prediction.images_per_second,
        "simulated_over_predicted": simulated.images_per_second
        / prediction.images_per_second,
        "simulated_binding": simulated.bound_by,
        "figures": [_figure(test, one) for one in test.figures],
    }


def _figure(test: PublishedTest, one: Published) -> dict[str, Any]:
    predicted = float(_PREDICT[one.quantity](test.scenario))
    ratio = predicted / one.value
    is_within = abs(ratio - 1) <= LIMIT
    return {
        "quantity": one.quantity,
        "predicted": predicted,
        "published": one.value,
        "ratio": ratio,
        "is_within": is_within,
        "is_given": one.is_given,
        "reason": "" if is_within else one.reason,
    }


def problems(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a sentence for each finding that is not reproduced, without a reason."""
    found = []
    for row in rows:
        for key in ("binding", "next_binding"):
            published = row[f"{key}_published"]
            if published and row[key] != published:
                found.append(
                    f"{row['test']}: {key} is {row[key]}, published {published}."
                )
        found += [
            f"{row['test']}: {one['quantity']} is {one['ratio']:.2f} times the "
            "published figure, and no reason is given."
            for one in row["figures"]
            if not one["is_within"] and not one["reason"]
        ]
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the comparison as text: a line for each figure, and the reasons."""
    lines = [
        f"{'test':52}{'predicted':>11}{'published':>11} {'':13}{'ratio':>6}"
        f"{'simulated':>11}  bound by"
    ]
    notes = []
    for row in rows:
        name = row["test"]
        for one in row["figures"]:
            scale, unit = _UNITS[one["quantity"]]
            mark = " given" if one["is_given"] else ""
            if one["reason"]:
                notes.append(f"{row['test']}, {unit}: {one['reason']}.")
                mark = f" [{len(notes)}]"
            values = "".join(
                f"{one[k] / scale:>11,.4g}"
                if one[k] / scale < 1000
                else f"{one[k] / scale:>11,.0f}"
                for k in ("predicted", "published")
            )
            lines.append(
                f"{name:52}{values} {unit:13}{one['ratio']:6.2f}"
                f"{row['simulated_over_predicted']:11.3f}  "
                f"{row['binding']}, next {row['next_binding']}{mark}"
            )
            name = ""
    return "\n".join([*lines, *(f"[{n}] {text}" for n, text in enumerate(notes, 1))])


def main(argv: list[str]) -> int:
    """Prints the comparison of all published tests."""
    command.refuse_arguments(argv)
    rows = [compare(test) for test in TESTS]
    wrong = problems(rows)
    from benchmarks.reporting import environment

    report = {
        "command": "studies.advice.published",
        "schema_version": 1,
        "config": {"limit": LIMIT},
        "tests": rows,
        "problems": wrong,
        "environment": environment.describe(),
    }
    try:
        output.finish(report, table(rows), path=_RESULT.value)
    except OSError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    for text in wrong:
        print(f"Not reproduced: {text}", file=sys.stderr)
    return 2 if wrong else 0


if __name__ == "__main__":
    command.run(main, {})
