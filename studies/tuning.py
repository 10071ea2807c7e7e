"""Does the tuner find the best setting of six pipelines that were set badly?

  python -m studies.tuning --data_dir=DIR

Questions: how near does `tfpipe.tune` come to the best setting of a grid of reads,
calls, batches ahead, fusing and caches? Is its setting ever slower than the original
setting, and does the search end in time? Does the profile of the pipeline with AUTOTUNE
predict the rates of other settings, or refuse to? A pipeline runs as it was, with
AUTOTUNE, with the tuner's setting and with the best of the grid, in turns. Two more
cases are given well already: one like the tuner's own setting, one with a cache, its
fastest setting. The elements come from the train split of DIR; the images must be
small, so that settings matter.

The targets are `tuned_of_best` >= 0.95, `tuned_of_given` >= 0.97 (the two are often the
same pipeline, and then differ by noise), `tune_seconds` <= 1.1 * --tune_seconds, and
`predicted_of_measured` from 0.85 to 1.15; `cannot_be_told` has the reasons for settings
without a prediction. `missed` lists the missed targets; the exit code is 2 if there are
any. Ratios are medians over the rounds. A prediction is compared to the rate of the
pipeline alone, right after the profile, because open pipelines share memory.
`host_share` is the share of the host taken by other processes meanwhile. The last line
on stdout is a JSON object.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import lazy_loader

import tfpipe
from studies import harness
from tfpipe import cli

# TensorFlow takes seconds to import, so the import waits for the first use.
tf = lazy_loader.load("tensorflow")
if TYPE_CHECKING:
    from tfpipe.tuner.race import Turns
    from tfpipe.tuner.space import Setting

_BATCH_SIZE = 32
_PROFILE_SECONDS = 0.3
# Rounds of a profile and of its predicted pipelines, and the seconds of a pipeline.
_NUM_PREDICTIONS, _ALONE_SECONDS = 3, 2.5
# Seconds of a turn in the grid, and of the whole grid; rounds of the race of its best.
_TURN_SECONDS, _GRID_SECONDS, _NUM_FINAL = 0.4, 3600.0, 7


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A badly set pipeline, and arguments of `tfpipe.search_tuning` for it."""

    pipeline: tfpipe.Pipeline
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


def serial_map(data_dir: str, _: str) -> Case:
    """Decodes a single image at a time."""
    return Case(pipeline=_with_map(_preset(data_dir), num_parallel_calls=1))


def no_prefetch(data_dir: str, _: str) -> Case:
    """Normalizes whole batches while the training step waits, without prefetching."""
    pipeline = _with_map(_preset(data_dir), num_parallel_calls=2)
    stages = [stage for stage in pipeline.stages if type(stage) is not tfpipe.Prefetch]
    stages.append(tfpipe.Map(tfpipe.Normalize(), num_parallel_calls=1))
    return Case(pipeline=dataclasses.replace(pipeline, stages=stages))


def one_reader(data_dir: str, _: str) -> Case:
    """Reads a single extent at a time through a small buffer, and decodes nothing."""
    pipeline = _preset(data_dir, recipe=None)
    return Case(
        pipeline=dataclasses.replace(
            pipeline,
            tuning=tfpipe.Tuning(num_parallel_reads=1, read_buffer_bytes=4096),
        )
    )


def cache_that_does_not_fit(data_dir: str, cache_dir: str) -> Case:
    """Keeps decoded images in more RAM than there is."""
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=_BATCH_SIZE)
    stages = [
        tfpipe.Interleave(),
        tfpipe.AssertCardinality(),
        tfpipe.Map(
            tfpipe.Parse(label_base=source.index.label_base),
            tfpipe.CenterCrop(image_size=224),
        ),
        tfpipe.Cache("ram", max_bytes=1_000_000),
        tfpipe.Map(tfpipe.Flip(), tfpipe.Select("image", "label")),
        tfpipe.Batch(_BATCH_SIZE),
        tfpipe.Prefetch(),
    ]
    size = sum(shard.num_bytes for shard in source.index.splits["train"])
    return Case(
        pipeline=tfpipe.Pipeline(source, stages),
        options={
            "ram_budget_bytes": size // 2,
            "disk_budget_bytes": 1 << 34,
            "cache_dir": cache_dir,
        },
    )


