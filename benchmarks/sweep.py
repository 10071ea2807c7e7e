r"""Runs benchmarks.train with all combinations of settings; says how it scales.

  python -m benchmarks.sweep --sweep_dir=OUT --data_dirs=DIR --ranks=1,2,4,8 \
      --models=resnet50,vgg16 --batch_sizes=64,128 -- --num_steps=100
  python -m benchmarks.sweep --sweep_dir=OUT --data_dirs=DIR --hosts=a,b,c,d \
      --accelerators=h100 --placements=1x8,2x4,4x2 --caches=cold,warm
  python -m benchmarks.sweep --sweep_dir=OUT --data_dirs=DIR \
      --accelerators=h100 --find_ranks="au>=0.9" --max_ranks=16
  python -m benchmarks.sweep --sweep_dir=OUT --data_dirs=DIR --remote_url=URL \
      --shard_cache_dir=CACHE --tiers=remote,shard_cache_cold,ram
  python -m benchmarks.sweep --sweep_dir=OUT --data_dirs=DIR --preset=models \
      -- --emulate=v100 --num_steps=100
  python -m benchmarks.sweep --sweep_dir=OUT --sweep_file=sweep.json --dry_run

Question: how many images a second do N ranks reach, compared with N times one rank? And
how many ranks does a storage feed?
Flags after -- go to the runs, and are checked before the first run. Several ranks are
started with horovodrun. Every run leaves a JSON file in --sweep_dir for python -m
benchmarks.report; a run whose gates were not met is a result too. A sweep that starts
again runs only the runs without a result of the data, versions and machine as they are
now: other results are moved to --sweep_dir/stale. A failed run leaves its error in
--sweep_dir/failed, and the next sweep tries it again.

On stdout: a table for the runs that differ only in their ranks, with efficiency =
rate_N / (N * rate_1) and its 95 % interval, or with --tiers a table of the places of
the data; the answer of --find_ranks; the runs beside published figures; and one JSON
object as the last line, also in --sweep_dir/sweep.json. Exit code: 0 done, 1 an error
or a run that failed, 2 done but a gate of a run was not met (with --find_ranks: not
even on one rank).
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tfpipe
from benchmarks.options import config as options_of_run
from benchmarks.options.config import Config
from benchmarks.planning import plan, published
from benchmarks.planning.plan import NO_ACCELERATOR, Run, Series, Sweep
from benchmarks.planning.sweep_run import (
    FAILED_DIR,
    RULE,
    Repeats,
    Session,
    duration,
    horovodrun,
    missed_gates,
    time_text,
)
from benchmarks.reporting import answers as answer_lines, binding, output
from benchmarks.reporting.charts import sweeps
from benchmarks.results import checks, other_results as typed
from benchmarks.results.collection import RunResult
from benchmarks.results.train_result import SourceBytes, TrainResult
from benchmarks.system.figures import joined
from tfpipe import cli
from tfpipe.cli import text_table

_GIVERS = ("server", "disk", "page_cache", "ram_cache")
GROUPS = ("What to run", "On how many ranks", "In which places the data is")


@cli.options
class SweepOptions(cli.StoreOptions):
    """The settings of a sweep, and how it is started."""

    sweep_dir: str = cli.required(
        "Folder for one JSON file a run. Runs whose file exists are not run again."
    )
    preset: str | None = plan.RUN(
        None,
        "Published test to start from, with the gate au>=0.97. scaling: ResNet-50 on 1 "
        "to 8 ranks, five repeats. models: six of them. inference: the same, forward "
        "only. tiers: all places of the data.",
        choices=tuple(plan.PRESETS),
    )
    sweep_file: str | None = plan.RUN(
        None,
        "JSON or TOML file of these settings, by the names of the flags. arguments is "
        "a list of flags of benchmarks.train. Flags on the command line take "
        "precedence.",
    )
    sweep: Sweep = cli.nested(Sweep)
    dry_run: bool = plan.START(
        False, "Check all settings, list the runs, and start none."
    )


def make_options(*, sweep: dict[str, Any], **own: Any) -> SweepOptions:
    """Returns options of the flags that are set.

    Settings of flags come before those of --sweep_file, and those before the preset's.
    """
    path = own.get("sweep_file")
    in_file = plan.read_file(path) if path else {}
    settings = plan.with_preset(own.get("preset"), {**in_file, **sweep})
    return SweepOptions(sweep=Sweep(**settings), **own)


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """Locks the folder against a second sweep."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"--sweep_dir={folder} must not be in use by another sweep, and is."
            ) from None
        yield


