"""Stand-ins: sound records and examples in the places of damaged ones.

In: a window with a damaged record, or a chunk of examples with an op that failed on
some of them. Out: the same window or chunk. A sound record or example stands in for a
damaged neighbor, and is marked as not real. Without a sound neighbor, the first sound
record of the whole split stands in. All of this runs only after a failure: a window is
read again, record by record.
"""

import dataclasses
import functools
import os
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe import errors
from tfpipe.native import record_op
from tfpipe.ops import labels
from tfpipe.shards import records
from tfpipe.shards.ranges import RecordRanges
from tfpipe.stages import philox
from tfpipe.stages.faults import (
    REMEDY,
    Fault,
    FaultLog,
    host_error,
    message,
    tried,
)

Example = dict[str, tf.Tensor]
Array = npt.NDArray[Any]
ReadAgain = Callable[[int], bytes | None] | None


class Spare:
    """A sound element: searched for when it is first needed, then kept.

    Args:
        dataset: Returns the elements to search.
    """

    def __init__(self, dataset: Callable[[], tf.data.Dataset]) -> None:
        self._dataset = dataset
        self._lock = threading.Lock()
        self._element: Any = None

    def first(self, find: Callable[[Any], Any]) -> Any:
        """Returns the result of `find` for the first element without a failure.

        Raises:
            BadRecordError: If `find` fails on every element.
        """
        reason = "there is no record"
        with self._lock:
            for element in self._dataset() if self._element is None else ():
                try:
                    self._element, reason = tried(functools.partial(find, element))
                except errors.BadRecordError as error:
                    reason = str(error)
                if not reason:
                    break
            if self._element is not None:
                return self._element
        raise errors.BadRecordError(
            "No sound record found to stand in for the damaged ones: the pipeline "
            f"fails on all records. The last reason: {reason}. {REMEDY}"
        )


@dataclasses.dataclass(frozen=True)
class ReadRecord:
    """The data of a record; `reason` and `detail` as of `Fault`, or empty if sound."""

    data: bytes
    reason: str
    detail: str


def read_record(file: Any, offset: int) -> ReadRecord:
    """Reads a record of an open shard, or finds out its damage.

    Raises:
        OSError: If the shard cannot be read.
    """
    try:
        file.seek(offset)
        record = file.read(records.HEADER_BYTES)
        rest = (records.record_bytes(record) or 0) - records.HEADER_BYTES
        # A damaged length may be huge: the read is limited to the end of the file.
        record += file.read(max(0, min(rest, file.size() - offset)))
    except tf.errors.OutOfRangeError:  # the shard ends before the record
        return _cut(records.HEADER_BYTES, 0)
    except tf.errors.OpError as error:
        raise host_error(message(error)) from None
    return check_record(record, len(record))


def check_record(record: bytes, num_left: int) -> ReadRecord:
    """Finds out the damage of a record in memory.

    Args:
        record: The bytes where the catalog has the record, with header.
        num_left: Bytes of the shard from the beginning of the record on.
    """
    header = records.HEADER_BYTES
    num_bytes = records.record_bytes(record[:header])
    if num_bytes is None:
        detail = "the header (length and its CRC) is damaged"
        return ReadRecord(b"", "header", detail)
    if num_bytes > num_left:
        return _cut(num_bytes - header, num_left - header)
    if num_bytes != len(record):
        detail = f"it must have {len(record)} bytes, its header says {num_bytes}"
        return ReadRecord(b"", "header", detail)
    end = num_bytes - records.FOOTER_BYTES
    data = record[header:end]
    detail = records.data_fault(data, record[end:])
    return ReadRecord(data, "crc" if detail else "", detail)


# The reason of a record in a local file of a shard cache that cannot be read: no fault.
_UNREADABLE = "unreadable"


def _cut(wanted: int, got: int) -> ReadRecord:
    return ReadRecord(b"", "cut", f"it must have {wanted} bytes more, got {got}")


