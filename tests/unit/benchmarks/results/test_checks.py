"""checks: a result that contradicts itself is found, whatever was altered."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.reporting import output
from benchmarks.results import checks
from tests.support.data import sample_results

Document = dict[str, Any]


def _result() -> Document:
    result = sample_results.train(num_ranks=2, config={"batch_size": 64})
    rate = result["examples_per_second"]
    epoch = {"epoch": 0, "consumed_bytes": 100.0, "storage_bytes": 2, "label": "warm"}
    return result | {
        "timed_seconds": 500 * 64 * 2 / rate,
        "config_digest": checks.digest(result["config"]),
        "consumed_bytes": result["consumed_megabytes_per_second"]
        * 500
        * 128
        / rate
        * 1e6,
        "storage_bytes_read": result["storage_megabytes_per_second"]
        * (500 * 128 / rate)
        * 1e6,
        "environment": {
            **result["environment"],
            "hosts": [{"name": "a", "ranks": [0]}, {"name": "b", "ranks": [1]}],
        },
        "critical_path": {
            "shares": {
                "compute": (busy := result["accelerator_utilization"]),
                "input": (stall := result["stall_fraction"]),
                "late": 1 - busy - stall,
            }
        },
        "cache": {**result["cache"], "epochs": [epoch]},
    }


def _set(path: str, value: Any) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        *keys, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        for key in keys:
            document = document[key]
        document[last] = value

    return change


def test_a_result_of_the_program_agrees_with_itself() -> None:
    assert checks.faults(_result()) == []
    assert checks.faults(output.sealed(_result())) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_set("examples_per_second", 417_229.0), "but 500 steps of 64 on 2 ranks"),
        (_set("timed_seconds", 1.0), "but 500 steps of 64 on 2 ranks"),
        (_set("num_timed_steps", 1000), "but 1000 steps"),
        (_set("accelerator_utilization", -1.29), "accelerator_utilization is a share"),
        (_set("critical_path.shares.input", 0.5), "not to 1"),
        (_set("stall_fraction", 0.0001), "stall_fraction is 0.0001, but other figures"),
        (_set("accelerator_utilization", 0.99), "accelerator_utilization is 0.99, but"),
        (_set("consumed_megabytes_per_second", 9.0), "consumed_megabytes_per_second"),
        (_set("storage_megabytes_per_second", 900.0), "storage_megabytes_per_second"),
        (_set("consumed_bytes", 5.0), "consumed_megabytes_per_second is"),
        (_set("examples_per_second_per_rank", [1.0, 1.0]), "but the ranks add up to 2"),
        (_set("environment.hosts.1.ranks", [0]), "The hosts have the ranks [0, 0]"),
        (_set("environment.hosts", [{"ranks": [0]}]), "but the run had 2 ranks"),
        (_set("cache.epochs.0.storage_bytes", 99), "is labelled warm, but 99.0%"),
        (_set("cache.epochs.0.server_bytes", 60), "is labelled warm, but 60.0%"),
        (_set("config.precision", "float64"), "Its options were altered"),
        (_set("num_ranks", "two"), "num_ranks must be a whole number, got 'two'"),
        (_set("gates.0.passed", 1), "gates[0].passed must be true or false, got 1"),
        (_set("stall_fraction", float("inf")), "must be a number, got inf"),
    ],
)
def test_an_altered_result_is_found_without_a_digest(
    change: Callable[[Document], None], reason: str
) -> None:
    document = _result()
    change(document)

    assert reason in " ".join(checks.faults(document))


def test_each_altered_key_breaks_the_digest() -> None:
    sealed = output.sealed(_result())

    for key in sealed.keys() - {checks.DIGEST, "command"}:
        altered = copy.deepcopy(sealed) | {key: "something else"}
        assert "altered after it was written" in checks.faults(altered)[0], key


@pytest.mark.parametrize("command", checks.VERSIONS)
def test_a_result_without_its_digest_is_found_unless_it_is_old(command: str) -> None:
    document = {"num_ranks": 1, **checks.head(command)}
    version = document["schema_version"]

    assert checks.faults(output.sealed(document)) == []
    assert "its digest is missing" in " ".join(checks.faults(document))
    assert checks.faults(document | {"schema_version": version - 1}) == []
    assert checks.faults({"command": [command], "num_ranks": 1}) == []


def test_an_elastic_run_may_have_had_more_ranks() -> None:
    document = _result() | {"num_ranks": 1}
    document["config"]["elastic"] = True
    document["config_digest"] = checks.digest(document["config"])

    assert checks.faults(document) == []


@pytest.mark.parametrize("old", [{}, {"config": None, "cache": None}, {"gates": []}])
def test_results_of_older_versions_have_no_faults(old: Document) -> None:
    assert checks.faults({"command": "benchmarks.train"} | old) in ([], [_NO_OBJECT])


_NO_OBJECT = (
    "A value has another type than a result has: config must be an object, got None."
)
