"""The summary of a conversion: lines and warnings for people, JSON for scripts.

In: a finished job, and the index of its data set. Out: text on stdout with the JSON
document as its last line; warnings with counts and remedies. The number of images of
a class and the time of `--decode=full` need another look at the data. A missing figure
is left out: the data set is complete all the same.
"""

import contextlib
import math
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from converters.conversion import answers
from converters.engines import processes
from converters.images import jpeg_header, prepare, soundness
from converters.inputs.image import Image, read_image
from converters.jobs import side_files
from converters.jobs.job import Job
from tfpipe import errors
from tfpipe.errors import count_of, printable
from tfpipe.native import libraries
from tfpipe.shards import index
from tfpipe.shards.sql import PARQUET

# Decoded images for the estimate of all.
_NUM_TIMED = 8
# Named classes without images.
_NUM_NAMED = 3
_COUNTS = f"SELECT split, label, count(*) FROM {PARQUET} GROUP BY ALL"


def class_counts(data_dir: pathlib.Path, known: index.Index) -> dict[str, Any]:
    """Returns the spread of the images over the classes, by split.

    Returns:
        By split: num_classes with images; the name and num_images of the smallest of
        these and of the largest; num_without_images, the number of other classes, and
        the names of the first classes. Empty if the catalog cannot be read.
    """
    counts: dict[str, dict[int, int]] = {split: {} for split in known.splits}
    with contextlib.suppress(errors.BadIndexError):
        for split, label, number in index.query_catalog(data_dir, _COUNTS, []):
            counts[split][label - known.label_base] = number
    names = [text for _, text in known.classes]
    return {split: _spread(found, names) for split, found in counts.items() if found}


def _spread(counts: Mapping[int, int], names: list[str]) -> dict[str, Any]:
    """Returns the figures of a split from its number of images by class."""
    ordered = sorted(counts, key=lambda number: (counts[number], number))
    small, large = ordered[0], ordered[-1]
    missing = [name for number, name in enumerate(names) if number not in counts]
    return {
        "num_classes": len(counts),
        "smallest": {"class": names[small], "num_images": counts[small]},
        "largest": {"class": names[large], "num_images": counts[large]},
        "num_without_images": len(missing),
        "first_without_images": missing[:_NUM_NAMED],
    }


