"""Faults in the data: which records are damaged, and how many may be.

In: the damaged records that `damaged` and `stand_in` find. Out: a line on stderr for
each, a summary, and an error as soon as there are more than the budget allows.
"""

import collections
import dataclasses
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe import errors
from tfpipe.shards import index, records

# Each error about damaged records ends with this advice.
REMEDY = "Find all with python -m converters.verify, which can repair them."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """A damaged record.

    Attributes:
        reason: Kind of damage: "crc", "header", "cut", "unreadable" or "decode".
        shard: Path of its shard.
        byte_offset: Byte offset of its header in the shard.
        record_id: Number of the record in the split.
        detail: Description of the damage, for people.
    """

    reason: str
    shard: str
    byte_offset: int
    record_id: int
    detail: str

    def __str__(self) -> str:
        return (
            f"{self.shard}: record {self.record_id} of the split at byte "
            f"{self.byte_offset}{_filename(self)}: {self.detail}"
        )


class FaultLog:
    """The damaged records that a pipeline has met, and a budget for them.

    Each record is printed once on stderr and counted once, however many epochs meet it.
    If a pipeline is built for a number of epochs, `summary` is printed on stderr after
    the last of them.

    Args:
        max_faults: Number of different records that may be damaged, >= 0; one more
            raises an error.
        locate: Callable (number of a record) -> (path of its shard, byte offset in it),
            see `TFRecordSource.locate`. Only `Map` needs it.

    Raises:
        ValueError: If max_faults is below 0.
    """

    def __init__(
        self,
        max_faults: int,
        *,
        locate: Callable[[int], tuple[str, int]] | None = None,
    ) -> None:
        self.max_faults = errors.require_int(self, "max_faults", max_faults, least=0)
        errors.require_callable(self, "locate", locate, or_none=True)
        self.locate = locate
        self._faults: dict[int, Fault] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"FaultLog(max_faults={self.max_faults})"

    @property
    def faults(self) -> list[Fault]:
        """The faults so far, in the order of the split."""
        with self._lock:
            return [self._faults[number] for number in sorted(self._faults)]

    @property
    def num_faults_by_reason(self) -> dict[str, int]:
        """Number of faults of each kind."""
        return dict(collections.Counter(fault.reason for fault in self.faults))

    def summary(self) -> str:
        """Returns the number of faults of each kind and the places of the first ten."""
        faults = self.faults
        lines = [f"Skipped {errors.count_of(len(faults), 'record')}."]
        for reason, count in sorted(self.num_faults_by_reason.items()):
            lines.append(f"{reason}: {count}")
            kind = [fault for fault in faults if fault.reason == reason]
            lines += [f"  {fault.shard} at {fault.byte_offset}" for fault in kind[:10]]
        return "\n".join(lines)

    def add(self, fault: Fault) -> None:
        """Counts and prints a fault.

        Raises:
            BadRecordError: If there are more faults than the budget allows.
        """
        with self._lock:
            is_new = fault.record_id not in self._faults
            self._faults.setdefault(fault.record_id, fault)
        # A known fault raises too: a reader that ignored the error before must not lose
        # the record silently.
        if (error := self.error()) is not None:
            raise error
        if is_new:
            print(f"Skipped a damaged record. {fault}", file=sys.stderr)

    def reported_after(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the same dataset, which prints `summary` after its last element."""

        def report() -> np.int64:
            if self.faults:
                print(self.summary(), file=sys.stderr, flush=True)
            return np.int64(0)

        def none(_: tf.Tensor) -> tf.data.Dataset:
            # Takes no element of `dataset`, but has its element_spec.
            return dataset.take(tf.numpy_function(report, [], tf.int64))

        end = tf.data.Dataset.from_tensors(0)
        whole = dataset.concatenate(
            end.flat_map(tf.autograph.experimental.do_not_convert(none))
        )
        number = dataset.cardinality()
        if number < 0:  # unknown or endless
            return whole
        return whole.apply(tf.data.experimental.assert_cardinality(number))

    def error(self) -> errors.BadRecordError | None:
        """Returns the error to raise if the budget is exceeded, otherwise None.

        `add` raises the same error within TensorFlow, which buries it in a traceback.
        """
        with self._lock:
            met = list(self._faults.values())
        if len(met) <= self.max_faults:
            return None
        return errors.BadRecordError(
            f"Found {errors.count_of(len(met), 'damaged record')}, max_faults allows "
            f"{self.max_faults}. "
            f"The last one: {met[-1]}. {REMEDY}"
        )


class Uncounted(FaultLog):
    """A log that ignores faults.

    The search for a sound record uses it: the damaged records on the way are counted
    when the pipeline itself reads them.
    """

    def __init__(self) -> None:
        super().__init__(0)

    def add(self, fault: Fault) -> None:
        """Does nothing."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A record that was read; `reason` and `detail` are those of `Fault`, or empty."""

    data: bytes
    reason: str
    detail: str


def read_record(file: Any, offset: int) -> Found:
    """Reads one record of an open shard, or finds out how it is damaged."""
    try:
        file.seek(offset)
        header = file.read(records.HEADER_BYTES)
        num_bytes = records.record_bytes(header)
        if num_bytes is None:
            return _BAD_HEADER
        rest = num_bytes - records.HEADER_BYTES
        # A damaged length may be huge: the read is limited to the end of the file.
        body = file.read(max(0, min(rest, file.size() - offset)))
    except tf.errors.OpError as error:
        return Found(b"", "unreadable", f"it cannot be read: {error.message}")
    return _cut(rest, len(body)) if len(body) < rest else _checked(body)


def check_record(record: bytes, num_left: int) -> Found:
    """Finds out how a record is damaged that is in memory.

    Args:
        record: The bytes where the catalog says that the record is, with header.
        num_left: Bytes of the shard from the beginning of the record on.
    """
    num_bytes = records.record_bytes(record[: records.HEADER_BYTES])
    if num_bytes is None:
        return _BAD_HEADER
    if num_bytes > num_left:
        header = records.HEADER_BYTES
        return _cut(num_bytes - header, num_left - header)
    if num_bytes != len(record):
        detail = f"it must have {len(record)} bytes, its header says {num_bytes}"
        return Found(b"", "header", detail)
    return _checked(record[records.HEADER_BYTES :])


_BAD_HEADER = Found(b"", "header", "the header (length and its CRC) is damaged")


def _cut(wanted: int, got: int) -> Found:
    return Found(b"", "cut", f"it must have {wanted} bytes more, got {got}")


def _checked(body: bytes) -> Found:
    data, tail = body[: -records.FOOTER_BYTES], body[-records.FOOTER_BYTES :]
    detail = records.data_fault(data, tail)
    return Found(data, "crc" if detail else "", detail)


def _filename(fault: Fault) -> str:
    """Returns the name of the image, or "" if the catalog cannot be read."""
    folder, shard = os.path.split(fault.shard)
    try:
        known = index.load(folder)
        split, number = next(
            (split, number)
            for split, shards in known.splits.items()
            for number, entry in enumerate(shards)
            if entry.name == shard
        )
        name = index.load_filename(
            folder, split, shard=number, byte_offset=fault.byte_offset
        )
    except (errors.BadIndexError, StopIteration):
        return ""
    return "" if name is None else f" (image {name})"
