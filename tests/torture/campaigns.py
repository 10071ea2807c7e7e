"""The guarantees: the campaign of attacks on each, and figures of the last full run.

  python -m tests.torture.campaigns           all campaigns not yet run at this commit
  python -m tests.torture.campaigns kills     one campaign
  ... --share=0.1                             with a tenth of the rounds
  python -m tests.torture.campaigns --page    the table of the documents anew

A campaign is a set of tests in their long form, see tests/support/faults/torture.py. A
test tells the number of injected faults by `record_property("injections", COUNT)`;
without it, a test counts as one fault. A campaign that passed at the current commit is
not run again, so a stopped run goes on where it stopped. The figures are in
`campaigns.json` beside this file.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
FIGURES = pathlib.Path(__file__).with_name("campaigns.json")
MUTANTS = FIGURES.with_name("mutants.json")
PAGE = ROOT / "docs/evidence/guarantees.md"
_BEGIN, _END = "<!-- table of campaigns -->\n", "<!-- end of the table -->\n"


@dataclasses.dataclass(frozen=True)
class Campaign:
    """Attacks on one guarantee.

    Attributes:
        guarantee: The promise, as a sentence for users.
        injected: The faults, in words.
        tests: Files or node ids of pytest below tests/.
    """

    guarantee: str
    injected: str
    tests: tuple[str, ...]


_TORTURE, _SYSTEM, _UNIT = "torture", "system", "unit"
CAMPAIGNS: Mapping[str, Campaign] = {
    "kills": Campaign(
        "A killed conversion ends, by the same command, with the same bytes.",
        "SIGKILL at random moments and at changes of files, in all commands that write",
        (
            f"{_TORTURE}/converters/test_crash.py",
            f"{_TORTURE}/converters/test_kill_points.py",
            f"{_TORTURE}/converters/test_command_kills.py",
            f"{_TORTURE}/converters/test_synthesize_kills.py",
        ),
    ),
    "system_calls": Campaign(
        "A system call that fails gives an error that says so, or the right files.",
        "an errno, SIGKILL, SIGSTOP, SIGTERM or a delay at a chosen system call of "
        "each command, on a file or on a connection",
        (f"{_TORTURE}/test_system_calls.py",),
    ),
    "flips": Campaign(
        "verify finds a flipped bit in any byte of any file of a data set.",
        "flipped bits in shards, index, catalog and all side files",
        (f"{_TORTURE}/converters/test_flips.py",),
    ),
    "clocks": Campaign(
        "A wrong clock changes no file and ends no command.",
        "clocks that are years off, step, stand still or run fifty times as fast",
        (f"{_TORTURE}/test_wrong_clocks.py",),
    ),
    "damage": Campaign(
        "A damaged record is named by shard and offset, and costs that record alone.",
        "flipped bytes in shards that a pipeline reads, on random pipelines",
        (
            f"{_TORTURE}/tfpipe/test_flipped_bytes.py",
            f"{_TORTURE}/tfpipe/test_caches_and_faults.py",
        ),
    ),
    "io_errors": Campaign(
        "An I/O error raises and never skips a record.",
        "EIO, ENOENT, EACCES, EMFILE, ENOMEM, ESTALE and others in each way of "
        "reading; failing answers of stores",
        (
            f"{_TORTURE}/tfpipe/test_files_that_fail.py",
            f"{_SYSTEM}/tfpipe/location/test_failing_store.py",
            f"{_SYSTEM}/converters/test_errors_of_verify.py",
        ),
    ),
    "caches": Campaign(
        "A cache never delivers a wrong byte, and no record is lost while it fills.",
        "cut, flipped and removed files of caches, killed readers, errors of the store",
        (
            f"{_TORTURE}/tfpipe/test_caches_that_others_harm.py",
            f"{_TORTURE}/tfpipe/test_cache_faults.py",
        ),
    ),
    "streams": Campaign(
        "Each message of a stream is in the data set exactly once.",
        "SIGKILL of writers, broker and workers at random moments",
        (f"{_TORTURE}/converters/test_stream_kills.py",),
    ),
    "images": Campaign(
        "A hostile image is a counted reject or a sound record, never a crash.",
        "mutated JPEG, PNG, GIF, WebP, TIFF and BMP files",
        (f"{_TORTURE}/converters/test_mutated_images.py",),
    ),
    "power": Campaign(
        "After a loss of power the same command ends with the same files; what a "
        "command has said to be done is on the disk.",
        "lost and torn writes, and undone changes of folders, in commands that write; "
        "short reads",
        (f"{_TORTURE}/test_power_cuts.py",),
    ),
    "load": Campaign(
        "Memory, threads, open files and files of caches stay flat; time grows no "
        "faster than the records.",
        "10,000 epochs of 64 records, 10,000 shards and one, a million records",
        (f"{_TORTURE}/test_load.py",),
    ),
    "parsers": Campaign(
        "No file makes a parser crash, hang or take 1 GB, or read what the reference "
        "parser of its format does not read.",
        "changed TFRecords, examples, JPEG, PNG, EXIF, XML, tars, indexes, "
        "catalogs, subsets, states, results, caches, settings and flags",
        (f"{_TORTURE}/test_parsers.py",),
    ),
    "ranks": Campaign(
        "Each record is used once an epoch, all ranks make equal steps, and a lost "
        "rank is named instead of a hang.",
        "killed, stopped and cut off ranks and hosts; SIGTERM; other numbers of ranks",
        (
            f"{_TORTURE}/test_lost_ranks.py",
            f"{_TORTURE}/test_lost_hosts.py",
            f"{_TORTURE}/test_sigterm.py",
            f"{_TORTURE}/test_affinity_of_hosts.py",
        ),
    ),
    "hosts": Campaign(
        "Several hosts give what one host gives.",
        "tasks, Ray, services and stores over hosts; clocks minutes apart",
        (f"{_TORTURE}/test_several_hosts.py",),
    ),
    "stores": Campaign(
        "Each store gives what a local folder gives.",
        "conversion, check, reading, query and tuning on each store that is installed",
        (f"{_TORTURE}/tfpipe/test_stores.py",),
    ),
    "results": Campaign(
        "The shares of a run add up, and the injected loss is the named loss.",
        "delays, stops, clock steps and slow networks in simulated runs",
        (f"{_UNIT}/benchmarks/training/test_critical_path.py",),
    ),
}


def run(campaign: Campaign, share: float) -> dict[str, Any]:
    """Runs the tests of a campaign; returns its figures.

    Args:
        campaign: The campaign.
        share: Share of the rounds of the long form.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.xml")
        paths = [str(ROOT / "tests" / name) for name in campaign.tests]
        written = (f"--junitxml={report}", "-o", "junit_family=xunit1")
        written += ("-o", "faulthandler_timeout=0")  # tests take hours
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "0", *paths, *written],
            env={**os.environ, "TORTURE": str(share)},
            check=False,
        )
        counts = count(report.read_text())
    return counts | {
        "share": share,
        "minutes": round((time.monotonic() - start) / 60, 1),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _commit(),
    }