def read_damaged(
    window: Example, log: FaultLog | None, spare: Spare | None, read_again: ReadAgain
) -> Example:
    """Reads a window record by record, in the order in which the window is passed on.

    The next sound record of the window stands in for a damaged record, at the end of
    the window the first sound record. A damaged record that the window does not pass on
    is no fault.

    Args:
        window: Features of a window, see `source.TFRecordSource`.
        log: Log that counts the damaged records; None raises at the first.
        spare: Windows to search for a sound record, if the window has none. With None
            the data of such a window is empty.
        read_again: See `FaultLog`; of the source, for windows from a shard cache.

    Returns:
        record: string [w]
        record_id: int64 [w], the number of the stand-in where a record is damaged
        is_real: bool [w], False where a record is damaged
    """
    names = ["path", "num_records", "first_record", "record_byte_offset", "is_real"]
    names += ["skip", "take"]
    seed = window.get("shuffle_seed", tf.zeros([2], tf.int64))
    origin = window.get("origin", window["path"])
    again = read_again if "origin" in window else None
    record, record_id, is_real = tf.numpy_function(
        functools.partial(_read_window, log, spare, again),
        [*(window[name] for name in names), seed, origin],
        (tf.string, tf.int64, tf.bool),
    )
    return {
        "record": tf.ensure_shape(record, [None]),
        "record_id": tf.ensure_shape(record_id, [None]),
        "is_real": tf.ensure_shape(is_real, [None]),
    }


def _read_window(
    log: FaultLog | None,
    spare: Spare | None,
    read_again: ReadAgain,
    path: Array,
    num_records: Array,
    first_record: Array,
    offsets: Array,
    is_real: Array,
    skip: Array,
    take: Array,
    seed: Array,
    origin: Array,
) -> tuple[Array, ...]:
    ids = RecordRanges(first_record, num_records).records()
    is_cached = read_again is not None
    paths = np.repeat(path, num_records)
    read = _read_records(paths, offsets, is_cached=is_cached)
    order = philox.shuffled(len(ids), seed)
    origins = np.repeat(origin, num_records)
    for position in sorted(order[skip : skip + take].tolist()):
        if read[position].reason:
            stored = _from_store(read_again, int(ids[position]))
            read[position] = stored or read[position]
        if (record := read[position]).reason:
            shard, offset = os.fsdecode(origins[position]), int(offsets[position])
            _report(log, record, shard, offset, int(ids[position]))
    data = [record.data for record in read]
    sound = np.array([not record.reason for record in read])
    good = np.flatnonzero(sound)
    stand_ins = np.arange(len(ids))
    if len(good):
        stand_ins = good[np.searchsorted(good, stand_ins) % len(good)]
    elif spare is not None:
        spare_data, spare_id = spare.first(_first_sound)
        data, ids = [spare_data] * len(ids), np.full_like(ids, spare_id)
    chosen = stand_ins[order]
    return (
        np.array([data[position] for position in chosen], object),
        ids[chosen],
        sound[order] & is_real,
    )


def _from_store(read_again: ReadAgain, record_id: int) -> ReadRecord | None:
    """Reads a damaged record from its store; None without a store."""
    record = read_again(record_id) if read_again else None
    return None if record is None else check_record(record, len(record))


def _read_records(
    paths: Array, offsets: Array, *, is_cached: bool = False
) -> list[ReadRecord]:
    """Reads the records of a window alone; one file is open at a time.

    Args:
        paths: The file of each record.
        offsets: The byte offset of each record.
        is_cached: Whether a file that cannot be read is no error: its records have the
            reason _UNREADABLE then.
    """
    read: dict[int, ReadRecord] = {}
    for path in sorted(set(paths.tolist())):
        with tf.io.gfile.GFile(os.fsdecode(path), "rb") as file:
            for position in np.flatnonzero(paths == path).tolist():
                try:
                    read[position] = read_record(file, int(offsets[position]))
                except OSError as error:
                    if not is_cached:
                        raise
                    read[position] = ReadRecord(b"", _UNREADABLE, str(error))
    return [read[position] for position in range(len(paths))]


