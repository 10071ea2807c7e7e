"""What does it cost to decode, crop and resize an image: CPU-seconds of several ways.

  python -m benchmarks.studies.decode --data_dir=DIR --num_rounds=3

Question: is the preset as cheap as the best pipeline of stock TensorFlow, and what does
each choice in it save? Each way of `benchmarks.studies.decode_variants` reads the train split
of DIR in its own process, shuffled, warm-up apart; all ways take turns, so that a slow
spell of the machine meets all. "garden" reads as TensorFlow Model Garden does, "hand"
is the tuned pipeline that one writes by hand, "lean" that pipeline with the cheaper
kernels of tfpipe, one choice changed at a time.

With --rewritten_data_dir=DIR2, the same images converted with --restart_rows, the ways
whose names begin with rewritten_ read that folder.

Read the ratios: `cpu_ratio` is CPU-seconds over those of hand_uint8 in the same round,
the median of the rounds. Absolute figures hold for this machine, and images/s only
where nothing else runs on it. The last line on stdout is one JSON object.
"""

import dataclasses
import pathlib
import sys
from typing import Any

from absl import app, flags as absl_flags

from benchmarks.options import train_flags
from benchmarks.reporting import environment, output
from benchmarks.studies import decode_variants, interleaved, interleaved_flags

_WAYS = absl_flags.DEFINE_list(
    "ways",
    None,
    "Which ways to measure, of benchmarks.studies.decode_variants; hand_uint8 is always added. "
    "Default: all, those on rewritten data only with --rewritten_data_dir.",
)
_REWRITTEN_DATA_DIR = absl_flags.DEFINE_string(
    "rewritten_data_dir",
    None,
    "Folder of the same images converted with --restart_rows, for the ways that begin "
    "with rewritten_.",
)
_DECODE_RESULT = absl_flags.DEFINE_string(
    "decode_result", None, "File to write the JSON object to as well."
)

# What the others are compared with.
_BASE = "hand_uint8"

_MODULE = "benchmarks.studies.decode_variants"


def compare(
    job: decode_variants.Job, ways: list[str], num_rounds: int
) -> dict[str, dict[str, float]]:
    """RecordRanges the ways in turns and returns the figures of each.

    Raises:
        OSError: If a run fails; carries what it printed.
        ValueError: If a way is not known, or needs a folder that is not given.
    """
    unknown = set(ways) - decode_variants.WAYS.keys()
    if unknown:
        raise ValueError(
            f"--ways must be of {', '.join(decode_variants.WAYS)}; got "
            f"{', '.join(sorted(unknown))}."
        )
    homeless = decode_variants.REWRITTEN.intersection(ways)
    if homeless and job.rewritten_data_dir is None:
        raise ValueError(
            f"--rewritten_data_dir must be given for {', '.join(sorted(homeless))}."
        )
    names = [name for name in decode_variants.WAYS if name in {_BASE, *ways}]
    limit = interleaved.time_limit(job)
    runs: dict[str, list[interleaved.Run]] = {name: [] for name in names}
    for _ in range(num_rounds):
        for name in names:
            runs[name].append(interleaved.run(_MODULE, name, job, time_limit=limit))
    return {name: interleaved.figures(runs[name], runs[_BASE]) for name in names}


def _name(folder: str | None) -> str | None:
    return folder and pathlib.Path(folder).resolve().name


def main(argv: list[str]) -> int:
    """Prints the comparison that the flags describe."""
    if len(argv) > 1:
        raise app.UsageError(f"Expected flags only, got {argv[1]!r}.")
    config = train_flags.config_from_flags()
    job = decode_variants.Job(
        data_dir=str(config.data_dir),
        rewritten_data_dir=_REWRITTEN_DATA_DIR.value,
        image_size=config.image_size or 224,
        batch_size=config.batch_size or 64,
        **interleaved_flags.image_counts(),
    )
    ways = _WAYS.value
    if ways is None:
        ways = sorted(decode_variants.WAYS)
        if job.rewritten_data_dir is None:
            ways = sorted(decode_variants.WAYS.keys() - decode_variants.REWRITTEN)
    try:
        figures = compare(job, ways, interleaved_flags.num_rounds())
    except (OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    report: dict[str, Any] = {
        "command": "benchmarks.studies.decode",
        "schema_version": 1,
        # The folder by name: paths differ by machine.
        "config": dataclasses.asdict(job)
        | {
            "data_dir": _name(job.data_dir),
            "rewritten_data_dir": _name(job.rewritten_data_dir),
            "num_rounds": interleaved_flags.num_rounds(),
        },
        "ways": figures,
        "environment": environment.describe(),
    }
    if _DECODE_RESULT.value:
        output.write(report, _DECODE_RESULT.value)
    print(interleaved.table(figures, "way"))
    output.print_line(report)
    return 0


if __name__ == "__main__":
    app.run(main)
