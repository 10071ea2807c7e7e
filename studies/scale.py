"""How do time and memory of a source grow from ten thousand records to 100 million?

  python -m studies.scale --work_dir=WORK --most_records=100000000 --num_rounds=3

Question: what do opening a data set, the order of an epoch, resuming within an epoch, a
subset, class counts and the ranks of a large job cost, and is the cost linear? The
data sets lie in WORK: a catalog that DuckDB writes, an index, and shards of 1,000
records each without any bytes on disk. A data set that is there is used again. The
catalog of 100 million records takes about 4 GB. A row of the result is one process, a
rank of 1,024 ranks unless the row says otherwise; memory is the growth of the peak over
that of the imports. CPU-seconds count all threads: other work on the host
changes seconds more. Nothing of an image is read.

A second table has the ranks of one process, 16 to 1,024, on one million records: their
first windows, and a preflight whose gathering costs nothing.

Exit code 2 if a source takes more than 5 s or 500 MB to open, or 1 s to resume, in the
best round: other work on the host only adds. The last line on stdout is one JSON
object.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tfpipe
from studies import harness
from studies.figures import Run, summary
from tfpipe import cli

RECORDS_PER_SHARD, RECORD_BYTES, NUM_CLASSES, NUM_RANKS = 1000, 110_000, 1000, 1024
_OPEN_SECONDS, _OPEN_MB, _RESUME_SECONDS = 5.0, 500.0, 1.0
_NUM_WINDOWS = 20


@cli.options
class Options(harness.StudyOptions):
    """Options of the study."""

    work_dir: str = cli.required("Folder for the data sets; kept for the next run.")
    most_records: int = cli.flag(
        10**8, "Records of the largest data set; others are 10 times smaller.", least=1
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A data set of the study.

    Attributes:
        data_dir: Folder of the data set.
        num_ranks: Number of ranks; the rank in the middle is measured.
    """

    data_dir: str
    num_ranks: int = NUM_RANKS

    def source(self, **arguments: Any) -> tfpipe.TFRecordSource:
        """Returns the source of a rank with batches of 8."""
        ranks = {"rank": self.num_ranks // 2, "num_ranks": self.num_ranks}
        options = {"batch_size": 8, "window_size": 512, **ranks, **arguments}
        return tfpipe.TFRecordSource(self.data_dir, "train", **options)


def write_data_set(folder: pathlib.Path, num_records: int) -> None:
    """Writes a data set without images, unless its index is there.

    Args:
        folder: Folder of the data set.
        num_records: Number of records, a multiple of the records in a shard.
    """
    import duckdb

    if (folder / "index.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    count, size = num_records // RECORDS_PER_SHARD, RECORDS_PER_SHARD * RECORD_BYTES
    names = [f"train-{shard:05d}-of-{count:05d}" for shard in range(count)]
    for name in names:
        (folder / name).touch()
        os.truncate(folder / name, size)
    offset = f"(r * {RECORD_BYTES} + if(r = 0, 0, hash(n) % 20000))::BIGINT"
    end = f"((r + 1) * {RECORD_BYTES} + if(r = {RECORDS_PER_SHARD - 1}, 0, "
    columns = {
        "split": "'train'",
        "shard": f"(n // {RECORDS_PER_SHARD})::INTEGER",
        "record": "r::INTEGER",
        "byte_offset": offset,
        "num_bytes": f"{end}hash(n + 1) % 20000))::BIGINT - {offset}",
        "label": f"(1 + hash(n) % {NUM_CLASSES})::INTEGER",
        "synset": f"printf('n%08d', hash(n) % {NUM_CLASSES})",
        "height": "(300 + hash(n + 2) % 400)::INTEGER",
        "width": "(300 + hash(n + 3) % 400)::INTEGER",
        "filename": f"printf('n%08d/%d.JPEG', hash(n) % {NUM_CLASSES}, n)",
        "decision": "'none'",
        "digest": "md5(n::VARCHAR)",
    }
    wanted = ", ".join(f"{value} AS {name}" for name, value in columns.items())
    rows = f"SELECT n, n % {RECORDS_PER_SHARD} AS r FROM range({num_records}) t(n)"
    catalog = folder / "catalog.parquet"
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(
            f"COPY (SELECT {wanted} FROM ({rows})) TO '{catalog}' "
            "(FORMAT parquet, COMPRESSION zstd)"
        )
    _write_index(folder, names, size)


def _write_index(folder: pathlib.Path, names: Sequence[str], size: int) -> None:
    import xxhash

    digest = xxhash.xxh3_128()
    with open(folder / "catalog.parquet", "rb") as file:
        while piece := file.read(1 << 24):
            digest.update(piece)
        num_bytes = file.tell()
    counts = {"num_records": RECORDS_PER_SHARD, "num_bytes": size}
    shards = [{"name": name, **counts, "digest": "0" * 32} for name in names]
    labels = [f"n{label:08d}" for label in range(NUM_CLASSES)]
    document = {
        "format_version": 1,
        "name": folder.name,
        "label_base": 1,
        "splits": {"train": shards},
        "made_by": {"command": "studies.scale"},
        "classes": [{"synset": each, "text": each} for each in labels],
        "files": {
            "catalog.parquet": {"num_bytes": num_bytes, "digest": digest.hexdigest()}
        },
    }
    (folder / "index.json").write_text(json.dumps(document))


class _Clock:
    """Times the parts of a run: `clock("open", function)`."""

    def __init__(self) -> None:
        self._before = _peak_mb()
        self.figures: dict[str, float] = {}

    def __call__(self, name: str, function: Callable[[], Any]) -> Any:
        start, cpu_start = time.perf_counter(), time.process_time()
        result = function()
        self.figures[f"{name}_seconds"] = time.perf_counter() - start
        self.figures[f"{name}_cpu_seconds"] = time.process_time() - cpu_start
        self.figures[f"{name}_mb"] = _peak_mb() - self._before
        return result


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _open(job: Job, clock: _Clock) -> None:
    source = clock("open", job.source)
    windows = iter(source(tfpipe.State(), None))
    clock("first_window", lambda: next(windows))
    times = []
    for _ in range(min(_NUM_WINDOWS, source.steps_per_epoch)):
        start = time.perf_counter()
        next(windows)
        times.append(time.perf_counter() - start)
    clock.figures["window_seconds"] = statistics.median(times)


def _resume(job: Job, clock: _Clock) -> None:
    source = job.source()
    steps = 3 * source.steps_per_epoch + source.steps_per_epoch // 2
    state = source.advance(tfpipe.State(), steps)
    clock("resume", lambda: next(iter(source(state, None))))


def _resume_elsewhere(job: Job, clock: _Clock) -> None:
    """Goes on where a quarter more ranks left off."""
    before = dataclasses.replace(job, num_ranks=job.num_ranks * 5 // 4).source()
    state = before.advance(tfpipe.State(), before.steps_per_epoch // 2)
    source = job.source()
    clock("resume", lambda: next(iter(source(state, None))))


def _subset(job: Job, clock: _Clock) -> None:
    path = f"{job.data_dir}-tenth.parquet"
    source = clock("open", lambda: job.source(subset=path))
    clock("first_window", lambda: next(iter(source(tfpipe.State(), None))))


def _sizes(job: Job, clock: _Clock) -> None:
    """Asks for the size that decides the quality of decoding in a preset."""
    split = job.source().split_index
    clock("median_short_side", lambda: split.median_short_side)


def _labels(job: Job, clock: _Clock) -> None:
    stages = [tfpipe.Interleave(), tfpipe.Map(tfpipe.Parse())]
    pipeline = tfpipe.Pipeline(job.source(), stages)
    clock("class_counts", lambda: pipeline.class_counts)
    clock("class_weights", pipeline.class_weights)


def _ranks(job: Job, clock: _Clock) -> None:
    """Orders the first windows of all ranks, and compares their facts."""
    source = job.source()
    order, position = source.order, source.position(tfpipe.State())
    ranks = range(job.num_ranks)
    clock("order", lambda: [order.window(rank, position, 0) for rank in ranks])
    pipeline = tfpipe.Pipeline(source, [])

    def gather(value: Any) -> list[Any]:
        return [(rank, dict(value[1])) for rank in ranks]

    clock("preflight", lambda: tfpipe.preflight(pipeline, gather))


VARIANTS: dict[str, Callable[[Job, _Clock], None]] = {
    "open": _open,
    "resume": _resume,
    "resume with other ranks": _resume_elsewhere,
    "subset of a tenth": _subset,
    "sizes": _sizes,
    "class counts": _labels,
}


def measure(name: str, job: Job) -> dict[str, float]:
    """Measures a variant in the current process."""
    # TensorFlow is imported and starts its threads before the first figure.
    next(iter(tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=1), []).build()))
    clock = _Clock()
    (VARIANTS | {"ranks": _ranks})[name](job, clock)
    return clock.figures


def _prepare(work_dir: pathlib.Path, num_records: int) -> Job:
    folder = work_dir / str(num_records)
    write_data_set(folder, num_records)
    subset = pathlib.Path(f"{folder}-tenth.parquet")
    if not subset.exists():
        where = "hash(shard, record) % 10 = 0"
        harness.run_command("-m", "converters.query", folder, where, f"--save={subset}")
    ranks = NUM_RANKS if num_records >= 10 * 8 * NUM_RANKS else 16
    return Job(data_dir=os.fspath(folder), num_ranks=ranks)


def _run(name: str, job: Job) -> Run:
    return harness.run("studies.scale", name, job, time_limit=600)


def _measure_ranks(work_dir: pathlib.Path, rounds: int) -> dict[str, Any]:
    """Returns the figures of several ranks in one process, by their number."""
    job = _prepare(work_dir, 1_000_000)
    jobs = {
        str(count): dataclasses.replace(job, num_ranks=count)
        for count in (16, 64, 256, NUM_RANKS)
    }
    runs = harness.turns(list(jobs), lambda n, _: _run("ranks", jobs[n]), rounds)
    return {count: _summaries(own) for count, own in runs.items()}


def _summaries(runs: Sequence[Run]) -> dict[str, Any]:
    return {key: summary(each[key] for each in runs) for key in runs[0]}


def _study(options: Options) -> harness.Outcome:
    sizes = [options.most_records]
    while sizes[0] > 10 * RECORDS_PER_SHARD:
        sizes.insert(0, sizes[0] // 10)
    rows: dict[str, dict[str, Any]] = {}
    for size in sizes:
        job = _prepare(pathlib.Path(options.work_dir), size)
        runs = harness.turns(
            list(VARIANTS), lambda name, _, job=job: _run(name, job), options.num_rounds
        )
        rows[str(size)] = {name: _summaries(own) for name, own in runs.items()} | {
            "num_ranks": job.num_ranks
        }
    ranks = _measure_ranks(pathlib.Path(options.work_dir), options.num_rounds)
    config = {"records_per_shard": RECORDS_PER_SHARD, "num_rounds": options.num_rounds}
    return harness.Outcome(
        figures={"config": config, "records": rows, "ranks": ranks},
        table=_table(rows, VARIANTS)
        + "\n"
        + _table({count: {"ranks": row} for count, row in ranks.items()}, ["ranks"]),
        misses=_misses(rows[str(sizes[-1])]),
    )


def _table(rows: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> str:
    lines = [f"{'median':<44}" + "".join(f"{int(n):>14,}" for n in rows)]
    for name in names:
        for key in next(iter(rows.values()))[name]:
            medians = [row[name][key]["median"] for row in rows.values()]
            cells = "".join(f"{median:14.3f}" for median in medians)
            lines.append(f"{name + ' ' + key:<44}{cells}")
    return "\n".join(lines)


def _misses(row: dict[str, Any]) -> list[str]:
    goals = {
        ("open", "open_seconds"): _OPEN_SECONDS,
        ("open", "open_mb"): _OPEN_MB,
        ("resume", "resume_seconds"): _RESUME_SECONDS,
    }
    return [
        f"{key} of {name!r} must be at most {goal:g}, got {row[name][key]['min']:g}"
        for (name, key), goal in goals.items()
        if row[name][key]["min"] > goal
    ]


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.scale", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
