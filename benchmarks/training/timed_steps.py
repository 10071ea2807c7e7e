"""The loop itself: batches go through a step function, each step timed.

In: a `Setting`, a step function and how many steps to run. Out: what every rank
measured, and the figures that all modes share. A step has two parts: wait is the time
blocked on the next batch; compute lasts from there until the result is on the host, so
averaging gradients and waiting for slower ranks belong to compute. An emulated
accelerator reports the time spent waiting for slower ranks by itself.
"""

import dataclasses
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tqdm

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.reporting.progress import Progress
from benchmarks.system import telemetry
from benchmarks.training import metrics, steps
from benchmarks.training.recorder import Recorder, Step, Trace
from benchmarks.training.setting import Setting
from benchmarks.training.steps import Batch, StepFunction


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of all steps of a run.

    Attributes:
        traces: The measurements of each rank, in the order of ranks.
        state: How far the data was read.
        figures: The figures that every mode reports.
    """

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
    end_epoch: Callable[[tfpipe.State], None] | None = None,
    after_step: Callable[[Step, tfpipe.State], None] | None = None,
) -> Outcome:
    """Runs warm-up and timed steps, on all ranks together.

    Args:
        setting: The setting of this rank.
        ranks: All ranks.
        function: Takes a batch and returns when the device is done.
        num_steps: Number of warm-up steps and of timed steps.
        state: Where in the data to start.
        num_epochs: Epochs after which the data ends; None to repeat it.
        end_epoch: Called with the state after each epoch; its time is not counted.
        after_step: Called on every rank with each step and the state after it.

    Raises:
        TfpipeError: If the ranks were not given the same run.
        RuntimeError: If the data ends before the last step.
    """
    tfpipe.preflight(setting.pipeline, ranks.gather, state=state)
    num_warmup, num_timed = num_steps
    started = time.perf_counter()
    dataset = setting.pipeline.build(state=state, num_epochs=num_epochs)
    dataset = steps.to_device(dataset)
    first_batch_seconds = time.perf_counter() - started
    recorder = Recorder(setting.num_records)
    config = setting.config
    sampler = telemetry.Sampler(config.data_dir)
    with sampler, setting.beat.loop():
        done = _steps(setting, dataset, function, num_warmup + num_timed, ranks)
        for number, step in enumerate(done):
            _tell(setting.progress, step, number + 1, num_steps)
            if number == 0:
                first_batch_seconds += step.wait_seconds
            recorder.add(step, state.epoch)
            state = setting.pipeline.source.advance(state)
            if after_step is not None:
                after_step(step, state)
            if state.step == 0 and end_epoch is not None:
                with recorder.untimed():
                    end_epoch(state)
                    ranks.gather(None)  # until rank 0 has saved
            if number + 1 == num_warmup:
                ranks.gather(None)  # a barrier: all ranks start together
                recorder.start_timing()
                sampler.start_timing()
        setting.progress.begin("joining the figures of all ranks")
        traces = ranks.gather(recorder.trace())
    sampled = ranks.gather((sampler.figures(), ranks.local_rank))
    figures = {
        **metrics.summarize(traces, record_bytes=_record_bytes(setting)),
        **_faults(setting, ranks),
        "time_to_first_batch_seconds": max(ranks.gather(first_batch_seconds)),
        "num_warmup_steps": num_warmup,
        "telemetry": telemetry.summarize(*zip(*sampled, strict=True)),
    }
    return Outcome(traces=traces, state=state, figures=figures)


def _steps(
    setting: Setting,
    dataset: tf.data.Dataset,
    function: StepFunction,
    num_steps: int,
    ranks: Ranks,
) -> Iterator[Step]:
    """Yields each step when it is done, and shows a progress bar on rank 0."""
    timer = tfpipe.StepTimer(setting.pipeline.source.batch_size)
    beat, progress = setting.beat, setting.progress
    progress.begin("filling the pipeline")
    num_done = 0
    disable = None if ranks.is_first else True  # None: only on a terminal
    with tqdm.tqdm(
        total=num_steps, unit="step", file=sys.stderr, disable=disable
    ) as bar:
        for batch in itertools.islice(timer.batches(dataset), num_steps):
            beat.fed()
            if num_done == 0:
                progress.begin("compiling the step")
            outcome = function(batch)
            wait_seconds, seconds = timer.end_step()
            yield Step(
                wait_seconds=wait_seconds,
                compute_seconds=seconds - outcome.sync_seconds,
                sync_seconds=outcome.sync_seconds,
                loss=outcome.loss,
                num_correct=outcome.num_correct,
                num_examples=outcome.num_examples,
                record_ids=_record_ids(batch),
            )
            bar.update()
            if not math.isnan(outcome.loss):
                bar.set_postfix(loss=f"{outcome.loss:.3f}", refresh=False)
            num_done += 1
            beat(num_done)
    if num_done < num_steps:
        raise RuntimeError(f"The input ended after {num_done} of {num_steps} steps.")


def _tell(
    progress: Progress, step: Step, num_done: int, num_steps: tuple[int, int]
) -> None:
    """Reports a step, and the phase that begins after it, if one does."""
    num_warmup, num_timed = num_steps
    progress.step(step.num_examples, step.wait_seconds)
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


def _record_bytes(setting: Setting) -> float | None:
    """Returns the mean size of a record in its shard; None if data is synthetic."""
    if setting.config.synthetic:
        return None
    source = setting.pipeline.source
    shards = source.index.splits[source.split]
    return sum(shard.num_bytes for shard in shards) / setting.num_records


def _faults(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Returns the damaged records that any rank met, each once."""
    log = setting.pipeline.faults
    met = ranks.gather([] if log is None else log.faults)
    found = {(fault.shard, fault.byte_offset): fault for rank in met for fault in rank}
    return {"faults": [dataclasses.asdict(found[place]) for place in sorted(found)]}
