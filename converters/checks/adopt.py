"""Gives the shards of another tool an index: label base, classes, index.json, catalog.

In: what `foreign` found in the shards. Out: the classes that the labels stand for and
the reason for this choice, remarks for people, and the files that tfpipe reads, written
beside the shards. The shards themselves are never changed.
"""

import collections
import contextlib
import functools
import os
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tfpipe
from converters.checks import foreign
from converters.checks.files import is_taken_for_shard, with_digests
from converters.checks.foreign import Examined, Facts
from converters.checks.shard import Fault, Request, Result
from converters.inputs import classes
from converters.jobs import side_files
from tfpipe.errors import count_of
from tfpipe.location import atomic
from tfpipe.shards import image_record, index

COMMAND = "converters.verify"
# Prefix of the work folder beside the shards. No reader looks at names with a dot.
_PREFIX = ".verifying-"
# The features that the presets of tfpipe parse, unless they are told other keys.
_NEEDED = (image_record.ENCODED, image_record.LABEL)

# The (synset, text) pairs that come with every label.
Names = Mapping[int, set[tuple[str, str]]]


class Labels(NamedTuple):
    """The classes that labels stand for: the label base, why, and the classes."""

    base: int
    reason: str
    classes: Sequence[classes.Class]


def check_foreign(request: Request, *, write: bool) -> Result:
    """Checks shards that have no index, and with `write` makes one if they are sound.

    Raises:
        ValueError: If there are no shards, or if the level needs an index.
        OSError: If a file cannot be read or written.
    """
    data_dir, shards = request.data_dir, _require_shards(request)
    with contextlib.ExitStack() as stack:
        folder = None
        if write:
            # A random name: a fixed one could be a link, or in use by another check.
            temporary = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=data_dir)
            folder = pathlib.Path(stack.enter_context(temporary))
        # The number of records is unknown until the shards are read: 0 shows no total.
        examined: list[Examined] = request.run(
            functools.partial(foreign.examine, request, folder), shards, num_records=0
        )
        facts = Facts()
        for one in examined:
            facts.add(one.facts)
        labels = infer_labels(facts.labels)
        result = _result(examined, facts)
        result.add(foreign.name_faults(shards))
        result.details |= _details(examined, facts, labels)
        notes = result.details["remarks"]
        notes += stray_remarks(data_dir, shards)
        if folder is not None and labels is not None and not result.num_faults:
            written = write_index(data_dir, folder, examined, facts, labels)
            result.details["written"] = written
        elif write:
            notes.append("the index was not written, because there are faults")
    return result


def _require_shards(request: Request) -> list[foreign.ForeignShard]:
    """Finds the shards of the folder.

    Raises:
        BadIndexError: If there are none.
        ValueError: If the level needs an index.
    """
    data_dir = request.data_dir
    shards = foreign.find_shards(data_dir)
    if not shards:
        raise index.missing(data_dir)
    if request.level == "source":
        raise ValueError(
            f"--level=source needs {index.INDEX_NAME} with the names of the source "
            f"files, but {data_dir} has none. Choose --level=decode."
        )
    return shards


def _result(examined: Sequence[Examined], facts: Facts) -> Result:
    """Returns the faults of all shards in one result."""
    result = Result(
        num_records=facts.num_records,
        num_shards=len(examined),
        num_bytes=sum(one.entry.num_bytes for one in examined),
    )
    for one in examined:
        result.add_findings(one.findings)
    result.add(split_faults(examined))
    result.add(label_faults(facts.labels))
    return result


def _details(
    examined: Sequence[Examined], facts: Facts, labels: Labels | None
) -> dict[str, Any]:
    """Returns what the JSON document says about the shards besides their faults."""
    details: dict[str, Any] = {
        "splits": {
            split: sum(entry.num_records for entry in entries)
            for split, entries in _by_split(examined).items()
        },
        "features": facts.common_features(),
        "remarks": remarks(examined, facts),
    }
    if labels is not None:
        details |= {
            "label_range": [min(facts.labels), max(facts.labels)],
            "label_base": labels.base,
            "label_base_reason": labels.reason,
            "num_classes": len(labels.classes),
        }
    return details


def infer_labels(names: Names) -> Labels | None:
    """Infers the label base and the classes from the labels and names in the records.

    If the synsets are in the order of the ILSVRC-2012 list, the base is the label of
    its first synset. Otherwise the base is the smallest label, but at most 1. A class
    that no record names is called by its label.

    Returns:
        The classes, or None if there is no label.
    """
    labels = [label for label in names if label >= 0]
    if not labels:
        return None
    listed = _listed_labels(names)
    if listed is not None:
        return listed
    base = min(1, min(labels))
    reason = f"the smallest label is {min(labels)}"
    if min(labels) > 1:
        reason += "; 1 is what the Inception scripts begin with"
    found = []
    for label in range(base, max(labels) + 1):
        synset, text = min(names.get(label, {("", "")}))
        name = text or synset or str(label)
        found.append(classes.Class(label, synset or str(label), name))
    return Labels(base, reason, found)