def check(sweep: Sweep) -> None:
    """Checks the flags, folders and models of all runs, before hours of runs begin."""
    for words in dict.fromkeys(tuple(run.flags) for run in sweep.runs()):
        try:
            check_run(words)
        except ValueError as error:
            raise ValueError(f"{error} The run: {' '.join(words)}") from None
    if sweep.mount_dir and sweep.data_dirs:
        devices = {os.stat(path).st_dev for path in (sweep.mount_dir, *sweep.data_dirs)}
        if len(devices) == 1:
            raise ValueError(
                f"--mount_dir={sweep.mount_dir} must be on a shared mount, but it is "
                "on the file system of --data_dirs."
            )
    if any(run.needs_horovodrun for run in sweep.runs()):
        horovodrun()


def check_run(words: Sequence[str]) -> None:
    """Checks a run as far as possible before it starts."""
    config = config_of(words)
    cli.refuse_unused(config, options_of_run.UNUSED)
    options_of_run.refuse_unmeasured(config)
    if config.data_dir and config.is_remote:
        tfpipe.Files(config.data_dir).size("index.json")
    elif config.data_dir and not os.path.exists(f"{config.data_dir}/index.json"):
        tfpipe.TFRecordSource(config.data_dir, "train")  # its error has the remedy
    restored = config.checkpoint_dir if config.mode != "train" else None
    for flag, path in {"tuning": config.tuning, "checkpoint_dir": restored}.items():
        if path is not None and not os.path.exists(path):
            raise ValueError(f"--{flag} must be there, and {path} is not.")
    config.find_emulation()


def config_of(words: Sequence[str]) -> Config:
    """Returns the config of a run."""
    try:
        return cli.parse(Config, words)
    except ValueError as error:
        raise ValueError(f"After -- stand flags of benchmarks.train. {error}") from None


def run(options: SweepOptions) -> int:
    """Runs the sweep that the options describe; returns the exit code."""
    sweep, folder = options.sweep, pathlib.Path(options.sweep_dir)
    check(sweep)
    session = Session(
        sweep=sweep,
        folder=folder,
        data_dir_of=lambda run: config_of(run.flags).data_dir,
        is_dry=options.dry_run,
    )
    if session.is_dry:
        session.run_all()
        listed, seconds = runs_left(session)
        listed = [] if sweep.find_ranks else listed
        report(session, plan=listed, estimated_seconds_left=seconds)
        return 0
    with _locked(folder):
        try:
            session.run_all()
            is_interrupted = False
        except KeyboardInterrupt:
            is_interrupted = True
        document = report(session, interrupted=is_interrupted)
        # The report is printed first: a full disk must not cost it.
        output.write(document, folder / "sweep.json")
    if session.errors:
        print(
            f"Error: {len(session.errors)} of {document['num_runs']} runs failed; see "
            f"{folder / FAILED_DIR}. Start again to run only these.",
            file=sys.stderr,
        )
    if is_interrupted:
        raise KeyboardInterrupt
    if session.errors:
        return 1
    if sweep.find_ranks:
        answers = document["find_ranks"]["answers"]
        return 0 if all(answer["num_ranks"] for answer in answers) else 2
    return 2 if document["gates_not_met"] else 0


def runs_left(session: Session) -> tuple[list[str], float | None]:
    """Returns the runs of a sweep, done or not, and the time of the missing runs.

    Returns:
        lines: a line for each run, and a last line about the missing runs. seconds:
        their duration; None if the duration of a run is unknown.
    """
    runs, results = session.sweep.runs(), session.results
    left = {run: estimate_seconds(run, results) for run in runs if run not in results}
    seconds = joined(sum, list(left.values())) if left else 0.0
    states = {
        run: "to run" if estimate is None else time_text(estimate)
        for run, estimate in left.items()
    }
    lines = [f"{states.get(run, 'done'):>8}  {run.name}" for run in runs]
    last = f"Runs left: {len(left)} of {len(runs)}."
    if seconds:
        last += f" They take about {time_text(seconds)}, as their finished repeats did."
    return [*lines, last], seconds


def estimate_seconds(run: Run, finished: Mapping[Run, RunResult]) -> float | None:
    """Returns the mean duration, in seconds, of the finished repeats of a run.

    Only runs with the same settings count, because nothing predicts how long another
    model, batch or number of ranks takes. None if no such run has finished.
    """
    seconds = [
        duration(result)
        for other, result in finished.items()
        if dataclasses.replace(other, repeat=run.repeat) == run
    ]
    return statistics.mean(seconds) if seconds else None


