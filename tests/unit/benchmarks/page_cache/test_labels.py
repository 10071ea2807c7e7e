"""benchmarks.page_cache.labels: the state of the page cache, from made-up figures."""

import dataclasses
import json

import pytest

from benchmarks.page_cache import labels
from benchmarks.page_cache.labels import EpochCache
from benchmarks.page_cache.reads import EpochReads, Snapshot
from benchmarks.page_cache.states import CacheStatus, PageCache
from benchmarks.system.machine import Host, Machine


def _epoch(storage, *, epoch=0, resident=(None,), consumed=1000.0):
    return EpochCache(
        epoch=epoch,
        consumed_bytes=consumed,
        storage_bytes=storage,
        resident_fractions=resident,
    )


def _cache(machine):
    return PageCache(Machine(machine, "node"))


def _status(resident=0, *, counts_reads=True, machine="a", rank=0, **fields):
    return CacheStatus(
        rank=rank,
        cache=_cache(machine),
        actions={},
        num_bytes=1000,
        resident_bytes=resident,
        counts_reads=counts_reads,
        remark="" if resident is not None else "Nobody knows.",
        **fields,
    )


@pytest.mark.parametrize(
    ("epoch", "label"),
    [
        (_epoch(1500), "cold"),  # records were read that no step used
        (_epoch(950), "cold"),
        (_epoch(949), "mixed"),
        (_epoch(51), "mixed"),
        (_epoch(50), "warm"),
        (_epoch(0), "warm"),
        # The bytes from storage prove more than the residency.
        (_epoch(0, resident=(0.0,)), "warm"),
        (_epoch(None), "unknown"),
        (_epoch(None, resident=(0.01,)), "cold"),
        (_epoch(None, resident=(0.011,)), "unknown"),
        (_epoch(None, resident=(0.0, None)), "unknown"),
        (_epoch(None, resident=(0.0, 0.5)), "unknown"),
        (_epoch(None, resident=(0.95, 1.0)), "warm"),
        (_epoch(None, resident=(0.94, 1.0)), "unknown"),
        (_epoch(None, resident=()), "unknown"),
        (_epoch(0, consumed=0.0), "unknown"),
    ],
)
def test_label_of_an_epoch(epoch, label):
    assert epoch.label == label
    assert json.loads(json.dumps(epoch.as_json()))["label"] == label


@pytest.mark.parametrize(
    ("storage", "label"),
    [
        ([1000, 1000], "cold"),
        ([0, 0], "warm"),
        ([1000, 0], "mixed"),  # the second epoch came from memory
        ([1000, 940], "mixed"),
        ([1000, None], "unknown"),
        ([], "unknown"),
    ],
)
def test_label_of_all_epochs(storage, label):
    epochs = [_epoch(one, epoch=number) for number, one in enumerate(storage)]

    assert labels.label(epochs) == label


@pytest.mark.parametrize(
    ("state", "storage", "passed", "words"),
    [
        ("cold", [1000, 1000], True, "cold in the timed steps: storage gave 100.0% of"),
        ("cold", [1000, 0], False, "epoch 1 was warm: storage gave 0.0% of the 0.0 MB"),
        ("cold", [500, 0], False, "epoch 0 was mixed: storage gave 50.0%"),
        ("cold", [None], False, "epoch 0 was unknown: storage gave an unknown part"),
        ("warm", [0, 20], True, "warm in the timed steps: storage gave 1.0%"),
        ("warm", [0, 1000], False, "epoch 1 was cold"),
        ("as_is", [1000, 0], True, "mixed in the timed steps: storage gave 50.0%"),
        (
            "as_is",
            [1000, None],
            True,
            "unknown in the timed steps: storage gave an unk",
        ),
    ],
)
def test_every_epoch_must_be_in_the_claimed_state(state, storage, passed, words):
    epochs = [_epoch(one, epoch=number) for number, one in enumerate(storage)]

    wrong = labels.mismatch(state, [_status()], epochs)

    assert (not wrong) is passed
    assert words in (wrong or labels.describe([_status()], epochs))


def test_a_refusal_says_why_nothing_is_known():
    wrong = labels.mismatch("cold", [_status(None)], [_epoch(None)])

    assert wrong.endswith("Nobody knows.")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "in memory before."),
        (
            {"beneath": "the memory of the nfs4 server"},
            "Cold means: not in this page cache. Bytes may have come from the memory "
            "of the nfs4 server.",
        ),
        (
            {"beneath": "the loop device loop0 on tmpfs", "is_memory": True},
            "The files are in memory: the loop device loop0 on tmpfs.",
        ),
    ],
)
def test_the_text_says_what_a_label_leaves_open(fields, words):
    text = labels.describe([_status(**fields)], [_epoch(1000)])

    assert text.endswith(words)
    assert "proven" not in text


