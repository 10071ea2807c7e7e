"""`make mutants`: small faults in the rooms that guard data, and the tests see each.

cosmic-ray makes the mutants: one operator, number, decorator or loop changed. The unit
tests that reach the changed line test a sample of the mutants, in a copy of the tree.
Each test run is a fork of this process, see forked_tests.py. The work folder keeps the
verdicts: a run that was killed goes on where it stopped.

A surviving mutant needs a test, or an entry with a reason in equivalent_mutants.json.
"""

import argparse
import ast
import collections
import datetime
import difflib
import filecmp
import functools
import hashlib
import itertools
import json
import linecache
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

# Not `tests.torture`: the tests belong to the copy of the tree.
import forked_tests
from cosmic_ray.commands.init import init
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import (
    MutationSpec,
    TestOutcome,
    WorkerOutcome,
    WorkItem,
    WorkResult,
)

ROOT = pathlib.Path(__file__).parents[2]
EQUIVALENT = ROOT / "tests/torture/equivalent_mutants.json"
# The modules of each room, and the unit tests that concern the room.
ROOMS = {
    "shards": ("tfpipe/shards", "tfpipe/shards converters/test_query.py"),
    "reading": (
        "tfpipe/reading",
        "tfpipe/reading tfpipe/test_pipeline.py tfpipe/stages/test_shuffle.py "
        "tfpipe/shards/test_generations.py tfpipe/test_errors.py",
    ),
    "location": (
        "tfpipe/location",
        "tfpipe/location converters/inputs/test_listing.py converters/test_folder.py",
    ),
    "shard_cache": ("tfpipe/shard_cache", "tfpipe/shard_cache tfpipe/test_errors.py"),
    "cache": ("tfpipe/cache", "tfpipe/cache"),
    "faults": (
        "tfpipe/stages/faults.py tfpipe/stages/stand_in.py",
        "tfpipe/stages/test_faults.py tfpipe/reading/test_caches_heal.py",
    ),
    "jobs": (
        "converters/jobs",
        "converters/jobs converters/test_folder.py converters/test_left_out.py "
        "converters/checks/test_source_of_inputs.py",
    ),
    "checks": (
        "converters/checks",
        "converters/checks converters/test_verify.py converters/test_hostile.py",
    ),
    "exports": (
        "converters/exports",
        "converters/exports converters/test_export.py converters/test_replicate.py",
    ),
}
# A mutant's text is its name: lines and functions move.
NAMED_BY = ("definition", "operator", "before", "after")
# Files of the work folder.
FOUND = ("*.sqlite", "*.json")
OUTCOMES = ("killed", "timed out", "equivalent", "survived")
# A survivor of these is called so. `--again` tests it with all tests that reach it.
TEST_SECONDS_A_MUTANT = 4


