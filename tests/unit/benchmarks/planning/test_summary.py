"""Answers as a whole: sentences, rows, remedies, and facts of results."""

import json
import math

import pytest

from benchmarks.planning import (
    published,
    sources,
    summary,
)
from benchmarks.results.collection import Result, collect
from tests.support.data import sample_results


def _facts(**texts):
    return {
        name: sources.parse(name, text, f"--{name}") for name, text in texts.items()
    }


def _answer(mode="train", **texts):
    return summary.answer(_facts(**texts), published.ACCELERATORS, mode)


# Dell's and NVIDIA's test, whose data set no cache could hide.
_DELL = {"accelerator": "v100", "num_accelerators": "72", "num_images": "192_000_000"}


def test_an_answer_says_what_binds_in_its_first_sentence():
    found = _answer(**_DELL, images_per_second="712")

    assert found.sentences == [
        "72 V100 on 9 hosts with 8 each, training resnet50 at 224 pixels with 0% of "
        "the bytes cached, are bound by the accelerators: 51,264 images/s, 100% busy; "
        "the storage must give 5.9 GB/s, and 66.1 of 360 cores (18%) are busy.",
        "The next limit is the cores of the hosts, at 279,372 images/s.",
        "360 cores at 776 images/s a core give 279,372 images/s, and the step takes "
        "51,264: a tfpipe.Service would not pay.",
    ]
    assert (found.num_ranks, found.num_hosts) == (72, 9)
    assert [row.num_accelerators for row in found.rows] == [
        *(1, 2, 4, 8, 16, 32, 64, 72)
    ]
    last = found.rows[-1]
    assert last.images_per_second == found.examples_per_second == 51_264
    assert last.first_epoch_storage_bytes_per_second == pytest.approx(5.903e9, 1e-3)
    assert last.ceilings["storage"] is None
    assert found.checkpoint.num_bytes == 8 * 25_636_712


def test_an_answer_about_a_slow_storage():
    found = _answer(**_DELL, storage="5.9GB/s", cached="0")

    assert found.sentences[0].startswith(
        "72 V100 on 9 hosts with 8 each, training resnet50 at 224 pixels with 0% of "
        "the bytes cached, are bound by the storage: 51,236 images/s, 56% "
        "busy; the storage gives 5.9 GB/s,"
    )
    assert "need 10.6 GB/s, 10,089 requests/s and 118.4 cores" in found.sentences[1]
    fast = _answer(**_DELL, storage="20GB/s", cached="0")
    assert (
        "which 136 accelerators take"
        in _answer(**_DELL, storage="20GB/s", cpu_ms="0.1", link="unlimited").sentences[
            1
        ]
    )
    gain = fast.examples_per_second / found.examples_per_second
    assert (gain, fast.binding) == (pytest.approx(1.79, abs=0.01), "accelerator")


def test_the_first_epoch_binds_where_memory_holds_the_data():
    found = _answer(accelerator="h100", storage="1GB/s")

    assert found.binding == "accelerator"
    assert found.sentences[1].startswith("The first epoch is bound by the storage:")
    assert found.epochs.first_seconds > found.epochs.later_seconds
    row = found.rows[-1]
    assert (row.binding, row.first_epoch_binding) == ("accelerator", "storage")


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"storage": "nfs"},
        {"model": "tiny", "images_per_second": "1e6"},
        {"accelerators_per_host": "6", "num_accelerators": "6"},
        {"num_accelerators": "10_000", "record": "1.3MB", "storage": "weka"},
        {"num_images": "1", "record": "1B", "page_cache": "0B"},
    ],
)
def test_every_answer_is_strict_json_and_text(texts):
    found = _answer(**texts)

    document = found.as_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    lines = summary.text(found).splitlines()
    assert lines[0] == found.sentences[0]
    assert "nan" not in " ".join(lines)
    for name, fact in found.facts.items():
        assert fact.source, name
    numbers = [row.num_accelerators for row in found.rows]
    assert numbers == sorted(set(numbers))


