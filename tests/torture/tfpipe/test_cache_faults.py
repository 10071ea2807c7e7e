"""Kills and errors cost a shard cache no record: a few rounds of the campaign.

`python -m studies.cache_faults` kills 200 processes and injects 10,000 errors.
"""

import dataclasses
import os
import pathlib
import signal
import time

import pytest

from studies import cache_faults as study
from tests.support.data.shards import make_shards
from tests.support.faults.torture import IS_LONG, RecordProperty, rounds
from tests.system.tfpipe.location.test_shard_cache import (
    SIZES,
    Workers,
    expected_digest,
    result,
)


@pytest.fixture
def options(tmp_path: pathlib.Path) -> study.CacheFaultsOptions:
    return study.CacheFaultsOptions(
        work_dir=str(tmp_path),
        num_kills=rounds(few=study.KILLS_OF_ROUND, many=200),
        num_errors=rounds(few=300, many=10_000),
    )


def test_no_record_is_lost(
    options: study.CacheFaultsOptions, record_property: RecordProperty
) -> None:
    figures = study.summary(study.campaign(options))

    assert figures["num_wrong"] == 0
    assert figures["num_kills"] >= options.num_kills
    assert figures["num_errors"] >= options.num_errors
    # Each kind of call failed.
    kinds = {name.rpartition(" ")[0] for name in figures["errors"]}
    assert {"store", "local write", "shared read_bytes", "shared write_bytes"} <= kinds
    record_property("injections", figures["num_kills"] + figures["num_errors"])


def test_a_campaign_goes_on_where_it_ended(options: study.CacheFaultsOptions) -> None:
    few = dataclasses.replace(options, num_kills=0, num_errors=1)
    first = study.campaign(few)

    more = study.campaign(
        dataclasses.replace(few, num_errors=study.num_injected(first[0]) + 1)
    )

    assert more[:1] == first
    assert [row["seed"] for row in more] == [0, 1]


@pytest.mark.skipif(not IS_LONG, reason="TORTURE=1 runs it: 40 seconds")
def test_a_paused_host_loses_its_leases_and_harms_nothing(
    tmp_path: pathlib.Path,
) -> None:
    """Its piece comes to the other host after 30 s; both deliver the right records."""
    made = make_shards(tmp_path / "data", SIZES)
    workers = Workers(made, tmp_path)
    job = {"shared_directory": str(tmp_path / "shared"), "num_connections": 2}
    paused = workers.start(cache=str(tmp_path / "host0"), pause=1.0, **job)
    while not list((tmp_path / "shared").rglob("*.lease")):
        time.sleep(0.01)
    os.kill(paused.pid, signal.SIGSTOP)
    start = time.monotonic()

    other, _ = result(workers.start(cache=str(tmp_path / "host1"), **job), seconds=120)

    assert time.monotonic() - start > 30
    assert other["digest"] == expected_digest(made)
    os.kill(paused.pid, signal.SIGCONT)
    assert result(paused, seconds=120)[0]["digest"] == expected_digest(made)
    assert not list((tmp_path / "shared").rglob("*.lease*"))
