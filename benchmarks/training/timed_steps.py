"""The loop itself: batches go through a step function, each step timed.

In: a `Setting`, a step function and how many steps to run. Out: the measurements of
every rank, and the figures of all modes. critical_path.py explains the times of a step;
all times are of `time.perf_counter`, a clock without resets.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.distributed.watch import StoppedError
from benchmarks.options.config import Config
from benchmarks.page_cache import states
from benchmarks.page_cache.reads import Meter, Pause
from benchmarks.system import telemetry
from benchmarks.system.telemetry import Sampler
from benchmarks.training import metrics, steady_state
from benchmarks.training.caches import Batch, Batches
from benchmarks.training.critical_path import StepTimes
from benchmarks.training.recorder import Recorder, Step, StepResult, Trace
from benchmarks.training.setting import Setting, read_ahead
from benchmarks.training.steps import StepFunction
from tfpipe.cli import progress as bars

AfterStep = Callable[[Step, tfpipe.State, Pause], None]

_TRACE_FOLDER = "trace"
_REMEDIES = {"eval": "time the steps with --mode=infer and --num_steps"}


def run_steps(
    setting: Setting,
    ranks: Ranks,
    function: StepFunction,
    num_steps: tuple[int, int],
    state: tfpipe.State,
    *,
    num_epochs: int | None = None,
    after_step: AfterStep = lambda *_: None,
) -> tuple[dict[str, Any], Sequence[Trace], tfpipe.State]:
    """Runs warm-up and timed steps, on all ranks together.

    A run ends after a step with a loss that is not finite, unless the config allows
    such a loss; the figures are then the figures of the steps so far.

    Args:
        function: Takes a batch and returns when the device is done.
        num_steps: Number of warm-up steps and of timed steps.
        num_epochs: Epochs after which the data ends; None to repeat it.
        after_step: Called after each step with the state, and with a pause without
            timing; ranks must enter and leave the pause together.

    Returns:
        The figures, the measurements of every rank, and the state after the last step.

    Raises:
        StoppedError: On every rank, if SIGTERM came to any rank before its last step.
    """
    tfpipe.preflight(setting.pipeline, ranks.gather, state=state)
    (num_warmup, _), num_all = num_steps, sum(num_steps)
    is_decoded = not setting.config.read_only  # a GPU has no place for strings
    caches = setting.empty_caches
    batches = Batches(setting.pipeline, empty_caches=caches, on_device=is_decoded)
    meter = _meter(setting, ranks, batches, None if num_warmup else state)
    ahead = read_ahead(setting.pipeline, state)
    recorder = Recorder(setting.num_records, ahead, setting.emulated_seconds)
    look = functools.partial(states.resident_probe, setting.files, setting.num_bytes)
    sampler = Sampler(more={"resident": look} if setting.files else {})
    pause = functools.partial(_paused, recorder, sampler)
    tracing = traced(function, setting.config, ranks, num_all)
    with tracing as step_function, sampler, recorder.pulse, setting.beat.loop():
        started = time.perf_counter()
        batches.start(state, num_epochs)
        done = _steps(setting, state, batches, step_function, num_steps, ranks)
        for index, step in enumerate(done):
            if index == 0:
                first_batch_seconds = step.times.fed - started
            recorder.add(step, state.epoch)
            state = setting.source.advance(state)
            if state.step == 0:
                meter.end_epoch(state, pause, is_last=index + 1 == num_all)
            after_step(step, state, pause)
            if index + 1 == num_warmup:
                meter.start(state)
                ranks.gather(None)  # a barrier: all ranks start together
                sampler.start_timing()  # first: the call takes some milliseconds
                recorder.start_timing()
        meter.end()
        setting.progress.begin("joining the figures of all ranks")
        traces = ranks.gather(recorder.trace())
    if index < num_warmup:  # the last step was still a warm-up step
        raise ValueError((metrics.not_finite_loss(traces) or {})["text"])
    figures = _figures(setting, ranks, sampler, traces) | {
        "time_to_first_batch_seconds": max(ranks.gather(first_batch_seconds)),
        "epoch_reads": meter.finish(traces[ranks.rank].examples_of),
    }
    return figures, traces, state


@contextlib.contextmanager
def _paused(recorder: Recorder, sampler: Sampler) -> Iterator[None]:
    """Leaves the time of the block out of all figures; the input still reads ahead."""
    with recorder.untimed(), sampler.paused():
        yield


def _meter(
    setting: Setting, ranks: Ranks, batches: Batches, state: tfpipe.State | None
) -> Meter:
    return Meter(
        setting.files,
        ranks,
        fetched=batches.fetched,
        record_bytes=setting.record_bytes or 0.0,
        batches=batches if setting.config.cache == "cold" else None,
        state=state,
    )


def _figures(
    setting: Setting, ranks: Ranks, sampler: Sampler, traces: Sequence[Trace]
) -> dict[str, Any]:
    log = setting.pipeline.faults
    met = ranks.gather([] if log is None else log.faults)
    faults = {(fault.shard, fault.byte_offset): fault for rank in met for fault in rank}
    remedy = _REMEDIES.get(setting.config.mode, "")
    own, seconds = traces[ranks.rank], max(trace.seconds for trace in traces)
    edges = telemetry.make_edges(seconds, len(own.end_seconds))
    times = own.end_seconds, own.wait_seconds
    steps = telemetry.of_steps(edges, *times, own.num_examples)
    series = {**steps, **telemetry.of_samples(edges, sampler.samples)}
    gathered = ranks.gather((sampler.figures(), ranks.local_rank, series))
    sampled, local_ranks, by_rank = zip(*gathered, strict=True)
    figures = {
        **metrics.summarize(traces, record_bytes=setting.record_bytes, remedy=remedy),
        **{name: sampled[0][name] for name in ("started_at", "ended_at")},
        "telemetry": telemetry.summarize(sampled, local_ranks),
        "time_series": telemetry.join_series(edges, by_rank, local_ranks),
        "host_load": telemetry.host_load(sampled),
        "faults": [dataclasses.asdict(faults[key]) for key in sorted(faults)],
    }
    if setting.config.mode != "train":
        num_examples = sum(trace.num_examples for trace in traces)
        most = sum(len(trace.timed) for trace in traces) * setting.batch_size
        figures["padding_fraction"] = 1 - num_examples / most
    return figures


def _steps(
    setting: Setting,
    state: tfpipe.State,
    batches: Batches,
    function: StepFunction,
    num_steps: tuple[int, int],
    ranks: Ranks,
) -> Iterator[Step]:
    """Yields each finished step, and shows a progress bar on rank 0."""
    source, (num_warmup, num_timed), num_all = setting.source, num_steps, sum(num_steps)
    starts = source.window_starts(state)
    begun = steady_state.windows_begun(starts, source.batch_size)
    beat, progress = setting.beat, setting.progress
    progress.begin("filling the pipeline")
    with bars.bar(num_all, "step", is_shown=ranks.is_first) as bar:
        for num_done in range(1, num_all + 1):
            ready = time.perf_counter()
            batch = next(batches, None)
            fed = time.perf_counter()
            if batch is None:
                raise RuntimeError(
                    f"The input ended after {num_done - 1} of {num_all} steps."
                )
            beat.fed()
            if num_done == 1:
                progress.begin("compiling the step")
            result = function(batch)
            ended = time.perf_counter()
            progress.step(result.num_examples, fed - ready)
            if num_done == max(1, num_warmup):
                progress.begin("timed", num_timed)
            elif num_done == 1:
                progress.begin("warm-up", num_warmup)
            times = StepTimes(ready, fed, *(result.averaging or (ended, ended)), ended)
            yield Step(times, result, _record_ids(batch), next(begun))
            bar.update()
            if not math.isnan(result.loss):
                bar.set_postfix_str(f"loss {result.loss:.3f}", refresh=False)
            beat(num_done)
            if not (result.is_sound or setting.config.allow_nan):
                return
            if result.is_last and num_done < num_all:
                raise StoppedError(source.advance(state, num_done))


def _record_ids(batch: Batch) -> npt.NDArray[np.int64]:
    """Returns the ids of the records of a batch, without padding; none if synthetic."""
    if "record_id" not in batch:
        return np.empty(0, np.int64)
    ids: npt.NDArray[np.int64] = batch["record_id"].numpy()
    return ids[batch["mask"].numpy() > 0] if "mask" in batch else ids


@contextlib.contextmanager
def traced(
    function: StepFunction, config: Config, ranks: Ranks, num_steps: int
) -> Iterator[StepFunction]:
    """Yields the step function that traces the steps of the config on rank 0.

    `num_steps` counts the steps of the run, the warm-up included.
    """
    chosen = config.traced_steps or range(0)
    if chosen.stop > num_steps:
        raise ValueError(
            f"--trace_steps={config.trace_steps} must end within the {num_steps} steps "
            "of the run, the warm-up included. Choose earlier steps."
        )
    if not (chosen and ranks.is_first):
        yield function
        return
    indices = itertools.count()
    with contextlib.ExitStack() as profiling:

        def step(batch: Batch) -> StepResult:
            index = next(indices)
            if index not in chosen:
                return function(batch)
            if index == chosen.start:
                folder = pathlib.Path(str(config.report_dir), _TRACE_FOLDER)
                profiling.enter_context(tf.profiler.experimental.Profile(str(folder)))
            with tf.profiler.experimental.Trace("step", step_num=index, _r=1):
                result = function(batch)
            if index == chosen[-1]:
                profiling.close()
            return result

        yield step
