"""The parts of a pipeline that say what its records are: its source and its Parse.

In: the source and the stages of a pipeline. Out: its `TFRecordSource`, and the place of
its `Parse` among the stages, or an error that says which part is missing.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tfpipe.ops.parse import Parse
from tfpipe.reading.source import TFRecordSource
from tfpipe.stages.map import Map


class ParsePlace(NamedTuple):
    """The first `Parse` of a pipeline, and its place.

    Attributes:
        stage: Place of its `Map` among the stages, from 0 on.
        op: Its place among the ops of that Map, from 0 on.
        parse: The op itself.
    """

    stage: int
    op: int
    parse: Parse


def find_parse(stages: Sequence[object]) -> ParsePlace:
    """Returns the first `Parse` of the stages, and its place.

    Raises:
        ValueError: If no Map of the stages has a Parse.
    """
    for number, stage in enumerate(stages):
        for position, op in enumerate(stage.ops if isinstance(stage, Map) else ()):
            if isinstance(op, Parse):
                return ParsePlace(number, position, op)
    raise ValueError(
        "The pipeline must have a Map with a Parse, which says what its records are, "
        f"got the stages {list(stages)}."
    )


def require_records(source: object, what: str) -> TFRecordSource:
    """Returns the source, which must be a `TFRecordSource`.

    Args:
        source: Source of a pipeline.
        what: Name of the property that needs its index, for the error.

    Raises:
        ValueError: If it is another source, such as a `Mixture`.
    """
    if isinstance(source, TFRecordSource):
        return source
    raise ValueError(
        f"The source must be a TFRecordSource for {what}, got {type(source).__name__}: "
        "it has no index of its own. For a Mixture, ask the pipelines of its parts."
    )
