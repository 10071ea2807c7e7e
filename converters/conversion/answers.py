"""The answers of the converters: the result, left-out images, how to go on.

In: the JSON document of a command. Out: stdout, by the rule of `tfpipe.cli.output`: a
terminal gets at most seven lines, and a pipe the details and the document too.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from converters.catalog import counts
from converters.exports.sizing import shown
from converters.jobs import publish
from tfpipe.cli import output
from tfpipe.errors import count_of, printable

Document = Mapping[str, Any]

_LEFT_OUT = ("skipped_", "ignored_", "bbox_dropped_", "bbox_file_")
# Largest proposed batch.
_BATCH_SIZE = 256
_MOST_FAULTS = 4
# The input for --repair, by the command of the conversion.
_REPAIRS = {
    "converters.imagenet": "--input_dir=PHOTOS",
    "converters.folder": "--input_dir=PHOTOS",
    "converters.table": "--input=FILE",
    "converters.webdataset": "--input=FILES",
    "converters.tfrecord": "--input=FILES",
    "converters.merge": "--input=NAME=PLACE",
}


def convert(
    document: Document, details: Iterable[str], *, notes: Sequence[str]
) -> None:
    """Prints the result of a conversion.

    Args:
        document: From `summary.summarize`, with classes.
        details: More lines about the conversion.
        notes: Warnings about choices of the user.
    """
    output_dir = printable(document["config"]["output_dir"])
    if not document["finished"]:
        _show_own_part(document, output_dir)
        return
    seconds, rate = document["seconds"], ""
    if document["write_seconds"]:  # else all shards are of an earlier run
        rate = f", {document['num_records'] / seconds:,.0f} images/s"
    answer = [
        f"{output_dir}: {count_of(document['num_records'], 'record')} in "
        f"{count_of(document['num_shards'], 'shard')}, "
        f"{document['num_bytes'] / 1e6:,.1f} MB; {seconds:.1f} s{rate}",
    ]
    lines = [
        f"{split:<11} {count_of(count, 'record')}"
        f"{_classes(document['classes'].get(split))}"
        for split, count in document["splits"].items()
    ]
    copied, left_out = _python(document), output.rows(left_out=_left_out(document))
    others = [*answer, *left_out, *notes[:1], *copied]
    if len(lines) + len(others) > output.MOST_LINES and not output.is_verbose():
        lines = output.rows(splits=_splits(document))
    answer += [*lines, *left_out]
    output.show(document, answer, notes=notes, copied=copied, details=details)


def _show_own_part(document: Document, folder: str) -> None:
    """Prints the answer of a task whose job has other tasks."""
    output.show(
        document, [f"{folder}: this task is done, others have shards to write."]
    )


def _splits(document: Document) -> str:
    """Returns the number of records by split."""
    return ", ".join(f"{name} {n:,}" for name, n in document["splits"].items())


def _classes(spread: Document | None) -> str:
    """Returns the number of classes of a split, its smallest and its largest class."""
    if spread is None:
        return ""
    small, large = (
        f"{spread[which]['num_images']:,} ({printable(spread[which]['class'])})"
        for which in ("smallest", "largest")
    )
    each = f"{small} to {large} images each"
    if spread["smallest"]["num_images"] == spread["largest"]["num_images"]:
        each = f"{spread['smallest']['num_images']:,} each"
    num_classes = spread["num_classes"]
    text = f" of {count_of(num_classes, 'class')}, {each}"
    if missing := spread["num_without_images"]:
        names = ", ".join(map(printable, spread["first_without_images"]))
        more = ", ..." if missing > len(spread["first_without_images"]) else ""
        text += f"; none of {missing:,} ({names}{more})"
    return text


def _left_out(document: Document) -> str | None:
    """Returns the left-out images and boxes by reason, most first."""
    reasons = {
        name.removeprefix("skipped_").removeprefix("ignored_").replace("_", " "): count
        for name, count in document["decisions"].items()
        if name.startswith(_LEFT_OUT)
    }
    if not reasons:
        return None
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    texts = output.fewer([f"{n:,} {name}" for name, n in ordered], 3, "{} reasons more")
    return f"{', '.join(texts)}; why, and what to do: {publish.REJECTS_NAME}"


def decisions(document: Document) -> list[str]:
    """Returns the stored images by decision, then the left-out images."""
    lines: dict[bool, list[str]] = {True: [], False: []}
    for decision, count in document["decisions"].items():
        lines[decision.startswith(_LEFT_OUT)].append(f"  {decision:<26} {count:>9,}")
    if lines[True]:
        where = f"{printable(document['config']['output_dir'])}/{publish.REJECTS_NAME}"
        lines[True].insert(0, f"left out; {where} says which, why and what to do:")
    return lines[False] + lines[True]


def _python(document: Document) -> list[str]:
    """Returns three lines of Python to load the data set; more with --verbose."""
    path = ascii(os.path.expanduser(document["config"]["output_dir"]))
    # A small data set needs a smaller batch: take some 4 steps or more.
    num_records = document["splits"].get("train", _BATCH_SIZE)
    size = min(_BATCH_SIZE, 1 << max(num_records.bit_length() - 3, 0))
    calls = []
    for split in document["splits"]:
        preset = "imagenet_train" if split == "train" else "imagenet_eval"
        more = "" if split in ("train", "validation") else f", split={split!r}"
        calls.append(f"  {split} = tfpipe.{preset}({path}{more}, batch_size={size})")
    if len(calls) == 1:
        first = next(iter(document["splits"]))
        calls.append(f"  dataset = {first}.build()  # Keras: {first}.for_keras()")
    return ["  import tfpipe", *(calls if output.is_verbose() else calls[:2])]


def verify(document: Document, faults: Sequence[str], more: Iterable[str]) -> None:
    """Prints the faults of a data set.

    Args:
        document: From `verify.summarize`.
        faults: The first faults, in words.
        more: Lines about files and remarks.
    """
    data_dir, num_faults = document["config"]["data_dir"], document["num_faults"]
    seconds = max(document["seconds"], 0.001)
    verdict = count_of(num_faults, "fault") if num_faults else "no fault"
    lines = [f"Fault: {fault}" for fault in faults]
    others = num_faults - len(faults)
    every = [*lines, *([f"and {count_of(others, 'more fault')}."] if others else [])]
    answer = [
        f"{data_dir}: {verdict}; {count_of(document['num_records'], 'record')} in "
        f"{count_of(document['num_shards'], 'shard')}, level {document['level']}; "
        f"{document['seconds']:.1f} s, "
        f"{document['num_bytes'] / 1e6 / seconds:,.0f} MB/s"
    ]
    if not output.is_verbose():
        answer += output.fewer(every, _MOST_FAULTS, "and {} more: --verbose")
    output.show(
        document,
        [*answer, *output.rows(next=_after_verify(document))],
        details=[*every, *more],
    )


def _after_verify(document: Document) -> str | None:
    if document["num_faults"]:
        if document["config"].get("repair"):
            return "convert again with --overwrite"
        if (how := _REPAIRS.get(document.get("made_by", ""))) is None:
            return "copy the faulty files again, or make the data set again"
        return f"--repair {how} writes the faulty shards again"
    if document["level"] in ("quick", "crc"):
        return "--level=decode decodes every image"
    return None


def query(document: Document, *, files: Document, sample: Sequence[str]) -> None:
    """Prints how many records were chosen.

    Args:
        document: The result.
        files: Paths of written files, by flag; None without a file.
        sample: A line for every record of the sample.
    """
    first, *details = counts.lines(document)
    largest = [
        f"{counts.class_name(item)} {item['num_records']:,}"
        for item in document["largest_classes"][:3]
    ]
    classes = f"{document['num_classes']:,}: {printable(', '.join(largest))}"
    sizes = document["sizes"]
    spread = [
        f"{name} {sizes[name]['min']:,.0f} to {sizes[name]['max']:,.0f}"
        for name in ("width", "height")
        if name in sizes
    ]
    written = [ascii(path)[1:-1] for path in files.values() if path is not None]
    is_open = not written and document["num_chosen"]
    copied = []
    if files["save"] is not None:
        data_dir, path = ascii(document["config"]["data_dir"]), ascii(files["save"])
        split = ascii(next(iter(document["splits"])))
        copied = [f"tfpipe.TFRecordSource({data_dir}, {split}, subset={path})"]
    answer = output.rows(
        splits=_splits(document),
        classes=classes if largest else None,
        pixels=", ".join(spread),
        written=", ".join(written),
        note=" ".join(document["remarks"]) or None,
        next="--save=FILE keeps them, --sheet=PNG shows them" if is_open else None,
    )
    faults = document["sample_faults"]
    output.show(
        document,
        [first, *answer],
        notes=[f"Warning: no picture of {ascii(fault)[1:-1]}" for fault in faults],
        copied=copied,
        details=[*details, *sample],
    )


def export(document: Document) -> None:
    """Prints the result of an export."""
    folder = printable(document["config"]["output_dir"])
    verb = "would get" if document["dry_run"] else "got"
    answer = [
        f"{folder} {verb} {count_of(document['num_records'], 'record')}, "
        f"{shown(document['num_bytes'])} ({_splits(document)}); "
        f"{document['seconds']:.1f} s"
    ]
    copied = []
    if "convert_again" in document:
        same = "the same shards" if document["same_shards"] else "a data set of these"
        answer += output.rows(next=f"to make {same} again:")
        copied = [f"  {document['convert_again']}"]
    notes = [f"Note: {line}" for line in document["limits"]]
    if not output.is_verbose():
        answer += output.fewer(notes, 3, "and {} notes more: --verbose")
    output.show(document, answer, copied=copied, details=notes)


def replicate(document: Document, details: Iterable[str]) -> None:
    """Prints the result of copies; the plan was printed on stderr.

    Args:
        document: The result.
        details: Lines on the changes of the images.
    """
    if document["dry_run"]:
        fits = "enough room" if document["estimate"]["fits"] else "TOO LITTLE ROOM"
        output.show(document, [f"Nothing was written: a dry run. There is {fits}."])
        return
    folder = printable(document["config"]["output_dir"])
    if not document["finished"]:
        _show_own_part(document, folder)
        return
    seconds, rate = document["seconds"], ""
    if document["write_seconds"]:  # else all copies are of an earlier run
        rate = f", {shown(document['num_bytes'] / seconds)}/s"
    answer = [
        f"{folder}: {count_of(document['copies'], 'copy')}, "
        f"{count_of(document['num_records'], 'record')} in "
        f"{count_of(document['num_shards'], 'shard')}, {shown(document['num_bytes'])}; "
        f"{seconds:.1f} s{rate}",
        *output.rows(next=f"python -m benchmarks.storage {folder}"),
    ]
    output.show(document, answer, details=details)
