"""The page cache around a run: brought to a state before, checked afterwards.

In: a `Setting` and the ranks. Out: the section `cache` of the result; or an error, if
the bytes read from storage do not fit the claimed state. `benchmarks.system.residency`
does the work on each host.
"""

import pathlib
from typing import Any

from benchmarks.distributed.ranks import Ranks
from benchmarks.system import residency
from benchmarks.system.residency import HostStatus
from benchmarks.training.setting import Setting


def prepare(setting: Setting, ranks: Ranks) -> tuple[HostStatus, ...] | None:
    """Brings the page cache of every host to the state that the config names.

    Returns:
        The status of each host; None if the run reads no local files.

    Raises:
        ValueError: If a host does not reach the state.
    """
    config = setting.config
    if config.synthetic or "://" in config.data_dir:
        return None
    return _look(config.cache, setting, ranks)


def proof(
    setting: Setting,
    ranks: Ranks,
    before: tuple[HostStatus, ...] | None,
    figures: dict[str, Any],
) -> dict[str, Any]:
    """Checks after a run that the bytes read from storage fit the state of the cache.

    Args:
        setting: The setting of the run.
        ranks: The ranks that are left; an elastic run may have lost some.
        before: What `prepare` returned.
        figures: The figures of the run.

    Returns:
        The section `cache` of the result; empty if `before` is None.

    Raises:
        ValueError: If the cache was not in the claimed state for the whole run.
    """
    if before is None:
        return {}
    state = setting.config.cache
    after = _look("as_is", setting, ranks)
    verdict = residency.verdict(
        state,
        before,
        needed_bytes=figures["run_distinct_bytes"],
        storage_bytes=figures["run_storage_bytes_read"],
    )
    if not verdict.passed:
        raise ValueError(
            f"--cache={state} must hold for the whole run, but it was "
            f"{verdict.text} Give more steps, or --cache=as_is."
        )
    return {
        "cache": {
            "state": state,
            "text": verdict.text,
            "before": [host.as_json() for host in before],
            "after": [host.as_json() for host in after],
        }
    }


def _look(state: str, setting: Setting, ranks: Ranks) -> tuple[HostStatus, ...]:
    source = setting.pipeline.source
    folder = pathlib.Path(setting.config.data_dir)
    return residency.prepare(
        state,
        [str(folder / shard.name) for shard in source.index.splits[source.split]],
        ranks.gather,
        rank=ranks.rank,
        local_rank=ranks.local_rank,
    )