def _series_lines(
    finished: Sequence[Repeats], answer: typed.FoundRanks | None
) -> list[str]:
    """Returns the lines of the printed table of a series."""
    title = _title(finished[0].series)
    rows = sweeps.rows_of(title, _points(finished))
    columns = text_table.filled(sweeps.POINTS[1:], rows)
    lines = [title, *text_table.lines(columns, rows)]
    if all(row.point.efficiency is None for row in rows):
        lines.append("No run on one rank has finished, so there is no efficiency.")
    missed = [
        f"Ranks {repeats.placement}: {text}"
        for repeats in finished
        for result in repeats.results
        for text in missed_gates(result)
    ]
    lines += dict.fromkeys(missed)
    return lines + ([answer.text, RULE] if answer else [])


def _title(series: Series) -> str:
    whose = "a rank" if series.scaling == "weak" else "in all"
    batch = f"batch {series.batch_size} {whose}" if series.batch_size else "own batch"
    cache = series.cache and f"cache {series.cache}"
    accelerator = series.accelerator and f"accelerator {series.accelerator}"
    words = (f"{series.scaling} scaling", series.model, series.mode, batch)
    return ", ".join(filter(None, (*words, series.data_dir, cache, accelerator)))


def _points(finished: Sequence[Repeats]) -> tuple[typed.SweptPoint, ...]:
    """Returns the scaling of a series, in the order of the numbers of ranks."""
    single = next((r.rates for r in finished if r.placement.num_ranks == 1), ())
    ordered = sorted(finished, key=lambda r: r.placement.num_ranks)
    return tuple(_point(repeats, single) for repeats in ordered)


def _point(repeats: Repeats, single: Sequence[float]) -> typed.SweptPoint:
    first, last = repeats.values[0], repeats.values[-1]
    shares = [v.critical_path.shares for v in repeats.values if v.critical_path.shares]
    return dataclasses.replace(
        sweeps.point(repeats.placement.num_ranks, repeats.rates, single),
        num_hosts=repeats.placement.num_hosts,
        ideal_examples_per_second=first.ideal_examples_per_second,
        binding=_binding(repeats),
        critical_path={
            part: joined(statistics.mean, [each[part] for each in shares]) or 0.0
            for part in (shares[0] if shares else ())
        },
        received_mb_per_second_per_host=(
            last.telemetry.network_received_megabytes_per_second_per_host
        ),
        cache=_joined(values.cache.label for values in repeats.values),
        gates_met=repeats.are_gates_met,
        **repeats.means(
            *("stall_fraction", "accelerator_utilization", "network_utilization"),
            "telemetry.host_cpu_fraction",
        ),
    )


def _binding(repeats: Repeats) -> str:
    """Returns the resource that binds the most runs."""
    return statistics.mode(map(binding.of_run, repeats.values))


def _joined(labels: Iterable[str | None]) -> str | None:
    """Returns the label of all runs, "/" between several labels; None if unknown."""
    return "/".join(sorted({label for label in labels if label})) or None


def tier(repeats: Repeats) -> typed.SweptTier:
    """Returns settings and figures of a tier, means over its runs."""
    sections = [values.storage for values in repeats.values]
    sources: dict[str, Any] = {
        # A run without records got no bytes.
        name: joined(statistics.mean, [getattr(s, name) if s else 0 for s in sections])
        for name in (f"bytes_from_{giver}" for giver in _GIVERS)
    }
    return typed.SweptTier(
        **dataclasses.asdict(repeats.series),
        num_ranks=repeats.placement.num_ranks,
        num_repeats=len(repeats.rates),
        examples_per_second=statistics.mean(repeats.rates),
        binding=_binding(repeats),
        state=_joined(section.state for section in sections if section) or "",
        **repeats.means("cpu_seconds_per_example", "stall_fraction"),
        **sources,
    )


