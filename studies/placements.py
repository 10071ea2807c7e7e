"""Does it matter how ranks are placed on hosts? Link, accelerator and cores in turn.

  python -m studies.placements --data_dir=DIR --save_result=FILE

Question: are 1 x 4, 2 x 2 and 4 x 1 ranks equally fast, and does a run
name the binding resource? Four hosts and a store are network namespaces of this machine
(root, Linux). A host reads the data set from the S3 server of the store, over an own
link. The ranks wait as accelerators would.

| case | step of 32 images | link of a host | should bind |
|---|---|---|---|
| link | 100 ms | 0.3 Gbit/s | the network, unless ranks use several links |
| cores | 20 ms | 4 Gbit/s | the cores |
| accelerator | 720 ms | 2 Gbit/s | the accelerator; half of the cores stay free |

The hosts share the cores of the machine, so more hosts add links and no cores. The
pages of all cases are left in --work_dir. The last line on stdout is a JSON object.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from benchmarks.reporting.charts import sweeps
from benchmarks.results import collection
from benchmarks.results.other_results import SweptPoint
from studies import harness
from tests.support.servers.cluster import Cluster, cluster, why_not
from tfpipe import cli

PLACEMENTS = ("1x4", "2x2", "4x1")
_NUM_HOSTS = 4  # beside the store
_URL = "s3://photos/records"
# The resource that binds in a case with at least one of the placements.
_BINDINGS = {"link": "network", "cores": "cores", "accelerator": "accelerator"}
_FIGURES = (
    *("examples_per_second", "ideal_examples_per_second", "binding"),
    *("accelerator_utilization", "critical_path", "host_cpu_fraction"),
    *("network_utilization", "received_mb_per_second_per_host"),
)


@dataclasses.dataclass(frozen=True)
class Case:
    """The hosts of a case and their accelerators.

    Attributes:
        step_ms: Milliseconds of a step of 32 images on an emulated accelerator.
        link_gbps: Gbit/s of the link of a host, each way.
    """

    step_ms: float
    link_gbps: float


CASES: Mapping[str, Case] = {
    "link": Case(step_ms=100, link_gbps=0.3),
    "cores": Case(step_ms=20, link_gbps=4),
    "accelerator": Case(step_ms=720, link_gbps=2),
}


@cli.options
class PlacementOptions(harness.StudyOptions):
    """Options of the study."""

    data_dir: str = cli.required("Folder of a converted data set.")
    work_dir: str | None = cli.flag(
        None,
        "New folder for the results and pages. Default: none are kept.",
        shown="DIR",
    )
    num_copies: int = cli.flag(4, "Copies of the data set at the store.", least=1)
    num_steps: int = cli.flag(80, "Timed steps of each run.", least=1)
    num_rounds: int = 1


def run_case(
    case: Case, hosts: Cluster, folder: pathlib.Path, options: PlacementOptions
) -> dict[str, Any]:
    """Runs the sweep of a case and writes its page.

    Args:
        case: The case.
        hosts: Four hosts and the store.
        folder: A new folder for the results and `report.html`.
        options: The options.

    Returns:
        The verdict, and the figures of the placements by name.
    """
    for host in hosts.hosts[:_NUM_HOSTS]:
        hosts.limit(host, f"{1000 * case.link_gbps:.0f}mbit")
    names = ",".join(host.name for host in hosts.hosts[:_NUM_HOSTS])
    _python(
        hosts,
        *("benchmarks.sweep", f"--sweep_dir={folder}", f"--data_dirs={_URL}"),
        *(f"--placements={','.join(PLACEMENTS)}", f"--hosts={names}"),
        *("--batch_sizes=32", f"--repeats={options.num_rounds}"),
        "--horovodrun_arguments=--network-interfaces eth0",
        *("--", f"--step_time_ms={case.step_ms}", "--read_from=direct"),
        *(f"--link_gbps={case.link_gbps}", f"--num_steps={options.num_steps}"),
    )
    page = folder / "report.html"
    _python(hosts, "benchmarks.report", f"--results={folder}", f"--output={page}")
    (sweep,) = collection.read([folder]).sweeps
    points = sweep.values.series[0].points
    return {
        "verdict": sweeps.verdict(points),
        "placements": {point.name: _figures(point) for point in points},
    }


def _python(hosts: Cluster, module: str, *words: str) -> None:
    """Runs a command on the first host; stderr goes to the stderr of the study.

    Raises:
        OSError: If the command fails.
    """
    command = hosts.hosts[0].command(sys.executable, "-m", module, *words)
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise OSError(f"{module} ended with {done.returncode}.")


def _figures(point: SweptPoint) -> dict[str, Any]:
    fields = dataclasses.asdict(point)
    return {name: fields[name] for name in _FIGURES}


def misses(answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns the misses of the cases, in words.

    Args:
        answers: The answer of `run_case` by the name of the case.
    """
    missed = []
    for name, binding in _BINDINGS.items():
        figures = answers[name]["placements"]
        named = {figure["binding"] for figure in figures.values()}
        if binding not in named:
            missed.append(
                f"{name}: {binding} must bind, got {', '.join(sorted(named))}."
            )
    wanted = f"within {sweeps.TOLERANCE:.0%}"
    if wanted not in answers["accelerator"]["verdict"]:
        missed.append(f"accelerator: placements must be equal {wanted}.")
    return missed


def table(answers: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the figures of all placements as text."""
    lines = [f"{'case':12} {'hosts x ranks':14}{'images/s':>9}{'AU':>8}  binds"]
    for name, answer in answers.items():
        for placement, figure in answer["placements"].items():
            rate, busy = (
                figure["examples_per_second"],
                figure["accelerator_utilization"],
            )
            row = f"{name:12} {placement:14}{rate:9.0f}{busy:8.1%}"
            lines.append(f"{row}  {figure['binding']}")
    return "\n".join(lines)


def _study(options: PlacementOptions) -> harness.Outcome:
    if (reason := why_not()) is not None:
        raise OSError(reason)
    answers: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        temporary = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work = pathlib.Path(options.work_dir or temporary / "work")
        keys = temporary / "cluster"
        keys.mkdir()
        hosts = stack.enter_context(cluster(keys, num_hosts=_NUM_HOSTS + 1))
        store = hosts.s3(hosts.hosts[-1], keys / "s3")
        os.environ.update(stack.enter_context(store))
        copies = f"--copies={options.num_copies}"
        output = f"--output_dir={_URL}"
        _python(hosts, "converters.replicate", options.data_dir, output, copies)
        for name, case in CASES.items():
            answer = run_case(case, hosts, work / name, options)
            answers[name] = {"case": dataclasses.asdict(case)} | answer
            print(f"{name}: {answer['verdict']}", flush=True)
    config = {
        "data_dir": pathlib.Path(options.data_dir).resolve().name,
        "num_copies": options.num_copies,
        "num_steps": options.num_steps,
        "num_rounds": options.num_rounds,
    }
    return harness.Outcome(
        figures={"config": config, "cases": answers},
        table=table(answers),
        misses=misses(answers),
    )


def main(options: PlacementOptions) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.placements", options, _study(options))


COMMANDS = (cli.Command(PlacementOptions, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
