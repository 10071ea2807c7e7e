"""The loops: train, evaluate and infer, their steps timed as wait against compute.

In: a `Setting` and the ranks. Out: the figures of the run. Wait is the time blocked on
the next batch; compute is from there until the step's result is on the host, so
averaging gradients and waiting for slower ranks belong to compute. An emulated
accelerator tells the time spent waiting for slower ranks apart.
"""

import dataclasses
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tqdm

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.distributed.watch import Beat, watched
from benchmarks.models import accelerators
from benchmarks.system import telemetry
from benchmarks.training import metrics, steps as steps_training
from benchmarks.training.checkpoint import Checkpoint
from benchmarks.training.metrics import Step, Trace
from benchmarks.training.setting import Setting
from benchmarks.training.steps import Batch, StepFunction


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Run:
    """What came of the steps of a run.

    Attributes:
        traces: What each rank measured.
        state: How far the data was read.
        figures: Those that every mode gives.
    """

    traces: Sequence[Trace]
    state: tfpipe.State
    figures: dict[str, Any]


def train(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Trains, from the newest checkpoint if there is one, and times the steps.

    Raises:
        ValueError: If a checkpoint does not fit, or no step is left to time.
    """
    if setting.config.is_emulated:
        return _emulate(setting, ranks)
    model = steps_training.build_model(setting)
    optimizer = steps_training.make_optimizer(model, setting, ranks)
    training = Training(model=model, optimizer=optimizer)
    checkpoint = training.checkpoint(setting, ranks)
    state = checkpoint.restore() or tfpipe.State()
    return train_from(training, checkpoint, setting, ranks, state)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """What is trained, and saved."""

    model: keras.Model
    optimizer: keras.Optimizer

    @property
    def variables(self) -> list[tf.Variable]:
        """All that a step changes."""
        both = (*self.model.variables, *self.optimizer.variables)
        return [variable.value for variable in both]

    def checkpoint(self, setting: Setting, ranks: Ranks) -> Checkpoint:
        """Where it is saved."""
        trackables = {"model": self.model, "optimizer": self.optimizer}
        folder = setting.config.checkpoint_dir
        return Checkpoint(folder, trackables, self.variables, ranks)


def train_from(
    training: Training,
    checkpoint: Checkpoint,
    setting: Setting,
    ranks: Ranks,
    state: tfpipe.State,
    *,
    after_step: Callable[[Step, tfpipe.State], None] | None = None,
) -> dict[str, Any]:
    """Trains from a state on, which is that of the model, and times the steps.

    Args:
        training: The model and its optimizer.
        checkpoint: Where they are saved.
        setting: Of this rank.
        ranks: All ranks.
        state: How far the data was read.
        after_step: Called on every rank with each step and the state after it.

    Raises:
        ValueError: If no step is left to time.
    """

    def end_epoch(state: tfpipe.State) -> None:
        checkpoint.save(state)
        _report_faults(setting)

    model = training.model
    function = steps_training.make_train_step(model, training.optimizer, setting, ranks)
    num_steps = setting.num_steps(state)
    done = _run(
        setting,
        ranks,
        function,
        num_steps,
        state,
        end_epoch=end_epoch,
        after_step=after_step,
    )
    if done.state.step:
        checkpoint.save(done.state)
    return {
        **done.figures,
        **metrics.learning(done.traces),
        "num_parameters": model.count_params(),
    }


def evaluate(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Accuracy and loss of the newest checkpoint, every record of the split once.

    Raises:
        ValueError: If there is no checkpoint.
    """
    model = steps_training.build_model(setting)
    trained = _restore(model, setting, ranks)
    function = steps_training.make_eval_step(model, setting)
    num_steps = setting.steps_per_epoch
    # The first step compiles and fills the pipeline; it counts, but is not timed.
    num_warmup = min(1, num_steps - 1)
    steps = (num_warmup, num_steps - num_warmup)
    done = _run(setting, ranks, function, steps, tfpipe.State(), num_epochs=1)
    result = metrics.learning(done.traces)
    _report_faults(setting)
    return {
        **done.figures,
        "loss": result["epochs"][-1]["loss"],
        "accuracy": result["accuracy"],
        "num_evaluated": result["epochs"][-1]["num_examples"],
        "epochs_trained": trained.epoch,
        "num_parameters": model.count_params(),
    }


def infer(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Predicts the classes of a split again and again and times the steps.

    With the weights of the newest checkpoint if a folder is given, else with new ones:
    they do not matter to the time. A step that reaches the end of the split is padded,
    and only its real examples count.

    Raises:
        ValueError: If there is no checkpoint in the folder, or no step to time.
    """
    if setting.config.is_emulated:
        return _emulate(setting, ranks)
    model = steps_training.build_model(setting)
    if setting.config.checkpoint_dir is not None:
        _restore(model, setting, ranks)
    function = steps_training.make_infer_step(model, setting)
    state = tfpipe.State()
    done = _run(setting, ranks, function, setting.num_steps(state), state)
    return {**done.figures, "num_parameters": model.count_params()}


def _emulate(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Feeds an accelerator that is not there; learns nothing."""
    config = setting.config
    if config.emulate is not None:
        seconds = accelerators.step_seconds(
            config.emulate, config.model, config.mode, config.batch_size
        )
    else:
        seconds = config.step_time_ms / 1e3
    function = steps_training.make_emulated_step(setting, ranks, seconds)
    state = tfpipe.State()
    done = _run(setting, ranks, function, setting.num_steps(state), state)
    return {**done.figures, "emulated_seconds_per_step": seconds}


def _restore(model: keras.Model, setting: Setting, ranks: Ranks) -> tfpipe.State:
    """Gives the model the weights of the newest checkpoint; how far it was trained."""
    variables = [variable.value for variable in model.variables]
    folder = setting.config.checkpoint_dir
    state = Checkpoint(folder, {"model": model}, variables, ranks).restore()
    if state is None:
        raise ValueError(
            f"--checkpoint_dir {folder} must hold a checkpoint to "
            f"{'evaluate' if setting.config.mode == 'eval' else 'infer with'}, got "
            "none. Train with the same --checkpoint_dir first."
        )
    return state


def _report_faults(setting: Setting) -> None:
    """Says on stderr, at the end of an epoch, which records were skipped so far."""
    log = setting.pipeline.faults
    if log is not None and log.faults:
        print(log.summary(), file=sys.stderr)


def _faults(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """The damaged records that all ranks met, each once."""
    log = setting.pipeline.faults
    met = ranks.gather([] if log is None else log.faults)
    found = {(fault.shard, fault.byte_offset): fault for rank in met for fault in rank}
    return {"faults": [dataclasses.asdict(found[place]) for place in sorted(found)]}


def _run(
    setting: Setting,
    ranks: Ranks,
    function: StepFunction,
    num_steps: tuple[int, int],
    state: tfpipe.State,
    *,
    num_epochs: int | None = None,
    end_epoch: Callable[[tfpipe.State], None] | None = None,
    after_step: Callable[[Step, tfpipe.State], None] | None = None,
) -> _Run:
    """RecordRanges warm-up and timed steps from a state on, on all ranks."""
    tfpipe.preflight(setting.pipeline, ranks.gather, state=state)
    source = setting.pipeline.source
    num_warmup, num_timed = num_steps
    started = time.perf_counter()
    dataset = setting.pipeline.build(state=state, num_epochs=num_epochs)
    dataset = steps_training.to_device(dataset)
    first_batch_seconds = time.perf_counter() - started
    recorder = metrics.Recorder(setting.num_records)
    config = setting.config
    sampler = telemetry.Sampler(config.data_dir)
    watch = watched(ranks, config.rank_timeout, is_elastic=config.elastic)
    with sampler, watch as beat:
        steps = _steps(setting, dataset, function, num_warmup + num_timed, ranks, beat)
        for number, step in enumerate(steps):
            if number == 0:
                first_batch_seconds += step.wait_seconds
            recorder.add(step, state.epoch)
            state = source.advance(state)
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
        traces = ranks.gather(recorder.trace())
    sampled = ranks.gather((sampler.figures(), ranks.local_rank))
    figures = {
        **metrics.summarize(traces, record_bytes=_record_bytes(setting)),
        **_faults(setting, ranks),
        "time_to_first_batch_seconds": max(ranks.gather(first_batch_seconds)),
        "num_warmup_steps": num_warmup,
        "telemetry": telemetry.summarize(*zip(*sampled, strict=True)),
    }
    return _Run(traces=traces, state=state, figures=figures)


def _record_bytes(setting: Setting) -> float | None:
    """Mean size of a record of the split in its shard; None if it is synthetic."""
    if setting.config.synthetic:
        return None
    source = setting.pipeline.source
    shards = source.index.splits[source.split]
    return sum(shard.num_bytes for shard in shards) / setting.num_records


def _steps(
    setting: Setting,
    dataset: tf.data.Dataset,
    function: StepFunction,
    num_steps: int,
    ranks: Ranks,
    beat: Beat,
) -> Iterator[Step]:
    """RecordRanges the steps, yields each when it is done, and shows progress on rank 0."""
    timer = tfpipe.StepTimer(setting.pipeline.source.batch_size)
    num_done = 0
    disable = None if ranks.is_first else True  # None: only on a terminal
    with tqdm.tqdm(
        total=num_steps, unit="step", file=sys.stderr, disable=disable
    ) as bar:
        for batch in itertools.islice(timer.batches(dataset), num_steps):
            beat.fed()
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


def _record_ids(batch: Batch) -> npt.NDArray[np.int64]:
    """Which records a batch held, without padding; none if it is synthetic."""
    if "record_id" not in batch:
        return np.empty(0, np.int64)
    ids: npt.NDArray[np.int64] = batch["record_id"].numpy()
    return ids[batch["mask"].numpy() > 0] if "mask" in batch else ids
