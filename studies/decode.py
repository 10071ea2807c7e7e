"""How many CPU-seconds does it take to decode, crop and resize an image?

  python -m studies.decode --data_dir=DIR --num_rounds=3

Question: is the preset as cheap as the best pipeline of stock TensorFlow, and how much
do its choices save? A variant of `studies.decode_variants` reads the train split of
DIR, shuffled, in a process of its own; warm-up images are not timed. The variants run
in turns, so a slow spell of the machine affects all of them.

Variants named garden_ read as TensorFlow Model Garden does, hand_ is a tuned pipeline
written by hand, and lean_ is the hand_ pipeline with the cheaper kernels of tfpipe.
Variants of one pipeline differ in a single choice.

Variants named rewritten_ read --rewritten_data_dir=DIR2, with the same images,
converted with --restart_rows. Variants named entries_ read --entries_data_dir=DIR3, a
copy of DIR with entry points.

Variants with _eval_ in their names crop the centers of the images in their order.
Variants with _foreign_ read the shards like shards of another tool, without the index.

Compare the ratios: `cpu_ratio` is CPU-seconds over the CPU-seconds of hand_uint8, or of
hand_eval_uint8 for the _eval_ variants, in the same round, the median of the rounds.
Absolute figures hold for the machine, and images/s only where nothing else runs on it.
The last line on stdout is a JSON object.
"""

from studies import figures, harness
from tfpipe import cli


@cli.options
class Options(harness.ReadingOptions):
    """Options of the study."""

    ways: tuple[str, ...] = cli.flag(
        (),
        "Variants to measure, of studies.decode_variants; the pipeline by hand, their "
        "base, is added. Default: all whose folder is given.",
    )
    rewritten_data_dir: str | None = cli.flag(
        None,
        "Folder of the same images converted with --restart_rows, for the variants "
        "named rewritten_.",
    )
    entries_data_dir: str | None = cli.flag(
        None,
        "Folder of the same data set after converters.verify --write_entry_points, for "
        "the variants named entries_.",
    )


def compare(
    job: harness.Job, variants: list[str], rounds: int
) -> dict[str, dict[str, float]]:
    """Runs the variants in turns and returns their figures.

    Args:
        job: The work of a run, a `decode_variants.Job`.
        variants: Names of variants; their bases are added.
        rounds: Runs of a variant.

    Raises:
        OSError: If a run fails; the message holds its stderr.
        ValueError: If a variant does not exist, or its folder is not set.
    """
    from studies.decode_variants import VARIANTS, base_of, folder_of

    if unknown := set(variants) - VARIANTS.keys():
        raise ValueError(
            f"--ways must be of {', '.join(VARIANTS)}; got "
            f"{', '.join(sorted(unknown))}."
        )
    for name in variants:
        folder = folder_of(name)
        if folder is not None and getattr(job, folder) is None:
            raise ValueError(f"--{folder} must be given for {name}.")
    wanted = {*variants, *map(base_of, variants)}

    def measure(name: str, _: int) -> figures.Run:
        limit = job.time_limit
        return harness.run("studies.decode_variants", name, job, time_limit=limit)

    runs = harness.turns([n for n in VARIANTS if n in wanted], measure, rounds)
    return {
        name: figures.costs_and_rates(own, runs[base_of(name)])
        for name, own in runs.items()
    }


def _study(options: Options) -> harness.Outcome:
    from studies.decode_variants import VARIANTS, Job, folder_of

    job = Job(
        rewritten_data_dir=options.rewritten_data_dir,
        entries_data_dir=options.entries_data_dir,
        **options.job_fields(),
    )
    folders = {name: folder_of(name) for name in VARIANTS}
    variants = list(options.ways) or [
        name for name, folder in folders.items() if not folder or getattr(job, folder)
    ]
    rounds = options.num_rounds
    rows = compare(job, variants, rounds)
    config = harness.config_of(job, num_rounds=rounds)
    return harness.Outcome(
        figures={"config": config, "ways": rows},
        table=figures.table(rows, "variant"),
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.decode", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
