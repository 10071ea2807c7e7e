"""Composes the stages of a preset.

In: a source, the ops of a preset and its arguments. Out: a `Pipeline`.
"""

import itertools
from collections.abc import Sequence

from tfpipe import errors
from tfpipe.composition import paths
from tfpipe.composition.paths import Paths, WholeBatches
from tfpipe.native_reading import choice
from tfpipe.pipeline import Pipeline, Stage, Wrapper
from tfpipe.reading.source import TFRecordSource
from tfpipe.stages.basic import AssertCardinality, Batch, Prefetch
from tfpipe.stages.element_fallback import EachExample, takes_batches
from tfpipe.stages.faults import FaultLog
from tfpipe.stages.map import Map
from tfpipe.stages.traced import Op
from tfpipe.tuning import Tuning


def compose(
    source: TFRecordSource,
    *,
    parse: Sequence[Op],
    image: Sequence[Op],
    select: Op,
    batch_ops: Sequence[Op],
    device_ops: Sequence[Op],
    cache: Wrapper | None,
    whole_batches: WholeBatches,
    batch_bytes: int,
    tuning: Tuning | None,
) -> Pipeline:
    """Returns the pipeline of the stages that all presets share.

    Args:
        source: Where the records come from.
        parse: Ops from a record to an example with its encoded image.
        image: Ops after `parse`, up to the pixels. Without a recipe: ops on the encoded
            image, or none.
        select: The last op on examples.
        batch_ops: Ops on each batch.
        device_ops: Ops that the training step applies.
        cache: A cache of the records.
        whole_batches: Whether ops run on whole batches; "auto" if that pays.
        batch_bytes: Bytes of the images of a batch.
        tuning: Threads and memory.
    """
    tuning = tuning or Tuning()
    errors.require_kind("", "tuning", tuning, Tuning)
    crop = paths.crop_kernel(image)
    points, entry_points = paths.entry_points(source, crop)
    ops: list[Op] = [*parse, *points, *image, select]
    whole = paths.whole_batches(whole_batches, ops, crop, batch_bytes, tuning)
    is_whole = whole.value == "yes"
    reading = paths.reading(source, ops, has_cache=cache is not None, is_whole=is_whole)
    chosen = Paths(
        whole_batches=whole, crop=crop, entry_points=entry_points, reading=reading
    )
    budget = 0 if source.on_error == "raise" else source.max_faults
    faults = FaultLog(budget, locate=source.locate)
    batch = Batch(source.batch_size)
    made: list[Stage] = (
        [batch, Map(*_on_batches(ops), faults=faults)]
        if is_whole
        else [Map(*ops, faults=faults), batch]
    )
    return Pipeline(
        source,
        stages=[
            choice.stage(reading.reason, faults),
            *([cache] if cache else []),
            AssertCardinality(),
            *made,
            *([Map(*batch_ops)] if batch_ops else []),
            Prefetch(),
        ],
        tuning=tuning,
        device_ops=device_ops,
        _paths=chosen.of,
    )


def _on_batches(ops: Sequence[Op]) -> list[Op]:
    """Returns ops that do to a batch what `ops` do to each of its examples.

    From the first op that takes no batches on, all ops run on each example: what such
    an op leaves need not have one shape before the last op, `Select`.
    """
    leading = list(itertools.takewhile(takes_batches, ops))
    rest = ops[len(leading) :]
    return [*leading, *([EachExample(*rest)] if rest else [])]