def main() -> None:
    """Tests the mutants; prints the survivors and the figures of each room."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_mutants", type=int, default=207, help="in all rooms")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--room", action="append", choices=ROOMS, help="only these")
    parser.add_argument(
        "--again", action="store_true", help="only the survivors of the stored result"
    )
    parser.add_argument("--work_dir", type=pathlib.Path, default=ROOT / "build/mutants")
    result = ROOT / "tests/torture/mutants.json"
    parser.add_argument("--save_result", type=pathlib.Path, default=result)
    options = parser.parse_args()
    options.work_dir = options.work_dir.resolve()
    options.save_result = options.save_result.resolve()

    # The result of a room changes the tree.
    options.commit = _git("describe", "--always", "--dirty").strip()
    forked_tests.prepare()
    _copy_tree(options)
    os.chdir(options.work_dir / "tree")
    sys.dont_write_bytecode = True  # of mutants
    results = {}
    for room in options.room or ROOMS:
        results[room] = _test_room(room, options)
        for survivor in results[room]["survivors"]:
            print("{file}:{line}\n  - {before}\n  + {after}".format(**survivor))
        text = json.dumps(_stored(options) | results, indent=1, sort_keys=True)
        options.save_result.write_text(text + "\n")
    columns = ("mutants", *OUTCOMES, "minutes")
    print(*(f"{title:>10}" for title in ("room", *columns)))
    for room, result in results.items():
        print(*(f"{cell:>10}" for cell in (room, *(result[c] for c in columns))))


def _stored(options: argparse.Namespace) -> dict[str, Any]:
    path = options.save_result
    return json.loads(path.read_text()) if path.exists() else {}


def _copy_tree(options: argparse.Namespace) -> None:
    """Copies the files of git, and forgets what was found in other files."""
    tree = options.work_dir / "tree"
    names = [name for name in sorted(_git("ls-files", "-z").split("\0")) if name]
    names = [name for name in names if (ROOT / name).is_file()]
    digest = hashlib.sha256()
    for name in names:
        if not name.startswith("tests/torture"):
            digest.update(name.encode() + (ROOT / name).read_bytes())
    stamp = options.work_dir / "digest"
    if not stamp.exists() or stamp.read_text() != digest.hexdigest():
        shutil.rmtree(tree, ignore_errors=True)
        for found in itertools.chain(*map(options.work_dir.glob, FOUND)):
            found.unlink()
    for name in names:
        copy = tree / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        # A run that was killed may have left a mutant. What is compiled stays.
        if not copy.exists() or not filecmp.cmp(ROOT / name, copy, shallow=False):
            shutil.copy2(ROOT / name, copy)
    stamp.write_text(digest.hexdigest())


def _git(*arguments: str) -> str:
    return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True)


def _test_room(room: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the figures of a room and its survivors."""
    session = _session(room, options)
    for item in session.pending_work_items:
        verdict = _verdict(item.mutations[0], _reach(room), options)
        print(room, *verdict.values(), sep=" | ", flush=True)
        survived = verdict["outcome"] == "survived"
        outcome = TestOutcome.SURVIVED if survived else TestOutcome.KILLED
        result = WorkResult(WorkerOutcome.NORMAL, json.dumps(verdict), outcome)
        session.set_result(item.job_id, result)
    verdicts = [
        json.loads(result.output) for _, result in session.results if result.output
    ]
    counts = collections.Counter(verdict["outcome"] for verdict in verdicts)
    survivors = [v for v in verdicts if v.pop("outcome") == "survived"]
    minutes = sum(verdict.pop("seconds") for verdict in verdicts) / 60
    if options.again:  # the verdicts on the others stay
        earlier = _stored(options)[room]
        counts.update({name: earlier[name] for name in OUTCOMES[:-1]})
        minutes = earlier["minutes"]
    return {
        "date": str(datetime.date.today()),
        "commit": options.commit,
        "seed": options.seed,
        "mutants": counts.total(),
        **{name: counts[name] for name in OUTCOMES},
        "minutes": round(minutes, 1),
        "survivors": sorted(survivors, key=lambda s: (s["file"], s["line"])),
    }


def _session(room: str, options: argparse.Namespace) -> WorkDB:
    """Opens cosmic-ray's list of the mutants of a room, with only a sample to test."""
    sample = "again" if options.again else f"{options.num_mutants}-{options.seed}"
    path = options.work_dir / f"{room}-{sample}.sqlite"
    if not path.exists():
        unfinished = path.with_suffix(".new")
        unfinished.unlink(missing_ok=True)
        session = WorkDB(unfinished, WorkDB.Mode.create)
        init(_files(ROOMS[room][0], below="", pattern="*.py"), session, {})
        items = session.work_items
        draw = _survivors if options.again else _sample
        sample = draw(room, items, options)
        skipped = {item.job_id for item in items} - {item.job_id for item in sample}
        session.set_multiple_results(skipped, WorkResult(WorkerOutcome.SKIPPED))
        session.close()
        unfinished.rename(path)
    return WorkDB(path, WorkDB.Mode.open)


def _files(names: str, *, below: str, pattern: str) -> list[pathlib.Path]:
    paths = [pathlib.Path(below, name) for name in names.split()]
    lists = [sorted(p.rglob(pattern)) if p.is_dir() else [p] for p in paths]
    return [path for paths in lists for path in paths if path.name != "__init__.py"]


