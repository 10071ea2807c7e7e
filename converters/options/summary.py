"""The summary of a conversion: a few lines for people, and a JSON line for scripts.

In: the index of the data set that was written. Out: text on stdout, whose last line is
the JSON document.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from converters.engines import processes
from tfpipe.shards import index

_SCHEMA_VERSION = 1
_LOST = ("bbox_dropped_", "bbox_file_")


def summarize(
    command: str,
    config: Mapping[str, Any],
    result: index.Index | None,
    seconds: float,
    spans: Sequence[processes.Span],
) -> dict[str, Any]:
    """Returns the JSON document of a conversion.

    Args:
        command: Module that was run.
        config: Its options, as JSON values; `output_dir` is one of them.
        result: Index of the data set; None if other tasks still have shards to write.
        seconds: Duration of the conversion.
        spans: Time at which each shard was written, without shards of earlier runs.
    """
    first = min((span.start for span in spans), default=0.0)
    last = max((span.end for span in spans), default=0.0)
    summary: dict[str, Any] = {
        "command": command,
        "schema_version": _SCHEMA_VERSION,
        "config": dict(config),
        "finished": result is not None,
        "seconds": round(seconds, 3),
        # Without the time to list images, start workers and make the catalog.
        "write_seconds": round(last - first, 3),
        "write_cpu_seconds": round(sum(span.cpu_seconds for span in spans), 3),
    }
    if result is None:
        return summary
    entries = [shard for split in result.splits.values() for shard in split]
    ignored = result.made_by.get("ignored", {})
    return summary | {
        "splits": {split: result.num_records(split) for split in result.splits},
        "num_records": sum(shard.num_records for shard in entries),
        "num_shards": len(entries),
        "num_bytes": sum(shard.num_bytes for shard in entries),
        "num_source_bytes": result.made_by["num_source_bytes"],
        "duplicates": result.made_by["duplicates"],
        "psnr": result.made_by["psnr"],
        "rewritten": result.made_by["rewritten"],
        "decisions": {
            **result.made_by["decisions"],
            **result.made_by.get("options", {}).get("boxes", {}),
            **{f"ignored_{reason}": count for reason, count in ignored.items()},
        },
    }


def print_summary(summary: Mapping[str, Any]) -> None:
    """Prints a few lines for people, and then the JSON line for scripts."""
    # ASCII, because standard output may not be able to encode the name of a folder.
    output_dir = ascii(summary["config"]["output_dir"])[1:-1]
    if not summary["finished"]:
        print(f"{output_dir}: this task is done, others have shards to write.")
    else:
        rate = summary["num_records"] / max(summary["seconds"], 0.001)
        print(f"{output_dir}: {summary['num_bytes'] / 1e6:,.1f} MB in")
        for split, num_records in summary["splits"].items():
            print(f"  {split:<12} {num_records:>9,} records")
        for decision, count in summary["decisions"].items():
            print(f"  {decision:<26} {count:>9,}")
        for line in _remarks(summary):
            print(line)
        print(f"{summary['seconds']:.1f} s, {rate:,.0f} images/s")
    print(json.dumps(summary, separators=(",", ":")))


def _remarks(summary: Mapping[str, Any]) -> list[str]:
    """Returns remarks on rejected images, on copies, and on changed images."""
    lines = []
    if any(
        d.startswith(("skipped_", "ignored_", *_LOST)) for d in summary["decisions"]
    ):
        lines.append("  rejects.jsonl names each image, file and box that was left out")
    copies = summary["duplicates"]
    if copies["num_copies"]:
        lines.append(
            f"  {copies['num_copies']:,} exact copies, see duplicates.jsonl; groups "
            f"across splits: {copies['num_groups_across_splits']}, with several "
            f"classes: {copies['num_groups_with_several_classes']}"
        )
    if psnr := summary["psnr"]:
        saved = 1 - summary["num_bytes"] / summary["num_source_bytes"]
        lines.append(
            f"  {saved:.1%} smaller; pixel error of {psnr['num_images']} images: PSNR "
            f"{psnr['mean_db']} dB on average, {psnr['min_db']} dB at worst"
        )
    if (rewritten := summary["rewritten"])["num_images"]:
        saved = rewritten["num_bytes_saved"]
        lines.append(
            f"  {rewritten['num_images']:,} images rewritten with restart markers, "
            f"{abs(saved):,} bytes ({abs(saved) / summary['num_source_bytes']:.2%}) "
            f"{'less' if saved >= 0 else 'more'}"
        )
    return lines
