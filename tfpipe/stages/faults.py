"""Faults in the data: which records are damaged, and how many may be.

In: the damaged records that `stages.stand_in` meets. Out: a line on stderr for a
record, a summary, and an error as soon as there are more than the budget allows. The
logs of a mixture's parts, or of several stages, read as one log.
"""

import collections
import dataclasses
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np
import tensorflow as tf

from tfpipe import errors
from tfpipe.location import answers
from tfpipe.shards import catalog, index
from tfpipe.stages.basic import as_it_is, counted_as

# Errors about damaged records end with this advice.
REMEDY = "Find all with python -m converters.verify, which can repair them."

# What TensorFlow puts around the message of an op.
_OF_THE_GRAPH = re.compile(
    r"^Graph execution error.*\n\n|\{\{.*?\}\}\s*|\s*\[(?:Op:|\[\{).*"
    r"|Error in user-defined function passed to \S+ .*? with iterator: \S+: ",
    re.DOTALL,
)
_MOST_CHARACTERS = 400

# Errors of files, memory, networks and devices. No bytes of a record cause them.
_OF_THE_HOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.NotFoundError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnauthenticatedError,
    tf.errors.UnavailableError,
)

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """A damaged record.

    Example:
        >>> from tfpipe.stages.faults import Fault
        >>> fault = Fault(
        ...     reason="crc", shard="/x", byte_offset=0, record_id=7, detail="bad CRC"
        ... )
        >>> print(fault)
        /x: record 7 of the split at byte 0: bad CRC

    Attributes:
        reason: Kind of damage: "crc", "header", "cut" or "decode".
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

    A record is printed once on stderr and counted once, however many epochs meet it. If
    a pipeline is built for a number of epochs, `summary` is printed on stderr after the
    last epoch.

    Example:
        >>> log = tfpipe.FaultLog(max_faults=10)
        >>> stage = tfpipe.Interleave(faults=log)
        >>> print(log.summary())
        Skipped 0 records.

    Args:
        max_faults: Number of different records that may be damaged, >= 0; another
            damaged record raises an error.
        locate: Callable (number of a record) -> (path of its shard, its byte offset),
            see `TFRecordSource.locate`. Only `Map` needs `locate`.
        read_again: Callable (number of a damaged record) -> the record with header and
            footer as its store has it, or None; see `TFRecordSource.read_again`. A
            record that is sound there is no fault.

    Raises:
        ValueError: If max_faults is below 0.
    """

    def __init__(
        self,
        max_faults: int,
        *,
        locate: Callable[[int], tuple[str, int]] | None = None,
        read_again: Callable[[int], bytes | None] | None = None,
    ) -> None:
        self.max_faults = errors.require_int(self, "max_faults", max_faults, least=0)
        errors.require_callable(self, "locate", locate, or_none=True)
        errors.require_callable(self, "read_again", read_again, or_none=True)
        self.locate, self.read_again = locate, read_again
        self._faults: dict[int, Fault] = {}
        self._refusal: errors.BadRecordError | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"FaultLog(max_faults={self.max_faults})"

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_lock": None, "_faults": dict(self._faults)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state | {"_lock": threading.Lock()})

    @property
    def faults(self) -> list[Fault]:
        """The faults so far, in the order of the split."""
        with self._lock:
            return [self._faults[record_id] for record_id in sorted(self._faults)]

    @property
    def num_faults_by_reason(self) -> dict[str, int]:
        """Number of faults by kind."""
        return dict(collections.Counter(fault.reason for fault in self.faults))

    def summary(self) -> str:
        """Returns the number of faults by kind, and where the first ten are."""
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
        # A fault in the log raises too: a reader that ignored the error before must not
        # lose the record silently.
        if (error := self.error()) is not None:
            raise error
        if is_new:
            print(f"Skipped a damaged record. {fault}", file=sys.stderr)

    def refuse(self, message: str) -> NoReturn:
        """Stops at a record that a setting does not fit, whatever the budget is.

        Raises:
            BadRecordError: Always, and from `error` too.
        """
        self._refusal = errors.BadRecordError(message)
        raise self._refusal

    def reported_after(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the same dataset; `summary` is printed after the last element.

        A budget of 0 has no summary: the first fault ends the run with an error.
        """
        if not self.max_faults:
            return dataset

        def report() -> np.int64:
            if self.faults:
                print(self.summary(), file=sys.stderr, flush=True)
            return np.int64(0)

        def none(_: tf.Tensor) -> tf.data.Dataset:
            # Takes no element of `dataset`, but has its element_spec.
            return dataset.take(tf.numpy_function(report, [], tf.int64))

        end = tf.data.Dataset.from_tensors(0)
        return counted_as(dataset, dataset.concatenate(end.flat_map(as_it_is(none))))

    def error(self) -> errors.BadRecordError | None:
        """Returns the error to raise: of `refuse`, or if the budget is exceeded.

        `add` raises the same error within TensorFlow, where a traceback buries it.
        """
        if self._refusal is not None:
            return self._refusal
        with self._lock:
            met = list(self._faults.values())
        if len(met) <= self.max_faults:
            return None
        return errors.BadRecordError(
            f"Found {errors.count_of(len(met), 'damaged record')}, max_faults allows "
            f"{self.max_faults}. The last one: {met[-1]}. {REMEDY}"
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


class FaultLogs(FaultLog):
    """The faults of several logs, to read.

    Args:
        logs: The logs; every log keeps its own budget.
    """

    def __init__(self, logs: Sequence[FaultLog]) -> None:
        super().__init__(sum(log.max_faults for log in logs))
        self.logs = tuple(logs)

    def __repr__(self) -> str:
        return f"FaultLogs({list(self.logs)})"

    @property
    def faults(self) -> list[Fault]:
        """The faults so far, log after log, in the order of the splits."""
        return [fault for log in self.logs for fault in log.faults]

    def add(self, fault: Fault) -> None:
        """Refuses the fault: nobody knows to which log the fault belongs.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"A fault must be added to one of the {len(self.logs)} logs, not to all of "
            f"them, got {fault}."
        )

    def error(self) -> errors.BadRecordError | None:
        """Returns the error to raise if a log exceeds its budget, otherwise None."""
        raised = (log.error() for log in self.logs)
        return next((error for error in raised if error is not None), None)


