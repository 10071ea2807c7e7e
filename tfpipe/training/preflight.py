"""Checks before the first step that all ranks mean the same run.

In: the pipeline of a rank, and a function that gathers a value of every rank. Out:
nothing, or on every rank the same error with the name of the odd rank. Without the
check, different ranks train on wrong data or wait for each other for ever.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfpipe import __version__, errors
from tfpipe.errors import count_of
from tfpipe.pipeline import Pipeline
from tfpipe.reading.state import State
from tfpipe.shards import index

Gather = Callable[[Any], Sequence[Any]]
Facts = dict[str, str]

# Attributes of sources to compare, if a source has them. The rank and the folder of the
# files may differ.
_FIELDS = (
    "split",
    "seed",
    "num_ranks",
    "batch_size",
    "shuffle",
    "remainder",
    "block_length",
    "window_size",
    "sampling",
    "affinity",
    "hosts",
    "weights",
    "steps_per_epoch",
)


def preflight(
    pipeline: Pipeline, all_gather: Gather, *, state: State | None = None
) -> None:
    """Compares the runs that the ranks are about to begin; call it on every rank.

    The check covers the shards, seed and order, batches and steps of the source, the
    form of the elements, the state to go on from, the version of tfpipe, and the ranks,
    which must be 0 to n - 1. With several ranks the check takes as long as building the
    pipeline once.

    Example:
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4)
        >>> tfpipe.preflight(pipeline, lambda value: [value])  # a single process

    Args:
        pipeline: The pipeline of the calling rank.
        all_gather: Takes any value that can be pickled and returns the values of all
            processes, in the same order everywhere: Horovod's `allgather_object`, or
            `lambda value: [value]` for a single process. It is called once, and with
            several processes a second time.
        state: The state from which the run goes on.

    Raises:
        TfpipeError: On every rank, if the ranks differ, or if a rank cannot build its
            pipeline.
    """
    errors.require_callable("", "all_gather", all_gather)
    rank = getattr(getattr(pipeline, "source", None), "rank", None)
    # The facts without a cost come first: ranks with other facts need not build their
    # pipelines, nor does a single rank.
    if _agree(lambda: _run_facts(pipeline, state), rank, all_gather) > 1:
        _agree(lambda: _element_facts(pipeline, state), rank, all_gather)


def _agree(find: Callable[[], Facts], rank: int | None, all_gather: Gather) -> int:
    """Raises if the ranks differ in these facts; returns the number of ranks."""
    try:
        mine = find()
    except Exception as error:
        # The other ranks must get the error, or they would wait for ever.
        all_gather((rank, f"{type(error).__name__}: {error}"))
        raise
    gathered = all_gather((rank, mine))
    faults = differences(gathered)
    if faults:
        raise errors.TfpipeError(
            f"The {len(gathered)} ranks do not mean the same run:\n"
            + "\n".join(f"  {fault}" for fault in faults)
            + "\nStart all of them with the same data, arguments and version."
        )
    return len(gathered)


def differences(gathered: Sequence[tuple[int | None, Facts | str]]) -> list[str]:
    """Returns a line for every difference among the ranks; the same on every rank.

    Args:
        gathered: By process, the rank of its source, None without a rank, and its facts
            by name, or its error.
    """
    failed = [
        f"rank {process} could not build its pipeline: {facts}"
        for process, (_, facts) in enumerate(gathered)
        if isinstance(facts, str)
    ]
    if failed:
        return failed
    all_facts = [facts for _, facts in gathered if not isinstance(facts, str)]
    names = dict.fromkeys(name for facts in all_facts for name in facts)
    faults = _rank_faults([rank for rank, _ in gathered], all_facts)
    for name in names:
        faults += _odd_ranks(name, [facts.get(name, "absent") for facts in all_facts])
    return faults


def _odd_ranks(name: str, values: Sequence[str]) -> list[str]:
    """Returns a line for every odd rank, or a single line without a majority."""
    (usual, count), *others = collections.Counter(values).most_common()
    if not others:
        return []
    if 2 * count <= len(values):  # no majority: either may be wrong
        listed = [f"{value} on rank {rank}" for rank, value in enumerate(values)]
        return [f"{name} must be the same on every rank, got {', '.join(listed)}"]
    return [
        f"{name} must be {usual} as on most ranks, got {value} on rank {rank}"
        for rank, value in enumerate(values)
        if value != usual
    ]


def _rank_faults(
    ranks: Sequence[int | None], all_facts: Sequence[Mapping[str, str]]
) -> list[str]:
    """Returns the faults of the ranks; none if no source has a rank."""
    if all(rank is None for rank in ranks):
        return []
    count = str(len(ranks))
    wrong = [
        f"num_ranks must be {count}, as many as there are, got {got} on process {i}"
        for i, facts in enumerate(all_facts)
        if (got := facts.get("num_ranks", count)) != count
    ]
    if wrong or sorted(ranks, key=str) == sorted(range(len(ranks)), key=str):
        return wrong
    listed = ", ".join(f"{rank} on process {i}" for i, rank in enumerate(ranks))
    return [f"the ranks must be 0 to {len(ranks) - 1}, each once, got {listed}"]


def _run_facts(pipeline: Pipeline, state: State | None) -> Facts:
    # Checked here, so that the other ranks get the error, too.
    errors.require_kind("", "pipeline", pipeline, Pipeline)
    errors.require_kind("", "state", state, State, or_none=True)
    return {
        "tfpipe version": __version__,
        **_source_facts(pipeline.source),
        "state": "none" if state is None else state.to_json(),
    }


def _element_facts(pipeline: Pipeline, state: State | None) -> Facts:
    return {"element": str(pipeline.build(state=state or State()).element_spec)}


def _source_facts(source: Any) -> Facts:
    facts = {
        name: str(getattr(source, name)) for name in _FIELDS if hasattr(source, name)
    }
    if hasattr(source, "index"):
        facts["shards"] = _describe_shards(source)
    for position, part in enumerate(getattr(source, "pipelines", ())):
        facts |= {
            f"{name} of part {position}": value
            for name, value in _source_facts(part.source).items()
        }
    return facts


def _describe_shards(source: Any) -> str:
    """Describes the shards in short; another shard gives another digest."""
    text = repr([dataclasses.astuple(shard) for shard in source.shards])
    digest = index.digest(text)[:16]
    num_records = source.index.num_records(source.split)
    num_shards = count_of(len(source.shards), "shard")
    text = f"{num_records} records in {num_shards} with digest {digest}"
    chosen = getattr(source, "chosen", None)
    if chosen is None:
        return text
    return f"{len(chosen)} chosen ones, with digest {chosen.digest[:16]}, of {text}"
