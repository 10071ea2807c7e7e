"""How many CPU-seconds do epochs of a small data set cost beside their images?

  python -m studies.epochs --data_dir=DIR --num_rounds=8 --batch_size=32

Question: how much does a loop over a few hundred images pay for an epoch? Variants:
"hand" is an epoch of the tuned pipeline by hand, normalized and in float32; "keras" is
an epoch of imagenet_train(...).for_keras(), with equal elements; "first" is
build(epoch=...) and the first batch alone, "first_keras" a new iterator of for_keras()
and the first batch. One process measures all variants in turns. A first round traces
functions and is not counted.

Compare the ratios: `cpu_ratio` is a cost over the cost of "hand" in the same
round. The last line on stdout is a JSON object.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tfpipe
from studies import figures, harness
from tfpipe import cli


@cli.options
class EpochsOptions(harness.StudyOptions):
    """Options of the study."""

    num_rounds: int = 8
    data_dir: str = cli.required("Folder of a converted data set.")
    image_size: int = cli.flag(
        224, "Height and width of the images in pixels.", least=32
    )
    batch_size: int = cli.flag(32, "Images in a batch.", least=1)


def compared(
    runs: Mapping[str, Sequence[figures.Run]],
) -> dict[str, dict[str, float]]:
    """Returns the CPU-seconds of each variant, and ratios to "hand" in the round.

    Args:
        runs: Name of a variant -> its runs by round; "hand" among them.
    """
    return {
        name: {
            **figures.spread("cpu_seconds", [run["cpu_seconds"] for run in own]),
            **figures.spread(
                "cpu_ratio",
                figures.ratios(own, runs["hand"], lambda run: run["cpu_seconds"]),
            ),
            "num_images": statistics.median(run["num_images"] for run in own),
        }
        for name, own in runs.items()
    }


def table(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the figures as a table, a line for each variant."""
    lines = [f"{'variant':12}{'CPU-s':>8}{'least':>8}{'ratio':>8}{'images':>8}"]
    lines += [
        f"{name:12}{row['cpu_seconds']:8.3f}{row['cpu_seconds_min']:8.3f}"
        f"{row['cpu_ratio']:8.3f}{row['num_images']:8.0f}"
        for name, row in rows.items()
    ]
    return "\n".join(lines)


def _variants(job: harness.Job) -> dict[str, Callable[[int], Iterable[Any]]]:
    """Returns for each variant a function from the round to the dataset to read."""
    # The import takes seconds, for TensorFlow.
    from studies import decode_variants

    source = tfpipe.TFRecordSource(job.data_dir, batch_size=job.batch_size)
    pipeline = tfpipe.imagenet_train(source, image_size=job.image_size)
    keras = pipeline.for_keras()
    num_steps = pipeline.steps_per_epoch
    hand_job = decode_variants.Job(
        data_dir=job.data_dir, image_size=job.image_size, batch_size=job.batch_size
    )
    hand = decode_variants.VARIANTS["hand_float32"](hand_job).take(num_steps)
    return {
        "hand": lambda _: hand,
        "keras": lambda _: keras,
        "first": lambda epoch: pipeline.build(epoch=epoch),
        "first_keras": lambda _: keras,
    }


def _study(options: EpochsOptions) -> harness.Outcome:
    job = harness.Job(
        data_dir=options.data_dir,
        image_size=options.image_size,
        batch_size=options.batch_size,
        num_warmup_images=0,
    )
    variants = _variants(job)

    def measure(name: str, epoch: int) -> figures.Run:
        begin, cpu = time.perf_counter(), time.process_time()
        batches = iter(variants[name](epoch))
        num_batches = sum(
            1 for _ in itertools.islice(batches, 1 if "first" in name else None)
        )
        return {
            "num_images": num_batches * job.batch_size,
            "seconds": time.perf_counter() - begin,
            "cpu_seconds": time.process_time() - cpu,
        }

    runs = harness.turns(list(variants), measure, options.num_rounds, num_warm_ups=1)
    rows = compared(runs)
    config = {
        "data_dir": harness.config_of(job)["data_dir"],
        "image_size": job.image_size,
        "batch_size": job.batch_size,
        "num_rounds": options.num_rounds,
    }
    return harness.Outcome(figures={"config": config, "ways": rows}, table=table(rows))


def main(options: EpochsOptions) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.epochs", options, _study(options))


COMMANDS = (cli.Command(EpochsOptions, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
