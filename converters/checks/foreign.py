"""Shards that other tools wrote, without an index: what can be told of them.

In: a folder of shards. Out: what their names say, and of each shard `Facts` (records,
features, labels), its faults and the rows of a catalog. The shards are not touched;
`adopt` makes an index of what is found here.
"""

import collections
import dataclasses
import itertools
import json
import pathlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import xxhash

from converters.checks import files, record as record_checks, shard as shard_checks
from converters.checks.shard import Fault, Findings
from converters.engines import processes
from converters.images import jpeg_header
from tfpipe import errors
from tfpipe.shards import index, records

# The index names every class up to the largest label: half a million take 600 MB.
MAX_LABEL = 500_000

_GZIP = b"\x1f\x8b"


class ForeignShard(NamedTuple):
    """One shard file; fields are the parts of its name and its size in bytes."""

    file: str
    name: files.ShardName
    num_bytes: int


@dataclasses.dataclass
class Facts:
    """What the records of some shards say.

    Attributes:
        num_records: How many there are.
        num_examples: How many of them are sound enough to say anything.
        features: How many records have the feature (key, kind).
        num_not_jpeg: How many of these hold an image of another format.
        labels: The (synset, text) pairs that come with each label.
    """

    num_records: int = 0
    num_examples: int = 0
    num_not_jpeg: int = 0
    features: collections.Counter[tuple[str, str]] = dataclasses.field(
        default_factory=collections.Counter
    )
    labels: dict[int, set[tuple[str, str]]] = dataclasses.field(default_factory=dict)

    def add(self, other: "Facts") -> None:
        """Adds what other shards say."""
        self.num_records += other.num_records
        self.num_examples += other.num_examples
        self.num_not_jpeg += other.num_not_jpeg
        self.features.update(other.features)
        for label, names in other.labels.items():
            self.labels.setdefault(label, set()).update(names)

    def common_features(self) -> dict[str, str]:
        """Kind of each feature that every record has, lists without values aside."""
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
    """What was found in one shard; the entry is what an index says of it."""

    split: str
    entry: index.Shard
    facts: Facts
    findings: Findings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How to examine: the folder, the level, and where catalog rows go, if anywhere."""

    data_dir: pathlib.Path
    level: str
    work_dir: pathlib.Path | None


def find(data_dir: pathlib.Path) -> list[ForeignShard]:
    """The shards in a folder, by split and number."""
    found = []
    for path in data_dir.iterdir():
        name = files.parse_name(path.name)
        if name is not None and path.is_file():
            found.append(ForeignShard(path.name, name, path.stat().st_size))
    return sorted(found, key=lambda shard: (shard.name.split, shard.name))


def name_faults(shards: Sequence[ForeignShard]) -> Iterator[Fault]:
    """Shards that their own names say are missing, and names that do not fit."""
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
    """Shards that are not there: each of a few, or all of many as one fault.

    A name can say any number of shards, so that not all are looked through.
    """
    num_missing = num_shards - sum(number < num_shards for number in numbers)
    # range(num_shards) would fail above 2 ** 63.
    missing = (number for number in itertools.count() if number not in numbers)
    if num_missing > shard_checks.MAX_FAULTS:
        fault = (
            f"{num_missing:,} of these {num_shards:,} shards are missing, the first is "
            f"number {next(missing):,}"
        )
        yield Fault(shard=f"{prefix}-*-of-{num_shards:05d}", fault=fault)
        return
    for number in itertools.islice(missing, num_missing):
        name = f"{prefix}-{number:05d}-of-{num_shards:05d}"
        yield Fault(shard=name, fault="missing: others of its number are there")


def examine(settings: Settings, shard: ForeignShard) -> Examined:
    """Reads a shard and tells what is in it; runs in a worker process.

    The level "quick" reads headers only. With `settings.work_dir`, also writes the
    shard's catalog fragment there.
    """
    facts, findings = Facts(), Findings(shard.file)
    digest = xxhash.xxh3_128()
    path = settings.data_dir / shard.file
    if settings.level == "quick":
        _count(path, facts, findings)
    else:
        rows = _examine_records(settings, shard, facts, findings, digest.update)
        if settings.work_dir is not None:
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            fragment = fragment_path(settings.work_dir, shard.file)
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
    settings: Settings,
    shard: ForeignShard,
    facts: Facts,
    findings: Findings,
    on_bytes: Callable[[bytes], object],
) -> list[dict[str, Any]]:
    """The catalog rows of a shard; adds to facts and findings."""
    rows = []
    path = settings.data_dir / shard.file
    for number, record in enumerate(shard_checks.read_shard(path, None, on_bytes)):
        row, faults = _examine_record(path, record, settings.level, facts)
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
    """Where the catalog rows of a shard wait to be joined."""
    return work_dir / f"{file}.jsonl"


def _examine_record(
    path: pathlib.Path, record: records.Record, level: str, facts: Facts
) -> tuple[dict[str, Any], list[str]]:
    """What the catalog says of a record, and its faults; adds to the facts."""
    if record.fault:
        gzip_fault = "" if record.byte_offset else _gzip_fault(path)
        return {}, [gzip_fault or record.fault]
    try:
        example = records.decode_example(record.data)
    except errors.BadRecordError as error:
        return {}, [str(error)]
    facts.num_examples += 1
    row, faults = _describe(example)
    encoded = record_checks.bytes_of(example, record_checks.ENCODED_KEYS)
    facts.num_not_jpeg += encoded is not None and not encoded.startswith(
        jpeg_header.MAGIC
    )
    for key, feature in example.items():
        facts.features[key, feature.kind] += 1
    if row["label"] is not None and 0 <= row["label"] <= MAX_LABEL:
        names = facts.labels.setdefault(row["label"], set())
        synset = record_checks.text(
            record_checks.bytes_of(example, record_checks.SYNSET_KEYS)
        )
        names.add(
            (
                synset,
                record_checks.text(
                    record_checks.bytes_of(example, record_checks.TEXT_KEYS)
                ),
            )
        )
    if level in ("schema", "decode"):
        faults += record_checks.size_faults(example)
    if level == "decode" and not faults:
        faults += record_checks.decode_faults(example)
    return row, faults


def _describe(example: record_checks.Example) -> tuple[dict[str, Any], list[str]]:
    """The catalog row of an example without its place, and what it lacks."""
    faults = []
    label = record_checks.int_of(example, record_checks.LABEL_KEYS)
    if label is None:
        keys = " or ".join(record_checks.LABEL_KEYS)
        faults.append(f"one integer label must be in {keys}")
    elif not 0 <= label <= MAX_LABEL:
        faults.append(f"the label must be 0 to {MAX_LABEL:,}, got {label}")
    encoded = record_checks.bytes_of(example, record_checks.ENCODED_KEYS)
    size = (0, 0)
    if encoded is None:
        keys = " or ".join(record_checks.ENCODED_KEYS)
        faults.append(f"one encoded image must be in {keys}")
    else:
        try:
            size = record_checks.image_size(encoded)
        except ValueError as error:
            faults.append(f"the image has no readable header: {error}")
    row = {
        "label": label,
        "synset": record_checks.text(
            record_checks.bytes_of(example, record_checks.SYNSET_KEYS)
        ),
        "height": size[0],
        "width": size[1],
        "filename": record_checks.file_name(
            record_checks.bytes_of(example, record_checks.FILENAME_KEYS)
        ),
        "decision": "foreign",
        "digest": xxhash.xxh3_128_hexdigest(encoded or b""),
    }
    return row, faults


def _gzip_fault(path: pathlib.Path) -> str:
    with open(path, "rb") as file:
        if file.read(len(_GZIP)) != _GZIP:
            return ""
    return "the file is compressed with gzip; decompress it: readers must seek in it"
