"""One run: from a `Config` and the ranks to the result document.

In: what to run. Out: the result, and in the report folder its JSON and a picture of the
first batch, both written by rank 0.
"""

import datetime
import pathlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import tfpipe
from benchmarks.distributed.numa import Seat
from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.reporting import environment, gates, mlperf_storage, output
from benchmarks.system import residency
from benchmarks.training import bars, elastic, loop
from benchmarks.training.setting import Setting, make_setting

SCHEMA_VERSION = 1


def run(config: Config, ranks: Ranks, *, seat: Seat | None = None) -> dict[str, Any]:
    """RecordRanges what the config says and returns the result document, on every rank.

    Raises:
        ValueError: If the config does not fit the data or the checkpoint, or the page
            cache was not in the state that the config claims.
        TfpipeError: If the data set is not complete, or too many records are damaged.
        OSError: If a folder cannot be written.
    """
    required = [gates.Gate.parse(text) for text in config.require]
    if config.report_dir and ranks.is_first:  # an unusable one is known before the work
        pathlib.Path(config.report_dir).mkdir(parents=True, exist_ok=True)
    setting = make_setting(config, ranks, seat=seat)
    if ranks.is_first:
        print(_header(setting, ranks), setting.pipeline, sep="\n", flush=True)
    measured = [_measure(setting, ranks) for _ in range(config.repeat)]
    ranks = ranks.now()
    figures = _median(measured)
    if config.repeat > 1:
        figures["reproducibility"] = mlperf_storage.reproducibility(measured)
    result = {
        "command": "benchmarks.train",
        "schema_version": SCHEMA_VERSION,
        "config": setting.config.as_json(),
        "pipeline": str(setting.pipeline).splitlines(),
        "num_ranks": ranks.num_ranks,
        **figures,
        "environment": environment.describe(),
    }
    result["gates"] = gates.check(required, result)
    if config.report_dir and ranks.is_first:
        _write_report(pathlib.Path(config.report_dir), setting, result)
    return result


def _header(setting: Setting, ranks: Ranks) -> str:
    """What this run may use of the host."""
    tuning, nodes = setting.pipeline.tuning, setting.seat.nodes
    parts = [
        f"Ranks: {ranks.num_ranks}, of which {ranks.num_local_ranks} on this host",
        f"threads for each: {tuning.private_threadpool_size or 'all'}",
    ]
    if tuning.ram_budget_bytes is not None:
        parts.append(f"RAM for its buffers: {tuning.ram_budget_bytes / 1e9:.1f} GB")
    if nodes:
        parts.append(f"NUMA node: {', '.join(map(str, nodes))}")
    return "; ".join(parts)


def _median(measured: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The run of the median speed, the slower one of two."""
    ordered = sorted(measured, key=lambda figures: figures["examples_per_second"])
    return dict(ordered[(len(ordered) - 1) // 2])


def _measure(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """The figures of one run, or of the three that make the bars."""
    if not setting.config.bars:
        return _measure_one(setting, ranks)
    results = {
        name: _measure_one(make_setting(config, ranks, seat=setting.seat), ranks)
        for name, config in bars.configs(setting.config).items()
    }
    return results["real"] | {"bars": bars.compare(results)}


def _measure_one(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    config = setting.config
    if config.synthetic or "://" in config.data_dir:  # files of no page cache
        return _work(setting, ranks)
    before = _prepare(config.cache, setting, ranks)
    figures = _work(setting, ranks)
    after = _prepare("as_is", setting, ranks.now())
    proof = residency.verdict(
        config.cache,
        before,
        needed_bytes=figures["run_distinct_bytes"],
        storage_bytes=figures["run_storage_bytes_read"],
    )
    if not proof.passed:
        raise ValueError(
            f"--cache={config.cache} must hold for the whole run, but it was "
            f"{proof.text} Give more steps, or --cache=as_is."
        )
    return figures | {
        "cache": {
            "state": config.cache,
            "text": proof.text,
            "before": [host.as_json() for host in before],
            "after": [host.as_json() for host in after],
        }
    }


def _prepare(
    state: str, setting: Setting, ranks: Ranks
) -> tuple[residency.HostStatus, ...]:
    """Brings the page cache of every host into a state for the shards of the split."""
    source = setting.pipeline.source
    folder = pathlib.Path(setting.config.data_dir)
    return residency.prepare(
        state,
        [str(folder / shard.name) for shard in source.index.splits[source.split]],
        ranks.gather,
        rank=ranks.rank,
        local_rank=ranks.local_rank,
    )


def _work(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    try:
        config = setting.config
        work = elastic.train if config.elastic else _LOOPS[config.mode]
        return work(setting, ranks)
    except tf.errors.OpError:
        log = setting.pipeline.faults
        if log is not None and (error := log.error()) is not None:
            raise error from None
        raise


_LOOPS = {"train": loop.train, "eval": loop.evaluate, "infer": loop.infer}


def _write_report(
    folder: pathlib.Path, setting: Setting, result: dict[str, Any]
) -> None:
    """Writes `<time>-<mode>-<model>-x<ranks>.json` and the `.png` of a batch."""
    config = setting.config
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%S")
    name = f"{now}-{config.mode}-{config.model}-x{result['num_ranks']}"
    batch = next(iter(setting.pipeline.build().take(1)))
    names = [text.partition(",")[0] for text in setting.class_names]
    tfpipe.contact_sheet(batch, class_names=names).save(folder / f"{name}.png")
    # The JSON comes last: what has one is complete.
    output.write(result, folder / f"{name}.json")
