"""ReadPath: how records become the batches of a preset, decided in a single place.

In: a source, the ops of a preset and the wishes of the user. Out: four choices, each
with its reason, and the stages for the choices.

| choice | decided by |
|---|---|
| crop | the kernel of `native.selection` on the host |
| entry points | the side file of the data set; only the native crop uses it |
| whole batches | ops without batches, and the memory of the host |
| reading | whole batches, a cache, the location of the shards, and the first ops |
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tfpipe import host
from tfpipe.native import op as native_op
from tfpipe.ops.boxes import ParseBoxes
from tfpipe.ops.crop import CROPS
from tfpipe.ops.parse import EntryPoints, Parse
from tfpipe.reading.building import Stage, Wrapper
from tfpipe.reading.read_ahead import ReadAhead
from tfpipe.reading.source import TFRecordSource
from tfpipe.stages.basic import AssertCardinality, Batch
from tfpipe.stages.faults import FaultLog
from tfpipe.stages.interleave import Interleave
from tfpipe.stages.map import EachExample, Map, ops_within, takes_batches
from tfpipe.stages.traced import Op

WholeBatches = bool | Literal["auto"]

# Share of the memory of the host that the batches of all threads may take.
_MEMORY_SHARE = 0.25


@dataclasses.dataclass(frozen=True)
class Choice:
    """A way of the data.

    Args:
        value: "yes" or "no"; for the crop "native", "stock" or "none"; for the reading
            "native" or "tensorflow".
        reason: Why the data do not take the faster way; empty on the faster way.
    """

    value: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.value} ({self.reason})" if self.reason else self.value


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadPath:
    """The choices for a pipeline.

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

    def stages(
        self, source: TFRecordSource, ops: Sequence[Op], cache: Wrapper | None
    ) -> list[Stage | Wrapper]:
        """Returns the stages from windows to batches.

        Args:
            source: Source of the windows.
            ops: The ops from a record to the features of a batch.
            cache: The cache of the records.
        """
        budget = 0 if source.on_error == "raise" else source.max_faults
        faults = FaultLog(budget, locate=source.locate, read_again=source.read_again)
        reader = ReadAhead if self.reading.value == "native" else Interleave
        kept = [] if cache is None else [cache]
        stages = [reader(faults=faults), *kept, AssertCardinality()]
        if self.whole_batches.value == "no":
            return [*stages, Map(*ops, faults=faults), Batch(source.batch_size)]
        leading = [*itertools.takewhile(takes_batches, ops)]
        # From the first op without batches on, all ops run on single examples: the
        # results of such an op need not have equal shapes before the last op, `Select`.
        rest = ops[len(leading) :]
        each = [EachExample(*rest)] if rest else []
        whole = Map(*leading, *each, faults=faults)
        return [*stages, Batch(source.batch_size), whole]

    def taken_by(self, stages: Sequence[Any]) -> "ReadPath":
        """Returns the choices of stages, which may have been changed.

        A user or a tuner may have changed the stages since the preset made them. A
        changed choice gets the change as its reason.
        """
        change = "the stages were changed after the preset"
        mapped = itertools.dropwhile(lambda stage: not isinstance(stage, Map), stages)
        for wrapper in (stage for stage in mapped if isinstance(stage, Wrapper)):
            change = f"{type(wrapper).__name__} comes after the ops"
        now = _values(stages)
        return ReadPath(
            **{
                name: choice if choice.value == now[name] else Choice(now[name], change)
                for name, choice in vars(self).items()
            }
        )


def decide(
    source: TFRecordSource,
    parse: Sequence[Op],
    image: Sequence[Op],
    *,
    whole_batches: WholeBatches = "auto",
    batch_bytes: int = 0,
    num_threads: int = 1,
    has_cache: bool = False,
) -> tuple[ReadPath, list[Op]]:
    """Decides the path of the records of a source.

    Args:
        source: Source of the records.
        parse: Ops from a record to an example with its encoded image.
        image: Ops after `parse`, up to the features of a batch.
        whole_batches: Whether the user wants ops on whole batches.
        batch_bytes: Bytes of the images of a batch.
        num_threads: Batches in work at the same time.
        has_cache: Whether a cache keeps the records.

    Returns:
        path: The choices.
        ops: All ops, with `EntryPoints` if the crop uses entry points.

    Raises:
        ValueError: If the source says reading="native", and the native op cannot read.
    """
    crop = _crop(image)
    points, entry_points = _entry_points(source, crop)
    ops: list[Op] = [*parse, *points, *image]
    whole = Choice("yes") if whole_batches else Choice("no", "whole_batches=False")
    if whole_batches == "auto":
        whole = _whole_batches(ops, batch_bytes, num_threads)
    obstacle = _obstacle(source, ops, has_cache, is_whole=whole.value == "yes")
    if obstacle and source.reading == "native":
        raise ValueError(
            'TFRecordSource.reading must be "auto" or "tensorflow" here, got "native": '
            f"{obstacle}."
        )
    reading = Choice("tensorflow", obstacle) if obstacle else Choice("native")
    choices = {"whole_batches": whole, "crop": crop, "entry_points": entry_points}
    return ReadPath(**choices, reading=reading), ops


def _crop(image: Sequence[Op]) -> Choice:
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


def _entry_points(
    source: TFRecordSource, crop: Choice
) -> tuple[list[EntryPoints], Choice]:
    """Returns the op of the entry points, if the crop can use entry points."""
    if crop.value != "native":
        return [], Choice("no", "only the native crop uses them")
    points = EntryPoints.of(source)
    if points is None:
        command = "python -m converters.verify DIR --write_entry_points"
        return [], Choice("no", f"the data set has none; {command} adds them")
    return [points], Choice("yes")


def _whole_batches(ops: Sequence[Op], batch_bytes: int, num_threads: int) -> Choice:
    before = itertools.takewhile(lambda op: not isinstance(op, CROPS), ops)
    if (
        first := next((op for op in before if not takes_batches(op)), None)
    ) is not None:
        return Choice("no", f"{first!r} works on single examples before any crop")
    need, most = num_threads * batch_bytes, _MEMORY_SHARE * host.ram_bytes()
    if need > most:
        return Choice(
            "no",
            f"{num_threads} batches would need {need / 1e9:.1f} GB, more than a "
            "quarter of the memory",
        )
    return Choice("yes")


def _obstacle(
    source: TFRecordSource, ops: Sequence[Op], has_cache: bool, *, is_whole: bool
) -> str:
    """Returns why TensorFlow must read; empty if the native op can."""
    if source.reading == "tensorflow":
        return "reading='tensorflow'"
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


def _values(stages: Sequence[Any]) -> Mapping[str, str]:
    """Returns the values of the choices of some stages, by name."""
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
        "crop": _crop(ops).value,
        "entry_points": "yes" if has_points else "no",
        "reading": "native" if is_native else "tensorflow",
    }


def require_whole_batches(value: object) -> None:
    """Checks the option `whole_batches` of a preset.

    Raises:
        ValueError: If the value is neither True, False nor "auto".
    """
    if value == "auto" if isinstance(value, str) else isinstance(value, bool):
        return
    raise ValueError(f'whole_batches must be True, False or "auto", got {value!r}.')
