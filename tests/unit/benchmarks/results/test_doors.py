"""An altered or impossible result is named by report, compare, sweep and advise."""

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from benchmarks.planning import sources, sweep_run
from benchmarks.reporting import output, page
from benchmarks.results import collection
from tests.support.data import sample_results

Document = dict[str, Any]


def _report(path: pathlib.Path) -> str:
    return page.make_page(collection.read([path]), library="")


def _compare(path: pathlib.Path) -> str:
    new = collection.collect([collection.Result("new", sample_results.train())])
    return page.make_page(new, old=collection.read([path]), library="")


def _sweep(path: pathlib.Path) -> str:
    document = json.loads(path.read_text())
    return sweep_run.why_stale(collection.Result("old", document), None, {})


def _advise(path: pathlib.Path) -> str:
    return " ".join(sources.read_facts(collection.read([path]))[1])


DOORS: Mapping[str, Callable[[pathlib.Path], str]] = {
    "report": _report,
    "compare": _compare,
    "sweep": _sweep,
    "advise": _advise,
}
KINDS = {
    "train": sample_results.train,
    "input": sample_results.profile,
    "storage": sample_results.storage,
}


def _impossible_gate() -> Document:
    result = sample_results.train(stall=0.2)
    result["gates"][0]["passed"] = True
    return result


CASES: dict[str, tuple[Document, str]] = {
    "gate": (_impossible_gate(), "The file says otherwise of a gate."),
    "share": (
        sample_results.train() | {"accelerator_utilization": -1.29},
        "accelerator_utilization is a share of the time, but -1.29.",
    ),
    "type": (sample_results.train() | {"num_ranks": "two"}, "must be a whole number"),
    **{
        kind: (
            output.sealed(make()) | {"num_ranks": 3},
            "altered after it was written",
        )
        for kind, make in KINDS.items()
    },
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("door", DOORS)
def test_what_cannot_be_is_named(door: str, case: str, tmp_path: pathlib.Path) -> None:
    document, reason = CASES[case]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(document | {"sweep": {"data_digest": None}}))

    assert reason.removesuffix(".") in DOORS[door](path).replace("&#39;", "'")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_result_passes(door: str, kind: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(KINDS[kind]() | {"sweep": {}}))

    assert "ltered" not in DOORS[door](path)
