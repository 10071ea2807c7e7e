r"""Does tfpipe's counter say what DLIO's does, and how much does decoding take away?

  python -m studies.dlio --dlio=VENV/bin/dlio_benchmark --data_dir=DIR \
      --dlio_dir=COPY --dlio_step_times=25,100 --num_rounds=3 --dlio_result=result.json

DLIO 2.0 is the program that MLPerf Storage measures with. It reads TFRecords, decodes
nothing, and sleeps for the time of a step. Three variants take turns on the same files,
warm, with the same batch, step time and epochs: DLIO; `benchmarks.train --read_only`;
and `benchmarks.train`, which decodes as well. Each reports the accelerator utilization
(AU) of MLPerf Storage: compute time over running time, both without the first step.

The study writes the records of the train split, repeated, into files of equal numbers
of records, as DLIO requires. Two empty features that DLIO parses are appended to each
record. `--dlio_dir` is used again if it is complete.

Two figures explain what is left between DLIO's AU and that of --read_only. DLIO counts
the time between steps (a barrier and its log) and the lateness of its sleep as time
without work: `by_our_formula` is the AU of DLIO's own steps without them. The last line
on stdout is one JSON object.
"""

import dataclasses
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags as absl_flags

import tfpipe
from benchmarks.options import command, shared_flags
from benchmarks.reporting import mlperf_storage, output
from studies import interleaved

# Flags of the training command that this study reads, for --help.
for _name in ("data_dir", "batch_size"):
    absl_flags.declare_key_flag(_name)
absl_flags.adopt_module_key_flags(interleaved)

_DLIO = absl_flags.DEFINE_string("dlio", None, "The program dlio_benchmark.")
_DLIO_DIR = absl_flags.DEFINE_string(
    "dlio_dir", None, "Folder for the files that all variants read."
)
_STEP_TIMES = absl_flags.DEFINE_list(
    "dlio_step_times", ["25", "100"], "Times of a step to run with, in milliseconds."
)
_NUM_COPIES = absl_flags.DEFINE_integer(
    "dlio_copies", 25, "Times that each record is in the files.", lower_bound=1
)
_RESULT = absl_flags.DEFINE_string(
    "dlio_result", None, "File to write the JSON object to as well."
)

VARIANTS = ("dlio", "read_only", "decoding")

_NUM_FILES = 24
_NUM_EPOCHS = 2
_NUM_READ_THREADS = 8  # of DLIO's workload resnet50_h100
_TIME_LIMIT = 600.0

# DLIO 2.0.0 cannot be imported without its profiler, of which versions do not agree.
_NO_PROFILER = """
class Nothing:
    def __init__(self, *_, **__): pass
    def log(self, function): return function
    log_init = log
    def iter(self, iterable, *_, **__): return iterable
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def __getattr__(self, _): return lambda *_, **__: None
    initialize_log = staticmethod(lambda *_, **__: Nothing())
dftracer, dft_fn, DFTRACER_ENABLE = Nothing, Nothing, False
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One run of any variant.

    Attributes:
        data_dir: Folder of the files.
        num_records_per_file: Records in each file.
        record_bytes: Mean size of a record.
        batch_size: Examples in a batch.
        step_time_ms: Time of a step in milliseconds.
    """

    data_dir: pathlib.Path
    num_records_per_file: int
    record_bytes: float
    batch_size: int
    step_time_ms: float


