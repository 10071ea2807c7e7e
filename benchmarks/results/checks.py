"""Checks of a result against itself, at its writing and at its reading.

In: the JSON object of benchmarks.train. Out: a sentence for each contradiction. A
result with a contradiction was altered, or its program has a fault; reports say so.

  | figure              | must be                                                |
  |---------------------|--------------------------------------------------------|
  | each key            | of the type of `TrainResult`                           |
  | examples_per_second | steps * batch * ranks / seconds, without padding       |
  | shares of the time  | 0 to 1; shares of the critical path add up to 1        |
  | label of an epoch   | as the bytes of the epoch say                          |
  | stall_fraction, ... | the figure with another name, see `_pairs`             |
  | hosts               | each rank once                                         |
  | verdict of a gate   | as the figures say                                     |
  | config_digest       | the digest of the options                              |
  | digest              | the digest of all other keys; older results have none  |
"""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.results import gates, tree
from benchmarks.results.train_result import TrainResult

TRAIN, INPUT, SWEEP = "benchmarks.train", "benchmarks.input", "benchmarks.sweep"
STORAGE, ADVISE = "benchmarks.storage", "benchmarks.advise"
# The schema version of each command with a result; since then a result has a digest.
VERSIONS: Mapping[str, int] = {TRAIN: 3, INPUT: 2, STORAGE: 2, SWEEP: 3, ADVISE: 2}
DIGEST = "digest"
_EXACT = 0.01  # relative difference of a rate and its factors
_HALF = 0.5  # a cold epoch reads more of its bytes from storage, a warm one fewer
_ALTERED = "The file was altered after it was written: its digest"
_SHARES = ("stall_fraction", "accelerator_utilization", "sync_fraction")


def head(command: str) -> dict[str, Any]:
    """Returns the first keys of a result of a command."""
    return {"command": command, "schema_version": VERSIONS[command]}


def digest(values: Mapping[str, Any]) -> str:
    """Returns a digest of a JSON object, without its own key `digest`."""
    rest = {key: value for key, value in values.items() if key != DIGEST}
    text = json.dumps(rest, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def faults(document: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for every contradiction within a result.

    Commands other than benchmarks.train have their digest checked only.
    """
    problems, command = [], document.get("command")
    version = document.get("schema_version")
    if DIGEST in document:
        if document[DIGEST] != digest(document):
            problems.append(f"{_ALTERED} differs.")
    elif isinstance(version, int) and version >= VERSIONS.get(str(command), math.inf):
        problems.append(f"{_ALTERED} is missing.")
    if command != TRAIN:
        return problems
    result, wrong = tree.decode(TrainResult, document)
    problems += [f"A value has another type than a result has: {w}" for w in wrong]
    config = document.get("config")
    options = digest(config if isinstance(config, Mapping) else {})
    if result.config_digest not in (None, options):
        problems.append("Its options were altered: their digest differs.")
    looks = (_rate, _shares, _pairs, _hosts, _labels, _verdicts)
    return [*problems, *itertools.chain(*(look(result) for look in looks))]


def _rate(result: TrainResult) -> Iterator[str]:
    factors = result.num_timed_steps, result.config.batch_size, result.num_ranks
    rate, seconds = result.examples_per_second, result.timed_seconds
    if result.config.elastic or None in factors or rate is None or seconds is None:
        return
    (steps, batch, ranks), padding = factors, result.padding_fraction or 0.0
    examples = math.prod(float(factor or 0) for factor in factors) * (1 - padding)
    if seconds <= 0 or abs(rate * seconds - examples) > _EXACT * max(examples, 1):
        yield (
            f"examples_per_second is {rate:,.6g}, but {steps} steps of {batch} on "
            f"{ranks} ranks in {seconds:,.6g} s are "
            f"{examples / seconds if seconds > 0 else math.inf:,.6g}."
        )


def _shares(result: TrainResult) -> Iterator[str]:
    shares = dict(result.critical_path.shares)
    if shares and abs(sum(shares.values()) - 1) > _EXACT:
        yield f"The shares of the time add up to {sum(shares.values()):.4g}, not to 1."
    shares |= {key: getattr(result, key) for key in _SHARES}
    for name, share in shares.items():
        if share is not None and not -1e-6 <= share <= 1 + 1e-6:
            yield f"{name} is a share of the time, but {share:.6g}."


def _pairs(result: TrainResult) -> Iterator[str]:
    """Yields the figures with a contradiction to a figure of the same meaning."""
    shares, seconds = result.critical_path.shares, result.timed_seconds

    def per_second(num_bytes: float | None) -> float | None:
        return num_bytes / seconds / 1e6 if num_bytes and seconds else None

    pairs = {
        "stall_fraction": shares.get("input"),
        "accelerator_utilization": shares.get("compute"),
        "consumed_megabytes_per_second": per_second(result.consumed_bytes),
        "storage_megabytes_per_second": per_second(result.storage_bytes_read),
    }
    for name, same in pairs.items():
        figure = getattr(result, name)
        if figure is None or same is None:
            continue
        if not math.isclose(figure, same, rel_tol=_EXACT, abs_tol=1e-6):
            yield f"{name} is {figure:,.6g}, but other figures give {same:,.6g}."
    # Ranks that average nothing end at different times.
    by_rank = [rate for rate in result.examples_per_second_per_rank if rate is not None]
    rate = result.examples_per_second
    if rate is not None and by_rank and sum(by_rank) < rate * (1 - _EXACT):
        yield (
            f"examples_per_second is {rate:,.6g}, but the ranks add up to "
            f"{sum(by_rank):,.6g}."
        )


def _hosts(result: TrainResult) -> Iterator[str]:
    ranks = sorted(rank for host in result.environment.hosts for rank in host.ranks)
    count = 0 if result.config.elastic else result.num_ranks
    if ranks and count and ranks != list(range(count)):
        yield f"The hosts have the ranks {ranks}, but the run had {count} ranks."


def _labels(result: TrainResult) -> Iterator[str]:
    for epoch in result.cache.epochs:
        server, consumed = epoch.server_bytes, epoch.consumed_bytes
        read = epoch.storage_bytes if server is None else server
        if read is None or not consumed:
            continue
        share = read / consumed
        if {"cold": share < _HALF, "warm": share > _HALF}.get(epoch.label):
            yield (
                f"Epoch {epoch.epoch} is labelled {epoch.label}, but {share:.1%} of "
                "its bytes came from storage."
            )


def _verdicts(result: TrainResult) -> Iterator[str]:
    for stored, now in zip(result.gates, gates.again(result), strict=True):
        if now.passed != stored.passed:
            yield f"The file says otherwise of a gate. {now.text}"
