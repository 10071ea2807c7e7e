"""Chooses who reads the records of a pipeline: the native op, or TensorFlow.

In: a source and the ops after it. Out: why the native op cannot read the records, or an
empty text; and the stage that reads.
"""

from collections.abc import Sequence

from tfpipe.native_reading.read_ahead import ReadAhead
from tfpipe.ops.boxes import ParseBoxes
from tfpipe.ops.crop import CROPS
from tfpipe.ops.parse import EntryPoints, Parse
from tfpipe.reading.source import TFRecordSource
from tfpipe.stages.faults import FaultLog
from tfpipe.stages.interleave import Interleave
from tfpipe.stages.traced import Op


def why_tensorflow(
    source: TFRecordSource, ops: Sequence[Op], *, has_cache: bool, is_whole: bool
) -> str:
    """Returns why TensorFlow must read the records; empty if the native op may.

    Args:
        source: Where the records come from.
        ops: The ops on them, in order.
        has_cache: Whether a cache keeps the records.
        is_whole: Whether the ops run on whole batches.

    Raises:
        ValueError: If the source says reading="native", and the native op cannot read.
    """
    if source.reading == "tensorflow":
        return "reading='tensorflow'"
    reason = _obstacle(source, ops, has_cache, is_whole)
    if reason and source.reading == "native":
        raise ValueError(
            'TFRecordSource.reading must be "auto" or "tensorflow" here, got "native": '
            f"{reason}."
        )
    return reason


def stage(reason: str, faults: FaultLog) -> ReadAhead | Interleave:
    """Returns the stage that reads, for the result of `why_tensorflow`."""
    return Interleave(faults=faults) if reason else ReadAhead(faults=faults)


def _obstacle(
    source: TFRecordSource, ops: Sequence[Op], has_cache: bool, is_whole: bool
) -> str:
    if not is_whole:
        return "the ops run on one example at a time"
    if has_cache:
        return "a cache keeps the records"
    storage = source.split_index.storage
    if storage.files is not None and storage.cache is None:
        return "the shards are at a URL that is read directly, without a ShardCache"
    parse, *rest = ops[1:] if isinstance(ops[0], ParseBoxes) else ops
    if not isinstance(parse, Parse):
        return f"{parse!r} needs whole records"
    crop = next((op for op in rest if not isinstance(op, EntryPoints)), None)
    if not isinstance(crop, CROPS):
        return "no crop comes right after Parse"
    if crop.crop_op != "native":
        return "the crop is not the native one"
    return ""