def test_the_text_names_the_first_epochs_and_counts_the_rest():
    epochs = [_epoch(1000, epoch=number, consumed=2e6) for number in range(7)]

    text = labels.describe([_status(250)], epochs)

    assert "of the 14.0 MB consumed (epoch 0: warm, 0.1% of 2.0 MB; epoch 1" in text
    assert "epoch 3: warm, 0.1% of 2.0 MB; and 3 more); 25.0% of the files" in text


@pytest.mark.parametrize(
    ("storage", "server", "label"),
    [
        (0, 1000, "cold"),  # nothing was on the disk of this host
        (1000, 0, "warm"),  # all was on it, and nothing in memory
        (None, 0, "warm"),
        (None, 500, "mixed"),
    ],
)
def test_a_shard_cache_has_the_state_of_what_it_fetched(storage, server, label):
    epoch = dataclasses.replace(_epoch(storage), server_bytes=server)

    assert epoch.label == label
    assert epoch.as_json()["server_bytes"] == server
    text = labels.describe([_status()], [epoch])
    assert f"{label} in the timed steps: the server gave {server / 10}%" in text


def _reads(rank_bytes, resident, *, machine, epoch, network=1):
    before = Snapshot(read_bytes=0, resident_bytes=resident, reclaimed_bytes=0)
    grown = None if resident is None else resident + rank_bytes
    after = Snapshot(read_bytes=rank_bytes, resident_bytes=grown, reclaimed_bytes=0)
    return EpochReads(
        epoch=epoch,
        cache=_cache(machine),
        host=Host(Machine(machine), network),
        consumed_bytes=500.0,
        before=before,
        after=after,
    )


def test_two_machines_with_two_ranks_each_are_joined():
    """Ranks alternate between the machines, which have one name.

    Machine b has all files in memory.
    """
    reads = [
        [_reads(500, 500, machine="a", epoch=n) for n in (3, 4)],
        [_reads(0, 1000, machine="b", epoch=n) for n in (3, 4)],
        [_reads(0, None, machine="a", epoch=n) for n in (3, 4)],
        [_reads(0, None, machine="b", epoch=n) for n in (3, 4)],
    ]
    reads[0][1] = _reads(0, 1000, machine="a", epoch=4)

    both = [_status(), _status(1000, machine="b", rank=1)]
    third, fourth = labels.join(reads, both)
    uncounted = [_status(counts_reads=None), _status(machine="b")]
    unknown = labels.join([reads[2][:1], reads[1][:1]], uncounted)

    assert (third.epoch, fourth.epoch) == (3, 4)
    assert (third.consumed_bytes, third.storage_bytes) == (2000.0, 500)
    assert third.resident_fractions == [0.5, 1.0]
    assert (third.label, fourth.label) == ("mixed", "warm")
    # One machine tells nothing, and what the kernel counts is not known either.
    assert unknown[0].storage_bytes is None
    assert unknown[0].label == "unknown"


@pytest.mark.parametrize(
    ("machines", "networks", "num_caches"),
    [(("a", "b"), (1, 1), 2), (("a", "a"), (1, 2), 1)],
)
def test_names_and_networks_do_not_share_a_page_cache(machines, networks, num_caches):
    """Two ranks that read 500 cold bytes each; only one looks at a shared cache."""
    one, two = (
        _reads(500, 0, machine=m, epoch=0, network=n)
        for m, n in zip(machines, networks, strict=True)
    )
    if num_caches == 1:
        seen = [
            Snapshot(read_bytes=read, resident_bytes=read, reclaimed_bytes=0)
            for read in (0, 1000)
        ]
        before, after = (
            dataclasses.replace(s, read_bytes=s.read_bytes // 2) for s in seen
        )
        one = dataclasses.replace(one, before=before, after=after)
        two = dataclasses.replace(
            two, before=Snapshot(read_bytes=0), after=Snapshot(read_bytes=500)
        )

    (epoch,) = labels.join(
        [[one], [two]], [_status(machine=m) for m in dict.fromkeys(machines)]
    )

    assert len(epoch.resident_fractions) == num_caches
    assert (epoch.storage_bytes, epoch.label) == (1000, "cold")


@pytest.mark.parametrize(
    ("data", "num_steps", "met", "text"),
    [
        (
            81_000_000,
            20,
            False,
            "Data set 81 MB; 5 x 24.7 GB of memory = 123.5 GB needed: the page cache "
            "may hold it; an epoch has 20 of 500 steps.",
        ),
        (123_500_000_000, 500, True, "no page cache can hold it; an epoch has 500 of"),
        (123_499_999_999, 500, False, "the page cache may hold it"),
        (1_200_000_000_000, 499, False, "Data set 1.2 TB; 5 x 24.7 GB"),
    ],
)
def test_the_size_rule_is_shown_as_arithmetic(data, num_steps, met, text):
    rule = labels.size_rule(
        data_bytes=data, ram_bytes=24_700_000_000, num_steps=num_steps
    )

    assert rule["met"] is met
    assert text in rule["text"]
    assert (rule["needed_bytes"], rule["needed_steps"]) == (123_500_000_000, 500)
