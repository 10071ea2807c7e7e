"""The modes of a run: train, evaluate and infer, or feed an emulated accelerator.

In: a `Setting` and the ranks. Out: the figures of the run. A function builds the model,
restores its weights, makes the step function and hands the function to
`timed_steps.run_steps`, which reads the batches and times the steps.

In an elastic training a rank that dies leaves the run, and the others continue. Every
few steps the ranks commit: weights, place in the data and the counts of used records
are then the same on all of them. After a death the other ranks return to the commit,
and share the rest of the epoch anew. Every record is still used once an epoch.
"""

import pathlib
import sys
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Committed, Ranks, run_elastic
from benchmarks.distributed.watch import StoppedError, watched
from benchmarks.page_cache.reads import Pause
from benchmarks.training import metrics, steps
from benchmarks.training.recorder import Step
from benchmarks.training.setting import Setting, make_setting
from benchmarks.training.timed_steps import AfterStep, run_steps

_CHECKPOINTS_KEPT = 2
# A commit copies the weights and gathers the ids of the records used since the last
# one; a death costs at most this many steps.
_STEPS_BETWEEN_COMMITS = 10


class Checkpoint:
    """Checkpoints that rank 0 writes and reads; the other ranks get rank 0's values.

    The folder need not be visible to the hosts of other ranks.

    Attributes:
        error: The last error of a save; None without errors.
        variables: All variables of the model, and of the optimizer of a training.
    """

    def __init__(
        self,
        setting: Setting,
        ranks: Ranks,
        model: keras.Model,
        optimizer: keras.Optimizer | None = None,
    ) -> None:
        self.error: str | None = None
        self.model, self.optimizer = model, optimizer
        trackables = {"model": model, **({"optimizer": optimizer} if optimizer else {})}
        self.variables: list[tf.Variable] = [
            each.value
            for trackable in trackables.values()
            for each in trackable.variables
        ]
        self._ranks, self._data = ranks, tfpipe.CheckpointState()
        self._checkpoint = tf.train.Checkpoint(**trackables, data=self._data)
        self._manager = None
        folder = setting.config.checkpoint_dir
        if folder and ranks.is_first:
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
            self._manager = tf.train.CheckpointManager(
                self._checkpoint, folder, max_to_keep=_CHECKPOINTS_KEPT
            )

    def restore(self) -> tfpipe.State | None:
        """Loads the newest checkpoint; returns how far the data was read, or None.

        All ranks call it together. Every rank then has rank 0's values, also if there
        is no checkpoint: new weights are random.
        """
        path = self._manager.latest_checkpoint if self._manager else None
        if path:
            self._checkpoint.restore(path).expect_partial()
        self._ranks.broadcast(self.variables)
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
    checkpoint = _new_training(setting, ranks)
    state = checkpoint.restore() or tfpipe.State()
    return _train_from(checkpoint, setting, ranks, state)


def _new_training(setting: Setting, ranks: Ranks) -> Checkpoint:
    model = steps.build_model(setting)
    optimizer = steps.make_optimizer(model, setting, ranks)
    return Checkpoint(setting, ranks, model, optimizer)