def count(report: str) -> dict[str, Any]:
    """Returns injections, tests, failures, skipped tests and curves of a report."""
    cases = list(xml.etree.ElementTree.fromstring(report).iter("testcase"))
    ran = [case for case in cases if case.find("skipped") is None]
    failed = [case for case in ran if case.find("failure") is not None]
    failed += [case for case in ran if case.find("error") is not None]
    curves = [curve for case in ran for curve in _told(case, "curve")]
    return {
        "injections": sum(map(_injections, ran)),
        "tests": len(ran),
        "failures": len(failed),
        "skipped": len(cases) - len(ran),
        **({"curves": curves} if curves else {}),
    }


def _told(case: xml.etree.ElementTree.Element, name: str) -> list[str]:
    return [
        each.get("value", "")
        for each in case.iter("property")
        if each.get("name") == name
    ]


def _injections(case: xml.etree.ElementTree.Element) -> int:
    return int(next(iter(_told(case, "injections")), 1))


def _commit() -> str:
    words = ["git", "-C", str(ROOT), "rev-parse", "--short=9", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout[:-1]


def read() -> dict[str, dict[str, Any]]:
    """Returns the figures of the campaigns that ran, by name."""
    figures: dict[str, dict[str, Any]] = json.loads(FIGURES.read_text())
    return figures


def table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the table of the documents.

    Args:
        figures: The figures by the name of a campaign, from `run`.
    """
    lines = [
        "| guarantee | injected | campaign | faults | failures | date, commit |\n",
        "|---|---|---|---|---|---|\n",
    ]
    for name, campaign in CAMPAIGNS.items():
        shown = "not run | | "
        if name in figures:
            row = figures[name]
            shown = f"{row['injections']:,} | {row['failures']} | "
            shown += f"{row['date']}, {row['commit']}"
            if not (share := row.get("share", 1)):
                shown += "; the few rounds of `make test`"
            elif share < 1:
                shown += f"; {100 * share:g}% of the rounds"
            if row["skipped"]:
                shown += f"; {row['skipped']} tests skipped"
        words = f"{campaign.guarantee} | {campaign.injected} | `{name}`"
        lines.append(f"| {words} | {shown} |\n")
    return "".join([*lines, _mutants_row(), *_curves(figures)])


def _mutants_row() -> str:
    """Returns the row of `make mutants`, which keeps its own figures."""
    rooms = json.loads(MUTANTS.read_text()).values()
    counts = [sum(room[key] for room in rooms) for key in ("mutants", "survived")]
    last = max(rooms, key=lambda room: room["date"])
    return (
        "| The unit tests notice a small fault in the rooms that guard data. | "
        "an operator, a number, a condition or a loop of the code changed | "
        f"`make mutants` | {counts[0]:,} | {counts[1]} | "
        f"{last['date']}, {last['commit']} |\n"
    )


def _curves(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yields a table of the curves of a load: its points, one after the other."""
    if not (curves := figures.get("load", {}).get("curves")):
        return
    yield "\n| load | points |\n|---|---|\n"
    for curve in curves:
        name, _, text = curve.partition(": ")
        points = json.loads(text)
        shown = map(_point, points if isinstance(points, list) else [points])
        yield f"| {name} | {'; '.join(shown)} |\n"


def _point(point: Mapping[str, float] | Sequence[float]) -> str:
    if not isinstance(point, Mapping):
        point = dict(zip(("records", "seconds", "mb"), point, strict=True))
    units = {"seconds": "s", "mb": "MB"}
    parts = (f"{v:,} {units.get(k, k.replace('_', ' '))}" for k, v in point.items())
    return ", ".join(parts)


def page(text: str, figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the text of the page with the table anew."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{table(figures)}{_END}{after}"


def main(words: Sequence[str] | None = None) -> int:
    """Runs campaigns; returns 1 if a test failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(CAMPAIGNS)}")
    parser.add_argument("--share", type=float, default=1.0, help="of all rounds")
    parser.add_argument("--page", action="store_true", help="write the table only")
    options = parser.parse_args(words)
    if unknown := set(options.names) - set(CAMPAIGNS):
        parser.error(f"campaigns are {', '.join(CAMPAIGNS)}; got {', '.join(unknown)}")
    figures = read()
    for name in () if options.page else options.names or CAMPAIGNS:
        row = figures.get(name, {})
        is_full = row.get("share", 1) >= options.share
        if row.get("commit") == _commit() and is_full and not row["failures"]:
            print(f"{name}: passed at this commit")
            continue
        row = run(CAMPAIGNS[name], options.share)
        figures = read() | {name: row}  # another campaign may have ended meanwhile
        FIGURES.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(PAGE.read_text(), figures))
    return int(any(row["failures"] for row in figures.values()))


if __name__ == "__main__":
    sys.exit(main())
