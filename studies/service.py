"""How many CPU-seconds does it cost to let other processes prepare the images?

  python -m studies.service --data_dir=DIR --num_rounds=5

Question: how much of the rate in process do two workers of a tf.data service on the
same host give, and does compression pay? Variants: "process" is imagenet_train in the
process of the study; "service" lets the workers do all the work, "compressed" does so
with Snappy, and "examples" has Batch after the service. Two variants are the parts of
"service": "tensorflow" reads in process with TensorFlow, as the workers do; for
"constant" the workers repeat a random batch. A round reads
--num_timed_images images with every variant, in turns; a first round is not counted.
CPU-seconds are the sum over the process of the study, the dispatcher and all workers,
in the middle of a long epoch. By sampling, any data set gives a long epoch: an epoch
begins with a fixed cost of some tenths of a CPU-second for a worker, which is nothing
for an epoch of ImageNet.

Compare the ratios: `ratio` is images per CPU-second over the same figure of "process"
in the round, the median of the rounds. The last line on stdout is a JSON object.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import psutil

import tfpipe
from studies import figures, harness
from tfpipe import cli

_NUM_WORKERS = 2


def compared(
    runs: Mapping[str, Sequence[figures.Run]],
) -> dict[str, dict[str, float]]:
    """Returns medians of a variant, and its ratio to "process" in the same round.

    Args:
        runs: Name of a variant -> its runs by round; "process" among them.
    """
    plain = runs["process"]
    return {
        name: {
            **figures.spread("ratio", figures.ratios(own, plain, per_cpu_second)),
            "images_per_cpu_second": statistics.median(map(per_cpu_second, own)),
            "images_per_second": statistics.median(map(figures.rate, own)),
        }
        for name, own in runs.items()
    }


def per_cpu_second(run: figures.Run) -> float:
    """Returns the images of a run for a CPU-second."""
    return run["num_images"] / run["cpu_seconds"]


def table(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the figures as a table, a line for each variant."""
    lines = [f"{'variant':12}{'ratio':>8}{'images/CPU-s':>14}{'images/s':>10}"]
    for name, row in rows.items():
        lines.append(
            f"{name:12}{row['ratio']:8.3f}{row['images_per_cpu_second']:14.1f}"
            f"{row['images_per_second']:10.1f}"
        )
    return "\n".join(lines)


def _pipelines(job: harness.Job, address: str) -> dict[str, tfpipe.Pipeline]:
    # An epoch has the timed images, and half as many before and after.
    num_draws = job.num_timed_images * 3 // 2

    def preset(
        reading: Literal["auto", "tensorflow"] = "auto", **options: bool
    ) -> tfpipe.Pipeline:
        source = tfpipe.TFRecordSource(
            job.data_dir,
            batch_size=job.batch_size,
            reading=reading,
            sampling=tfpipe.Sampling(balance=0.0, num_draws=num_draws),
            # A multiple of the batch, and small: the workers share the last windows.
            window_size=4 * job.batch_size,
        )
        return tfpipe.imagenet_train(source, image_size=job.image_size, **options)

    def with_service(
        pipeline: tfpipe.Pipeline, index: int, **fields: bool
    ) -> tfpipe.Pipeline:
        stages = [*pipeline.stages]
        stages.insert(index, tfpipe.Service(address, **fields))
        return dataclasses.replace(pipeline, stages=stages)

    plain, single = preset(), preset(whole_batches=False)
    end = len(plain.stages)
    batch = next(
        n for n, stage in enumerate(single.stages) if isinstance(stage, tfpipe.Batch)
    )
    return {
        "process": plain,
        "service": with_service(plain, end),
        "compressed": with_service(plain, end, compress=True),
        "examples": with_service(single, batch),
        "tensorflow": preset(reading="tensorflow"),
        "constant": _constant(job, address, num_draws // job.batch_size),
    }


def _constant(job: harness.Job, address: str, num_steps: int) -> tfpipe.Pipeline:
    """Returns a pipeline whose workers repeat a random batch."""
    import tensorflow as tf  # takes seconds

    source = tfpipe.SyntheticSource(
        batch_size=job.batch_size, steps_per_epoch=num_steps, image_size=job.image_size
    )
    sent = tf.data.experimental.service.distribute(
        "parallel_epochs", f"grpc://{address}", compression=None
    )
    return tfpipe.Pipeline(source, [sent])


def _run(
    pipeline: tfpipe.Pipeline, epoch: int, job: harness.Job, service: psutil.Process
) -> figures.Run:
    """Reads the images of an epoch, and returns the figures of its middle."""
    group = [psutil.Process(), service, *service.children()]
    batches = iter(pipeline.build(epoch=epoch))
    for _ in itertools.islice(batches, job.num_warmup_images // job.batch_size):
        pass
    num_steps = job.num_timed_images // job.batch_size
    wall, cpu = time.perf_counter(), _cpu_seconds(group)
    count = sum(len(batch["label"]) for batch in itertools.islice(batches, num_steps))
    return {
        "num_images": count,
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": _cpu_seconds(group) - cpu,
    }


def _cpu_seconds(group: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in group]
    return sum(each.user + each.system for each in times)


@contextlib.contextmanager
def _service() -> Iterator[tuple[str, psutil.Process]]:
    """Runs a service while the block runs; yields its address and its process."""
    words = [*("-m", "benchmarks.service", "local"), f"--workers={_NUM_WORKERS}"]
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if '"' not in line:
            raise OSError("The service must start; its messages give the reason.")
        yield line.split('"')[1], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def _study(options: harness.ReadingOptions) -> harness.Outcome:
    job, rounds = harness.Job(**options.job_fields()), options.num_rounds
    with _service() as (address, process):
        pipelines = _pipelines(job, address)
        runs = harness.turns(
            list(pipelines),
            lambda name, epoch: _run(pipelines[name], epoch, job, process),
            rounds,
            num_warm_ups=1,  # traces functions
            alternating=True,
        )
    rows = compared(runs)
    config = harness.config_of(job, num_rounds=rounds, num_workers=_NUM_WORKERS)
    return harness.Outcome(figures={"config": config, "ways": rows}, table=table(rows))


def main(options: harness.ReadingOptions) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.service", options, _study(options))


COMMANDS = (cli.Command(harness.ReadingOptions, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
