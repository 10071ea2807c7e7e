"""The mutation run, which `make test` does not start, keeps up with moved files."""

import ast
import json

from tests.house.code import ROOT, tree

TORTURE = ROOT / "tests/torture"


def test_each_room_of_the_mutation_run_exists() -> None:
    (rooms,) = (
        ast.literal_eval(node.value)
        for node in tree(TORTURE / "mutants.py").body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROOMS"
    )
    paths = [ROOT / name for names, _ in rooms.values() for name in names.split()]
    paths += [
        ROOT / "tests/unit" / name
        for _, names in rooms.values()
        for name in names.split()
    ]
    assert [path for path in paths if not path.exists()] == []


def test_each_equivalent_mutant_has_a_reason_and_its_line_in_the_code() -> None:
    entries = json.loads((TORTURE / "equivalent_mutants.json").read_text())
    stale = []
    for entry in entries:
        text = " ".join((ROOT / entry["file"]).read_text().split())
        if " ".join(entry["before"].split()) not in text or len(entry["why"]) < 20:
            stale.append(entry)
    assert stale == []
