"""benchmarks.system.cache_label: the state of the page cache, from made-up figures."""

import dataclasses
import json

import pytest

from benchmarks.system import cache_label
from benchmarks.system.cache_label import EpochCache
from benchmarks.system.epoch_reads import EpochReads, Snapshot
from benchmarks.system.residency import HostStatus


def _epoch(storage, *, epoch=0, resident=(None,), consumed=1000.0):
    return EpochCache(
        epoch=epoch,
        consumed_bytes=consumed,
        storage_bytes=storage,
        resident_fractions=resident,
    )


def _host(resident=0, *, counts_reads=True, host="a", rank=0):
    return HostStatus(
        rank=rank,
        host=host,
        actions={},
        num_bytes=1000,
        resident_bytes=resident,
        counts_reads=counts_reads,
        remark="" if resident is not None else "Nobody knows.",
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

    assert cache_label.label(epochs) == label


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

    found = cache_label.verdict(state, [_host()], epochs)

    assert found.passed is passed
    assert words in found.text


def test_a_refusal_says_why_nothing_is_known():
    found = cache_label.verdict("cold", [_host(None)], [_epoch(None)])

    assert found.text.endswith("Nobody knows.")


def test_the_text_names_the_first_epochs_and_counts_the_rest():
    epochs = [_epoch(1000, epoch=number, consumed=2e6) for number in range(7)]

    text = cache_label.verdict("as_is", [_host(250)], epochs).text

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
    text = cache_label.verdict("as_is", [_host()], [epoch]).text
    assert f"{label} in the timed steps: the server gave {server / 10}%" in text


def _reads(rank_bytes, resident, *, host, epoch):
    before = Snapshot(read_bytes=0, resident_bytes=resident, reclaimed_bytes=0)
    grown = None if resident is None else resident + rank_bytes
    after = Snapshot(read_bytes=rank_bytes, resident_bytes=grown, reclaimed_bytes=0)
    return EpochReads(
        epoch=epoch, host=host, consumed_bytes=500.0, before=before, after=after
    )


def test_two_hosts_with_two_ranks_each_are_joined():
    """Ranks alternate between the hosts; host b has all files in memory."""
    reads = [
        [_reads(500, 0, host="a", epoch=3), _reads(0, 500, host="a", epoch=4)],
        [_reads(0, 1000, host="b", epoch=3), _reads(0, 1000, host="b", epoch=4)],
        [_reads(0, None, host="a", epoch=3), _reads(0, None, host="a", epoch=4)],
        [_reads(0, None, host="b", epoch=3), _reads(0, None, host="b", epoch=4)],
    ]

    both = [_host(), _host(1000, host="b", rank=1)]
    third, fourth = cache_label.join(reads, both)
    uncounted = [_host(counts_reads=None), _host(host="b")]
    unknown = cache_label.join([reads[2][:1], reads[1][:1]], uncounted)

    assert (third.epoch, fourth.epoch) == (3, 4)
    assert (third.consumed_bytes, third.storage_bytes) == (2000.0, 500)
    assert third.resident_fractions == [0.0, 1.0]
    assert (third.label, fourth.label) == ("mixed", "warm")
    # One host tells nothing, and what the kernel counts is not known either.
    assert unknown[0].storage_bytes is None
    assert unknown[0].label == "unknown"


@pytest.mark.parametrize(
    ("data", "num_steps", "met", "text"),
    [
        (
            81_000_000,
            20,
            False,
            "Data set 81.0 MB; 5 x 24.7 GB of memory = 123.5 GB needed: the page cache "
            "may hold it; an epoch has 20 of 500 steps.",
        ),
        (123_500_000_000, 500, True, "no page cache can hold it; an epoch has 500 of"),
        (123_499_999_999, 500, False, "the page cache may hold it"),
        (1_200_000_000_000, 499, False, "Data set 1.2 TB; 5 x 24.7 GB"),
    ],
)
def test_the_size_rule_is_shown_as_arithmetic(data, num_steps, met, text):
    rule = cache_label.size_rule(
        data_bytes=data, ram_bytes=24_700_000_000, num_steps=num_steps
    )

    assert rule["met"] is met
    assert text in rule["text"]
    assert (rule["needed_bytes"], rule["needed_steps"]) == (123_500_000_000, 500)
