"""The mutation run, which `make test` does not start, keeps up with moved files."""

import ast
import json

from tests.house.code import ROOT, tree

TORTURE = ROOT / "tests/torture"


def _rooms() -> dict[str, tuple[str, str]]:
    (rooms,) = (
        ast.literal_eval(node.value)
        for node in tree(TORTURE / "mutants.py").body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROOMS"
    )
    return rooms


def test_each_room_of_the_mutation_run_exists() -> None:
    paths = [ROOT / name for names, _ in _rooms().values() for name in names.split()]
    paths += [
        ROOT / "tests/unit" / name
        for _, names in _rooms().values()
        for name in names.split()
    ]
    assert [path for path in paths if not path.exists()] == []


def test_each_equivalent_mutant_has_a_reason_and_its_line_in_the_room() -> None:
    entries = json.loads((TORTURE / "equivalent_mutants.json").read_text())
    texts = {
        room: " ".join(
            " ".join(path.read_text().split())
            for name in names.split()
            for path in ([*(ROOT / name).rglob("*.py")] or [ROOT / name])
        )
        for room, (names, _) in _rooms().items()
    }
    stale = [
        entry
        for entry in entries
        if " ".join(entry["before"].split()) not in texts[entry["room"]]
        or len(entry["why"]) < 20
    ]
    assert stale == []
