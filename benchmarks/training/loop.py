"""The modes of a run: train, evaluate and infer, or feed an emulated accelerator.

In: a `Setting` and the ranks. Out: the figures of the run. A function builds the model,
restores its weights, makes the step function and hands the function to
`timed_steps.run_steps`, which reads the batches and times the steps.
"""

import contextlib
import dataclasses
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.distributed.stopping import StoppedError
from benchmarks.options.config import Config
from benchmarks.page_cache.reads import Pause
from benchmarks.training import metrics, steps
from benchmarks.training.recorder import Step, Trace
from benchmarks.training.setting import Setting
from benchmarks.training.steps import Batch, StepFunction, StepResult
from benchmarks.training.timed_steps import TimedSteps, run_steps

_CHECKPOINTS_KEPT = 2


class Checkpoint:
    """Checkpoints that rank 0 writes and reads; the other ranks get rank 0's values.

    The folder need not be visible to the hosts of other ranks.

    Attributes:
        error: The last error of a save; None without errors.

    Args:
        folder: Folder of the checkpoints; None to save and load nothing.
        variables: All variables of these objects, for the broadcast to other ranks.
    """

    def __init__(
        self,
        folder: str | None,
        trackables: Mapping[str, Any],
        variables: Sequence[tf.Variable],
        ranks: Ranks,
    ) -> None:
        self.error: str | None = None
        self._ranks = ranks
        self._data = tfpipe.CheckpointState()
        self._variables = variables
        checkpoint = tf.train.Checkpoint(**trackables, data=self._data)
        self._checkpoint = checkpoint
        self._manager = None
        if folder and ranks.is_first:
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
            self._manager = tf.train.CheckpointManager(
                checkpoint, folder, max_to_keep=_CHECKPOINTS_KEPT
            )

    def restore(self) -> tfpipe.State | None:
        """Loads the newest checkpoint, if there is one.

        All ranks call it together. Every rank then has rank 0's values, also if there
        is no checkpoint: new weights are random.

        Returns:
            How far the data was read when it was saved; None if there is none.
        """
        path = self._manager.latest_checkpoint if self._manager else None
        if path:
            self._checkpoint.restore(path).expect_partial()
        self._ranks.broadcast(self._variables)
        state: tfpipe.State | None = self._ranks.gather(
            self._data.state if path else None
        )[0]
        return state

    def save(self, state: tfpipe.State) -> None:
        """Writes a checkpoint on rank 0, if there is a folder.

        A failed save, as on a full disk, is an error on stderr and in `error`. The run
        goes on, because its figures do not depend on the checkpoint.
        """
        if self._manager:
            self._data.state = state
            # The number follows the newest number in the folder, so that a resumed run
            # never overwrites a checkpoint of an earlier run.
            newest = self._manager.latest_checkpoint or "-0"
            version = int(newest.rpartition("-")[2]) + 1
            try:
                self._manager.save(checkpoint_number=version)
            except (OSError, tf.errors.OpError) as error:
                self.error = (
                    f"--checkpoint_dir={self._manager.directory} must hold checkpoint "
                    f"{version}, which could not be written: {error}"
                )
                print(f"Error: {self.error}", file=sys.stderr, flush=True)