def _first_sound(window: Any) -> tuple[bytes, int]:
    """Returns the data and the number of the first sound record of a window.

    Raises:
        BadRecordError: If every record is damaged.
    """
    num_records = window["num_records"].numpy()
    ids = RecordRanges(window["first_record"].numpy(), num_records).records()
    paths = np.repeat(window["path"].numpy(), num_records)
    offsets = window["record_byte_offset"].numpy()
    rows = zip(paths.tolist(), offsets.tolist(), ids.tolist(), strict=True)
    for path, offset, record_id in rows:
        with tf.io.gfile.GFile(os.fsdecode(path), "rb") as file:
            record = read_record(file, offset)
        if not record.reason:
            return record.data, record_id
    raise errors.BadRecordError(f"record {record_id} of {path}: {record.detail}")


def _report(
    log: FaultLog | None, record: ReadRecord, path: str, offset: int, record_id: int
) -> None:
    if record.reason == _UNREADABLE:
        raise OSError(record.detail)
    fault = Fault(
        reason=record.reason,
        shard=path,
        byte_offset=offset,
        record_id=record_id,
        detail=record.detail,
    )
    if log is None:
        raise errors.BadRecordError(
            f"{fault}. {REMEDY} on_error='skip' goes on without it."
        )
    log.add(fault)


def stand_in(
    chunk: Example,
    apply: Callable[[Example], Example],
    positions: tf.Tensor,
    results: Example,
    *,
    log: FaultLog,
    spare: Spare | None,
) -> Example:
    """Completes the results of a chunk after ops failed on some of its elements.

    The next sound element of the chunk replaces a damaged element, at the end of the
    chunk the first sound element, and the spare if all failed. The `mask` of a replaced
    element, if there is a mask, becomes 0.

    A single op calls Python for all of this: every build would otherwise trace a graph
    that hardly ever runs.

    Args:
        chunk: Features of the elements, [n, ...]; `record_id` among them.
        apply: The ops.
        positions: int64 [m], sorted, m < n: the sound elements.
        results: Features of the sound elements after the ops, [m, ...].
        log: Log that counts the other elements.
        spare: Elements, or batches of elements, of the same features as the chunk. With
            None damaged elements are counted and left out.

    Returns:
        The features of `results`, [n, ...].
    """
    names, kinds = sorted(chunk), sorted(results)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def report(positions: tf.Tensor, *values: tf.Tensor) -> list[tf.Tensor]:
        elements = dict(zip(names, values[: len(names)], strict=True))
        complete = dict(zip(kinds, values[len(names) :], strict=True))
        sound = positions.numpy()
        again = _tried_again(log, apply, sound, elements)
        sound, complete = _merged(sound, complete, again)
        if spare is not None:
            if not len(sound):  # the spare is not an element of the chunk
                sound, complete = np.array([-1]), _first(spare, apply)
            complete = _filled(sound, complete, len(elements["record_id"]))
        return [complete[name] for name in kinds]

    values = [*(chunk[name] for name in names), *(results[name] for name in kinds)]
    kept = [results[name] for name in kinds]
    if tf.executing_eagerly():
        return dict(zip(kinds, report(positions, *values), strict=True))
    filled = tf.py_function(
        report, [positions, *values], [value.dtype for value in kept]
    )
    return {
        name: tf.ensure_shape(value, sound.shape)
        for name, value, sound in zip(kinds, filled, kept, strict=True)
    }


def _filled(positions: Array, results: Example, num_elements: int) -> Example:
    """Returns results of all elements: a sound one stands in for each other one."""
    wanted = np.arange(num_elements)
    chosen = np.searchsorted(positions, wanted) % len(positions)
    filled = {name: tf.gather(value, chosen) for name, value in results.items()}
    if "mask" in filled:
        is_real = positions[chosen] == wanted
        filled["mask"] *= tf.cast(is_real, filled["mask"].dtype)
    return filled


def _first(spare: Spare, apply: Callable[[Example], Example]) -> Example:
    """Returns the spare, after the ops, as a chunk of a single element."""

    def find(example: Example) -> Example:
        if example["record_id"].shape.rank:  # a batch
            parts = tf.data.Dataset.from_tensor_slices(example)
            return Spare(lambda: parts).first(find)  # type: ignore[no-any-return]
        return {name: value[tf.newaxis] for name, value in apply(example).items()}

    element: Example = spare.first(find)
    return element


