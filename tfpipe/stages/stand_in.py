"""Stand-ins: elements that replace those on which an op fails.

In: a chunk of examples, with an op that failed on some of them. Out: the same chunk,
each damaged example replaced by a sound one that is marked as not real. If the chunk
has no sound example, the first sound one of the whole split replaces them. All of this
runs only after a failure.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe import errors
from tfpipe.native import record_op
from tfpipe.stages.faults import (
    REMEDY,
    Fault,
    FaultLog,
    Found,
    check_record,
    read_record,
)

Example = dict[str, tf.Tensor]
Array = npt.NDArray[Any]


class Spare:
    """A sound element, which is searched for when it is first needed and then kept.

    Args:
        dataset: Returns the elements to search.
    """

    def __init__(self, dataset: Callable[[], tf.data.Dataset]) -> None:
        self._dataset = dataset
        self._lock = threading.Lock()
        self._found: Any = None

    def first(self, find: Callable[[Any], Any]) -> Any:
        """Returns the result of `find` for the first element on which it does not fail.

        Raises:
            BadRecordError: If `find` fails on every element.
        """
        with self._lock:
            if self._found is None:
                self._found = self._search(find)
            return self._found

    def _search(self, find: Callable[[Any], Any]) -> Any:
        reason = "there is no record"
        for element in self._dataset():
            try:
                return find(element)
            except tf.errors.OpError as error:
                reason = str(error.message)
            except errors.BadRecordError as error:
                reason = str(error)
        raise errors.BadRecordError(
            "No sound record found to stand in for the damaged ones: the pipeline "
            f"fails on all records. The last reason: {reason}. {REMEDY}"
        )


def stand_in(
    chunk: Example,
    apply: Callable[[Example], Example],
    positions: tf.Tensor,
    results: Example,
    *,
    log: FaultLog,
    spare: Spare,
) -> Example:
    """Completes the results of a chunk after ops failed on some of its elements.

    A damaged element is replaced by the next sound one of the chunk, at the end of the
    chunk by the first one, and by the spare if all failed. Its `mask`, if there is one,
    becomes 0.

    Args:
        chunk: Features of the elements, [n, ...] each; `record_id` among them.
        apply: The ops.
        positions: int64 [m], sorted, m < n: the elements on which the ops did not fail.
        results: Features of those elements after the ops, [m, ...] each.
        log: Log that counts the other elements.
        spare: Elements, or batches of elements, as those of the chunk.

    Returns:
        The features of `results`, [n, ...] each.
    """

    def fill(positions: Array, results: Example, num_elements: int) -> Example:
        if not len(positions):
            results = _first(spare, apply)
            positions = np.array([-1])  # the spare is not an element of the chunk
        wanted = np.arange(num_elements)
        chosen = np.searchsorted(positions, wanted) % len(positions)
        filled = {name: tf.gather(value, chosen) for name, value in results.items()}
        if "mask" in filled:
            is_real = positions[chosen] == wanted
            filled["mask"] *= tf.cast(is_real, filled["mask"].dtype)
        return filled

    return _reported(chunk, apply, positions, results, log, fill)


def leave_out(
    chunk: Example,
    apply: Callable[[Example], Example],
    positions: tf.Tensor,
    results: Example,
    *,
    log: FaultLog,
) -> Example:
    """Counts the elements on which ops failed, and replaces none; see `stand_in`.

    Returns:
        `results`.
    """
    return _reported(
        chunk, apply, positions, results, log, lambda _, results, __: results
    )


def _reported(
    chunk: Example,
    apply: Callable[[Example], Example],
    positions: tf.Tensor,
    results: Example,
    log: FaultLog,
    fill: Callable[[Array, Example, int], Example],
) -> Example:
    """Reports the failed elements to the log, then returns what `fill` makes.

    All of it is one op that calls Python: every build would trace a graph that hardly
    ever runs.
    """
    names, kinds = sorted(chunk), sorted(results)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def report(positions: tf.Tensor, *values: tf.Tensor) -> list[tf.Tensor]:
        elements = dict(zip(names, values[: len(names)], strict=True))
        made = dict(zip(kinds, values[len(names) :], strict=True))
        sound = positions.numpy()
        _report_failed(log, apply, sound, elements)
        filled = fill(sound, made, len(elements["record_id"]))
        return [filled[name] for name in kinds]

    values = [*(chunk[name] for name in names), *(results[name] for name in kinds)]
    kept = [results[name] for name in kinds]
    filled = tf.py_function(
        report, [positions, *values], [value.dtype for value in kept]
    )
    return {
        name: tf.ensure_shape(value, known.shape)
        for name, value, known in zip(kinds, filled, kept, strict=True)
    }


def _first(spare: Spare, apply: Callable[[Example], Example]) -> Example:
    """Returns the spare, after the ops, as a chunk of one element."""

    def find(example: Example) -> Example:
        if example["record_id"].shape.rank:  # a batch
            parts = tf.data.Dataset.from_tensor_slices(example)
            return Spare(lambda: parts).first(find)  # type: ignore[no-any-return]
        made = apply(example)
        return {name: value[tf.newaxis] for name, value in made.items()}

    found: Example = spare.first(find)
    return found


def _report_failed(
    log: FaultLog,
    apply: Callable[[Example], Example],
    positions: Any,
    chunk: Example,
) -> None:
    record_ids = chunk["record_id"].numpy()
    failed = np.setdiff1d(np.arange(len(record_ids)), positions)
    for position in failed.tolist():
        detail = "an op failed on it, but not when it was tried again"
        try:
            apply({name: value[position] for name, value in chunk.items()})
        except tf.errors.OpError as error:
            detail = f"an op failed on it: {error.message}"
        reason, detail = _reason(chunk, position, detail)
        number = int(record_ids[position])
        assert log.locate is not None  # Map has checked it
        shard, offset = log.locate(number)
        log.add(
            Fault(
                reason=reason,
                shard=shard,
                byte_offset=offset,
                record_id=number,
                detail=detail,
            )
        )


def _reason(chunk: Example, position: int, detail: str) -> tuple[str, str]:
    """Returns why an op failed on an element, as `Fault.reason` and `Fault.detail`.

    An op that parses the record fails on a damaged one, see `ReadAhead`.
    """
    if "byte_offset" not in chunk:
        return "decode", detail
    place = os.fsdecode(chunk["path"][position].numpy())
    offset = int(chunk["byte_offset"][position])
    found = _held(chunk, position, place, offset)
    if found is None:
        with tf.io.gfile.GFile(place, "rb") as file:
            found = read_record(file, offset)
    return (found.reason, found.detail) if found.reason else ("decode", detail)


def _held(chunk: Example, position: int, place: str, offset: int) -> Found | None:
    """Returns what is wrong with a record in memory; None if it could not be read.

    A shard cache may have evicted the record by now.
    """
    if "held" not in chunk:
        return None
    try:
        record = record_op.held_bytes(chunk["held"][position]).numpy()
        num_left = os.stat(place).st_size - offset
    except (OSError, tf.errors.DataLossError):
        return None
    return check_record(record, num_left)
