"""The loop itself: batches go through a step function, each step timed.

In: a `Setting`, a step function and how many steps to run. Out: the measurements of
every rank, and the figures of all modes. critical_path.py explains the times of a step;
all times are of `time.perf_counter`, a clock without resets.
"""

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.distributed.stopping import StoppedError
from benchmarks.page_cache.reads import Pause
from benchmarks.reporting import steady_state
from benchmarks.system import host_load, telemetry
from benchmarks.training import cache_state, metrics
from benchmarks.training.cache_state import Batches
from benchmarks.training.critical_path import StepTimes
from benchmarks.training.recorder import Recorder, Step, Trace
from benchmarks.training.setting import Setting
from benchmarks.training.steps import Batch, StepFunction
from tfpipe.cli import progress as bars
from tfpipe.cli.progress import Progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedSteps:
    """The measurements of every rank in the steps of a run."""

    traces: Sequence[Trace]
    state: tfpipe.State
    figures: dict[str, Any]


def run_steps(
    setting: Setting,
    ranks: Ranks,
    function: StepFunction,
    num_steps: tuple[int, int],
    state: tfpipe.State,
    *,
    num_epochs: int | None = None,
    end_epoch: Callable[[tfpipe.State, Pause], None] = lambda *_: None,
    after_step: Callable[[Step, tfpipe.State], None] = lambda *_: None,
) -> TimedSteps:
    """Runs warm-up and timed steps, on all ranks together.

    A run ends after a step with a loss that is not finite, unless the config allows
    such a loss; the figures are then the figures of the steps so far.

    Args:
        function: Takes a batch and returns when the device is done.
        num_steps: Number of warm-up steps and of timed steps.
        num_epochs: Epochs after which the data ends; None to repeat it.
        end_epoch: Called after each epoch with the state, and with a pause without
            timing; ranks must enter and leave the pause together.

    Raises:
        StoppedError: On every rank, if SIGTERM came to any rank before its last step.
    """
    tfpipe.preflight(setting.pipeline, ranks.gather, state=state)
    num_warmup, _ = num_steps
    batches = Batches(setting)
    meter = cache_state.meter(setting, ranks, batches, None if num_warmup else state)
    recorder = Recorder(
        setting.num_records, setting.read_ahead(state), setting.emulated_seconds
    )
    sampler = cache_state.sampler(setting)
    pause = functools.partial(_paused, recorder, sampler)
    with sampler, recorder.pulse, setting.beat.loop():
        started = time.perf_counter()
        batches.start(state, num_epochs)
        done = _steps(setting, state, batches, function, sum(num_steps), ranks)
        for index, step in enumerate(done):
            _tell(setting.progress, step, index + 1, num_steps)
            if index == 0:
                first_batch_seconds = step.times.fed - started
            recorder.add(step, state.epoch)
            state = setting.source.advance(state)
            after_step(step, state)
            if state.step == 0:
                meter.end_epoch(state, pause, is_last=index + 1 == sum(num_steps))
                end_epoch(state, pause)
            if index + 1 == num_warmup:
                meter.start(state)
                ranks.gather(None)  # a barrier: all ranks start together
                sampler.start_timing()  # first: the call takes some milliseconds
                recorder.start_timing()
        setting.progress.begin("joining the figures of all ranks")
        traces = ranks.gather(recorder.trace())
    if index < num_warmup:  # the last step was still a warm-up step
        raise ValueError((metrics.not_finite_loss(traces) or {})["text"])
    figures = {
        **metrics.summarize(traces, record_bytes=setting.record_bytes),
        **_faults(setting, ranks),
        **_over_time(ranks, sampler, traces),
        "time_to_first_batch_seconds": max(ranks.gather(first_batch_seconds)),
        "epoch_reads": meter.finish(traces[ranks.rank].examples_of),
    }
    return TimedSteps(traces=traces, state=state, figures=figures)