def _tried_again(
    log: FaultLog, apply: Callable[[Example], Example], positions: Array, chunk: Example
) -> dict[int, Example]:
    """Applies the ops again to each element on which they failed.

    Too many files, for example, were open at the first try only.

    Returns:
        The results by the position of the element. The log has all other elements.
    """
    again: dict[int, Example] = {}
    record_ids = chunk["record_id"].numpy()
    failed = np.setdiff1d(np.arange(len(record_ids)), positions)
    for position in failed.tolist():
        record_id = int(record_ids[position])
        result, detail = _applied(log, apply, chunk, position)
        if result is not None:
            again[position] = result
            continue
        assert log.locate is not None  # Map has checked it
        if wrong := labels.wrong_setting(detail):
            shard, byte_offset = log.locate(record_id)
            log.refuse(
                f"{shard}: record {record_id} of the split at byte {byte_offset}: "
                f"{wrong}"
            )
        reason, detail = _reason(chunk, position, f"an op failed: {detail}")
        record = ReadRecord(b"", reason, detail)
        _report(log, record, *log.locate(record_id), record_id)
    return again


def _applied(
    log: FaultLog, apply: Callable[[Example], Example], chunk: Example, position: int
) -> tuple[Example | None, str]:
    """Applies ops to an element, and again with the record as its store has it.

    Returns:
        See `tried`.

    Raises:
        OSError: If files, memory or a network of this host failed.
    """
    element = {name: value[position] for name, value in chunk.items()}
    failure = None
    try:
        result, detail = tried(functools.partial(apply, element))
    except OSError as error:  # perhaps of a file of a shard cache
        result, detail, failure = None, "", error
    if result is None and (held := _held_again(log, chunk, position)) is not None:
        return tried(functools.partial(apply, element | {"held": held}))
    if failure is not None:
        raise failure
    return result, detail


def _held_again(log: FaultLog, chunk: Example, position: int) -> tf.Tensor | None:
    """Returns a damaged or unreadable record as its store has it; None without one."""
    if "held" not in chunk or log.read_again is None:
        return None
    if _reason(chunk, position, "")[0] == "decode":
        return None
    record = log.read_again(int(chunk["record_id"][position]))
    if record is None:
        return None
    with tempfile.NamedTemporaryFile() as file:
        file.write(record)
        file.flush()
        offsets = {
            "path": tf.constant([file.name]),
            "byte_offset": tf.constant([0], tf.int64),
            "num_bytes": tf.constant([len(record)], tf.int64),
        }
        return record_op.hold(offsets)[0]


def _merged(
    positions: Array, results: Example, again: dict[int, Example]
) -> tuple[Array, Example]:
    """Returns positions and results with those of a second try, in order."""
    if not again:
        return positions, results
    all_positions = np.concatenate([positions, list(again)]).astype(np.int64)
    order = np.argsort(all_positions)
    merged = {}
    for name, first in results.items():
        rows = [*tf.unstack(first)] if len(positions) else []
        rows += [tf.convert_to_tensor(result[name]) for result in again.values()]
        merged[name] = tf.stack([rows[index] for index in order.tolist()])
    return all_positions[order], merged


def _reason(chunk: Example, position: int, detail: str) -> tuple[str, str]:
    """Returns why an op failed on an element, as `Fault.reason` and `Fault.detail`.

    An op that parses the record fails on a damaged record, see `ReadAhead`.
    """
    if "byte_offset" not in chunk:
        return "decode", detail
    path = chunk["path"][position].numpy()
    offset = int(chunk["byte_offset"][position])
    if "held" in chunk:
        record = _held(chunk["held"][position], os.fsdecode(path), offset)
    else:
        record = _read_records(np.array([path], object), np.array([offset]))[0]
    return (record.reason, record.detail) if record.reason else ("decode", detail)


def _held(held: tf.Tensor, path: str, offset: int) -> ReadRecord:
    """Checks a record in memory; a shard cache may have evicted its file by now."""
    try:
        record = record_op.held_bytes(held).numpy()
    except tf.errors.DataLossError as error:
        return ReadRecord(b"", "cut", message(error))
    except tf.errors.UnavailableError as error:
        return ReadRecord(b"", _UNREADABLE, message(error))
    try:
        num_left = os.stat(path).st_size - offset
    except OSError:
        num_left = len(record)
    return check_record(record, num_left)
