r"""Trains, evaluates or infers with a model on a data set, and measures it.

  python -m benchmarks.train --data_dir=DIR --model=resnet50 --num_steps=100
  horovodrun -np 4 python -m benchmarks.train --data_dir=DIR --model=resnet50
  python -m benchmarks.train --data_dir=DIR --model=resnet50 --bars
  horovodrun -np 8 python -m benchmarks.train --data_dir=DIR --model=resnet50 \
      --emulate=h100 --cache=cold --require="au>=0.9"

Question: how many images a second does a model process, and how long does it wait for
input? The real pipeline is timed (read, decode, crop, copy to the device) with the real
model and gradient averaging. For comparison, --synthetic removes the input, --bars also
runs the input alone, and --emulate replaces the model by its published time on an
accelerator. Warm-up steps and the saving of checkpoints are not timed.

On stdout: the resources of a rank, the pipeline, "Img/sec per rank: ..." and the total,
and one JSON object as the last line. Its examples_per_second is the work of all ranks
over their common time; `critical_path` has the parts of the time and the ranks that
spent them; stall_fraction is the share of input, accelerator_utilization the share of
compute; `binding` is a word for the limit of the run; `steady_state` says whether the
rate is the rate of the input; `cache` says whether storage or memory fed the timed
steps. The result is printed before a file is written. On stderr: a bar on a terminal,
else a line every 10 s. SIGTERM to any rank ends a training with --checkpoint_dir on all
ranks, with a checkpoint: the same command goes on there. Exit code: 0 done, 1 an error,
2 done but a gate of --require was not met, or the runs of --repeat did not agree, 75
saved after SIGTERM.
"""

import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.options import config as options
from benchmarks.options.config import Config
from benchmarks.reporting import answers, output
from benchmarks.results import tree
from benchmarks.results.train_result import TrainResult
from tfpipe import cli
from tfpipe.cli import output as cli_output


def print_result(result: dict[str, Any], path: pathlib.Path | None) -> None:
    """Prints the answer for people, details, and the JSON line for scripts."""
    answer = answers.train(tree.decode(TrainResult, result)[0], path)
    output.show(result, *answer, details=_details(result))


def _details(result: dict[str, Any]) -> Iterator[str]:
    from benchmarks.training import bars, metrics

    for epoch in result.get("epochs", ()):
        yield (
            f"epoch {epoch['epoch']:3}  loss {epoch['loss']:.4f}  "
            f"accuracy {epoch['accuracy']:.4f}  {epoch['num_examples']} examples"
        )
    if "num_evaluated" in result:
        yield (
            f"accuracy {result['accuracy']:.4f}  loss {result['loss']:.4f}  "
            f"{result['num_evaluated']} examples"
        )
    yield from metrics.speed_lines(result)
    if result.get("slow_link"):
        yield result["slow_link"]["text"]
    yield result["host_load"]["text"]
    if result.get("not_finite_loss"):
        yield f"Not sound: {result['not_finite_loss']['text']}"
    if padding := result.get("padding_fraction"):
        yield f"Padding: {padding:.1%} of the batches were no records"
    if "cache" in result:
        has_shard_cache = result.get("storage", {}).get("tier") == "shard_cache"
        name = "Shard cache" if has_shard_cache else "Page cache"
        yield f"{name} {result['cache']['text']}"
        yield result["cache"]["size_rule"]["text"]
    if "storage" in result:
        yield f"Storage {result['storage']['text']}"
    if "bars" in result:
        yield from bars.lines(result["bars"])
    if "reproducibility" in result:
        yield metrics.reproducibility_line(result["reproducibility"])
    for gate in result["gates"]:
        yield f"Gate {gate['text']}"


def exit_code(result: dict[str, Any]) -> int:
    """Returns 2 if a gate is not met or repeated runs disagree, else 0."""
    agree = result.get("reproducibility", {}).get("reproducible", True)
    return 0 if agree and all(gate["passed"] for gate in result["gates"]) else 2


def train(config: Config) -> int:
    """Runs what the flags say, prints the result, and returns the exit code."""
    options.refuse_unmeasured(config)
    if config.as_nvidia:
        config = config.spelled_out()
        # TensorFlow reads the variable when it is imported.
        os.environ.setdefault("TF_GPU_THREAD_MODE", "gpu_private")
    # These import TensorFlow, which takes seconds: the flags are right by now.
    from benchmarks.distributed import ranks, watch
    from benchmarks.training import run

    threads = ranks.set_inter_op_threads() if config.as_nvidia else None
    world = ranks.connect()
    if config.as_nvidia and world.is_first:
        cli_output.tell(
            f"--as_nvidia: --precision={config.precision} --xla --fp16_allreduce "
            f"--data_format={config.data_format}, "
            f"TF_GPU_THREAD_MODE={os.environ['TF_GPU_THREAD_MODE']}, "
            f"{threads} inter-op threads"
        )
    # take_seat is collective: it would hang if an elastic run lost a rank in it.
    seat = None if config.elastic else ranks.take_seat(world)
    try:
        result = run.run(config, world, seat=seat, show=print_result)
    except watch.StoppedError as stopped:
        if stopped.error is None and world.is_first:
            print(
                f"{stopped} The checkpoint is in --checkpoint_dir="
                f"{config.checkpoint_dir}: the same command goes on there.",
                file=sys.stderr,
            )
        # An error of the checkpoint was printed when it happened.
        code = watch.EXIT_CODE if stopped.error is None else 1
        return code if world.is_first else 0
    # Rank 0 gives the exit code: horovodrun ends all ranks as soon as one fails.
    if not world.now().is_first:
        return 0
    if is_broken := run.is_broken(result, config):
        print(f"Error: {result['not_finite_loss']['text']}", file=sys.stderr)
    if is_broken or "checkpoint_error" in result:
        return 1
    return exit_code(result)


# A launcher that ends the ranks must not wait for them: see distributed/watch.py.
COMMANDS = (
    cli.Command(
        Config,
        train,
        arguments=("data_dir",),
        groups=options.GROUPS,
        unused=options.UNUSED,
        cleans_up=False,
    ),
)

if __name__ == "__main__":
    cli.run(*COMMANDS)
