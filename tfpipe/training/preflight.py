"""Checks before the first step that all ranks mean the same run.

In: the pipeline of this rank, and a function that gathers a value of every rank. Out:
nothing, or on every rank the same error, which names the rank that differs. Without the
check, ranks that differ train on wrong data or wait for each other for ever.
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

# The attributes of sources that are compared, if a source has them. The rank and the
# place of the files may differ.
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
    "weights",
    "steps_per_epoch",
)


def preflight(
    pipeline: Pipeline, all_gather: Gather, *, state: State | None = None
) -> None:
    """Compares what the ranks are about to read; call it on every rank.

    It compares the shards, seed and order, batches and steps of the source, the form of
    the elements, the state to go on from, and the version of tfpipe. It also checks
    that the ranks are 0 to n - 1. With several ranks it takes as long as building the
    pipeline once.

    Example:
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4)
        >>> tfpipe.preflight(pipeline, lambda value: [value])  # a single process

    Args:
        pipeline: The pipeline of this rank.
        all_gather: Takes any value that can be pickled and returns the values of all
            processes, in the same order on each: Horovod's `allgather_object`, or
            `lambda value: [value]` for one process. It is called once, and with
            several processes a second time.
        state: The state that the run goes on from.

    Raises:
        TfpipeError: On every rank, if the ranks differ, or if one of them cannot build
            its pipeline.
    """
    errors.require_callable("", "all_gather", all_gather)
    rank = getattr(getattr(pipeline, "source", None), "rank", None)
    # The facts that cost nothing come first: ranks that differ in them need not build
    # their pipelines, nor does a single rank.
    if _agree(lambda: _run_facts(pipeline, state), rank, all_gather) > 1:
        _agree(lambda: _element_facts(pipeline, state), rank, all_gather)


def _agree(find: Callable[[], Facts], rank: int | None, all_gather: Gather) -> int:
    """Raises if the ranks differ in these facts; returns the number of ranks."""
    try:
        mine = find()
    except Exception as error:
        # The other ranks must get the error, or they would wait for this rank.
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
    """Returns a line for each difference among the ranks; the same on every rank.

    Args:
        gathered: For each process the rank of its source, None if it has none, and its
            facts by name, or the error that it met.
    """
    failed = [
        f"rank {number} could not build its pipeline: {facts}"
        for number, (_, facts) in enumerate(gathered)
        if isinstance(facts, str)
    ]
    if failed:
        return failed
    all_facts = [facts for _, facts in gathered if not isinstance(facts, str)]
    names = dict.fromkeys(name for facts in all_facts for name in facts)
    found = _rank_faults([rank for rank, _ in gathered], all_facts)
    for name in names:
        found += _odd_ones(name, [facts.get(name, "absent") for facts in all_facts])
    return found


def _odd_ones(name: str, values: Sequence[str]) -> list[str]:
    """Returns a line for each rank that differs from most, or one without majority."""
    (usual, count), *others = collections.Counter(values).most_common()
    if not others:
        return []
    if 2 * count <= len(values):  # no majority: either may be wrong
        each = ", ".join(f"{value} on rank {rank}" for rank, value in enumerate(values))
        return [f"{name} must be the same on every rank, got {each}"]
    return [
        f"{name} must be {usual} as on most ranks, got {value} on rank {rank}"
        for rank, value in enumerate(values)
        if value != usual
    ]


def _rank_faults(
    ranks: Sequence[int | None], all_facts: Sequence[Mapping[str, str]]
) -> list[str]:
    """Returns what is wrong with the ranks, unless no source has a rank."""
    if all(rank is None for rank in ranks):
        return []
    count = str(len(ranks))
    found = [
        f"num_ranks must be {count}, as many as there are, got {got} on process {rank}"
        for rank, facts in enumerate(all_facts)
        if (got := facts.get("num_ranks", count)) != count
    ]
    if found or sorted(ranks, key=str) == sorted(range(len(ranks)), key=str):
        return found
    each = ", ".join(f"{rank} on process {number}" for number, rank in enumerate(ranks))
    return [f"the ranks must be 0 to {len(ranks) - 1}, each once, got {each}"]


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
    for number, part in enumerate(getattr(source, "pipelines", ())):
        facts |= {
            f"{name} of part {number}": value
            for name, value in _source_facts(part.source).items()
        }
    return facts


def _describe_shards(source: Any) -> str:
    """Describes the shards in short, with a digest that differs if any shard does."""
    text = repr([dataclasses.astuple(shard) for shard in source.shards])
    digest = index.digest(text)[:16]
    num_records = source.index.num_records(source.split)
    num_shards = count_of(len(source.shards), "shard")
    known = f"{num_records} records in {num_shards} with digest {digest}"
    chosen = getattr(source, "chosen", None)
    if chosen is None:
        return known
    return f"{len(chosen)} chosen ones, with digest {chosen.digest[:16]}, of {known}"
