"""Table of the measurements for people."""

from typing import Any

from benchmarks.storage_probe import summary

_ROW: dict[str, Any] = {
    "what": "shards",
    "state": "cold",
    "num_processes": 1,
    "num_threads": 4,
    "megabytes_per_second": 1234.5,
    "reads_per_second": 1177.3,
    "latency_seconds": {"p50": 0.0032, "p90": 0.005, "p99": 0.0411, "p99_9": None},
    "resident_fraction": 0.0,
    "is_proven": True,
}


def test_line_has_name_figures_and_proof() -> None:
    heading, line = summary.table([_ROW]).splitlines()

    assert heading.split()[:5] == ["MB/s", "reads/s", "p50", "ms", "p90"]
    assert line.split("  ")[0] == "whole shards, 4 threads"
    assert line.split()[4:10] == ["1,234", "1,177", "3.2", "5", "41.1", "-"]
    assert line.endswith("cold: not in this page cache, 0.0% there before")


def test_state_that_is_not_had_is_said() -> None:
    warm = {**_ROW, "state": "warm", "is_proven": False, "resident_fraction": 0.4}
    skipped = {"what": "open", "state": "cold", "num_processes": 1, "num_threads": 1}
    skipped["skipped"] = "Only root can make names cold: no."

    lines = summary.table([warm, skipped]).splitlines()

    assert lines[1].endswith("warm: NOT in this page cache, 40.0% there before")
    assert lines[2].endswith("cold: left out. Only root can make names cold: no.")
    assert "4 processes" in summary.name({**_ROW, "num_processes": 4})


def test_no_state_is_said_to_be_proven() -> None:
    """A disk, a server or a hypervisor may have a cache that the kernel cannot see."""
    rows = [
        {**_ROW, "state": state, "is_proven": agrees, "what": what}
        for state in ("direct", "cold", "warm", "remote", "durable")
        for agrees in (True, False, None)
        for what in ("shards", "open", "write")
    ]

    for row in rows:
        assert "prove" not in summary.proof(row)
        assert summary.proof(row).startswith(row["state"])


def test_another_try_is_the_same_measurement() -> None:
    again = {**_ROW, "is_again": True}

    assert summary.name(again) == "whole shards, 4 threads, again"
    assert summary.is_same(again, _ROW)
    assert not summary.is_same({**_ROW, "num_threads": 2}, _ROW)
    assert not summary.is_same({**_ROW, "skipped": "no"}, _ROW)