def _payoffs(**texts):
    whole = sources.complete(_facts(**texts), published.ACCELERATORS, "train")
    return {
        found.name.partition(" of a")[0]: found for found in summary.find_payoffs(whole)
    }


def test_remedies_of_a_slow_storage():
    found = _payoffs(**_DELL, storage="5.9GB/s", cached="0", local_disk_room="30TB")

    # Nine disks of 2.56 GB/s are faster than the accelerators.
    cache = found["shard cache"]
    assert (cache.pays, cache.binding) == (True, "accelerator")
    assert cache.gain == pytest.approx(91_872 / 51_236, rel=1e-3)
    assert "after 26 epochs" in cache.cost
    few = _payoffs(storage="0.1GB/s", num_images="1e6", record="10kB")["shard cache"]
    assert "a first epoch of 1.7 minutes" in few.cost
    slow = _payoffs(
        **_DELL,
        storage="5.9GB/s",
        cached="0",
        local_disk_room="30TB",
        local_disk="0.7GB/s",
    )["shard cache"]
    assert slow.binding == "local disk"
    assert slow.images_per_second == pytest.approx(9 * 0.7e9 / 115_154)
    assert not found["RAM cache of records"].pays
    assert "does not fit into 409.6 GB" in found["RAM cache of records"].cost
    assert found["records"].pays
    for name in ("entry points", "whole batches", "preprocessing on other hosts"):
        assert not found[name].pays
        assert found[name].gain == pytest.approx(1, abs=2e-3)


def test_remedies_of_few_cores():
    found = _payoffs(accelerator="h100_mlperf_storage", cores="4", whole_batches="no")

    assert {name for name, one in found.items() if one.pays} == {
        *("RAM cache of decoded images", "records", "entry points"),
        *("whole batches", "preprocessing on other hosts"),
    }
    assert found["whole batches"].gain == pytest.approx(1.436 / 1.198)
    assert found["entry points"].gain == pytest.approx(0.562 / 0.490)
    remote = found["preprocessing on other hosts"]
    assert remote.binding == "accelerator"
    assert "25 cores on other hosts, and 2.15 GB/s" in remote.cost
    narrow = _payoffs(accelerator="h100_mlperf_storage", cores="4", link="1GB/s")
    assert narrow["preprocessing on other hosts"].binding == "network"
    whole = _payoffs(accelerator="h100_mlperf_storage", cores="4")
    assert not whole["whole batches"].pays
    entries = _payoffs(accelerator="h100_mlperf_storage", cores="4", entry_points="yes")
    assert not entries["entry points"].pays


def test_no_remedy_is_worse_for_more_of_what_it_costs():
    rooms = [f"{size}GB" for size in (1, 50, 100, 148, 1000)]
    gains = [
        _payoffs(storage="0.5GB/s", page_cache="1GB", local_disk_room=room)[
            "shard cache"
        ].gain
        for room in rooms
    ]
    assert gains == sorted(gains)
    assert gains[-1] > 3


def _collect(**documents):
    return collect([Result(name, document) for name, document in documents.items()])


