"""Texts and figures about copies for people and scripts: before the work and after it.

In: a source, a sizing and an estimate; or the summary of a job. Out: lines of text, and
JSON values.
"""

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from converters.exports.estimate import Estimate
from converters.exports.sizing import Sizing, shown
from converters.exports.source import Source
from tfpipe.errors import count_of

_KEPT = "kept_"


def facts(source: Source, sizing: Sizing, cost: Estimate) -> dict[str, Any]:
    """Returns the plan of the copies as JSON values."""
    splits = source.known.splits
    return {
        "copies": sizing.copies,
        "needed_bytes": sizing.needed_bytes,
        "sizing": list(sizing.lines),
        "num_records": sizing.copies * sum(map(source.known.num_records, splits)),
        "num_shards": sizing.copies * sum(map(len, splits.values())),
        "num_bytes": cost.num_bytes,
        "seconds": round(cost.seconds, 3),
        "estimate": cost.to_json(),
    }


def lines(source: Source, sizing: Sizing, cost: Estimate) -> list[str]:
    """Returns the plan of the copies for people: the arithmetic, time and room."""
    splits = source.known.splits
    listed = ", ".join(f"{split} {shown(source.num_bytes(split))}" for split in splits)
    num_records = sum(map(source.known.num_records, splits))
    num_shards = sum(map(len, splits.values()))
    copies = sizing.copies
    return [
        f"{source.name}: {count_of(num_records, 'record')} in "
        f"{count_of(num_shards, 'shard')}, "
        f"{shown(source.num_bytes())} ({listed})",
        *sizing.lines,
        f"{count_of(copies, 'copy')}: {count_of(copies * num_records, 'record')} in "
        f"{count_of(copies * num_shards, 'shard')}, about {shown(cost.num_bytes)}",
        _time(cost),
        _room(cost),
    ]


def _time(cost: Estimate) -> str:
    parts = []
    if cost.cpu_seconds:
        parts.append(f"the workers need {duration(cost.cpu_seconds)}")
    if cost.disk_seconds is not None and cost.disk_bytes_per_second:
        speed = f"{shown(cost.disk_bytes_per_second)}/s"
        parts.append(f"the disk {duration(cost.disk_seconds)} at {speed}")
    if not parts:
        return "time: not known before the first shards"
    return f"time: about {duration(cost.seconds)} ({', '.join(parts)})"


def _room(cost: Estimate) -> str:
    if cost.free_bytes is None:
        return f"room: {shown(cost.room_bytes)} at the URL"
    is_small = "" if cost.fits else "; THIS IS TOO LITTLE"
    return f"room: {shown(cost.room_bytes)} of {shown(cost.free_bytes)} free{is_small}"


def duration(seconds: float) -> str:
    """Returns a duration in its usual unit."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{max(math.ceil(seconds), 1)} s"


def print_summary(done: Mapping[str, Any]) -> None:
    """Prints a few lines for people, and then the JSON line for scripts."""
    if not done["dry_run"]:
        for line in _result(done):
            print(line)
    print(json.dumps(done, separators=(",", ":")))


def _result(done: Mapping[str, Any]) -> list[str]:
    output_dir = ascii(os.path.expanduser(done["config"]["output_dir"]))
    if not done["finished"]:
        return [f"{output_dir}: this task is done, others have shards to write."]
    seconds = max(done["seconds"], 1e-3)
    listed = [
        f"{output_dir}: {count_of(done['copies'], 'copy')}, "
        f"{count_of(done['num_records'], 'record')} in "
        f"{count_of(done['num_shards'], 'shard')}, {shown(done['num_bytes'])}",
        *(f"  {name:<26} {n:>11,}" for name, n in done["decisions"].items()),
    ]
    kept = sum(n for name, n in done["decisions"].items() if name.startswith(_KEPT))
    if kept:
        share = kept / done["num_records"]
        listed.append(
            f"The same bytes in every copy: {count_of(kept, 'record')} ({share:.2%}), "
            "because these images cannot be changed without loss; a deduplicating "
            "storage keeps them once"
        )
    if done["decisions"].get("identical_link"):
        listed.append(
            "Hard links are one file with many names: a host reads it once, and keeps "
            "it in its page cache for all copies."
        )
    rate = done["num_bytes"] / seconds
    return [*listed, f"{duration(seconds)}, {shown(rate)}/s"]
