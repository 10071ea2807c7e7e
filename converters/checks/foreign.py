"""Examines shards that other tools wrote and that have no index.

In: a folder of shards. Out: the splits and shards that the file names describe, and for
each shard `Facts` (records, features, labels), its faults and the rows of a catalog.
The shards are not changed; `adopt` makes an index from the results.
"""

import collections
import dataclasses
import itertools
import json
import pathlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import xxhash

from converters.checks.files import ShardName, parse_shard_name
from converters.checks.record import (
    ENCODED_KEYS,
    LABEL_KEYS,
    SYNSET_KEYS,
    TEXT_KEYS,
    Example,
    bytes_of,
    decode_faults,
    filename_of,
    image_size,
    int_of,
    size_faults,
    text_of,
)
from converters.checks.shard import MAX_FAULTS, Fault, Findings, Request
from converters.engines import processes
from converters.images import jpeg_header
from tfpipe import errors
from tfpipe.shards import index, records
from tfpipe.shards.example import decode_example

# The index names every class up to the largest label, and 500,000 classes take 600 MB.
MAX_LABEL = 500_000

_GZIP = b"\x1f\x8b"


class ForeignShard(NamedTuple):
    """A shard file.

    Attributes:
        file: Name of the file.
        name: The parts of that name.
        num_bytes: Size in bytes.
    """

    file: str
    name: ShardName
    num_bytes: int


@dataclasses.dataclass
class Facts:
    """Counts over the records of one or more shards.

    Attributes:
        num_records: Number of records.
        num_examples: Number of records that parse as a tf.train.Example.
        num_not_jpeg: Number of examples whose image is not a JPEG.
        features: Number of examples that have the feature (key, kind).
        labels: The (synset, text) pairs of the examples with each label.
    """

    num_records: int = 0
    num_examples: int = 0
    num_not_jpeg: int = 0
    features: collections.Counter[tuple[str, str]] = dataclasses.field(
        default_factory=collections.Counter
    )
    labels: dict[int, set[tuple[str, str]]] = dataclasses.field(default_factory=dict)

    def add(self, other: "Facts") -> None:
        """Adds the counts of other shards."""
        self.num_records += other.num_records
        self.num_examples += other.num_examples
        self.num_not_jpeg += other.num_not_jpeg
        self.features.update(other.features)
        for label, names in other.labels.items():
            self.labels.setdefault(label, set()).update(names)

    def common_features(self) -> dict[str, str]:
        """Returns the kind of each feature that every example has.

        The kind "empty" (a list without values) fits any other kind. A feature with
        two other kinds is left out.
        """
        counts: collections.Counter[str] = collections.Counter()
        kinds: dict[str, set[str]] = {}
        for (key, kind), count in sorted(self.features.items()):
            counts[key] += count
            kinds.setdefault(key, set()).add(kind)
        return {
            key: max(named)
            for key, count in counts.items()
            if count == self.num_examples and len(named := kinds[key] - {"empty"}) == 1
        }


class Examined(NamedTuple):
    """Results of one shard.

    Attributes:
        split: Split of the shard, from its name.
        entry: The entry of the shard for an index.
        facts: Counts over its records.
        findings: Its faults.
    """

    split: str
    entry: index.Shard
    facts: Facts
    findings: Findings


def find_shards(data_dir: pathlib.Path) -> list[ForeignShard]:
    """Finds the shards in a folder, sorted by split, prefix and number."""
    found = []
    for path in data_dir.iterdir():
        name = parse_shard_name(path.name)
        if name is not None and path.is_file():
            found.append(ForeignShard(path.name, name, path.stat().st_size))
    return sorted(found, key=lambda shard: (shard.name.split, shard.name))


def name_faults(shards: Sequence[ForeignShard]) -> Iterator[Fault]:
    """Yields shards that are missing according to the names of the others.

    Also yields numbers above the number of shards, and splits of two sets of shards.
    """
    groups: dict[tuple[str, int], set[int]] = {}
    splits: dict[str, set[tuple[str, int]]] = {}
    for shard in shards:
        group = shard.name.prefix, shard.name.num_shards
        groups.setdefault(group, set()).add(shard.name.number)
        splits.setdefault(shard.name.split, set()).add(group)
    for (prefix, num_shards), numbers in groups.items():
        yield from _missing_faults(prefix, num_shards, numbers)
        for number in sorted(n for n in numbers if n >= num_shards):
            name = f"{prefix}-{number:05d}-of-{num_shards:05d}"
            yield Fault(shard=name, fault=f"its number must be below {num_shards}")
    for split, kinds in splits.items():
        if len(kinds) > 1:
            names = ", ".join(f"{prefix}-*-of-{n:05d}" for prefix, n in sorted(kinds))
            fault = f"split {split!r} must be one set of shards, got {names}"
            yield Fault(shard=sorted(kinds)[0][0], fault=fault)


def _missing_faults(
    prefix: str, num_shards: int, numbers: Collection[int]
) -> Iterator[Fault]:
    """Yields a fault for each missing shard, or one fault if there are many.

    The number of shards comes from a file name and may be huge, so that the missing
    numbers are not all enumerated.
    """
    num_missing = num_shards - sum(number < num_shards for number in numbers)
    # len() of range(num_shards) fails above 2 ** 63.
    missing = (number for number in itertools.count() if number not in numbers)
    if num_missing > MAX_FAULTS:
        fault = (
            f"{num_missing:,} of these {num_shards:,} shards are missing, the first is "
            f"number {next(missing):,}"
        )
        yield Fault(shard=f"{prefix}-*-of-{num_shards:05d}", fault=fault)
        return
    for number in itertools.islice(missing, num_missing):
        name = f"{prefix}-{number:05d}-of-{num_shards:05d}"
        yield Fault(shard=name, fault="missing: other shards of this set are there")


