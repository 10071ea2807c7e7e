"""Damaged windows: read again, record by record.

In: a window that could not be read as a whole. Out: the same window, each damaged
record replaced by a sound one that is marked as not real. All of this runs only after a
failure.
"""

import contextlib
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe import errors
from tfpipe.stages import philox
from tfpipe.stages.faults import (
    REMEDY,
    Fault,
    FaultLog,
    Found,
    Uncounted,
    read_record,
)
from tfpipe.stages.stand_in import Spare

Example = dict[str, tf.Tensor]
Array = npt.NDArray[Any]


def read_damaged(window: Example, log: FaultLog | None, spare: Spare | None) -> Example:
    """Reads a window record by record, in the order in which it is passed on.

    Args:
        window: Features of a window, see `source.TFRecordSource`.
        log: Log that counts the damaged records; None raises at the first one.
        spare: Windows to search for a sound record, used for a window without one. With
            None the data of such a window is empty.

    Returns:
        record: string [w]
        record_id: int64 [w], the number of the stand-in where a record is damaged
        is_real: bool [w], False where a record is damaged
    """
    names = ("path", "num_records", "first_record", "record_byte_offset", "is_real")
    seed = window.get("shuffle_seed", tf.zeros([2], tf.int64))
    origin = window.get("origin", window["path"])

    def read(*values: Array) -> tuple[Array, ...]:
        return _read_window(log, spare, *values)

    record, record_id, is_real = tf.numpy_function(
        read,
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
    path: Array,
    num_records: Array,
    first_record: Array,
    offsets: Array,
    is_real: Array,
    seed: Array,
    origin: Array,
) -> tuple[Array, ...]:
    ids = _record_ids(num_records, first_record)
    places = np.repeat(origin, num_records).tolist(), offsets.tolist(), ids.tolist()
    found = _read_records(log, np.repeat(path, num_records).tolist(), *places)
    data = [record.data for record in found]
    sound = np.array([not record.reason for record in found])
    good = np.flatnonzero(sound)
    # The next sound record stands in, at the end of the window the first one.
    stand_in = np.arange(len(ids))
    if len(good):
        stand_in = good[np.searchsorted(good, stand_in) % len(good)]
    elif spare is not None:
        one, number = spare.first(_first_sound)
        data, ids = [one] * len(ids), np.full_like(ids, number)
    order = philox.shuffled(len(ids), tuple(seed.tolist())) if seed.any() else ...
    chosen = stand_in[order]
    return (
        np.array([data[position] for position in chosen], object),
        ids[chosen],
        sound[order] & is_real,
    )


def _record_ids(num_records: Array, first_record: Array) -> Array:
    """Returns the numbers of the records of extents, in order."""
    parts = zip(num_records, first_record, strict=True)
    return np.concatenate([np.arange(n) + first for n, first in parts])


def _read_records(
    log: FaultLog | None,
    paths: list[bytes],
    origins: list[bytes],
    offsets: list[int],
    ids: list[int],
) -> list[Found]:
    """Reads each record by itself and reports the damaged ones to the log."""
    found = []
    with contextlib.ExitStack() as open_files:
        files = {
            path: open_files.enter_context(tf.io.gfile.GFile(os.fsdecode(path), "rb"))
            for path in sorted(set(paths))
        }
        for path, origin, *place in zip(paths, origins, offsets, ids, strict=True):
            record = read_record(files[path], place[0])
            if record.reason:
                _report(log, record, os.fsdecode(origin), *place)
            found.append(record)
    return found


def _first_sound(window: Any) -> tuple[bytes, int]:
    """Returns the data and the number of the first sound record of a window.

    Raises:
        BadRecordError: If every record is damaged.
    """
    ids = _record_ids(window["num_records"].numpy(), window["first_record"].numpy())
    paths = np.repeat(window["path"].numpy(), window["num_records"].numpy())
    offsets = window["record_byte_offset"].numpy()
    places = zip(paths.tolist(), offsets.tolist(), ids.tolist(), strict=True)
    for path, offset, number in places:
        (found,) = _read_records(Uncounted(), [path], [path], [offset], [number])
        if not found.reason:
            return found.data, number
    raise errors.BadRecordError(f"record {number} of {path}: {found.detail}")


def _report(
    log: FaultLog | None, found: Found, path: str, offset: int, number: int
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
            f"{fault}. {REMEDY} on_error='skip' goes on without it."
        )
    log.add(fault)