def _document(session: Session) -> dict[str, Any]:
    sweep, results = session.sweep, session.results
    first = next(iter(results.values()), None)
    # A search chooses its runs.
    runs = {*results, *session.errors} if sweep.find_ranks else sweep.runs()
    missed = {run.name: missed_gates(result) for run, result in results.items()}
    answers = tuple(answer for answer in session.answers.values() if answer)
    search = typed.FoundAnswers(gates=sweep.find_ranks, rule=RULE, answers=answers)
    return {
        **checks.head(checks.SWEEP),
        "config": dataclasses.asdict(sweep),
        "num_runs": len(runs),
        "num_done": len(results),
        "seconds": sum(duration(result) for result in results.values()),
        "failed": [
            {"run": run.name, "error": error} for run, error in session.errors.items()
        ],
        "gates_not_met": [
            {"run": name, "gates": gates} for name, gates in missed.items() if gates
        ],
        "stale": [
            {"run": run.name, "moved_to": path and str(path)}
            for run, path in session.stale.items()
        ],
        "find_ranks": dataclasses.asdict(search) if sweep.find_ranks else None,
        "results": [f"{run.name}.json" for run in results],
        "environment": first.document.get("environment") if first else None,
    }


def published_row(repeats: Repeats) -> typed.SweptRow:
    """Returns the figures of a row, means over its repeats, and the published row."""
    series, num_ranks = repeats.series, repeats.placement.num_ranks
    first = repeats.values[0]
    config, rate = first.config, statistics.mean(repeats.rates)
    mode = series.mode or config.mode or "train"
    emulated = series.accelerator or config.emulate
    accelerator = None if emulated == NO_ACCELERATOR else emulated
    there = published.find(
        model=series.model,
        mode=mode,
        accelerator=accelerator,
        num_accelerators=num_ranks,
        is_local=(series.tier or "").startswith("local_"),
    )
    different = published.differences(there, first) if there else ""
    of_gpu = there and not different and there.images_per_second_per_accelerator
    busy = repeats.means("telemetry.gpu_utilization", "accelerator_utilization")
    used, stepping = busy.values()
    batch_size = series.batch_size_per_rank(num_ranks) or config.batch_size
    own = {"mode": mode, "batch_size": batch_size, "accelerator": accelerator}
    return typed.SweptRow(
        **{**dataclasses.asdict(series), **own},
        kind=first.kind or "",
        precision=config.precision,
        num_ranks=num_ranks,
        num_hosts=repeats.placement.num_hosts or len(first.environment.hosts) or None,
        num_repeats=len(repeats.results),
        examples_per_second=rate,
        examples_per_second_per_rank=rate / num_ranks,
        storage_megabytes_per_second=joined(
            statistics.mean, [_storage_rate(values) for values in repeats.values]
        ),
        accelerator_busy_fraction=stepping if used is None else used,
        accelerator_busy_of="steps" if used is None else "gpu",
        gates_met=repeats.are_gates_met,
        published=there,
        not_compared=different,
        rate_over_published=rate / num_ranks / of_gpu if of_gpu else None,
        **repeats.means("consumed_megabytes_per_second", "telemetry.host_cpu_fraction"),
    )


def _storage_rate(result: TrainResult) -> float | None:
    source = result.storage or SourceBytes()
    server, disk = source.bytes_from_server, source.bytes_from_disk
    if server is None or disk is None or not result.timed_seconds:
        return result.storage_megabytes_per_second
    return (server + disk) / result.timed_seconds / 1e6


def report(
    session: Session, *, plan: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    """Prints a sweep as tables, and returns the sweep as a JSON object."""
    by_series = list(filter(None, map(session.repeats, session.sweep.series())))
    finished = [repeats for each in by_series for repeats in each]
    rows, tiers = list(map(published_row, finished)), list[typed.SweptTier]()
    if session.sweep.tiers:  # the table of tiers has the figures of the series too
        tiers, by_series = list(map(tier, finished)), []
    series = [
        typed.SweptSeries(**dataclasses.asdict(each[0].series), points=_points(each))
        for each in by_series
    ]
    parts: dict[str, Sequence[typed.SweptSettings]] = {"tiers": tiers, "rows": rows}
    parts["series"] = series
    stored = {key: list(map(dataclasses.asdict, part)) for key, part in parts.items()}
    named = sweeps.named_tiers(tiers)
    lines = text_table.lines(sweeps.TIERS, named) if tiers else []
    for each in by_series:
        lines += _series_lines(each, session.answers.get(each[0].series))
    document = {**_document(session), **stored, **more}
    answer = answer_lines.sweep(document, session.folder, plan)
    details = [*plan, *lines, *sweeps.row_lines(rows)]
    output.show(document, *answer, details=details)
    return document


COMMANDS = (
    cli.Command(
        SweepOptions,
        run,
        rest="arguments",
        make=make_options,
        groups=GROUPS,
        hint=lambda _, error: (
            "Start again to run only what is missing."
            if isinstance(error, KeyboardInterrupt)
            else ""
        ),
    ),
)

if __name__ == "__main__":
    cli.run(*COMMANDS)