def examine(
    request: Request, work_dir: pathlib.Path | None, shard: ForeignShard
) -> Examined:
    """Examines one shard; runs in a worker process.

    The level "quick" reads only the headers of the records. The other levels also write
    the catalog fragment of the shard into `work_dir`, if there is a `work_dir`.
    """
    facts, findings = Facts(), Findings(shard.file)
    digest = xxhash.xxh3_128()
    path = request.data_dir / shard.file
    if request.level == "quick":
        _count(path, facts, findings)
    else:
        rows = _examine_records(request, shard, facts, findings, digest.update)
        if work_dir is not None:
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            fragment = fragment_path(work_dir, shard.file)
            fragment.write_text(lines, encoding="utf-8")
    entry = index.Shard(
        name=shard.file,
        num_records=facts.num_records,
        num_bytes=shard.num_bytes,
        digest=digest.hexdigest(),
    )
    return Examined(shard.name.split, entry, facts, findings)


def _count(path: pathlib.Path, facts: Facts, findings: Findings) -> None:
    """Counts the records up to the first damaged header."""
    try:
        for _ in records.scan(path):
            facts.num_records += 1
            processes.image_done()
    except errors.BadRecordError as error:
        number = facts.num_records
        fault = _gzip_fault(path) or str(error)
        findings.add(Fault(shard=findings.shard, record=number, fault=fault))


def _examine_records(
    request: Request,
    shard: ForeignShard,
    facts: Facts,
    findings: Findings,
    on_bytes: Callable[[bytes], object],
) -> list[dict[str, Any]]:
    """Returns the catalog rows of a shard; adds to facts and findings.

    Args:
        request: The data set and the level.
        shard: The shard.
        facts: Gets the counts.
        findings: Gets the faults.
        on_bytes: Called with all bytes of the shard in order, for its digest.
    """
    rows = []
    path = request.data_dir / shard.file
    for number, record in enumerate(records.read(path, on_bytes=on_bytes)):
        row, faults = _examine_record(path, record, request.level, facts)
        for fault in faults:
            findings.add(
                Fault(
                    shard=shard.file,
                    record=number,
                    byte_offset=record.byte_offset,
                    file=row.get("filename") or None,
                    fault=fault,
                )
            )
        place = {
            "split": shard.name.split,
            "shard": shard.name.number,
            "record": number,
            "byte_offset": record.byte_offset,
            "num_bytes": record.num_bytes,
        }
        rows.append(place | row)
        facts.num_records += 1
        processes.image_done()
    return rows


def fragment_path(work_dir: pathlib.Path, file: str) -> pathlib.Path:
    """Returns the path of the file with the catalog rows of one shard."""
    return work_dir / f"{file}.jsonl"


def _examine_record(
    path: pathlib.Path, record: records.Record, level: str, facts: Facts
) -> tuple[dict[str, Any], list[str]]:
    """Returns the catalog row of a record and its faults; adds to the facts.

    The row is empty if the record is damaged, and has no columns of its place.
    """
    if record.fault:
        gzip_fault = "" if record.byte_offset else _gzip_fault(path)
        return {}, [gzip_fault or record.fault]
    try:
        example = decode_example(record.data)
    except errors.BadRecordError as error:
        return {}, [str(error)]
    facts.num_examples += 1
    row, faults = _describe(example)
    encoded = bytes_of(example, ENCODED_KEYS)
    if encoded is not None and not encoded.startswith(jpeg_header.MAGIC):
        facts.num_not_jpeg += 1
    for key, feature in example.items():
        facts.features[key, feature.kind] += 1
    if row["label"] is not None and 0 <= row["label"] <= MAX_LABEL:
        names = facts.labels.setdefault(row["label"], set())
        names.add((row["synset"], text_of(example, TEXT_KEYS)))
    if level in ("schema", "decode"):
        faults += size_faults(example)
    if level == "decode" and not faults:
        faults += decode_faults(example)
    return row, faults


def _describe(example: Example) -> tuple[dict[str, Any], list[str]]:
    """Returns the catalog row of an example without its place, and its faults."""
    faults = []
    label = int_of(example, LABEL_KEYS)
    if label is None:
        keys = " or ".join(LABEL_KEYS)
        faults.append(f"one integer label must be in {keys}")
    elif not 0 <= label <= MAX_LABEL:
        faults.append(f"the label must be 0 to {MAX_LABEL:,}, got {label}")
    encoded = bytes_of(example, ENCODED_KEYS)
    size = (0, 0)
    if encoded is None:
        keys = " or ".join(ENCODED_KEYS)
        faults.append(f"one encoded image must be in {keys}")
    else:
        try:
            size = image_size(encoded)
        except ValueError as error:
            faults.append(f"the image has no readable header: {error}")
    row = {
        "label": label,
        "synset": text_of(example, SYNSET_KEYS),
        "height": size[0],
        "width": size[1],
        "filename": filename_of(example),
        "decision": "foreign",
        "digest": xxhash.xxh3_128_hexdigest(encoded or b""),
    }
    return row, faults


def _gzip_fault(path: pathlib.Path) -> str:
    """Returns a fault if the file is compressed with gzip; else an empty text."""
    with open(path, "rb") as file:
        if file.read(len(_GZIP)) != _GZIP:
            return ""
    return "the file is compressed with gzip; decompress it: readers must seek in it"
