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
import fcntl
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import tfpipe
from benchmarks.options import config as options_of_run
from benchmarks.options.config import Config
from benchmarks.planning import plan, sweep_tables as tables
from benchmarks.planning.plan import Sweep
from benchmarks.planning.sweep_run import FAILED_DIR, Session, horovodrun
from benchmarks.reporting import answers as answer_lines, output
from tfpipe import cli

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
        listed, seconds = tables.plan(session)
        listed = [] if sweep.find_ranks else listed
        _report(session, plan=listed, estimated_seconds_left=seconds)
        return 0
    with _locked(folder):
        try:
            session.run_all()
            is_interrupted = False
        except KeyboardInterrupt:
            is_interrupted = True
        document = _report(session, interrupted=is_interrupted)
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


def _report(
    session: Session, *, plan: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    document, lines = tables.report(session)
    document |= more
    answer = answer_lines.sweep(document, session.folder, plan)
    output.show(document, *answer, details=[*plan, *lines])
    return document


def _hint(options: SweepOptions, error: BaseException) -> str:
    is_interrupted = isinstance(error, KeyboardInterrupt)
    return "Start again to run only what is missing." if is_interrupted else ""


COMMANDS = (
    cli.Command(
        SweepOptions,
        run,
        rest="arguments",
        make=make_options,
        groups=GROUPS,
        hint=_hint,
    ),
)

if __name__ == "__main__":
    cli.run(*COMMANDS)