def _sample(
    room: str, items: Sequence[WorkItem], options: argparse.Namespace
) -> list[WorkItem]:
    """Draws positions in the code, and one mutant at each.

    cosmic-ray replaces one `+` by eleven other operators, and one `True` once: a sample
    of all mutants would hardly have anything but the former. The text of a line decides
    what is drawn: the mutant stays in the sample when the line moves.
    """

    def drawn(mutation: MutationSpec, variant: str = "") -> str:
        row, column = mutation.start_pos
        line = linecache.getline(str(mutation.module_path), row)
        text = (
            f"{options.seed}|{line.strip()}|{line[column:]}|{_kind(mutation)}|{variant}"
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def drawn_variant(item: WorkItem) -> str:
        mutation = item.mutations[0]  # a number has two mutants of one name
        return drawn(mutation, f"{mutation.operator_name}{mutation.occurrence % 2}")

    positions = {}
    for item in sorted(items, key=drawn_variant):
        mutation = item.mutations[0]
        if not _has_no_effect(mutation):
            position = mutation.module_path, mutation.start_pos, _kind(mutation)
            positions[position] = item
    in_turn = sorted(positions.values(), key=lambda item: drawn(item.mutations[0]))
    valid = (item for item in in_turn if _is_valid(item.mutations[0]))
    return [*itertools.islice(valid, -(-options.num_mutants // len(ROOMS)))]


def _kind(mutation: MutationSpec) -> str:
    return mutation.operator_name.partition("_")[0]


def _is_valid(mutation: MutationSpec) -> bool:
    """Whether the mutant is Python: cosmic-ray reads `*args` as a product."""
    try:
        with _applied(mutation) as (_, mutant):
            ast.parse(mutant)
    except (AttributeError, SyntaxError):  # the former: for `except os.error`
        return False
    return True


def _has_no_effect(mutation: MutationSpec) -> bool:
    ranges = _without_effect(mutation.module_path)
    return any(first <= mutation.start_pos < last for first, last in ranges)


@functools.cache
def _without_effect(path: pathlib.Path) -> list[tuple[Any, Any]]:
    """Returns where options of classes, types and error texts start and end."""

    def parts(node: ast.AST) -> Iterator[Any]:
        if isinstance(node, ast.AnnAssign | ast.arg):
            yield node.annotation
        elif isinstance(node, ast.FunctionDef):
            yield node if node.name in ("__repr__", "__str__") else node.returns
        elif isinstance(node, ast.ClassDef):
            yield from node.decorator_list
        elif isinstance(node, ast.Raise) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            yield node

    return [
        ((part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset))
        for node in ast.walk(ast.parse(path.read_text()))
        for part in parts(node)
        if part
    ]


def _survivors(
    room: str, items: Sequence[WorkItem], options: argparse.Namespace
) -> list[WorkItem]:
    """Returns the survivors of the stored run, wherever their lines are now."""
    stored = {_key(mutant): mutant for mutant in _stored(options)[room]["survivors"]}
    starts = {key[:2] for key in stored}
    found: dict[tuple[str, ...], list[tuple[bool, int, int]]] = {}
    for number, item in enumerate(items):
        mutation = item.mutations[0]
        start = mutation.definition_name or "", mutation.operator_name
        if start in starts and _is_valid(mutation):
            mutant = _description(mutation)
            if was := stored.get(_key(mutant)):
                moved = mutant["file"] != was["file"], abs(mutant["line"] - was["line"])
                found.setdefault(_key(mutant), []).append((*moved, number))
    return [items[min(same)[2]] for same in found.values()]  # one of equal texts


def _key(mutant: dict[str, Any]) -> tuple[str, ...]:
    return tuple(mutant[name] for name in NAMED_BY)


def _applied(mutation: MutationSpec) -> AbstractContextManager[tuple[str, str]]:
    operator = get_operator(mutation.operator_name)()
    return use_mutation(mutation.module_path, operator, mutation.occurrence)


def _description(mutation: MutationSpec) -> dict[str, Any]:
    """Returns where a mutant is, and the changed lines before and after."""
    with _applied(mutation) as texts:
        lines = list(difflib.ndiff(*(text.splitlines() for text in texts)))
    return {
        "file": str(mutation.module_path),
        "line": mutation.start_pos[0],
        "definition": mutation.definition_name or "",
        "operator": mutation.operator_name,
        "before": " ".join(line[2:].strip() for line in lines if line[0] == "-"),
        "after": " ".join(line[2:].strip() for line in lines if line[0] == "+"),
    }


def _verdict(
    mutation: MutationSpec, reach: forked_tests.Reach, options: argparse.Namespace
) -> dict[str, Any]:
    mutant = _description(mutation)
    started = time.monotonic()
    outcome = "equivalent"
    if _key(mutant) not in map(_key, json.loads(EQUIVALENT.read_text())):
        limit = float("inf") if options.again else TEST_SECONDS_A_MUTANT
        tests = reach.tests(mutation.module_path, mutation.start_pos[0], limit)
        with _applied(mutation):
            outcome = forked_tests.outcome(tests)
    return mutant | {"outcome": outcome, "seconds": round(time.monotonic() - started)}


@functools.cache
def _reach(room: str) -> forked_tests.Reach:
    files = _files(ROOMS[room][1], below="tests/unit", pattern="test_*.py")
    return forked_tests.read_reach(pathlib.Path.cwd().with_name(f"{room}.json"), files)


if __name__ == "__main__":
    main()