def full_decode(
    job: Job,
    decisions: Mapping[str, int],
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any] | None:
    """Returns how many images were not decoded, and how long decoding them would take.

    A few of the images are decoded here, as `--decode=full` decodes them.

    Args:
        job: The job, whose images are still there.
        decisions: Number of images by decision, as in the index.
        clock: Returns a time in seconds.

    Returns:
        num_images, and seconds with the workers of the job; None if every image was
        decoded, or none of the few can be read.
    """
    policy = job.policy
    kept = sum(n for decision, n in decisions.items() if decision.startswith("kept"))
    if not kept or policy.decode == "full" or policy.squeezes:
        return None
    seconds = []
    for plan in job.plans[:: max(len(job.plans) // _NUM_TIMED, 1)]:
        for image in list(plan.images)[: max(_NUM_TIMED // len(job.plans), 1)]:
            with contextlib.suppress(OSError, jpeg_header.BadImageError):
                if data := _kept(job, image):
                    start = clock()
                    soundness.check_jpeg(data, damage=False)
                    seconds.append(clock() - start)
    if not seconds:
        return None
    mean = sum(seconds) / len(seconds)
    return {"num_images": kept, "seconds": round(kept * mean / job.num_workers, 3)}


def _kept(job: Job, image: Image) -> bytes:
    """Returns the JPEG of an unchanged image; otherwise nothing.

    An image over a limit of the policy is not read, or not decoded.

    Raises:
        OSError: If the image cannot be read.
    """
    if prepare.check_bytes(image.num_bytes, job.policy) is not None:
        return b""
    prepared = prepare.prepare(read_image(job.input_dir, image), job.policy)
    if isinstance(prepared, prepare.Rejected) or prepare.is_changed(prepared.decision):
        return b""
    return prepared.encoded


_SCHEMA_VERSION = 1


def summarize(
    command: str,
    config: Mapping[str, Any],
    result: index.Index | None,
    seconds: float,
    spans: Sequence[processes.Span],
) -> dict[str, Any]:
    """Returns the JSON document of a conversion.

    Args:
        command: Module of the command.
        config: Its options, as JSON values; with `output_dir`.
        result: Index of the data set; None if other tasks still have shards to write.
        seconds: Duration of the conversion.
        spans: Time of writing, by shard, without shards of earlier runs.
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
    """Prints the answer for people, and the JSON line for scripts."""
    details = _details(summary) if summary["finished"] else ()
    answers.convert(summary, details, notes=orientation_warnings(summary))


def _details(summary: Mapping[str, Any]) -> list[str]:
    """Returns labels, decisions, copies, and how to check the images further."""
    lines = []
    if reason := summary["label_reason"]:
        lines.append(f"labels count from {summary['label_base']}: {printable(reason)}")
    lines += [*answers.decisions(summary), *_remarks(summary)]
    if undecoded := summary["full_decode"]:
        lines.append(
            f"Not decoded: {count_of(undecoded['num_images'], 'image')}. --decode=full "
            "finds damage that stops a decoder, and most damage that decodes to wrong "
            f"pixels, in about {_duration(undecoded['seconds'])} more."
        )
    return [
        *lines,
        f"tfpipe counts labels from 0; {side_files.CLASSES_NAME} and class_names of a "
        "pipeline name them.",
    ]


def _duration(seconds: float) -> str:
    """Returns a duration in its usual unit, rounded up."""
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds > 1.5 * length:
            return f"{math.ceil(seconds / length)} {unit}"
    return f"{math.ceil(seconds)} s"


def _remarks(summary: Mapping[str, Any]) -> list[str]:
    """Returns remarks on copies and on changed images."""
    lines = []
    copies = summary["duplicates"]
    if copies["num_copies"]:
        lines.append(
            f"  exact copies: {copies['num_copies']:,}, see duplicates.jsonl; groups "
            f"across splits: {copies['num_groups_across_splits']}, with several "
            f"classes: {copies['num_groups_with_several_classes']}"
        )
    if psnr := summary["psnr"]:
        saved = 1 - summary["num_bytes"] / summary["num_source_bytes"]
        lines.append(
            f"  {saved:.1%} smaller; pixel error of "
            f"{count_of(psnr['num_images'], 'image')}: PSNR "
            f"{psnr['mean_db']} dB on average, {psnr['min_db']} dB at worst"
        )
    if (rewritten := summary["rewritten"])["num_images"]:
        saved = rewritten["num_bytes_saved"]
        lines.append(
            f"  {count_of(rewritten['num_images'], 'image')} rewritten with "
            f"restart markers, {abs(saved):,} bytes "
            f"({abs(saved) / summary['num_source_bytes']:.2%}) "
            f"{'less' if saved >= 0 else 'more'}"
        )
    return lines


_NOT_UPRIGHT = frozenset({"kept_exif", "rewritten_exif"})


def orientation_warnings(summary: Mapping[str, Any]) -> list[str]:
    """Returns a line for every decision with a better flag.

    Args:
        summary: From `summary.summarize`.
    """
    decisions: Mapping[str, int] = summary.get("decisions", {})
    policy = summary["config"]["policy"]
    lines = []
    num_kept = sum(n for name, n in decisions.items() if _not_upright(name))
    if num_kept:
        lines.append(
            f"Warning: {count_of(num_kept, 'image')} stored turned or mirrored; "
            "--exif_orientation=apply stores images upright. Training ignores the EXIF "
            "orientation. (Published results of ImageNet keep the images as they are.)"
        )
    num_encoded = sum(n for name, n in decisions.items() if _only_turned(name))
    if num_encoded and not policy["lossless_rotation"] and not libraries.is_built():
        lines.append(
            f"Note: {count_of(num_encoded, 'JPEG')} turned upright by encoding again. "
            "To turn them without loss where their size allows, build the library for "
            f"it, then convert again with --overwrite. {libraries.remedy()}"
        )
    return lines


def _not_upright(decision: str) -> bool:
    return not _NOT_UPRIGHT.isdisjoint(decision.split("+"))


def _only_turned(decision: str) -> bool:
    """Whether an image was encoded again only to turn it."""
    parts = decision.split("+")
    other = any(part.startswith("converted_") or part == "shrunk" for part in parts)
    return "rotated_exif" in parts and not other
