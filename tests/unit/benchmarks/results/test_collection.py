"""benchmarks.results.collection: reading, merging and grouping."""

import json
import pathlib
from typing import Any

import pytest

from benchmarks.results import collection as results
from benchmarks.results.collection import Result
from tests.support.data import sample_results

TRAIN: dict[str, Any] = {"command": "benchmarks.train", "num_ranks": 1}


def _write(folder: pathlib.Path, **documents: Any) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return folder


def test_folders_and_files_are_merged(tmp_path: pathlib.Path) -> None:
    one = _write(tmp_path / "one", a=TRAIN, b=TRAIN | {"num_ranks": 2})
    two = _write(tmp_path / "two", a=TRAIN, sweep=sample_results.sweep())

    found = results.read([one, two, two / "sweep.json", one])

    assert sorted(r.name for r in found.results) == ["a", "b", "two/a"]
    assert [sweep.name for sweep in found.sweeps] == ["sweep"]
    assert [len(group.results) for group in found.groups] == [2, 1]


def test_what_is_no_result_is_named(tmp_path: pathlib.Path) -> None:
    _write(tmp_path, a=TRAIN, index={"shards": []}, other={"command": "x"}, list=[1])
    (tmp_path / "broken.json").write_text('{"command": "benchmarks.tra')
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")

    found = results.read([tmp_path])

    reasons = {text.split(" is left out: ")[0][-12:]: text for text in found.left_out}
    assert [name.rpartition("/")[2] for name in reasons] == [
        *("broken.json", "bytes.json", "index.json", "list.json", "other.json")
    ]
    assert sum("cannot be read as JSON" in text for text in found.left_out) == 2
    assert sum("its command is x" in text for text in found.left_out) == 1


def test_a_result_that_cannot_be_read_is_an_error_and_not_left_out(
    tmp_path: pathlib.Path,
) -> None:
    _write(tmp_path, a=TRAIN)
    (tmp_path / "b.json").mkdir()  # read(2) gives EISDIR, for root too
    with pytest.raises(OSError, match=r"b\.json"):
        results.read([tmp_path])


@pytest.mark.parametrize("files", [{}, {"index": {}}])
def test_no_result_is_an_error(tmp_path: pathlib.Path, files: dict[str, Any]) -> None:
    _write(tmp_path, **files)

    with pytest.raises(ValueError, match=r"--compare=.* must hold at least one JSON"):
        results.read([tmp_path], flag="--compare")
    with pytest.raises(FileNotFoundError, match="must be a folder or a JSON file"):
        results.read([tmp_path / "absent"])


@pytest.mark.parametrize(
    ("change", "num_groups"),
    [
        ({}, 1),
        ({"examples_per_second": 5.0}, 1),
        ({"config": {"report_dir": "elsewhere", "require": ["au>=0.9"]}}, 1),
        ({"environment": {"hosts": [{"name": "another"}]}}, 2),
        ({"environment": {"tensorflow": "2.16.2"}}, 2),
        ({"config": {"image_size": 299}}, 2),
        ({"config": {"precision": "float16"}}, 2),
        ({"stall_fraction": 2.0}, 2),  # it contradicts itself
        ({"config": {"batch_size": 8}}, 2),
        ({"num_ranks": 2}, 2),
        ({"kind": "emulated"}, 2),
        ({"environment": {"kernel": "6.1"}}, 2),
        ({"cache": {"label": "warm"}}, 2),
    ],
)
def test_repeats_are_runs_of_equal_settings(
    change: dict[str, Any], num_groups: int
) -> None:
    found = results.collect([Result("a", TRAIN), Result("b", TRAIN | change)])

    assert len(found.groups) == num_groups


@pytest.mark.parametrize(
    ("first", "second", "num_groups"),
    [
        ({"boot_id": "1", "machine_id": "m"}, {"boot_id": "2", "machine_id": "m"}, 1),
        ({"boot_id": "1", "machine_id": "m"}, {"boot_id": "1", "machine_id": "n"}, 2),
        ({"boot_id": "1"}, {"boot_id": "2"}, 2),  # of an older version
    ],
)
def test_repeats_may_be_before_and_after_a_reboot(
    first: dict[str, Any], second: dict[str, Any], num_groups: int
) -> None:
    runs = [
        Result(name, TRAIN | {"environment": {"hosts": [{"name": "a", **host}]}})
        for name, host in (("a", first), ("b", second))
    ]

    assert len(results.collect(runs).groups) == num_groups


def test_labels_name_what_differs() -> None:
    documents = [
        sample_results.train(num_ranks=2),
        sample_results.train(num_ranks=2, kind="synthetic"),
        sample_results.train(num_ranks=2, cache="cold"),
    ]

    found = results.collect([Result(str(i), d) for i, d in enumerate(documents)])

    assert [group.label for group in found.groups] == [
        "1. resnet50, 2 ranks, imagenet-1k, cold",
        "2. resnet50, 2 ranks, imagenet-1k, warm",
        "3. resnet50, 2 ranks, synthetic",
    ]


def test_kind_and_time_of_old_results_are_found() -> None:
    def of(**config: Any) -> Result:
        return Result("20261122-172203-train", {"config": config})

    assert of().kind == "real"
    assert of(synthetic=True).kind == "synthetic"
    assert (of(emulate="h100").kind, of(emulate="h100").accelerator) == (
        "emulated",
        "h100",
    )
    assert of(step_time_ms=0.0).accelerator == "0 ms a step"
    assert of().started == "2026-11-22 17:22"


def test_rates_of_repeats_within_a_result_are_all_counted() -> None:
    several = {"reproducibility": {"examples_per_second_per_run": [1.0, 3.0, 2.0]}}
    found = results.collect(
        [Result("a", TRAIN | several | {"examples_per_second": 2.0})]
    )

    assert found.groups[0].rates == [1.0, 3.0, 2.0]


def test_a_name_in_a_sentence_is_short_and_keeps_to_its_direction() -> None:
    assert results.short_name("name") == "name"
    assert results.short_name("a" * 40 + "b" * 40) == "a" * 30 + "…" + "b" * 30
    assert results.short_name("\u05d0 1") == "\u2068\u05d0 1\u2069"


@pytest.mark.parametrize(
    "change",
    [
        *({"environment": {key: "9.9"}} for key in ("tensorflow", "kernel", "cuda")),
        {"environment": {"hosts": [{"name": "a", "boot_id": "1"}]}},
        {"config": {"image_size": 299}},
        {"config": {"precision": "float16"}},
        {"kind": "emulated"},
        {"stall_fraction": 2.0},
    ],
)
def test_runs_that_are_no_repeats_have_different_labels(change: dict[str, Any]) -> None:
    run = TRAIN | {"examples_per_second": 1.0}
    found = results.collect([Result("a", run), Result("b", run | change)])

    labels = [group.label.partition(". ")[2] for group in found.groups]
    assert len(labels) == len(set(labels)) == 2
