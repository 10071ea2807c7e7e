"""Stand-ins: what takes the place of an element that ops fail on.

In: a chunk of examples of which an op failed on some. Out: the same with every sound
one in its place and another one, marked as not real, in the place of a damaged one. A
chunk without a sound one takes a spare: the first sound element that can be found. All
of this runs only after something has gone wrong.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe import errors
from tfpipe.stages.faults import REMEDY, Fault, FaultLog

Example = dict[str, tf.Tensor]
Array = npt.NDArray[Any]


class Spare:
    """A sound element, looked for when it is first needed, and then kept.

    Args:
        dataset: Makes the elements to look through, from the first one on.
    """

    def __init__(self, dataset: Callable[[], tf.data.Dataset]) -> None:
        self._dataset = dataset
        self._lock = threading.Lock()
        self._found: Any = None

    def first(self, find: Callable[[Any], Any]) -> Any:
        """What `find` makes of the first element that it does not fail on.

        Raises:
            BadRecordError: If there is no such element.
        """
        with self._lock:
            if self._found is None:
                self._found = self._look_for(find)
            return self._found

    def _look_for(self, find: Callable[[Any], Any]) -> Any:
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
            f"fails on all that there are. The last reason: {reason}. {REMEDY}"
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
    """Fills up what ops made of a chunk where they failed on some of its elements.

    Args:
        chunk: The elements, [n, ...] each; `record_id` among them.
        apply: The ops.
        positions: int64 [m], sorted, m < n: of the elements that they did not fail on.
        results: What they made of those, [m, ...] each.
        log: Takes the others.
        spare: Elements, or batches of them, like those of the chunk.

    Returns:
        As `results`, [n, ...] each: where an element failed the next one, or at the end
        the first, or the spare if all failed; with `mask` 0 if there is a mask.
    """

    def fill(positions: Array, results: Example, num_elements: int) -> Example:
        if not len(positions):
            results = _first(spare, apply)
            positions = np.array([-1])  # a spare is at no position of the chunk
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
    """Tells the log of the elements that ops failed on; see `stand_in`.

    Returns:
        As `results`.
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
    """What `fill` makes of the results, after the log was told of the other elements.

    One op that calls Python: a graph that hardly ever runs costs each build its time.
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
    """The spare as a chunk of one."""

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
        number = int(record_ids[position])
        assert log.locate is not None  # as Map sees to
        shard, offset = log.locate(number)
        log.add(
            Fault(
                reason="decode",
                shard=shard,
                byte_offset=offset,
                record_id=number,
                detail=detail,
            )
        )
