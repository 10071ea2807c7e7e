"""Table of the measurements for people."""

import dataclasses

from benchmarks.results.other_results import ReadLatency, StorageReading
from benchmarks.storage_probe import probe
from tfpipe.cli import text_table

_ROW = StorageReading(
    what="shards",
    state="cold",
    num_threads=4,
    megabytes_per_second=1234.5,
    reads_per_second=1177.3,
    latency_seconds=ReadLatency(p50=0.0032, p90=0.005, p99=0.0411),
    resident_fraction=0.0,
    is_proven=True,
)


def test_line_has_name_figures_and_proof() -> None:
    heading, line = text_table.lines(probe.READINGS, [_ROW])

    assert heading.split()[:5] == ["reading", "MB/s", "reads/s", "p50", "ms"]
    assert line.split("  ")[0] == "whole shards, 4 threads"
    assert line.split()[4:10] == ["1,234", "1,177", "3.20", "5.00", "41.1", "—"]
    assert line.endswith("cold: not in this page cache, 0.0% there before")


def test_state_that_is_not_had_is_said() -> None:
    warm = dataclasses.replace(
        _ROW, state="warm", is_proven=False, resident_fraction=0.4
    )
    skipped = StorageReading(
        what="open", state="cold", skipped="Only root can make names cold: no."
    )

    lines = text_table.lines(probe.READINGS, [warm, skipped])

    assert lines[1].endswith("warm: NOT in this page cache, 40.0% there before")
    assert lines[2].endswith("cold: left out. Only root can make names cold: no.")
    assert "4 processes" in probe.name_of(dataclasses.replace(_ROW, num_processes=4))


def test_no_state_is_said_to_be_proven() -> None:
    """A disk, a server or a hypervisor may have a cache that the kernel cannot see."""
    rows = [
        dataclasses.replace(_ROW, state=state, is_proven=agrees, what=what)
        for state in ("direct", "cold", "warm", "remote", "durable")
        for agrees in (True, False, None)
        for what in ("shards", "open", "write")
    ]

    for row in rows:
        assert "prove" not in probe.proof(row)
        assert probe.proof(row).startswith(row.state)


def test_another_try_is_the_same_way_to_read() -> None:
    again = dataclasses.replace(_ROW, is_again=True)

    assert probe.name_of(again) == "whole shards, 4 threads, again"
    assert again.way == _ROW.way
    assert dataclasses.replace(_ROW, num_threads=2).way != _ROW.way