def _listed_labels(names: Names) -> Labels | None:
    """Returns the classes of ILSVRC-2012, or None if a synset is at another place."""
    known = classes.imagenet_classes()
    place = {one.synset: number for number, one in enumerate(known)}
    pairs = [(label, synset) for label in names for synset, _ in names[label]]
    if not all(synset in place for _, synset in pairs):
        return None
    bases = {label - place[synset] for label, synset in pairs}
    if bases not in ({0}, {1}):
        return None
    (base,) = bases
    texts = {synset: text for named in names.values() for synset, text in named}
    renumbered = [
        classes.Class(base + number, one.synset, texts.get(one.synset) or one.text)
        for number, one in enumerate(known)
    ]
    first = known[0].synset
    reason = f"the synsets are in the order of ILSVRC-2012 with {first} at {base}"
    return Labels(base, reason, renumbered)


def label_faults(names: Names) -> Iterator[Fault]:
    """Yields a fault for every label that stands for more than one class."""
    for label, pairs in sorted(names.items()):
        if len(pairs) > 1:
            shown = ", ".join(map(repr, sorted(pairs)[:3]))
            fault = f"label {label} must stand for one class, got {shown}"
            yield Fault(shard="labels", fault=fault)


def split_faults(examined: Sequence[Examined]) -> Iterator[Fault]:
    """Yields a fault for every split without a record."""
    for split, entries in _by_split(examined).items():
        if not any(entry.num_records for entry in entries):
            fault = f"split {split!r} has no record in any shard"
            yield Fault(shard=entries[0].name, fault=fault)


def remarks(examined: Sequence[Examined], facts: Facts) -> list[str]:
    """Says what is unusual but no fault: empty and uneven shards, missing features."""
    found = []
    for split, entries in _by_split(examined).items():
        counts = [entry.num_records for entry in entries]
        if empty := counts.count(0):
            found.append(f"{split}: {empty} of {len(counts)} shards without records")
        if max(counts) - min(counts) > 1:
            found.append(
                f"{split}: the shards are uneven, {min(counts)} to {max(counts)} "
                "records; readers that share shards among ranks lose some records"
            )
    features = facts.common_features()
    lacking = [key for key in _NEEDED if key not in features]
    if features and lacking:
        found.append(
            f"not every record has {', '.join(lacking)}: tfpipe.TFRecordSource reads "
            "the records, but its presets need parse=tfpipe.Parse(image_key=..., "
            "label_key=...)"
        )
    if facts.num_not_jpeg:
        found.append(
            f"Not JPEG: {count_of(facts.num_not_jpeg, 'image')}. The presets of tfpipe "
            "decode PNG as well, at a higher cost, and no other format"
        )
    return found


def stray_remarks(
    data_dir: pathlib.Path, shards: Sequence[foreign.ForeignShard]
) -> list[str]:
    """Names the other files that readers may take for shards."""
    names = {shard.file for shard in shards}
    return [
        f"{path.name} is no shard, but readers that look by name may read it"
        for path in sorted(data_dir.iterdir())
        if path.name not in names and is_taken_for_shard(path.name)
    ]


def _by_split(examined: Sequence[Examined]) -> dict[str, list[index.Shard]]:
    splits: dict[str, list[index.Shard]] = collections.defaultdict(list)
    for one in examined:
        splits[one.split].append(one.entry)
    return splits


def write_index(
    data_dir: pathlib.Path,
    folder: pathlib.Path,
    examined: Sequence[Examined],
    facts: Facts,
    labels: Labels,
) -> list[str]:
    """Writes the catalog, the side files and, last, the index.

    Side files that already exist are not replaced.

    Args:
        data_dir: Folder of the shards.
        folder: Folder with the catalog fragments of all shards.
        examined: The shards, in order.
        facts: The facts of all shards together.
        labels: The classes that the labels stand for.

    Returns:
        The names of the files that were written.
    """
    catalog = folder / index.CATALOG_NAME
    fragments = [foreign.fragment_path(folder, one.entry.name) for one in examined]
    made_by = {
        "command": COMMAND,
        "version": tfpipe.__version__,
        "git_revision": tfpipe.host.git_revision(),
        "label_base_reason": labels.reason,
        "features": facts.common_features(),
        "decisions": {"foreign": facts.num_records},
    }
    result = index.Index(
        name=data_dir.resolve().name,
        label_base=labels.base,
        classes=tuple((one.synset, one.text) for one in labels.classes),
        splits={split: tuple(shards) for split, shards in _by_split(examined).items()},
        made_by=made_by,
    )
    # DuckDB fails on an empty file.
    filled = [path for path in fragments if path.stat().st_size]
    with index.catalog_connection() as connection:
        index.write_catalog(connection, filled, catalog)
        places = index.record_places(connection, catalog, result)
        keys = facts.common_features()
        contents = side_files.side_files(result, places, keys=keys)
    os.replace(catalog, data_dir / index.CATALOG_NAME)
    written = [index.CATALOG_NAME]
    for name, content in contents.items():
        path = data_dir / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            atomic.write(path, content)
            written.append(name)
    index.write(with_digests(result, data_dir), data_dir)
    return [*written, index.INDEX_NAME]