def train_elastic(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Trains the epochs that the config asks for, on the ranks that are left.

    The learning rate stays as it was set for the first number of ranks. The figures
    are for the time since the last change of ranks.
    """
    config = setting.config
    first = _new_training(setting, ranks)
    start = first.restore() or tfpipe.State()

    def work(world: Ranks, committed: Committed) -> dict[str, Any]:
        # Each change of ranks needs a new watch.
        with watched(world, config.rank_timeout, is_elastic=True) as beat:
            here = make_setting(config, world, beat=beat, progress=setting.progress)
            figures = _train_from(
                Checkpoint(here, world, first.model, first.optimizer),
                here,
                world,
                tfpipe.State.from_json(committed.data_state),
                after_step=_committer(committed, world),
            )
        return figures | {
            "records": metrics.coverage([committed.counts]),
            "num_ranks_at_start": ranks.num_ranks,
        }

    return run_elastic(
        first.variables,
        work,
        data_state=start.to_json(),
        counts=np.zeros(setting.num_records, np.int64),
    )


def _committer(committed: Committed, ranks: Ranks) -> AfterStep:
    """Returns a function that commits after some steps, and at the end of an epoch."""
    used: list[npt.NDArray[np.int64]] = []

    def after_step(step: Step, state: tfpipe.State, _: Pause) -> None:
        used.append(step.record_ids)
        if len(used) < _STEPS_BETWEEN_COMMITS and state.step:
            return
        # A copy, because the run returns to the array of the last commit after a loss.
        counts = committed.counts.copy()
        np.add.at(counts, np.concatenate(ranks.gather(np.concatenate(used))), 1)
        committed.counts = counts
        committed.data_state = state.to_json()
        used.clear()
        committed.commit()

    return after_step


def _train_from(
    checkpoint: Checkpoint,
    setting: Setting,
    ranks: Ranks,
    state: tfpipe.State,
    *,
    after_step: AfterStep = lambda *_: None,
) -> dict[str, Any]:
    """Trains from a place in the data on, and times the steps.

    If SIGTERM ends the training, both are saved, and a StoppedError is raised.
    """

    def save(step: Step, state: tfpipe.State, pause: Pause) -> None:
        after_step(step, state, pause)
        if state.step:
            return
        # A pause is not timed but the input reads on: only a checkpoint needs a pause.
        if setting.config.checkpoint_dir is not None:
            with pause():
                checkpoint.save(state)
                ranks.gather(None)  # until rank 0 has saved
        _report_faults(setting)

    model, optimizer = checkpoint.model, checkpoint.optimizer
    function = steps.make_train_step(model, optimizer, setting, ranks)
    try:
        figures, traces, end = run_steps(
            setting, ranks, function, setting.num_steps(state), state, after_step=save
        )
    except StoppedError as stopped:
        if stopped.state.step:  # the end of an epoch has saved already
            checkpoint.save(stopped.state)
        raise StoppedError(stopped.state, checkpoint.error) from None
    not_finite = metrics.not_finite_loss(traces)
    # A run that ends with an epoch has saved already. A lost model must not replace the
    # last sound model.
    if end.step and not_finite is None:
        checkpoint.save(end)
    return {
        **figures,
        **metrics.learning(traces),
        "not_finite_loss": not_finite,
        "resumed": state.epoch > 0 or state.step > 0,
        "num_parameters": model.count_params(),
        **({"checkpoint_error": checkpoint.error} if checkpoint.error else {}),
    }


def evaluate(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Returns accuracy and loss of the newest checkpoint, every record counted once."""
    model, trained = _restored(setting, ranks)
    function = steps.make_eval_step(model, setting)
    num_steps, start = setting.source.steps_per_epoch, tfpipe.State()
    # The first step compiles and fills the pipeline: its accuracy counts, its time not.
    num_warmup = max(setting.num_warmup_steps(start, num_steps), min(1, num_steps - 1))
    warmup_and_timed = (num_warmup, num_steps - num_warmup)
    figures, traces, _ = run_steps(
        setting, ranks, function, warmup_and_timed, start, num_epochs=1
    )
    (result,) = metrics.learning(traces)["epochs"]
    _report_faults(setting)
    return {
        **figures,
        "loss": result["loss"],
        "accuracy": result["accuracy"],
        "num_evaluated": result["num_examples"],
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
    has_weights = setting.config.checkpoint_dir is not None
    model = _restored(setting, ranks)[0] if has_weights else steps.build_model(setting)
    function = steps.make_infer_step(model, setting)
    start = tfpipe.State()
    figures, *_ = run_steps(setting, ranks, function, setting.num_steps(start), start)
    return {**figures, "num_parameters": model.count_params()}


def _emulate(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    seconds, start = setting.emulated_seconds or 0.0, tfpipe.State()
    function = steps.make_emulated_step(setting, ranks, seconds)
    figures, *_ = run_steps(setting, ranks, function, setting.num_steps(start), start)
    return {**figures, "emulated_seconds_per_step": seconds}


def _restored(setting: Setting, ranks: Ranks) -> tuple[keras.Model, tfpipe.State]:
    """Returns the model of the newest checkpoint, and how far it was trained."""
    model, config = steps.build_model(setting), setting.config
    state = Checkpoint(setting, ranks, model).restore()
    if state is None:
        raise ValueError(
            f"--checkpoint_dir {config.checkpoint_dir} must hold a checkpoint to "
            f"{'evaluate' if config.mode == 'eval' else 'infer with'}, got none. Train "
            "with the same --checkpoint_dir first."
        )
    return model, state


def _report_faults(setting: Setting) -> None:
    log = setting.pipeline.faults
    if log is not None and log.faults:
        print(log.summary(), file=sys.stderr)