def combined(logs: Sequence[FaultLog | None]) -> FaultLog | None:
    """Returns the only log, or a log that shows several; None without a log."""
    different = list({id(log): log for log in logs if log is not None}.values())
    if len(different) <= 1:
        return different[0] if different else None
    return FaultLogs(different)


def message(error: tf.errors.OpError) -> str:
    """Returns the message of an error of TensorFlow, for people.

    The message has no names of the graph, and a single, short line: TensorFlow's
    parser repeats the whole record.
    """
    text = " ".join(_OF_THE_GRAPH.sub("", str(error.message)).split())
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    cut = text[:_MOST_CHARACTERS]
    return text if cut == text else f"{cut} ..."


def tried(apply: Callable[[], Result]) -> tuple[Result | None, str]:
    """Runs ops eagerly on an element, and tells damage from an error of the host.

    Args:
        apply: Applies the ops.

    Returns:
        The result and "", or None and the message of the failure.

    Raises:
        OSError: If files, memory or a network of this host failed.
    """
    try:
        return apply(), ""
    except _OF_THE_HOST as error:
        raise host_error(message(error)) from None
    except tf.errors.OpError as error:
        return None, message(error)
    except UnicodeDecodeError as error:
        # TensorFlow's message holds bytes of the record.
        text = error.object.decode(errors="replace")
        return None, message(tf.errors.InvalidArgumentError(None, None, text))


def host_error(detail: str) -> OSError:
    """Returns the error of a file or of the host, for which no record is to blame."""
    remedy = answers.remedy_in(detail) or "Run again when the file can be read."
    return OSError(
        f"{detail}. The file or this host failed, so no record counts as damaged. "
        f"{remedy}"
    )


def _filename(fault: Fault) -> str:
    """Returns the name of the image, or "" if the catalog cannot be read."""
    folder, shard = os.path.split(fault.shard)
    if not os.path.exists(os.path.join(folder, index.INDEX_NAME)):
        return ""  # shards of another tool
    try:
        split, position = next(
            (split, position)
            for split, shards in index.load(folder).splits.items()
            for position, entry in enumerate(shards)
            if entry.name == shard
        )
        name = catalog.load_filename(
            folder, split, shard=position, byte_offset=fault.byte_offset
        )
    except (errors.BadIndexError, StopIteration):
        return ""
    return "" if name is None else f" (image {name})"