def test_results_give_facts_and_flags_come_first():
    emulated = sample_results.train(
        num_ranks=8, rate=14200, kind="emulated", config={"batch_size": 400}
    )
    emulated["emulation"] = {"examples_per_second": 1786.0}
    probe = sample_results.storage() | {
        "megabytes_per_second": 3350.0,
        "place": {"file_system": "nfs4", "mean_record_bytes": 115_000.0},
    }
    paths = {"whole_batches": "no", "entry_points": "yes"}
    profile = sample_results.profile() | {"paths": paths}
    found = sources.read_facts(_collect(run=emulated, input=profile, storage=probe))[0]

    values = {name: fact.value for name, fact in found.items()}
    assert values == pytest.approx(
        {
            "model": "resnet50",
            "accelerator": "h100",
            "batch_size": 400,
            "image_size": 224,
            "images_per_second": 1786.0,
            "num_accelerators": 8,
            "accelerators_per_host": 8,
            "cores": 32,
            "ram": 540e9,
            "num_images": 1_281_167,
            # 5900 images/s kept 21.8 of 32 cores busy, which is too few to be bound.
            "cpu_ms": 3.7,
            "whole_batches": 0.0,
            "entry_points": 1.0,
            "record": 115_000.0,
            "storage": 3.35e9,
            "requests": 610e6 / 4096,
            "shared_storage": 1.0,
        }
    )
    assert found["storage"].source == "benchmarks.storage, storage"
    profile["paths"] = {"whole_batches": "yes", "crop": "stock"}
    stock = sources.read_facts(_collect(input=profile))[0]
    assert stock["whole_batches"].value == 0.0  # the figures are of the native crop
    flags = _facts(storage="10GB/s", accelerator="v100")
    known = sources.change(found, flags)
    whole = sources.complete(known, published.ACCELERATORS, "train")
    assert whole["storage"].value == 10e9
    assert whole["requests"].value == math.inf
    assert whole["images_per_second"].value == 1276.0
    assert whole["cpu_ms"].value == 3.7


def test_cores_that_a_pipeline_leaves_idle_count_as_cost():
    busy = sample_results.profile() | {"examples_per_second": 8000.0}
    found = sources.read_facts(_collect(input=busy))[0]
    assert found["cpu_ms"].value == pytest.approx(4.0)
    assert "92% busy" in found["cpu_ms"].source


def test_a_real_run_without_a_gpu_says_nothing_about_the_input():
    run = sample_results.train(more={"compute_seconds_per_step": 0.16})
    run["environment"] = {**run["environment"], "gpus": []}
    found = sources.read_facts(_collect(run=run))[0]
    assert "cpu_ms" not in found
    assert found["images_per_second"].value == pytest.approx(800.0)
    with_gpu = sources.read_facts(_collect(run=sample_results.train()))[0]
    assert with_gpu["cpu_ms"].value == pytest.approx(4.1)


@pytest.mark.parametrize("document", [{}, {"rows": 3}, {"measurements": [1, {}]}])
def test_results_of_other_versions(document):
    for command in ("train", "input", "storage"):
        one = {"command": f"benchmarks.{command}", "place": 3, **document}
        assert sources.read_facts(_collect(one=one))[0] is not None
    assert sources.read_facts(_collect()) == ({}, [])


@pytest.mark.parametrize(
    ("more", "image_size", "reason", "is_used"),
    [
        ({}, 224, "", True),
        ({"steady_state": {"reached": False}}, None, "its steady state", False),
        ({}, 299, "its images have 224 pixels, the question 299", False),
        ({"stall_fraction": 2.0}, None, "is a share of the time, but 2", False),
        ({"steady_state": {}}, None, "does not say whether it was steady", True),
        (
            {"host_load": {"others_cpu_fraction": 0.65}},
            None,
            "other processes took 65% of the cores",
            True,
        ),
        ({"cache": {"label": "warm"}}, None, "its data fit in memory", True),
    ],
)
def test_calibrations_that_say_little_are_refused_or_marked(
    more: dict[str, object], image_size: float | None, reason: str, is_used: bool
) -> None:
    run = sample_results.train(
        kind="emulated", cache="cold", more={"gates": [], **more}
    )

    found, doubts = sources.read_facts(_collect(run=run), image_size=image_size)

    assert [reason in text for text in doubts] == [True] * bool(reason)
    assert ("cpu_ms" in found) == is_used
    if is_used and reason:
        assert reason in found["cpu_ms"].source
    if not is_used:
        is_altered = "share of the time" in reason
        assert ("model" in found) == (not is_altered)
        assert "Measure it again, or give --cpu_ms" in doubts[0]
