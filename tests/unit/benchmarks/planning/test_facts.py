"""Facts from texts, their order of precedence, and what a change makes stale."""

import math

import pytest

from benchmarks.planning import ceilings, published, sources
from benchmarks.planning.sources import Fact


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("storage", "10GB/s", 10e9),
        ("storage", "1.5 TB/s", 1.5e12),
        ("storage", "800kB/s", 8e5),
        ("storage", "nfs", "nfs"),
        ("link", "unlimited", math.inf),
        ("ram", "512GB", 512e9),
        ("ram", "1e9B", 1e9),
        ("record", "115_154B", 115_154.0),
        ("cpu_ms", "1.5", 1.5),
        ("cpu_ms", "1.5ms", 1.5),
        ("cores", "0.5", 0.5),
        ("requests", "2.5M", 2.5e6),
        ("num_accelerators", "72", 72.0),
        ("cached", "0", 0.0),
        ("cached", "25%", 0.25),
        ("shared_storage", "no", 0.0),
        ("model", "vgg16", "vgg16"),
    ],
)
def test_texts_with_units(name, text, value):
    assert sources.parse(name, text, "--flag") == Fact(value, "--flag", "flag")


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("storage", "10", "10GB/s"),
        ("storage", "10Gb/s", "100Gb/s are 12.5GB/s"),
        ("storage", "-1GB/s", "such as"),
        ("storage", "0GB/s", "above 0"),
        ("storage", "1e999GB/s", "such as"),
        ("storage", "1.2.3GB/s", "such as"),
        ("storage", "", "such as"),
        ("ram", "512", "512GB"),
        ("ram", "512GiB", "512GB"),
        ("num_accelerators", "1.5", "a whole number"),
        ("num_accelerators", "0", "above 0"),
        ("num_accelerators", "nan", "a whole number"),
        ("cached", "1.1", "at most 1"),
        ("cached", "all", "0 to 1"),
        ("shared_storage", "maybe", "yes or no"),
        ("cpu_ms", "2s", "milliseconds"),
        ("exchange_ms", "1e999", "milliseconds"),
    ],
)
def test_other_texts_are_refused_with_the_remedy(name, text, problem):
    with pytest.raises(ValueError, match="--flag") as error:
        sources.parse(name, text, "--flag")
    assert problem in str(error.value)
    assert repr(text) in str(error.value)


def _complete(mode="train", **texts):
    known = {
        name: sources.parse(name, text, f"--{name}") for name, text in texts.items()
    }
    return sources.complete(known, published.ACCELERATORS, mode)


def test_tables_give_what_no_flag_gives_and_each_fact_has_a_source():
    found = _complete(accelerator="v100", num_accelerators="72", cores="20")

    assert list(found) == list(ceilings.KINDS)
    assert all(fact.source for fact in found.values())
    assert found["images_per_second"].value == 1276.0
    assert "Lambda" in found["images_per_second"].source
    assert (found["cores"].value, found["cores"].origin) == (20.0, "flag")
    assert found["ram"] == Fact(512e9, "NVIDIA DGX-1, data sheet")
    scenario = sources.scenario_of(found)
    assert (scenario.num_hosts, scenario.accelerators_per_host) == (9, 8)
    assert scenario.batch_size == 256
    assert scenario.storage == math.inf
    infer = _complete(mode="infer", accelerator="v100", model="googlenet")
    assert infer["images_per_second"].value == 5250.0


def test_a_single_accelerator_exchanges_no_gradients():
    for count, milliseconds in (("1", 0.0), ("8", 50.0)):
        found = _complete(num_accelerators=count, exchange_ms="50")
        assert sources.scenario_of(found).exchange_ms == milliseconds, count
        assert found["exchange_ms"].value == 50.0, count


def test_named_storages():
    nfs = _complete(storage="nfs", num_accelerators="16")
    assert (nfs["storage"].value, nfs["shared_storage"].value) == (1.5e9, 0.0)
    assert nfs["write"].value == 1.5e9
    shared = sources.scenario_of(_complete(storage="nfs", shared_storage="yes"))
    assert shared.shared_storage
    weka = sources.scenario_of(_complete(storage="weka"))
    assert weka.requests == 2.5e6


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ({"model": "alexnet"}, "alexnet"),
        ({"accelerator": "tpu"}, "tpu"),
        ({"storage": "floppy"}, "floppy"),
        ({"num_accelerators": "12"}, "multiple of 8"),
        ({"accelerator": "h100_mlperf", "model": "vgg16"}, "vgg16"),
    ],
)
def test_names_that_no_table_has(texts, problem):
    with pytest.raises(ValueError, match=problem):
        _complete(**texts)


def test_cpu_time_grows_with_the_bytes_and_meets_the_measured_points():
    measured = [sources.cpu_milliseconds(size) for size in (103_564, 1e6)]
    assert measured == pytest.approx([1.436, 9.836])
    costs = [_complete(**texts)["cpu_ms"] for texts in ({}, {"whole_batches": "no"})]
    ratio = 1.198 / 1.436
    assert costs[0].value == pytest.approx(1.2886, rel=1e-3)
    assert costs[0].value / costs[1].value == pytest.approx(ratio)
    assert ["whole batches" in cost.source for cost in costs] == [True, False]


def test_a_change_forgets_what_hangs_on_it():
    known = {
        "model": Fact("resnet50", "result", "result"),
        "images_per_second": Fact(900.0, "result", "result"),
        "batch_size": Fact(64.0, "--batch_size", "flag"),
        "cpu_ms": Fact(2.0, "result", "result"),
        "requests": Fact(8e3, "result", "result"),
        "storage": Fact(5e8, "result", "result"),
    }
    whole = sources.complete(known, published.ACCELERATORS, "train")
    changes = sources.parse_changes("model=vgg16, storage=10GB/s,hosts=3", whole)
    changed = sources.change(known, changes)

    assert "images_per_second" not in changed
    assert "requests" not in changed
    assert (changed["batch_size"].value, changed["cpu_ms"].value) == (64.0, 2.0)
    assert changed["num_accelerators"].value == 24.0
    after = sources.complete(changed, published.ACCELERATORS, "train")
    assert after["requests"].value == math.inf
    single = sources.change(known, sources.parse_changes("whole_batches=no", whole))
    assert single["cpu_ms"].value == pytest.approx(2 * 1.436 / 1.198)
    assert "1.20 for other paths" in single["cpu_ms"].source
    again = sources.change(single, sources.parse_changes("whole_batches=no", whole))
    assert again["cpu_ms"] == single["cpu_ms"]
    back = sources.change(single, sources.parse_changes("whole_batches=yes", whole))
    assert back["cpu_ms"].value == pytest.approx(2)
    entries = sources.change(known, sources.parse_changes("entry_points=yes", whole))
    assert entries["cpu_ms"].value == pytest.approx(2 * 0.490 / 0.562)
    own = {"images_per_second": Fact(900.0, "--images_per_second", "flag")}
    changes = sources.parse_changes("accelerator=v100", whole)
    assert "images_per_second" not in sources.change(own, changes)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cores", "cores=128"),
        ("", "cores=128"),
        ("cores=", "cores=128"),
        ("cores=1,,ram=1GB", "cores=128"),
        ("speed=2", "speed"),
        ("cores=1,cores=2", "twice"),
        ("hosts=0", "above 0"),
        ("network=10", "10GB/s"),
    ],
)
def test_changes_that_cannot_be_read(text, problem):
    with pytest.raises(ValueError, match="--what_if") as error:
        sources.parse_changes(text, _complete())
    assert problem in str(error.value)