def write_files(data_dir: str, folder: pathlib.Path, num_copies: int) -> None:
    """Writes the records of a train split, repeated, for all variants.

    Args:
        data_dir: Folder of a converted data set.
        folder: Folder for the files and their index; used as it is if it has an index.
        num_copies: Times that each record is written; a rest is left out.

    Raises:
        OSError: If the files cannot be written or indexed.
    """
    if (folder / "index.json").exists():
        return
    import tensorflow as tf

    source = tfpipe.TFRecordSource(data_dir, "train")
    shards = source.index.splits["train"]
    paths = [os.path.join(data_dir, shard.name) for shard in shards]
    records = [record.numpy() for record in tf.data.TFRecordDataset(paths)]
    # Serialized messages that are joined are one message with the features of both.
    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b""]))
    size = tf.train.Feature(int64_list=tf.train.Int64List(value=[0]))
    features = tf.train.Features(feature={"image": image, "size": size})
    added = tf.train.Example(features=features).SerializeToString()
    endless = itertools.cycle(records)
    for kind in ("train", "valid"):  # DLIO looks into both
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for number in range(_NUM_FILES):
        name = f"train-{number:05d}-of-{_NUM_FILES:05d}"
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for _ in range(len(records) * num_copies // _NUM_FILES):
                writer.write(next(endless) + added)
        link = folder / "train" / f"{name}.tfrecord"
        link.unlink(missing_ok=True)
        link.symlink_to(folder.resolve() / name)
    _run([sys.executable, "-m", "converters.verify", str(folder), "--write_index"])


def make_job(folder: pathlib.Path, batch_size: int, step_time_ms: float) -> Job:
    """Returns the job of a folder that `write_files` has filled."""
    shards = tfpipe.TFRecordSource(folder, "train").index.splits["train"]
    num_records = sum(shard.num_records for shard in shards)
    return Job(
        data_dir=folder,
        num_records_per_file=shards[0].num_records,
        record_bytes=sum(shard.num_bytes for shard in shards) / num_records,
        batch_size=batch_size,
        step_time_ms=step_time_ms,
    )


def run(variant: str, job: Job, dlio: str) -> dict[str, float]:
    """Runs a variant once.

    Returns:
        au: Accelerator utilization as the variant reports it, 0 to 1.
        wait_ms: Mean wait for a batch, without the first of each epoch for DLIO.
        by_our_formula: For DLIO, the AU of its steps without the time between them.

    Raises:
        OSError: If the run fails.
    """
    return _run_dlio(job, dlio) if variant == "dlio" else _run_own(variant, job)


def _run_own(variant: str, job: Job) -> dict[str, float]:
    printed = _run(
        [
            *(sys.executable, "-m", "benchmarks.train", f"--data_dir={job.data_dir}"),
            *(f"--batch_size={job.batch_size}", f"--step_time_ms={job.step_time_ms}"),
            *(f"--num_epochs={_NUM_EPOCHS}", "--num_warmup_steps=0", "--cache=warm"),
            f"--read_only={str(variant == 'read_only').lower()}",
        ]
    )
    result = json.loads(printed.splitlines()[-1])
    return {
        "au": result["accelerator_utilization_mlperf_storage"],
        "wait_ms": result["wait_seconds_per_step"] * 1e3,
    }


def _run_dlio(job: Job, dlio: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "dftracer").mkdir()
        (folder / "dftracer/__init__.py").touch()
        (folder / "dftracer/logger.py").write_text(_NO_PROFILER)
        settings = {
            "dataset.data_folder": job.data_dir.resolve(),
            "dataset.num_files_train": _NUM_FILES,
            "dataset.num_samples_per_file": job.num_records_per_file,
            "dataset.record_length": round(job.record_bytes),
            "reader.batch_size": job.batch_size,
            "reader.read_threads": _NUM_READ_THREADS,
            "train.computation_time": job.step_time_ms / 1e3,
            "train.epochs": _NUM_EPOCHS,
            "output.folder": folder / "out",
        }
        _run(
            [
                *(dlio, "workload=resnet50_h100", f"++hydra.run.dir={folder / 'out'}"),
                *(f"++workload.{key}={value}" for key, value in settings.items()),
            ],
            PYTHONPATH=name,
        )
        summary = json.loads((folder / "out/summary.json").read_text())
        steps = json.loads((folder / "out/0_output.json").read_text())
    epochs = [steps[str(epoch + 1)] for epoch in range(_NUM_EPOCHS)]
    return {
        "au": summary["metric"]["train_au_mean_percentage"] / 100,
        **figures_of_steps(
            [(e["load"]["block1"], e["proc"]["block1"]) for e in epochs]
        ),
    }


def figures_of_steps(
    epochs: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> dict[str, float]:
    """Returns wait and utilization of the steps that DLIO wrote.

    Args:
        epochs: For each epoch the seconds of loading of each step, and those of loading
            and computing together.

    Returns:
        wait_ms: Mean loading time of a step, without the first one of each epoch.
        by_our_formula: Utilization, 0 to 1, with no time between steps.
    """
    waits = [wait for load, _ in epochs for wait in load]
    both = [seconds for _, proc in epochs for seconds in proc]
    utilization = mlperf_storage.utilization_of_epochs(
        epochs=[number for number, (load, _) in enumerate(epochs) for _ in load],
        wait_seconds=waits,
        compute_seconds=[total - wait for total, wait in zip(both, waits, strict=True)],
        end_seconds=list(itertools.accumulate(both)),
    )
    later = [wait for load, _ in epochs for wait in load[1:]]
    return {
        "wait_ms": statistics.fmean(later) * 1e3,
        "by_our_formula": statistics.fmean(utilization.values()),
    }


def _run(command: Sequence[str], **variables: str) -> str:
    """Returns what a command printed; its error holds the end of its messages."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_TIME_LIMIT,
        env=os.environ | variables,
        check=False,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise OSError(f"{command[0]} ended with {done.returncode}: {said}")
    return done.stdout


def summarize(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Returns median, least and most AU of each variant, and what lies between them.

    Args:
        runs: The runs of each variant, one a round.

    Returns:
        A row for each variant; `read_only_minus_dlio` and `decoding_minus_read_only`,
        medians over the rounds of differences within a round, in points.
    """
    au = {name: [run["au"] for run in rows] for name, rows in runs.items()}
    rows = {
        name: {
            **{
                f: statistics.median(run[f] for run in runs[name])
                for f in runs[name][0]
            },
            "au_min": min(au[name]),
            "au_max": max(au[name]),
        }
        for name in runs
    }
    pairs = (("read_only", "dlio"), ("decoding", "read_only"))
    return rows | {
        f"{one}_minus_{other}": 100
        * statistics.median(a - b for a, b in zip(au[one], au[other], strict=True))
        for one, other in pairs
    }


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns a table with a line for each step time and variant."""
    lines = [f"{'step ms':>8} {'variant':10}{'AU (min-max)':>24}{'wait ms a step':>16}"]
    for step_time, result in results.items():
        for name in VARIANTS:
            row = result[name]
            spread = f"{row['au']:.2%} ({row['au_min']:.2%}-{row['au_max']:.2%})"
            lines.append(f"{step_time:>8} {name:10}{spread:>24}{row['wait_ms']:16.2f}")
        lines.append(
            f"{step_time:>8} read_only - dlio {result['read_only_minus_dlio']:+.2f} "
            f"points; DLIO's steps by our formula "
            f"{result['dlio']['by_our_formula']:.2%}; decoding "
            f"{result['decoding_minus_read_only']:+.2f} points"
        )
    return "\n".join(lines)


def compare(dlio: str, folder: pathlib.Path, batch_size: int) -> dict[str, Any]:
    """Runs all variants in turns with each step time; returns a summary for each."""
    results = {}
    for step_time in _STEP_TIMES.value:
        job = make_job(folder, batch_size, float(step_time))
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
        for number in range(interleaved.num_rounds()):
            # The order alternates, so that no variant always follows the same one.
            for name in VARIANTS if number % 2 == 0 else reversed(VARIANTS):
                runs[name].append(run(name, job, dlio))
                print(step_time, name, runs[name][-1], file=sys.stderr, flush=True)
        results[step_time] = summarize(runs)
    return results


def main(argv: list[str]) -> int:
    """Prints the comparison that the flags describe."""
    command.refuse_arguments(argv)
    options = shared_flags.shared()
    batch_size = options["batch_size"] or 32
    try:
        if not (_DLIO.value and _DLIO_DIR.value and options["data_dir"]):
            raise ValueError("--dlio, --data_dir and --dlio_dir must be given.")
        folder = pathlib.Path(_DLIO_DIR.value)
        write_files(options["data_dir"], folder, _NUM_COPIES.value)
        results = compare(_DLIO.value, folder, batch_size)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    from benchmarks.reporting import environment

    report = {
        "command": "studies.dlio",
        "schema_version": 1,
        "config": {
            "batch_size": batch_size,
            "num_epochs": _NUM_EPOCHS,
            "num_files": _NUM_FILES,
            "num_rounds": interleaved.num_rounds(),
            "read_threads_of_dlio": _NUM_READ_THREADS,
        },
        "step_times_ms": results,
        "environment": environment.describe(),
    }
    output.finish(report, table(results), path=_RESULT.value)
    return 0


if __name__ == "__main__":
    command.run(main, {})
