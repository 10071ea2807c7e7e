"""Faults in the data: which records are damaged, and what stands in for them.

In: a window that could not be read whole, or a chunk of examples of which an op failed
on some. Out: the same with every sound one in its place and another one, marked as not
real, in the place of a damaged one; and an account of what was left out. Runs only
after something has gone wrong.
"""

import collections
import contextlib
import dataclasses
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe import arguments, errors, index, philox, records

Example = dict[str, tf.Tensor]
Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One record that is damaged.

    Attributes:
        reason: What kind: "crc", "header", "cut", "unreadable" or "decode".
        shard: Path of its shard.
        byte_offset: Where its header starts.
        record_id: Its number in the split.
        detail: What is wrong with it, for people.
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
    """The damaged records that a pipeline met; a budget for them.

    Each is said once on stderr and counted once, however many epochs meet it. Where a
    pipeline is built for some epochs, and not without end, `summary` follows on stderr
    after the last of them.

    Args:
        max_faults: How many different records may be damaged before it is an error.
        locate: Number of a record -> path of its shard and byte offset in it, see
            `TFRecordSource.locate`. Only `Map` needs it.

    Raises:
        ValueError: If max_faults is below 0.
    """

    def __init__(
        self,
        max_faults: int,
        *,
        locate: Callable[[int], tuple[str, int]] | None = None,
    ) -> None:
        self.max_faults = arguments.require_int(self, "max_faults", max_faults, least=0)
        arguments.require_callable(self, "locate", locate, or_none=True)
        self.locate = locate
        self._faults: dict[int, Fault] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"FaultLog(max_faults={self.max_faults})"

    @property
    def faults(self) -> list[Fault]:
        """Those met so far, in the order of the split."""
        with self._lock:
            return [self._faults[number] for number in sorted(self._faults)]

    @property
    def num_faults_by_reason(self) -> dict[str, int]:
        """How many of each kind."""
        return dict(collections.Counter(fault.reason for fault in self.faults))

    def summary(self) -> str:
        """How many of each kind, and where the first ten of each are, for people."""
        faults = self.faults
        lines = [f"{len(faults)} records were skipped."]
        for reason, count in sorted(self.num_faults_by_reason.items()):
            lines.append(f"{reason}: {count}")
            kind = [fault for fault in faults if fault.reason == reason]
            lines += [f"  {fault.shard} at {fault.byte_offset}" for fault in kind[:10]]
        return "\n".join(lines)

    def add(self, fault: Fault) -> None:
        """Counts one.

        Raises:
            BadRecordError: If there are more than the budget allows.
        """
        with self._lock:
            is_new = fault.record_id not in self._faults
            self._faults.setdefault(fault.record_id, fault)
        # Of one that is known too: who goes on after the error must not lose it unseen.
        if (error := self.error()) is not None:
            raise error
        if is_new:
            print(f"Skipped a damaged record. {fault}", file=sys.stderr)

    def reported_after(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The same elements; after the last one, what was skipped goes to stderr."""

        def report() -> np.int64:
            if self.faults:
                print(self.summary(), file=sys.stderr, flush=True)
            return np.int64(0)

        def none(_: tf.Tensor) -> tf.data.Dataset:
            # Of the same elements as `dataset`, but without one.
            return dataset.take(tf.numpy_function(report, [], tf.int64))

        end = tf.data.Dataset.from_tensors(0)
        whole = dataset.concatenate(
            end.flat_map(tf.autograph.experimental.do_not_convert(none))
        )
        number = dataset.cardinality()
        if number < 0:  # not known
            return whole
        return whole.apply(tf.data.experimental.assert_cardinality(number))

    def error(self) -> errors.BadRecordError | None:
        """What to raise, if there are more than the budget allows.

        `add` raises it inside of TensorFlow, whose own error buries it in a traceback.
        """
        with self._lock:
            met = list(self._faults.values())
        if len(met) <= self.max_faults:
            return None
        return errors.BadRecordError(
            f"{len(met)} records are damaged, max_faults allows {self.max_faults}. "
            f"The last one: {met[-1]}. {_REMEDY}"
        )


_REMEDY = "Find all with python -m converters.verify, which can repair them."


def stand_in(
    chunk: Example,
    apply: Callable[[Example], Example],
    positions: tf.Tensor,
    results: Example,
    log: FaultLog,
) -> Example:
    """Fills up what ops made of a chunk where they failed on some of its elements.

    Args:
        chunk: The elements, [n, ...] each; `record_id` among them.
        apply: The ops.
        positions: int64 [m], sorted, m < n: of the elements that they did not fail on.
        results: What they made of those, [m, ...] each.
        log: Takes the others.

    Returns:
        As `results`, [n, ...] each: where an element failed the next one, or at the end
        the first, with `mask` 0 if there is a mask.
    """
    names = sorted(chunk)

    def report(sound: tf.Tensor, *values: tf.Tensor) -> None:
        _report_failed(log, apply, sound, dict(zip(names, values, strict=True)))

    told = tf.py_function(report, [positions, *(chunk[name] for name in names)], [])
    with tf.control_dependencies([told]):
        wanted = tf.range(tf.size(chunk["record_id"], tf.int64))
    chosen = tf.searchsorted(positions, wanted) % tf.size(positions)
    filled = {name: tf.gather(value, chosen) for name, value in results.items()}
    if "mask" not in filled:
        return filled
    real = tf.cast(tf.gather(positions, chosen) == wanted, filled["mask"].dtype)
    return filled | {"mask": filled["mask"] * real}


def _report_failed(
    log: FaultLog,
    apply: Callable[[Example], Example],
    positions: tf.Tensor,
    chunk: Example,
) -> None:
    record_ids = chunk["record_id"].numpy()
    failed = np.setdiff1d(np.arange(len(record_ids)), positions.numpy())
    for position in failed.tolist():
        detail = "an op failed on it, but not when it was tried again"
        try:
            apply({name: value[position] for name, value in chunk.items()})
        except tf.errors.OpError as error:
            detail = f"an op failed on it: {error.message}"
        number = int(record_ids[position])
        assert log.locate is not None  # as Map sees to
        shard, offset = log.locate(number)
        fault = Fault(
            reason="decode",
            shard=shard,
            byte_offset=offset,
            record_id=number,
            detail=detail,
        )
        log.add(fault)
    if len(failed) == len(record_ids):
        raise errors.BadRecordError(
            f"The ops fail on all {len(failed)} records of a chunk. The last: {fault}. "
            f"{_REMEDY}"
        )


def read_damaged(window: Example, log: FaultLog | None) -> Example:
    """Reads a window record by record, in the order in which it is passed on.

    Args:
        window: See `source.TFRecordSource`.
        log: Takes the damaged ones; None raises at the first.

    Returns:
        record: string [w]; record_id: int64 [w], of the stand-in where one is damaged;
        is_real: bool [w], False where one is damaged.
    """
    names = ("path", "num_records", "first_record", "record_byte_offset", "is_real")
    seed = window.get("shuffle_seed", tf.zeros([2], tf.int64))

    def read(*values: Array) -> tuple[Array, ...]:
        return _read_window(log, *values)

    record, record_id, is_real = tf.numpy_function(
        read,
        [*(window[name] for name in names), seed],
        (tf.string, tf.int64, tf.bool),
    )
    return {
        "record": tf.ensure_shape(record, [None]),
        "record_id": tf.ensure_shape(record_id, [None]),
        "is_real": tf.ensure_shape(is_real, [None]),
    }


def _read_window(
    log: FaultLog | None,
    path: Array,
    num_records: Array,
    first_record: Array,
    offsets: Array,
    is_real: Array,
    seed: Array,
) -> tuple[Array, ...]:
    ids = np.concatenate(
        [np.arange(n) + f for n, f in zip(num_records, first_record, strict=True)]
    )
    paths = np.repeat(path, num_records)
    found = _read_records(log, paths.tolist(), offsets.tolist(), ids.tolist())
    data = [record.data for record in found]
    sound = np.array([not record.reason for record in found])
    good = np.flatnonzero(sound)
    # The next sound one stands in, or at the end the first.
    stand_in = np.arange(len(ids))
    if len(good):
        stand_in = good[np.searchsorted(good, stand_in) % len(good)]
    else:
        data = [_sound_record(sorted(set(paths.tolist())))] * len(ids)
    order = philox.shuffled(len(ids), tuple(seed.tolist())) if seed.any() else ...
    chosen = stand_in[order]
    return (
        np.array([data[position] for position in chosen], object),
        ids[chosen],
        sound[order] & is_real,
    )


def _read_records(
    log: FaultLog | None, paths: list[bytes], offsets: list[int], ids: list[int]
) -> "list[_Found]":
    """Each record by itself; the damaged ones go to the log."""
    records_found = []
    with contextlib.ExitStack() as open_files:
        files = {
            path: open_files.enter_context(tf.io.gfile.GFile(os.fsdecode(path), "rb"))
            for path in sorted(set(paths))
        }
        for path, offset, number in zip(paths, offsets, ids, strict=True):
            record = _read_record(files[path], offset)
            if record.reason:
                _report(log, record, os.fsdecode(path), offset, number)
            records_found.append(record)
    return records_found


def _sound_record(paths: list[bytes]) -> bytes:
    """Any sound record of these shards, for a window without one: it may be short."""
    for path in map(os.fsdecode, paths):
        offset = 0
        with tf.io.gfile.GFile(path, "rb") as file:
            while (found := _read_record(file, offset)).num_bytes:
                if not found.reason:
                    return found.data
                offset += found.num_bytes
    raise errors.BadRecordError(
        f"No sound record found to stand in for the damaged ones of a window, in "
        f"{', '.join(map(os.fsdecode, paths))}. {_REMEDY}"
    )


@dataclasses.dataclass(frozen=True)
class _Found:
    data: bytes
    reason: str
    detail: str
    num_bytes: int = 0  # with header and footer; 0 if that is not known


def _read_record(file: Any, offset: int) -> _Found:
    """One record of an open shard, or what is wrong with it."""
    try:
        file.seek(offset)
        header = file.read(records.HEADER_BYTES)
        num_bytes = records.record_bytes(header)
        if num_bytes is None:
            return _Found(b"", "header", "the header (length and its CRC) is damaged")
        rest = num_bytes - records.HEADER_BYTES
        body = file.read(rest)
    except tf.errors.OpError as error:
        return _Found(b"", "unreadable", f"it cannot be read: {error.message}")
    if len(body) < rest:
        return _Found(b"", "cut", f"it must have {rest} bytes more, got {len(body)}")
    data = body[: -records.FOOTER_BYTES]
    detail = records.data_fault(data, body[-records.FOOTER_BYTES :])
    return _Found(data, "crc" if detail else "", detail, num_bytes)


def _report(
    log: FaultLog | None, found: _Found, path: str, offset: int, number: int
) -> None:
    fault = Fault(
        reason=found.reason,
        shard=path,
        byte_offset=offset,
        record_id=number,
        detail=found.detail,
    )
    if log is None:
        raise errors.BadRecordError(
            f"{fault}. {_REMEDY} on_error='skip' goes on without it."
        )
    log.add(fault)


def _filename(fault: Fault) -> str:
    """The name of the image, where the catalog is still there to tell it."""
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