def train(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Trains, from the newest checkpoint if possible, and times the steps."""
    if setting.config.is_emulated:
        return _emulate(setting, ranks)
    model = steps.build_model(setting)
    optimizer = steps.make_optimizer(model, setting, ranks)
    training = Training(model=model, optimizer=optimizer)
    checkpoint = training.checkpoint(setting, ranks)
    state = checkpoint.restore() or tfpipe.State()
    return train_from(training, checkpoint, setting, ranks, state)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """A model in training, with its optimizer."""

    model: keras.Model
    optimizer: keras.Optimizer

    @property
    def variables(self) -> list[tf.Variable]:
        """All variables that a training step changes."""
        both = (*self.model.variables, *self.optimizer.variables)
        return [variable.value for variable in both]

    def checkpoint(self, setting: Setting, ranks: Ranks) -> Checkpoint:
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
    after_step: Callable[[Step, tfpipe.State], None] = lambda *_: None,
) -> dict[str, Any]:
    """Trains from a place in the data on, and times the steps.

    Args:
        after_step: Called on every rank with the step and the state after every step.

    Raises:
        StoppedError: If SIGTERM ended the training; both are saved then.
    """

    def end_epoch(state: tfpipe.State, pause: Pause) -> None:
        # A pause is not timed but the input reads on: only a checkpoint needs a pause.
        if setting.config.checkpoint_dir is not None:
            with pause():
                checkpoint.save(state)
                ranks.gather(None)  # until rank 0 has saved
        _report_faults(setting)

    model = training.model
    function = steps.make_train_step(model, training.optimizer, setting, ranks)
    try:
        done = _run_steps(
            setting,
            ranks,
            function,
            setting.num_steps(state),
            state,
            end_epoch=end_epoch,
            after_step=after_step,
        )
    except StoppedError as stopped:
        if stopped.state.step:  # the end of an epoch has saved already
            checkpoint.save(stopped.state)
        raise StoppedError(stopped.state, checkpoint.error) from None
    not_finite = metrics.not_finite_loss(done.traces)
    # A run that ends with an epoch has saved already. A lost model must not replace the
    # last sound model.
    if done.state.step and not_finite is None:
        checkpoint.save(done.state)
    return {
        **done.figures,
        **metrics.learning(done.traces),
        "not_finite_loss": not_finite,
        "resumed": state.epoch > 0 or state.step > 0,
        "num_parameters": model.count_params(),
        **({"checkpoint_error": checkpoint.error} if checkpoint.error else {}),
    }


def evaluate(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Returns accuracy and loss of the newest checkpoint, every record counted once."""
    model = steps.build_model(setting)
    trained = _restore(model, setting, ranks)
    function = steps.make_eval_step(model, setting)
    num_steps = setting.steps_per_epoch
    start = tfpipe.State()
    # The first step compiles and fills the pipeline: its accuracy counts, its time not.
    num_warmup = max(setting.num_warmup_steps(start, num_steps), min(1, num_steps - 1))
    warmup_and_timed = (num_warmup, num_steps - num_warmup)
    done = _run_steps(setting, ranks, function, warmup_and_timed, start, num_epochs=1)
    result = metrics.learning(done.traces)
    _report_faults(setting)
    return {
        **done.figures,
        "padding_fraction": _padding(setting, done.traces),
        "loss": result["epochs"][-1]["loss"],
        "accuracy": result["accuracy"],
        "num_evaluated": result["epochs"][-1]["num_examples"],
        "epochs_trained": trained.epoch,
        "num_parameters": model.count_params(),
    }


def infer(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Predicts the classes of a split again and again and times the steps.

    The weights come from the newest checkpoint with --checkpoint_dir, else the weights
    are new: weights do not change the time. A step that reaches the end of the split
    is padded, and only its real examples count.
    """
    if setting.config.is_emulated:
        return _emulate(setting, ranks)
    model = steps.build_model(setting)
    if setting.config.checkpoint_dir is not None:
        _restore(model, setting, ranks)
    function = steps.make_infer_step(model, setting)
    start = tfpipe.State()
    done = _run_steps(setting, ranks, function, setting.num_steps(start), start)
    return {
        **done.figures,
        "padding_fraction": _padding(setting, done.traces),
        "num_parameters": model.count_params(),
    }


def _run_steps(
    setting: Setting,
    ranks: Ranks,
    function: steps.StepFunction,
    num_steps: tuple[int, int],
    state: tfpipe.State,
    **others: Any,
) -> TimedSteps:
    """Does the same as `run_steps`, with a trace of the steps of --trace_steps."""
    with traced(function, setting.config, ranks, sum(num_steps)) as step:
        return run_steps(setting, ranks, step, num_steps, state, **others)


def _emulate(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    seconds = setting.emulated_seconds or 0.0
    function = steps.make_emulated_step(setting, ranks, seconds)
    start = tfpipe.State()
    done = _run_steps(setting, ranks, function, setting.num_steps(start), start)
    figures = {**done.figures, "emulated_seconds_per_step": seconds}
    if setting.config.mode == "infer":
        figures["padding_fraction"] = _padding(setting, done.traces)
    return figures


def _padding(setting: Setting, traces: Sequence[Trace]) -> float:
    num_steps = sum(len(trace.wait_seconds) for trace in traces)
    num_examples = sum(trace.num_examples for trace in traces)
    return 1 - num_examples / (num_steps * setting.batch_size)


def _restore(model: keras.Model, setting: Setting, ranks: Ranks) -> tfpipe.State:
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
    log = setting.pipeline.faults
    if log is not None and log.faults:
        print(log.summary(), file=sys.stderr)


FOLDER = "trace"


@contextlib.contextmanager
def traced(
    function: StepFunction, config: Config, ranks: Ranks, num_steps: int
) -> Iterator[StepFunction]:
    """Yields the step function that traces the steps of the config.

    Args:
        num_steps: Steps of the run, the warm-up included.
    """
    chosen = config.traced_steps
    if chosen is None:
        yield function
        return
    if chosen.stop > num_steps:
        raise ValueError(
            f"--trace_steps={config.trace_steps} must end within the {num_steps} steps "
            "of the run, the warm-up included. Choose earlier steps."
        )
    if not ranks.is_first:
        yield function
        return
    with contextlib.ExitStack() as profiling:
        yield _counting(function, chosen, profiling, str(config.report_dir))


def _counting(
    function: StepFunction,
    chosen: range,
    profiling: contextlib.ExitStack,
    report_dir: str,
) -> Callable[[Batch], StepResult]:
    """Returns the function that begins and ends the trace; `profiling` ends it too."""
    index = -1

    def step(batch: Batch) -> StepResult:
        nonlocal index
        index += 1
        if index == chosen.start:
            folder = pathlib.Path(report_dir) / FOLDER
            profiling.enter_context(tf.profiler.experimental.Profile(str(folder)))
        if index not in chosen:
            return function(batch)
        with tf.profiler.experimental.Trace("step", step_num=index, _r=1):
            result = function(batch)
        if index == chosen[-1]:
            profiling.close()
        return result

    return step
