"""What does it cost to decode, crop and resize an image: CPU-seconds of several ways.

  python -m benchmarks.decode --data_dir=DIR --num_rounds=3

Question: is the preset as cheap as the best pipeline of stock TensorFlow, and what does
each choice in it save? Each way of `benchmarks.decode_variants` reads the train split
of DIR in its own process, shuffled, warm-up apart; all ways take turns, so that a slow
spell of the machine meets all. "garden" reads as TensorFlow Model Garden does, "hand"
is the tuned pipeline that one writes by hand, "lean" that pipeline with the cheaper
kernels of tfpipe, one choice changed at a time.

Read the ratios: `cpu_ratio` is CPU-seconds over those of hand_uint8 in the same round,
the median of the rounds. Absolute figures hold for this machine, and images/s only
where nothing else runs on it. The last line on stdout is one JSON object.
"""

import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
from typing import Any

from absl import app
from absl import flags as absl_flags

from benchmarks import decode_variants, environment, flags, output

_WAYS = absl_flags.DEFINE_list(
    "ways",
    sorted(decode_variants.WAYS),
    "Which ways to measure, of benchmarks.decode_variants; hand_uint8 is always added.",
)
_NUM_ROUNDS = absl_flags.DEFINE_integer(
    "num_rounds", 3, "Times that each way is run.", lower_bound=1
)
_NUM_TIMED_IMAGES = absl_flags.DEFINE_integer(
    "num_timed_images", 4000, "Images of a run, after a fourth as many.", lower_bound=1
)
_DECODE_RESULT = absl_flags.DEFINE_string(
    "decode_result", None, "File to write the JSON object to as well."
)

# What the others are compared with.
_BASE = "hand_uint8"


def compare(
    job: decode_variants.Job, ways: list[str], num_rounds: int
) -> dict[str, dict[str, float]]:
    """Runs the ways in turns and returns the figures of each.

    Raises:
        OSError: If a run fails; carries what it printed.
        ValueError: If a way is not known.
    """
    unknown = set(ways) - decode_variants.WAYS.keys()
    if unknown:
        raise ValueError(
            f"--ways must be of {', '.join(decode_variants.WAYS)}; got "
            f"{', '.join(sorted(unknown))}."
        )
    names = [name for name in decode_variants.WAYS if name in {_BASE, *ways}]
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(num_rounds):
        for name in names:
            runs[name].append(_run(name, job))
    return {name: _figures(runs[name], runs[_BASE]) for name in names}


def _run(name: str, job: decode_variants.Job) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.decode_variants", name]
    done = subprocess.run(
        [*command, json.dumps(dataclasses.asdict(job))],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OSError(f"{name} ended with {done.returncode}: {done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _figures(
    runs: list[dict[str, float]], base: list[dict[str, float]]
) -> dict[str, float]:
    def cpu(run: dict[str, float]) -> float:
        return run["cpu_seconds"] / run["num_images"] * 1000

    costs = [cpu(run) for run in runs]
    ratios = [cpu(run) / cpu(other) for run, other in zip(runs, base, strict=True)]
    speeds = [run["num_images"] / run["seconds"] for run in runs]
    return {
        "cpu_seconds_per_1000_images": statistics.median(costs),
        "cpu_seconds_per_1000_images_min": min(costs),
        "cpu_seconds_per_1000_images_max": max(costs),
        "cpu_ratio": statistics.median(ratios),
        "cpu_ratio_min": min(ratios),
        "cpu_ratio_max": max(ratios),
        "images_per_second": statistics.median(speeds),
        "images_per_second_min": min(speeds),
        "images_per_second_max": max(speeds),
    }


def table(figures: dict[str, dict[str, float]]) -> str:
    """One line a way, the cheapest first."""
    lines = [f"{'way':28}{'CPU-s / 1000 (min-max)':>26}{'ratio':>8}{'images/s':>10}"]
    key = "cpu_seconds_per_1000_images"
    for name, row in sorted(figures.items(), key=lambda item: item[1][key]):
        spread = f"{row[key]:.3f} ({row[key + '_min']:.3f}-{row[key + '_max']:.3f})"
        speed = row["images_per_second"]
        lines.append(f"{name:28}{spread:>26}{row['cpu_ratio']:8.3f}{speed:10.0f}")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Prints the comparison that the flags describe."""
    if len(argv) > 1:
        raise app.UsageError(f"Expected flags only, got {argv[1]!r}.")
    config = flags.config_from_flags()
    job = decode_variants.Job(
        data_dir=str(config.data_dir),
        image_size=config.image_size or 224,
        batch_size=config.batch_size or 64,
        num_warmup_images=_NUM_TIMED_IMAGES.value // 4,
        num_timed_images=_NUM_TIMED_IMAGES.value,
    )
    try:
        figures = compare(job, _WAYS.value, _NUM_ROUNDS.value)
    except (OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    report: dict[str, Any] = {
        "command": "benchmarks.decode",
        "schema_version": 1,
        # The folder by name: paths differ by machine.
        "config": dataclasses.asdict(job)
        | {
            "data_dir": pathlib.Path(job.data_dir).resolve().name,
            "num_rounds": _NUM_ROUNDS.value,
        },
        "ways": figures,
        "environment": environment.describe(),
    }
    if _DECODE_RESULT.value:
        output.write(report, _DECODE_RESULT.value)
    print(table(figures))
    output.print_line(report)
    return 0


if __name__ == "__main__":
    app.run(main)
