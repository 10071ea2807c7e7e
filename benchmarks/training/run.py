"""A run: from a `Config` and the ranks to the result document.

In: the config. Out: the result; in the report folder also its JSON and a picture of the
first batch, which rank 0 writes. `run` and `_measure` show the whole way from the data
to the result, in order.
"""

import contextlib
import dataclasses
import io
import itertools
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks, Seat
from benchmarks.distributed.watch import Beat, Stop, watched
from benchmarks.options.config import Config
from benchmarks.planning.sweep_run import FAILED_DIR
from benchmarks.reporting import binding, output
from benchmarks.results import checks, environment, gates, tree
from benchmarks.results.gates import Gate
from benchmarks.results.train_result import TrainResult
from benchmarks.system import probes
from benchmarks.system.figures import joined
from benchmarks.training import bars, caches, critical_path, loop, metrics, steps
from benchmarks.training.setting import Setting, make_setting
from tfpipe.cli import output as cli_output
from tfpipe.cli.progress import Progress

_LOOPS = {
    **{"train": loop.train, "elastic": loop.train_elastic},
    **{"eval": loop.evaluate, "infer": loop.infer},
}


def run(
    config: Config,
    ranks: Ranks,
    *,
    seat: Seat | None = None,
    show: Callable[[dict[str, Any], pathlib.Path | None], None] | None = None,
) -> dict[str, Any]:
    """Runs a config and returns the result document, on every rank.

    Args:
        seat: The cores of the rank; None if ranks are not bound to cores.
        show: Called on rank 0, before a file is written, with the result, and with the
            path of the JSON file.

    Raises:
        StoppedError: If SIGTERM ended the training; with --checkpoint_dir only.
    """
    # Wrong gates and folders are errors before the work starts.
    required = [gates.Gate.parse(text) for text in config.require]
    gates.refuse_unmeasured(required, config.measured | _measured_here(config, ranks))
    progress, stop = Progress(), Stop()
    # Elastic training goes on without a rank, and has its own watch.
    saves = config.mode == "train" and config.checkpoint_dir and not config.elastic
    with (
        stop.listening() if saves else contextlib.nullcontext(),
        contextlib.nullcontext(Beat())
        if config.elastic
        else watched(ranks, config.rank_timeout, is_ended_by_sigterm=not saves) as beat,
        progress.shown(is_first=ranks.is_first),
    ):
        if config.report_dir and ranks.is_first:
            pathlib.Path(config.report_dir).mkdir(parents=True, exist_ok=True)
        if config.find_batch_size:
            config = _with_largest_batch(config, ranks, progress)
        # Reads the index of the data set and composes the pipeline of the rank.
        setting = make_setting(
            config, ranks, seat=seat, beat=beat, progress=progress, stop=stop
        )
        if ranks.is_first:
            cli_output.tell(*_header(setting, ranks))
        result = _result(setting, ranks, required)
    # The figures are printed before a file can fail or another rank can be lost.
    if ranks.now().is_first:
        path = _report_path(config, result)
        if show is not None:
            show(result, path)
        if path is not None:
            _write_report(path, setting, result)
    return result


def _with_largest_batch(config: Config, ranks: Ranks, progress: Progress) -> Config:
    progress.begin("finding the largest batch that fits")
    batch_size = steps.largest_batch(config, ranks)
    if ranks.is_first:
        cli_output.tell(f"--find_batch_size: --batch_size={batch_size}")
    return dataclasses.replace(config, find_batch_size=False, batch_size=batch_size)


