"""How many CPU-seconds does it cost to let other processes prepare the images?

  python -m studies.service --data_dir=DIR --num_rounds=5

Question: how much of the rate in process do two workers of a tf.data service on this
host give, and does compression pay? Variants: "process" is imagenet_train in this
process; "service" lets the workers do all of it, "compressed" does so with Snappy, and
"examples" has Batch after the service. Each turn reads --num_timed_images images with
each variant, in turns, after a first turn that is not counted. CPU-seconds are those of
this process, of the dispatcher and of all workers. They are those of the middle of one
long epoch, which sampling makes of any data set: each epoch begins with a fixed cost of
some tenths of a CPU-second for each worker, which is nothing for those of ImageNet.

Compare the ratios: `ratio` is images per CPU-second over those of "process" in the same
turn, the median of the turns. The last line on stdout is one JSON object.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from absl import flags as absl_flags

from benchmarks.options import command, train_flags
from benchmarks.reporting import output
from studies import interleaved

if TYPE_CHECKING:
    import psutil

    import tfpipe

# Flags of the training command that this study reads, for --help.
for _name in ("data_dir", "image_size", "batch_size"):
    absl_flags.declare_key_flag(_name)
absl_flags.adopt_module_key_flags(interleaved)
_SERVICE_RESULT = absl_flags.DEFINE_string(
    "service_result", None, "File to write the JSON object to as well."
)

_NUM_WORKERS = 2

# Images per CPU-second, and images per second.
Rates = tuple[float, float]


def figures(turns: Mapping[str, list[Rates]]) -> dict[str, dict[str, float]]:
    """Returns medians of each variant, and its ratio to "process" in the same turn.

    Args:
        turns: Name of a variant -> its rates in each turn; "process" among them.
    """
    plain = turns["process"]
    found = {}
    for name, rates in turns.items():
        ratios = [mine[0] / other[0] for mine, other in zip(rates, plain, strict=True)]
        found[name] = {
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "images_per_cpu_second": statistics.median(rate for rate, _ in rates),
            "images_per_second": statistics.median(rate for _, rate in rates),
        }
    return found


def table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the figures as a table, a line for each variant."""
    lines = [f"{'variant':12}{'ratio':>8}{'images/CPU-s':>14}{'images/s':>10}"]
    for name, row in found.items():
        lines.append(
            f"{name:12}{row['ratio']:8.3f}{row['images_per_cpu_second']:14.1f}"
            f"{row['images_per_second']:10.1f}"
        )
    return "\n".join(lines)


def _pipelines(config: Any, address: str) -> dict[str, tfpipe.Pipeline]:
    import tfpipe

    def preset(**options: bool) -> tfpipe.Pipeline:
        source = tfpipe.TFRecordSource(
            config.data_dir,
            batch_size=config.batch_size or 64,
            sampling=tfpipe.Sampling(balance=0.0, num_draws=_num_draws()),
            # A multiple of the batch, and small: the workers share the last windows.
            window_size=4 * (config.batch_size or 64),
        )
        return tfpipe.imagenet_train(
            source, image_size=config.image_size or 224, **options
        )

    def with_service(
        given: tfpipe.Pipeline, place: int, **fields: bool
    ) -> tfpipe.Pipeline:
        stages = [*given.stages]
        stages.insert(place, tfpipe.Service(address, **fields))
        return dataclasses.replace(given, stages=stages)

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
    }


def _num_draws() -> int:
    """Returns the records of an epoch: before those that are timed come a quarter."""
    return interleaved.image_counts()["num_timed_images"] * 3 // 2


def _rates(pipeline: tfpipe.Pipeline, epoch: int, group: list[psutil.Process]) -> Rates:
    """Reads the images of an epoch, and returns the rates of its middle."""
    batches = iter(pipeline.build(epoch=epoch))
    counts = interleaved.image_counts()
    num_warmup, num_steps = (n // pipeline.source.batch_size for n in counts.values())
    for _ in itertools.islice(batches, num_warmup):
        pass
    wall, cpu = time.perf_counter(), _cpu_seconds(group)
    count = sum(len(batch["label"]) for batch in itertools.islice(batches, num_steps))
    wall, cpu = time.perf_counter() - wall, _cpu_seconds(group) - cpu
    return count / cpu, count / wall


def _cpu_seconds(group: list[psutil.Process]) -> float:
    times = [process.cpu_times() for process in group]
    return sum(each.user + each.system for each in times)


def _measure(config: Any) -> dict[str, dict[str, float]]:
    import psutil

    service = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.service", "local"),
            f"--workers={_NUM_WORKERS}",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stdout is not None
        line = service.stdout.readline()
        if '"' not in line:
            raise OSError("The service must start; its messages say what is wrong.")
        pipelines = _pipelines(config, line.split('"')[1])
        turns: dict[str, list[Rates]] = {name: [] for name in pipelines}
        for turn in range(interleaved.num_rounds() + 1):
            names = [*pipelines]
            for name in names if turn % 2 else reversed(names):
                own = [psutil.Process(pid) for pid in (os.getpid(), service.pid)]
                group = [*own, *own[1].children()]
                rates = _rates(pipelines[name], turn, group)
                if turn:  # the first one traces functions and warms up
                    turns[name].append(rates)
                print(f"{name}: {rates[0]:.1f} images/CPU-s", file=sys.stderr)
    finally:
        service.terminate()
        service.wait()
    return figures(turns)


def main(argv: list[str]) -> int:
    """Prints the comparison that the flags describe."""
    command.refuse_arguments(argv)
    from benchmarks.reporting import environment

    config = train_flags.config_from_flags()
    try:
        found = _measure(config)
    except (OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    report = {
        "command": "studies.service",
        "schema_version": 1,
        "config": {
            "data_dir": os.path.basename(str(config.data_dir)),
            "image_size": config.image_size or 224,
            "batch_size": config.batch_size or 64,
            **interleaved.image_counts(),
            "num_rounds": interleaved.num_rounds(),
            "num_workers": _NUM_WORKERS,
        },
        "ways": found,
        "environment": environment.describe(),
    }
    output.finish(report, table(found), path=_SERVICE_RESULT.value)
    return 0


if __name__ == "__main__":
    command.run(main, {})
