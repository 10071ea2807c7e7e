r"""How much time does it cost to watch the input while a model trains?

  python -m studies.monitoring --model=tiny --synthetic --num_steps=20
  python -m studies.monitoring --model=tiny --synthetic --num_steps=100 \
      --batch_size=1 --image_size=32

There are two variants: "loop" is a hand-written training loop under `tfpipe.StepTimer`,
"fit" is Keras' fit under `tfpipe.LogInput`; both write TensorBoard files. Runs with and
without watching are interleaved in one process, on the same model, so that a slow spell
of the machine affects both; the order of the two changes with each turn.

Compare the ratios: time with watching over time without, the median of the turns. They
hold for steps as long as `seconds_per_step`. The time that watching adds to a step does
not grow with the step, so it shows best where the step is short, as in the second
command. The last line on stdout is one JSON object.
"""

from __future__ import annotations

import collections
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import lazy_loader
from absl import flags as absl_flags

import tfpipe
from benchmarks.models import catalog
from benchmarks.options import command, train_flags
from benchmarks.reporting import output

if TYPE_CHECKING:
    from benchmarks.training.setting import Setting

# TensorFlow takes seconds to import: it is imported when it is first used.
tf = lazy_loader.load("tensorflow")

absl_flags.adopt_module_key_flags(train_flags)

Run = Callable[[], object]

_NUM_TURNS = 12
_DEFAULT_NUM_STEPS = 20


def compare(setting: Setting, num_steps: int, num_turns: int) -> dict[str, Any]:
    """Runs each variant with and without watching; returns the figures of each.

    Args:
        setting: Model and pipeline of the runs.
        num_steps: Training steps of a run.
        num_turns: Runs with, and runs without, of each variant.
    """
    with tempfile.TemporaryDirectory() as folder:
        pairs = _make_pairs(setting, num_steps, folder)
        for run in itertools.chain.from_iterable(pairs.values()):
            run()  # warm-up: traces the functions and builds the model
        return {
            name: _figures(_take_turns(pair, num_turns), num_steps)
            for name, pair in pairs.items()
        }


def _make_pairs(
    setting: Setting, num_steps: int, folder: str
) -> dict[str, tuple[Run, Run]]:
    """Returns variant -> (run without watching, run with it)."""
    config = setting.config
    model = catalog.MODELS[config.model].build(
        config.image_size, setting.config.num_classes
    )
    model.compile("sgd", _loss)
    timer = tfpipe.StepTimer(config.batch_size, log_dir=folder)
    log = tfpipe.LogInput(timer)
    dataset = _make_dataset(setting)
    watched = log.watch(dataset)
    step = tf.function(lambda batch: model.train_step(batch)["loss"])

    def loop(batches: Any) -> None:
        for batch in itertools.islice(batches, num_steps):
            float(step(batch))

    def fit(dataset: tf.data.Dataset, callbacks: list[Any]) -> None:
        model.fit(dataset, steps_per_epoch=num_steps, callbacks=callbacks, verbose=0)

    return {
        "loop": (lambda: loop(iter(dataset)), lambda: loop(timer.batches(dataset))),
        "fit": (lambda: fit(dataset, []), lambda: fit(watched, [log])),
    }


def _loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    # Keras turns the labels into floats of shape [batch, 1].
    numbers = tf.cast(tf.reshape(labels, [-1]), tf.int32)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(numbers, logits)


def _make_dataset(setting: Setting) -> tf.data.Dataset:
    """Returns endless batches (image, label), the form that Keras takes."""

    def for_keras(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        batch = setting.pipeline.on_device(batch)
        return batch["image"], batch["label"]

    return setting.pipeline.build(num_epochs=None).map(for_keras).prefetch(2)


def _take_turns(pair: tuple[Run, Run], num_turns: int) -> dict[str, list[float]]:
    """Returns wall and CPU seconds of each run: name of the clock and run -> values."""
    seconds = collections.defaultdict(list)
    for turn in range(num_turns):
        # The order alternates, so that neither of the two always runs first.
        runs = list(zip(("without", "with"), pair, strict=True))
        for name, run in runs if turn % 2 else reversed(runs):
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            seconds[f"wall_{name}"].append(time.perf_counter() - wall)
            seconds[f"cpu_{name}"].append(time.process_time() - cpu)
    return seconds


def _figures(seconds: dict[str, list[float]], num_steps: int) -> dict[str, float]:
    figures = {}
    for kind in ("wall", "cpu"):
        pairs = list(
            zip(seconds[f"{kind}_with"], seconds[f"{kind}_without"], strict=True)
        )
        ratios = [watched / plain for watched, plain in pairs]
        added = [(watched - plain) / num_steps for watched, plain in pairs]
        figures |= {
            f"{kind}_ratio": statistics.median(ratios),
            f"{kind}_ratio_min": min(ratios),
            f"{kind}_ratio_max": max(ratios),
            f"{kind}_seconds_added_per_step": statistics.median(added),
        }
    plain = statistics.median(seconds["wall_without"])
    return figures | {"seconds_per_step": plain / num_steps}


def table(figures: dict[str, dict[str, float]]) -> str:
    """Returns a table with a line for each variant and clock."""
    lines = [f"{'variant':8}{'time':8}{'with / without':>16}{'min':>8}{'max':>8}"]
    for name, row in figures.items():
        for kind in ("wall", "cpu"):
            ratio, low, high = (row[f"{kind}_ratio{x}"] for x in ("", "_min", "_max"))
            lines.append(f"{name:8}{kind:8}{ratio:16.4f}{low:8.3f}{high:8.3f}")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Prints the comparison that the flags describe."""
    command.refuse_arguments(argv)
    from benchmarks.distributed.ranks import Ranks
    from benchmarks.training.setting import make_setting

    try:
        setting = make_setting(train_flags.config_from_flags(), Ranks())
        num_steps = setting.config.num_steps or _DEFAULT_NUM_STEPS
        figures = compare(setting, num_steps, _NUM_TURNS)
    except (OSError, ValueError, tfpipe.TfpipeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    from benchmarks.reporting import environment

    report = {
        "command": "studies.monitoring",
        "schema_version": 1,
        "config": setting.config.as_json() | {"num_turns": _NUM_TURNS},
        "num_steps_per_turn": num_steps,
        "ways": figures,
        "environment": environment.describe(),
    }
    output.finish(report, table(figures))
    return 0


if __name__ == "__main__":
    command.run(main, {})
