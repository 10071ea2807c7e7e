"""Faults in the data: which records are damaged, and how many may be.

In: what `damaged` and `stand_in` find wrong with a record. Out: an account of it on
stderr, a summary, and an error once there are more than the budget allows.
"""

import collections
import dataclasses
import os
import sys
import threading
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfpipe import errors
from tfpipe.shards import index

# What to do about damaged records, at the end of each error about them.
REMEDY = "Find all with python -m converters.verify, which can repair them."


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
        self.max_faults = errors.require_int(self, "max_faults", max_faults, least=0)
        errors.require_callable(self, "locate", locate, or_none=True)
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
            f"The last one: {met[-1]}. {REMEDY}"
        )


class Uncounted(FaultLog):
    """A log that takes any number of faults and tells nobody.

    For looking for a sound record among others: who reads the damaged ones counts them.
    """

    def __init__(self) -> None:
        super().__init__(0)

    def add(self, fault: Fault) -> None:
        """Does nothing."""


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
