"""The paths that the data take in the pipeline of a preset, and the reasons.

In: a source, the ops of a preset and the wishes of the user. Out: for whole batches,
the native crop, entry points and reading: whether the data take the path, and why not.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tfpipe import host
from tfpipe.native import op as native_op
from tfpipe.ops.boxes import ParseBoxes
from tfpipe.ops.crop import CROPS
from tfpipe.ops.parse import EntryPoints, Parse
from tfpipe.reading.building import Wrapper
from tfpipe.reading.read_ahead import ReadAhead
from tfpipe.reading.source import TFRecordSource
from tfpipe.stages.basic import Batch
from tfpipe.stages.faults import FaultLog
from tfpipe.stages.interleave import Interleave
from tfpipe.stages.map import Map, ops_within, takes_batches
from tfpipe.stages.traced import Op
from tfpipe.tuning import Tuning

WholeBatches = bool | Literal["auto"]

# Share of the memory of the host that the batches of all threads may take.
_MEMORY_SHARE = 0.25


@dataclasses.dataclass(frozen=True)
class Choice:
    """A path that the data take or do not take.

    Args:
        value: "yes" or "no"; for the crop "native", "stock" or "none"; for the reading
            "native" or "tensorflow".
        reason: Why the data do not take the faster path; empty on the faster path.
    """

    value: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.value} ({self.reason})" if self.reason else self.value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paths:
    """The paths that were chosen for a pipeline.

    Args:
        whole_batches: Whether ops run on whole batches.
        crop: The kernel of the crop.
        entry_points: Whether the crop reads entry points.
        reading: Who reads the records.
    """

    whole_batches: Choice
    crop: Choice
    entry_points: Choice
    reading: Choice

    def taken_by(
        self, stages: Sequence[Any], *, keeps_examples: bool
    ) -> Mapping[str, Choice]:
        """Returns the paths that stages take, by name.

        A user or a tuner may have changed the stages since the preset chose the paths.
        A changed path gets the change as its reason.

        Args:
            stages: The stages of a pipeline.
            keeps_examples: Whether a cache comes after a map.
        """
        taken = _taken(stages)
        change = "the stages were changed after the preset"
        if keeps_examples:
            change = "a Cache keeps the results of ops on examples"
        chosen = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            name: choice if choice.value == taken[name] else Choice(taken[name], change)
            for name, choice in chosen.items()
        }


def crop_kernel(image: Sequence[Op]) -> Choice:
    """Returns the kernel of the crop among the ops."""
    kernels = {op.crop_op for op in image if isinstance(op, CROPS)}
    if kernels == {"native"}:
        return Choice("native")
    if kernels:
        module, reason = native_op.load()
        if module is None:
            return Choice("stock", f"{reason}; python -m tfpipe.native builds the op")
        return Choice("stock", "crop_op='stock'")
    return Choice("none", "no op of tfpipe decodes the images")


def entry_points(
    source: TFRecordSource, crop: Choice
) -> tuple[list[EntryPoints], Choice]:
    """Returns the op that reads entry points, if the crop can use them."""
    if crop.value != "native":
        return [], Choice("no", "only the native crop uses them")
    points = EntryPoints.of(source)
    if points is None:
        command = "python -m converters.verify DIR --write_entry_points"
        return [], Choice("no", f"the data set has none; {command} adds them")
    return [points], Choice("yes")


def reading(
    source: TFRecordSource, ops: Sequence[Op], *, has_cache: bool, is_whole: bool
) -> Choice:
    """Returns who reads the records: the native op, unless TensorFlow must.

    Args:
        source: Source of the records.
        ops: The ops on the records, in order.
        has_cache: Whether a cache keeps the records.
        is_whole: Whether the ops run on whole batches.

    Raises:
        ValueError: If the source says reading="native", and the native op cannot read.
    """
    if source.reading == "tensorflow":
        return Choice("tensorflow", "reading='tensorflow'")
    reason = _obstacle(source, ops, has_cache, is_whole)
    if reason and source.reading == "native":
        raise ValueError(
            'TFRecordSource.reading must be "auto" or "tensorflow" here, got "native": '
            f"{reason}."
        )
    return Choice("tensorflow", reason) if reason else Choice("native")


def reading_stage(reason: str, faults: FaultLog) -> ReadAhead | Interleave:
    """Returns the stage that reads, for the reason of `reading`."""
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


def whole_batches(
    wanted: WholeBatches,
    ops: Sequence[Op],
    crop: Choice,
    batch_bytes: int,
    tuning: Tuning,
) -> Choice:
    """Returns whether ops run on whole batches."""
    if wanted is True:
        return Choice("yes")
    if wanted is False:
        return Choice("no", "whole_batches=False")
    if crop.value == "stock":
        return Choice("no", "they gain little without the native crop")
    if (first := _first_before_crop(ops)) is not None:
        return Choice("no", f"{first!r} works on single examples before any crop")
    threads = tuning.num_threads
    need, most = threads * batch_bytes, _MEMORY_SHARE * host.ram_bytes()
    if need > most:
        return Choice(
            "no",
            f"{threads} batches would need {need / 1e9:.1f} GB, more than a quarter "
            "of the memory",
        )
    return Choice("yes")


def _first_before_crop(ops: Sequence[Op]) -> Op | None:
    """Returns the first op that takes no batches, unless a crop comes before it."""
    for op in ops:
        if isinstance(op, CROPS):
            return None
        if not takes_batches(op):
            return op
    return None


def _taken(stages: Sequence[Any]) -> dict[str, str]:
    """Returns which paths some stages take."""
    is_whole, ops = False, []
    has_batches = False
    for stage in stages:
        has_batches = has_batches or isinstance(stage, Batch)
        if isinstance(stage, Map):
            inner = ops_within(stage.ops)
            has_crop = any(isinstance(op, CROPS) for op in inner)
            # A map of records has a fault log, and a crop or not.
            is_whole |= has_batches and (has_crop or stage.faults is not None)
            ops += inner
    has_points = any(isinstance(op, EntryPoints) for op in ops)
    is_wrapped = any(isinstance(stage, Wrapper) for stage in stages)
    is_native = not is_wrapped and any(isinstance(s, ReadAhead) for s in stages)
    return {
        "whole_batches": "yes" if is_whole else "no",
        "crop": crop_kernel(ops).value,
        "entry_points": "yes" if has_points else "no",
        "reading": "native" if is_native else "tensorflow",
    }


def require_whole_batches(value: object) -> None:
    """Checks the argument `whole_batches` of a preset.

    Raises:
        ValueError: If it is neither True, False nor "auto".
    """
    if value == "auto" if isinstance(value, str) else isinstance(value, bool):
        return
    raise ValueError(f'whole_batches must be True, False or "auto", got {value!r}.')