def too_many_threads(data_dir: str, _: str) -> Case:
    """Uses 64 threads, with up to 64 more for a thread."""
    tuning = tfpipe.Tuning(
        num_parallel_maps=64,
        private_threadpool_size=64,
        max_intra_op_parallelism=64,
        prefetch_buffer_size=64,
    )
    pipeline = _preset(data_dir)
    return Case(pipeline=dataclasses.replace(pipeline, tuning=tuning))


def tiny_batch_copies(_: str, __: str) -> Case:
    """Copies elements of 16 bytes into batches, one after the other."""

    def numbers(state: tfpipe.State, num_epochs: int | None) -> tf.data.Dataset:
        dataset = tf.data.Dataset.range(1 << 20).map(lambda x: {"number": x})
        return dataset.repeat(num_epochs)

    def square(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return example | {"square": example["number"] ** 2}

    stages = [tfpipe.Map(square, num_parallel_calls=8), tfpipe.Batch(512)]
    tuning = tfpipe.Tuning(fuse_map_and_batch=False)
    return Case(pipeline=tfpipe.Pipeline(numbers, stages, tuning=tuning))


def given_well(data_dir: str, _: str) -> Case:
    """Is set as the costs ask for: no setting is much faster."""
    tuning = tfpipe.Tuning(
        num_parallel_maps=4, prefetch_buffer_size=2, private_threadpool_size=2
    )
    return Case(pipeline=dataclasses.replace(_preset(data_dir), tuning=tuning))


def given_cache(data_dir: str, cache_dir: str) -> Case:
    """Keeps decoded images on a disk, against the budget of the search."""
    pipeline = cache_that_does_not_fit(data_dir, cache_dir).pipeline
    stages = [
        tfpipe.Cache("disk", cache_dir) if isinstance(stage, tfpipe.Cache) else stage
        for stage in pipeline.stages
    ]
    return Case(
        pipeline=dataclasses.replace(pipeline, stages=stages),
        options={"ram_budget_bytes": 200_000_000},
    )


CASES: dict[str, Callable[[str, str], Case]] = {
    "serial map": serial_map,
    "no prefetch": no_prefetch,
    "one reader": one_reader,
    "cache that does not fit": cache_that_does_not_fit,
    "64 threads": too_many_threads,
    "tiny batch copies": tiny_batch_copies,
    "given well": given_well,
    "given cache": given_cache,
}


def _preset(data_dir: str, **options: Any) -> tfpipe.Pipeline:
    source = tfpipe.TFRecordSource(
        data_dir, "train", batch_size=_BATCH_SIZE, window_size=256
    )
    return tfpipe.imagenet_train(source, image_size=64, **options)


def _with_map(pipeline: tfpipe.Pipeline, *, num_parallel_calls: int) -> tfpipe.Pipeline:
    stages = [
        tfpipe.Map(*stage.ops, num_parallel_calls=num_parallel_calls)
        if isinstance(stage, tfpipe.Map)
        else stage
        for stage in pipeline.stages
    ]
    return dataclasses.replace(pipeline, stages=stages)


@cli.options
class Options(harness.StudyOptions):
    """Options of the study."""

    num_rounds: int = 7
    data_dir: str = cli.required("Folder of a converted data set.")
    cases: tuple[str, ...] = cli.flag(
        tuple(CASES), "Names of the pipelines to tune.", choices=tuple(CASES)
    )
    tune_seconds: float = cli.flag(60.0, "time_limit of each search.", above=0)


def measure(case: Case, options: Options) -> dict[str, Any]:
    """Tunes a pipeline, finds the best of the grid, and runs the settings in turns."""
    from tfpipe.tuner import race, space

    limit = options.tune_seconds
    start = time.perf_counter()
    search = tfpipe.search_tuning(case.pipeline, time_limit=limit, **case.options)
    seconds = time.perf_counter() - start
    settings = grid(space.opened(case.pipeline), search, case.options)
    best = best_of(settings, case.pipeline, search)
    pipelines = _variants(case.pipeline, search, best)
    turns = race.compare(
        {name: pipeline.build(num_epochs=None) for name, pipeline in pipelines.items()},
        seconds=0.7,
        num_rounds=options.num_rounds,
    )
    predicted = ["AUTOTUNE", "one thread"]
    if search.setting.cache is None and not search.is_as_given:
        predicted.append("tuned")
    if best is not None and best.cache is None:
        predicted.append("best")
    figures = _compared(turns, search)
    figures |= _predictions({name: pipelines[name] for name in predicted})
    return figures | {
        "tune_seconds": seconds,
        "missed": missed(figures, seconds, limit),
        "num_tried": len(search.trials),
        "num_in_grid": len(settings),
        "trials": search.as_json()["trials"],
        "found": search.sentence,
        "best": "the pipeline as given" if best is None else space.words(best),
        "host_share": search.as_json()["host_share"],
    }


def grid(
    bare: tfpipe.Pipeline, search: tfpipe.Search, options: Mapping[str, Any]
) -> list[Setting]:
    """Returns a coarse grid over all settings within the budgets of the search.

    Args:
        bare: The pipeline without tuning.
        search: The search.
        options: Its arguments.
    """
    from tfpipe.tuner import placement, space

    within = search.autotuned.tuning
    threads = within.num_threads
    budget = space.Budget(
        num_threads=threads,
        ram_bytes=within.ram_budget_bytes or 1,
        disk_bytes=options.get("disk_budget_bytes", 0),
        cache_dir=options.get("cache_dir"),
    )
    caches, _ = space.admitted(placement.sizes(bare), budget, 0)
    points = itertools.product((1, 4), (1, threads, 4 * threads), (1, 4), (True, False))
    tunings = [
        dataclasses.replace(
            within,
            num_parallel_reads=num_reads,
            num_parallel_maps=calls,
            prefetch_buffer_size=depth,
            fuse_map_and_batch=is_fused,
        )
        for num_reads, calls, depth, is_fused in points
    ]
    return [
        space.Setting(tuning=tuning, cache=cache)
        for cache in (None, *caches)
        for tuning in tunings
    ]


def best_of(
    settings: Sequence[Setting], original: tfpipe.Pipeline, search: tfpipe.Search
) -> Setting | None:
    """Returns the best setting: a round for all, then a race of four and the original.

    None stands for the original pipeline, if it is within the budget.
    """
    from tfpipe.tuner import lanes, race, space
    from tfpipe.tuner.time_limit import Deadline

    bare, deadline = space.opened(original), Deadline(_GRID_SECONDS)
    first = lanes.Lanes(original, bare, deadline)
    if autotuned := first.add("AUTOTUNE", search.autotuned):
        first.fill_for(autotuned)
    first.close()

    def turns(named: lanes.Candidates, num_rounds: int) -> dict[str, Turns]:
        lane = lanes.Lanes(original, bare, deadline)
        lane.num_batches = first.num_batches
        runners = {name: lane.add(name, setting) for name, setting in named.items()}
        can_run = {name: runner for name, runner in runners.items() if runner}
        try:
            return race.run(can_run, seconds=_TURN_SECONDS, num_rounds=num_rounds)
        finally:
            lane.close()

    rates: dict[str, Turns] = {}
    for each, setting in enumerate(settings):
        rates |= turns({str(each): setting}, 1)
    best = sorted(rates, key=lambda name: -rates[name].rate)[:4]
    last: dict[str, Setting | None] = {name: settings[int(name)] for name in best}
    if not search.given_excess:
        last["as given"] = None
    final = turns(last, _NUM_FINAL)
    return last[max(final, key=lambda name: final[name].rate)]


def _compared(turns: Mapping[str, Turns], search: tfpipe.Search) -> dict[str, Any]:
    """Returns the rates and the ratios of the tuned pipeline to the others."""
    tuned, as_given = turns["tuned"], turns.get("as given")
    of_given = None if as_given is None else tuned.ratio(as_given)
    return {
        "elements_per_second": {name: mine.rate for name, mine in turns.items()},
        "tuned_of_best": tuned.ratio(turns["best"]),
        "tuned_of_autotune": tuned.ratio(turns["AUTOTUNE"]),
        # The same pipeline is not run twice.
        "tuned_of_given": 1.0 if search.is_as_given else of_given,
        "is_as_given": search.is_as_given,
    }


def _predictions(pipelines: Mapping[str, tfpipe.Pipeline]) -> dict[str, Any]:
    """Returns predicted over measured rates, and why some cannot be predicted.

    Args:
        pipelines: The pipeline with AUTOTUNE, the profiled pipeline, and other tunings.
    """
    from tfpipe.tuner import race

    ratios: dict[str, list[float]] = {}
    doubts: dict[str, str] = {}
    for _ in range(_NUM_PREDICTIONS):
        profile = tfpipe.profile(pipelines["AUTOTUNE"], seconds=_PROFILE_SECONDS)
        for name, pipeline in pipelines.items():
            if doubt := profile.doubt(pipeline.tuning):
                doubts[name] = doubt
                continue
            alone = {name: pipeline.build(num_epochs=None)}
            turns = race.compare(alone, seconds=_ALONE_SECONDS, num_rounds=1)
            ratio = profile.predict(pipeline.tuning) / turns[name].rate
            ratios.setdefault(name, []).append(ratio)
    return {
        "predicted_of_measured": {
            name: statistics.median(mine) for name, mine in ratios.items()
        },
        "predictions_of_measured": ratios,
        "cannot_be_told": doubts,
    }


def missed(figures: Mapping[str, Any], seconds: float, limit: float) -> list[str]:
    """Returns the missed targets of a case, in words.

    Args:
        figures: The figures of the case.
        seconds: Seconds of the search.
        limit: Its time_limit.
    """
    misses = [
        f"{name} is {figures[name]:.3f}, must be >= {least}"
        for name, least in (("tuned_of_best", 0.95), ("tuned_of_given", 0.97))
        if figures[name] is not None and figures[name] < least
    ]
    misses += [
        f"predicted_of_measured[{name!r}] is {ratio:.3f}, must be from 0.85 to 1.15"
        for name, ratio in figures["predicted_of_measured"].items()
        if not 0.85 <= ratio <= 1.15
    ]
    if seconds > 1.1 * limit:
        misses.append(f"tune_seconds is {seconds:.1f}, must be <= {1.1 * limit:.1f}")
    return misses


def _variants(
    original: tfpipe.Pipeline, search: tfpipe.Search, best: Setting | None
) -> dict[str, tfpipe.Pipeline]:
    """Returns the pipelines that run in turns, by name."""
    from tfpipe.tuner import space

    without_tuning = space.opened(original)
    # A setting unknown to the profile, and no choice of the tuner.
    one_thread = dataclasses.replace(search.setting.tuning, private_threadpool_size=1)
    variants = {
        "AUTOTUNE": dataclasses.replace(without_tuning, tuning=search.autotuned.tuning),
        "tuned": search.pipeline,
        "best": best.of(without_tuning) if best else original,
        "one thread": dataclasses.replace(without_tuning, tuning=one_thread),
    }
    # The original setting may not run at all: a cache may be too large.
    if search.is_as_given or search.given_ratio is None:
        return variants
    return variants | {"as given": original}


def table(cases: dict[str, dict[str, Any]]) -> str:
    """Returns a table with a line for a pipeline, rates in batches per second."""
    names = ("as given", "AUTOTUNE", "tuned", "best")
    heads = [*names, "of best", "of AUTOTUNE", "seconds"]
    lines = [f"{'pipeline':24}" + "".join(f"{head:>13}" for head in heads)]
    for name, case in cases.items():
        rates = [case["elements_per_second"].get(variant) for variant in names]
        cells = ["-" if rate is None else f"{rate:.1f}" for rate in rates]
        ratios = (case["tuned_of_best"], case["tuned_of_autotune"])
        cells += [f"{ratio:.2f}" for ratio in ratios]
        cells.append(f"{case['tune_seconds']:.0f}")
        lines.append(f"{name:24}" + "".join(f"{cell:>13}" for cell in cells))
    return "\n".join(lines)


def run(options: Options) -> dict[str, dict[str, Any]]:
    """Measures the pipelines of --cases; returns name -> figures."""
    results = {}
    for name in options.cases:
        with tempfile.TemporaryDirectory() as cache_dir:
            case = CASES[name](options.data_dir, cache_dir)
            results[name] = measure(case, options)
        print(json.dumps({name: results[name]}), file=sys.stderr, flush=True)
    return results


def _study(options: Options) -> harness.Outcome:
    cases = run(options)
    return harness.Outcome(
        figures={"cases": cases},
        table=table(cases),
        misses=[f"{n}: {miss}" for n, case in cases.items() for miss in case["missed"]],
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.tuning", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