@contextlib.contextmanager
def _paused(recorder: Recorder, sampler: telemetry.Sampler) -> Iterator[None]:
    """Leaves the time of the block out of all figures; the input still reads ahead."""
    with recorder.untimed(), sampler.paused():
        yield


def _over_time(
    ranks: Ranks, sampler: telemetry.Sampler, traces: Sequence[Trace]
) -> dict[str, Any]:
    edges = telemetry.make_edges(
        max(trace.seconds for trace in traces), len(traces[0].end_seconds)
    )
    own = traces[ranks.rank]
    steps = telemetry.of_steps(
        edges,
        end_seconds=own.end_seconds,
        wait_seconds=own.wait_seconds,
        num_examples=own.num_examples,
    )
    series = {**steps, **telemetry.of_samples(edges, sampler.samples())}
    gathered = ranks.gather((sampler.figures(), ranks.local_rank, series))
    sampled, local_ranks, by_rank = zip(*gathered, strict=True)
    return {
        **{name: sampled[0][name] for name in ("started_at", "ended_at")},
        "telemetry": telemetry.summarize(sampled, local_ranks),
        "time_series": telemetry.join_series(edges, by_rank, local_ranks),
        "host_load": host_load.summarize(sampled),
    }


def _steps(
    setting: Setting,
    state: tfpipe.State,
    batches: Batches,
    function: StepFunction,
    num_steps: int,
    ranks: Ranks,
) -> Iterator[Step]:
    """Yields each finished step, and shows a progress bar on rank 0."""
    source = setting.source
    starts = source.window_starts(state)
    begun = steady_state.windows_begun(starts, source.batch_size)
    beat, progress = setting.beat, setting.progress
    progress.begin("filling the pipeline")
    num_done = 0
    with bars.bar(num_steps, "step", is_shown=ranks.is_first) as bar:
        while num_done < num_steps:
            ready = time.perf_counter()
            batch = next(batches, None)
            fed = time.perf_counter()
            if batch is None:
                break
            beat.fed()
            if num_done == 0:
                progress.begin("compiling the step")
            outcome = function(batch)
            ended = time.perf_counter()
            averaging = outcome.averaging or (ended, ended)
            yield Step(
                times=StepTimes(ready, fed, *averaging, ended),
                loss=outcome.loss,
                num_correct=outcome.num_correct,
                num_examples=outcome.num_examples,
                record_ids=_record_ids(batch),
                windows_begun=next(begun),
            )
            bar.update()
            if not math.isnan(outcome.loss):
                bar.set_postfix_str(f"loss {outcome.loss:.3f}", refresh=False)
            num_done += 1
            beat(num_done)
            if not (outcome.is_sound or setting.config.allow_nan):
                return
            if outcome.is_last and num_done < num_steps:
                raise StoppedError(source.advance(state, num_done))
    if num_done < num_steps:
        raise RuntimeError(f"The input ended after {num_done} of {num_steps} steps.")


def _tell(
    progress: Progress, step: Step, num_done: int, num_steps: tuple[int, int]
) -> None:
    num_warmup, num_timed = num_steps
    progress.step(step.num_examples, step.times.fed - step.times.ready)
    if num_done == max(1, num_warmup):
        progress.begin("timed", num_timed)
    elif num_done == 1:
        progress.begin("warm-up", num_warmup)


def _record_ids(batch: Batch) -> npt.NDArray[np.int64]:
    """Returns the ids of the records of a batch, without padding.

    Synthetic batches have no records: the array is empty.
    """
    if "record_id" not in batch:
        return np.empty(0, np.int64)
    ids: npt.NDArray[np.int64] = batch["record_id"].numpy()
    return ids[batch["mask"].numpy() > 0] if "mask" in batch else ids


def _faults(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    log = setting.pipeline.faults
    met = ranks.gather([] if log is None else log.faults)
    faults = {(fault.shard, fault.byte_offset): fault for rank in met for fault in rank}
    return {"faults": [dataclasses.asdict(faults[key]) for key in sorted(faults)]}
