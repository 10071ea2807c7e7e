r"""What does it cost to watch the input while training: the same run with and without.

  python -m benchmarks.studies.monitoring --model=tiny --synthetic --num_steps=20
  python -m benchmarks.studies.monitoring --model=tiny --synthetic --num_steps=100 \
      --batch_size=1 --image_size=32

Two ways: "loop" is one's own training loop under `tfpipe.StepTimer`, "fit" is Keras'
fit under `tfpipe.LogInput`; both write TensorBoard's files. RecordRanges with and without take
turns within one process, on the same model, so that a slow spell of the machine meets
both; whichever was first is second in the next turn.

Read the ratios: time with over time without, the median of the turns. They hold for
steps as long as `seconds_per_step`; what watching adds to a step does not grow with it,
and shows best where the step is short, as with the second line.
The last line on stdout is one JSON object.
"""

import collections
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import app

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.models import catalog
from benchmarks.options import train_flags
from benchmarks.reporting import environment, output
from benchmarks.training.setting import Setting, make_setting

Run = Callable[[], object]

_NUM_TURNS = 12
_DEFAULT_NUM_STEPS = 20


def compare(setting: Setting, num_steps: int, num_turns: int) -> dict[str, Any]:
    """RecordRanges each way with and without, in turns, and returns the figures of each."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = _make_pairs(setting, num_steps, folder)
        for run in itertools.chain.from_iterable(pairs.values()):
            run()  # traces
        return {
            name: _figures(_take_turns(pair, num_turns), num_steps)
            for name, pair in pairs.items()
        }


def _make_pairs(
    setting: Setting, num_steps: int, folder: str
) -> dict[str, tuple[Run, Run]]:
    """way -> (run without, run with)."""
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
    # Keras has made the labels floats, of shape [batch, 1].
    numbers = tf.cast(tf.reshape(labels, [-1]), tf.int32)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(numbers, logits)


def _make_dataset(setting: Setting) -> tf.data.Dataset:
    """Batches as Keras takes them, without end."""

    def for_keras(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        batch = setting.pipeline.on_device(batch)
        return batch["image"], batch["label"]

    return setting.pipeline.build(num_epochs=None).map(for_keras).prefetch(2)


def _take_turns(pair: tuple[Run, Run], num_turns: int) -> dict[str, list[float]]:
    """Wall and CPU seconds of each run without and with."""
    seconds = collections.defaultdict(list)
    for turn in range(num_turns):
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
    """One line a way and clock."""
    lines = [f"{'way':8}{'time':8}{'with / without':>16}{'min':>8}{'max':>8}"]
    for name, row in figures.items():
        for kind in ("wall", "cpu"):
            ratio, least, most = (row[f"{kind}_ratio{x}"] for x in ("", "_min", "_max"))
            lines.append(f"{name:8}{kind:8}{ratio:16.4f}{least:8.3f}{most:8.3f}")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Prints the comparison that the flags describe."""
    if len(argv) > 1:
        raise app.UsageError(f"Expected flags only, got {argv[1]!r}.")
    try:
        setting = make_setting(train_flags.config_from_flags(), Ranks())
        num_steps = setting.config.num_steps or _DEFAULT_NUM_STEPS
        figures = compare(setting, num_steps, _NUM_TURNS)
    except (OSError, ValueError, tfpipe.TfpipeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(table(figures))
    output.print_line(
        {
            "command": "benchmarks.studies.monitoring",
            "schema_version": 1,
            "config": setting.config.as_json() | {"num_turns": _NUM_TURNS},
            "num_steps_per_turn": num_steps,
            "ways": figures,
            "environment": environment.describe(),
        }
    )
    return 0


if __name__ == "__main__":
    app.run(main)