def _result(setting: Setting, ranks: Ranks, required: Sequence[Gate]) -> dict[str, Any]:
    config = setting.config
    measure = _measure_bars if config.bars else _measure
    measured = []
    for repeat in range(config.repeat):
        measured.append(measure(setting, ranks))
        if config.repeat > 1:
            _tell(f"run {repeat + 1} of {config.repeat}", measured[-1], ranks)
    ranks = ranks.now()

    # The figures of the median speed; the slower figures of two runs.
    ordered = sorted(measured, key=lambda figures: figures["examples_per_second"])
    figures = ordered[(len(ordered) - 1) // 2] | _not_finite(measured)
    if config.repeat > 1:
        figures["reproducibility"] = metrics.reproducibility(measured)
    source = None if config.synthetic else setting.source
    result = {
        **checks.head(checks.TRAIN),
        "kind": config.kind,
        "config": (options := dataclasses.asdict(config)),
        "config_digest": checks.digest(options),
        "paths": environment.paths(setting.pipeline),
        "pipeline": str(setting.pipeline).splitlines(),
        "num_ranks": ranks.num_ranks,
        "emulation": setting.emulation and setting.emulation.as_json(),
        **figures,
        "environment": environment.of_run(ranks, source),
    }
    result |= _of_hosts(result, config)
    typed, _ = tree.decode(TrainResult, result)
    answered = [dataclasses.asdict(gate.check(typed)) for gate in required]
    return {**result, "binding": binding.of_run(typed), "gates": answered}


def _measured_here(config: Config, ranks: Ranks) -> set[str]:
    has = set()
    speed = "network_link_bytes_per_second"
    if config.link_gbps or speed in next(probes.PROBES["network"]()):
        has.add("link")
    with contextlib.suppress(*probes.UNREADABLE):
        next(probes.PROBES["gpu"]())
        if tf.config.list_physical_devices("GPU"):
            has.add("gpu")
    return set.intersection(*ranks.gather(has))


def _of_hosts(result: dict[str, Any], config: Config) -> dict[str, Any]:
    """Returns the use of the busiest link and the GPUs, and a rank behind a link."""
    hosts, path = tree.decode(TrainResult, result)[0].telemetry, result["critical_path"]
    shares = []
    for received, sent, link in itertools.zip_longest(
        hosts.network_received_megabytes_per_second_per_host,
        hosts.network_sent_megabytes_per_second_per_host,
        hosts.network_link_bytes_per_second_max_per_host,
    ):
        speed = link if config.link_gbps is None else config.link_gbps * 1e9 / 8
        if speed and received is not None and sent is not None:
            shares.append(min(1.0, max(received, sent) * 1e6 / speed))
    joules = joined(sum, hosts.gpu_energy_joules_per_host)
    examples = result["examples_per_second"] * result["timed_seconds"]
    slow = None
    if hosts.num_hosts > 1:  # the ranks of one host share no link
        slow = critical_path.slow_link(
            hosts.process_sending_seconds_per_rank,
            path["shares"]["communication"] * path["seconds"],
            path["seconds"],
        )
    return {
        "network_utilization": max(shares, default=None),
        "gpu_utilization": hosts.gpu_utilization,
        "examples_per_joule": examples / joules if joules else None,
        "slow_link": slow and dataclasses.asdict(slow),
    }


def is_broken(result: dict[str, Any], config: Config) -> bool:
    """Whether the run ended at a loss that is not finite, which is an error."""
    return result.get("not_finite_loss") is not None and not config.allow_nan


def _tell(name: str, figures: dict[str, Any], ranks: Ranks) -> None:
    """Prints the rate of a run, so that a lost run costs no other run."""
    if ranks.now().is_first:
        rate = figures["examples_per_second"]
        print(f"{name}: {rate:.1f} images/s", file=sys.stderr, flush=True)


def _measure(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    setting.progress.begin("preparing the page cache")
    cache_before = caches.prepare(setting, ranks)
    setting.progress.begin("building the model")
    work = _LOOPS["elastic" if setting.config.elastic else setting.config.mode]
    try:
        # Builds the model, runs the steps, and joins the figures of all ranks.
        figures = work(setting, ranks)
    except tf.errors.OpError:
        # The error of the pipeline names shard and record; TensorFlow's does not.
        faults = setting.pipeline.faults
        if faults is not None and (error := faults.error()) is not None:
            raise error from None
        raise
    reads = figures.pop("epoch_reads")
    if is_broken(figures, setting.config):
        return figures  # the run ended too early to prove the state of the cache
    now = ranks.now()
    return figures | caches.proof(setting, now, cache_before, reads, figures)


def _measure_bars(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    results: dict[str, dict[str, Any]] = {}
    same = {key: getattr(setting, key) for key in ("seat", "beat", "progress")}
    for name, config in bars.configs(setting.config).items():
        results[name] = _measure(make_setting(config, ranks, **same), ranks)
        _tell(f"{name} alone" if name != "real" else "both", results[name], ranks)
    num_cores = sum(ranks.gather(setting.seat.num_threads))
    figures = results["real"] | {"bars": bars.compare(results, num_cores)}
    return figures | _not_finite(results.values())


def _not_finite(measured: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Returns the first loss that is not finite, of all runs; {} without training."""
    key = "not_finite_loss"
    losses = [figures[key] for figures in measured if key in figures]
    return {key: next(filter(None, losses), None)} if losses else {}


def _header(setting: Setting, ranks: Ranks) -> list[str]:
    tuning, nodes = setting.pipeline.tuning, setting.seat.nodes
    parts = [
        f"Ranks: {ranks.num_ranks}, of which {ranks.num_local_ranks} on this host",
        f"threads for each: {tuning.private_threadpool_size or 'all'}",
    ]
    if tuning.ram_budget_bytes is not None:
        parts.append(f"RAM for its buffers: {tuning.ram_budget_bytes / 1e9:.1f} GB")
    if nodes:
        parts.append(f"NUMA node: {', '.join(map(str, nodes))}")
    lines = ["; ".join(parts), str(setting.pipeline)]
    if setting.emulation is not None:
        lines.append(str(setting.emulation))
    if setting.config.read_only:
        lines.append(
            "Records are read and not decoded: what storage benchmarks measure"
        )
    return lines


def _report_path(config: Config, result: dict[str, Any]) -> pathlib.Path | None:
    """Returns `<time>-<mode>-<model>-x<ranks>.json` in --report_dir, or None."""
    if not config.report_dir:
        return None
    folder = pathlib.Path(config.report_dir)
    if is_broken(result, config):
        folder /= FAILED_DIR  # no page reads it
    name = f"{config.mode}-{config.model}-x{result['num_ranks']}"
    return output.path_in(str(folder), name, output.now())


def _write_report(path: pathlib.Path, setting: Setting, result: dict[str, Any]) -> None:
    """Writes the result and a picture of a batch; an error costs only its own file."""
    config = setting.config
    path.parent.mkdir(exist_ok=True)
    picture = path.with_suffix(".png")

    def draw() -> None:
        batch = next(iter(setting.pipeline.build().take(1)))
        names = [text.partition(",")[0] for text in setting.class_names]
        sheet = tfpipe.view.contact_sheet(
            batch, pipeline=setting.pipeline, class_names=names
        )
        content = io.BytesIO()
        sheet.save(content, "PNG")
        output.write_bytes(content.getvalue(), picture)

    # The JSON is written last: a report with a JSON file is complete.
    pictures = {} if config.read_only else {picture: draw}
    output.write_each({**pictures, path: lambda: output.write(result, path)})
