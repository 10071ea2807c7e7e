"""How many CPU-seconds does it take to decode, crop and resize an image?

  python -m studies.decode --data_dir=DIR --num_rounds=3

Question: is the preset as cheap as the best pipeline of stock TensorFlow, and how much
does each choice in it save? Each variant of `studies.decode_variants` reads
the shuffled train split of DIR in a process of its own; warm-up images are not timed.
The variants are interleaved, so that a slow spell of the machine affects all of them.
Variants named garden_ read as TensorFlow Model Garden does, hand_ is the tuned pipeline
that people write by hand, and lean_ is the hand_ pipeline with the cheaper kernels of
tfpipe. Variants of one pipeline differ in one choice.

Variants named rewritten_ read --rewritten_data_dir=DIR2, which must hold the same
images, converted with --restart_rows. Variants named entries_ read
--entries_data_dir=DIR3, a copy of DIR with entry points.

Variants with _eval_ in their names crop the centers of the images in their order. Those
with _foreign_ read the shards as those of another tool, without the index.

Compare the ratios: `cpu_ratio` is CPU-seconds over the CPU-seconds of hand_uint8, or of
hand_eval_uint8 for the _eval_ variants, in the same round, the median of the rounds.
Absolute figures hold for this machine, and images/s only where nothing else runs on it.
The last line on stdout is one JSON object.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from typing import TYPE_CHECKING, Any

from absl import flags as absl_flags

from benchmarks.options import command, train_flags
from benchmarks.reporting import output
from studies import interleaved

# TensorFlow takes seconds to import: functions import what imports it.
if TYPE_CHECKING:
    from studies import decode_variants

# Flags of the training command that this study reads, for --help.
for _name in ("data_dir", "image_size", "batch_size"):
    absl_flags.declare_key_flag(_name)
absl_flags.adopt_module_key_flags(interleaved)
_VARIANTS = absl_flags.DEFINE_list(
    "ways",
    None,
    "Variants to measure, of studies.decode_variants; the pipeline by hand "
    "that they are compared with is added. Default: all whose folder is given.",
)
_REWRITTEN_DATA_DIR = absl_flags.DEFINE_string(
    "rewritten_data_dir",
    None,
    "Folder of the same images converted with --restart_rows, for the variants named "
    "rewritten_.",
)
_ENTRIES_DATA_DIR = absl_flags.DEFINE_string(
    "entries_data_dir",
    None,
    "Folder of the same data set after converters.verify --write_entry_points, for the "
    "variants named entries_.",
)
_DECODE_RESULT = absl_flags.DEFINE_string(
    "decode_result", None, "File to write the JSON object to as well."
)

_MODULE = "studies.decode_variants"


def compare(
    job: decode_variants.Job, variants: list[str], num_rounds: int
) -> dict[str, dict[str, float]]:
    """Runs the variants interleaved and returns the figures of each.

    Args:
        job: The work of each run.
        variants: Names of variants; what they are compared with is added.
        num_rounds: Runs of each variant.

    Raises:
        OSError: If a run fails; the message holds what it printed.
        ValueError: If a variant is not known, or needs a folder that is not given.
    """
    from studies import decode_variants

    unknown = set(variants) - decode_variants.VARIANTS.keys()
    if unknown:
        raise ValueError(
            f"--ways must be of {', '.join(decode_variants.VARIANTS)}; got "
            f"{', '.join(sorted(unknown))}."
        )
    for name in variants:
        folder = decode_variants.folder_of(name)
        if folder is not None and getattr(job, folder) is None:
            raise ValueError(f"--{folder} must be given for {name}.")
    bases = {decode_variants.base_of(name) for name in variants}
    names = [name for name in decode_variants.VARIANTS if name in {*bases, *variants}]
    limit = interleaved.time_limit(job)
    runs: dict[str, list[interleaved.Run]] = {name: [] for name in names}
    for _ in range(num_rounds):
        for name in names:
            runs[name].append(interleaved.run(_MODULE, name, job, time_limit=limit))
    return {
        name: interleaved.figures(runs[name], runs[decode_variants.base_of(name)])
        for name in names
    }


def _name(folder: str | None) -> str | None:
    return folder and pathlib.Path(folder).resolve().name


def _variants(job: decode_variants.Job) -> list[str]:
    """Returns the variants that the flags name; by default all that have data."""
    from studies.decode_variants import VARIANTS, folder_of

    if _VARIANTS.value is not None:
        return list(_VARIANTS.value)
    folders = {name: folder_of(name) for name in VARIANTS}
    return [name for name, each in folders.items() if not each or getattr(job, each)]


def main(argv: list[str]) -> int:
    """Prints the comparison that the flags describe."""
    command.refuse_arguments(argv)
    from benchmarks.reporting import environment
    from studies.decode_variants import Job

    config = train_flags.config_from_flags()
    job = Job(
        rewritten_data_dir=_REWRITTEN_DATA_DIR.value,
        entries_data_dir=_ENTRIES_DATA_DIR.value,
        **interleaved.job_options(config, batch_size=64),
    )
    try:
        figures = compare(job, _variants(job), interleaved.num_rounds())
    except (OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    report: dict[str, Any] = {
        "command": "studies.decode",
        "schema_version": 1,
        # Folders by name: their paths differ between machines.
        "config": dataclasses.asdict(job)
        | {
            "data_dir": _name(job.data_dir),
            "rewritten_data_dir": _name(job.rewritten_data_dir),
            "entries_data_dir": _name(job.entries_data_dir),
            "num_rounds": interleaved.num_rounds(),
        },
        "ways": figures,
        "environment": environment.describe(),
    }
    output.finish(
        report, interleaved.table(figures, "variant"), path=_DECODE_RESULT.value
    )
    return 0


if __name__ == "__main__":
    command.run(main, {})
