"""Elastic training: a rank that dies leaves the run, and the others continue.

In: a setting whose ranks elastic Horovod started. Out: the figures of `loop.train`, for
the time since the last change of ranks. Every few steps the ranks commit: weights,
place in the data and the counts of used records are then the same on all of them. If a
rank dies, the steps since the last commit are lost: the other ranks return to the
commit and share the rest of the epoch anew. Every record is still used once an epoch.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import tfpipe
from benchmarks.distributed.ranks import Committed, Ranks, run_elastic
from benchmarks.distributed.watch import watched
from benchmarks.training import loop, metrics, steps
from benchmarks.training.recorder import Step
from benchmarks.training.setting import Setting, make_setting

# A commit copies the weights and gathers the ids of the records used since the last
# one; a death costs at most this many steps.
_STEPS_BETWEEN_COMMITS = 10


def train(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Trains the epochs that the config asks for, on the ranks that are left.

    The learning rate stays as it was set for the first number of ranks.
    """
    model = steps.build_model(setting)
    optimizer = steps.make_optimizer(model, setting, ranks)
    training = loop.Training(model=model, optimizer=optimizer)
    start = training.checkpoint(setting, ranks).restore() or tfpipe.State()

    def work(world: Ranks, committed: Committed) -> dict[str, Any]:
        # Each change of ranks needs a new watch.
        with watched(world, setting.config.rank_timeout, is_elastic=True) as beat:
            here = dataclasses.replace(
                make_setting(setting.config, world),
                beat=beat,
                progress=setting.progress,
            )
            figures = loop.train_from(
                training,
                training.checkpoint(here, world),
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
        training.variables,
        work,
        data_state=start.to_json(),
        counts=np.zeros(setting.num_records, np.int64),
    )


def _committer(
    committed: Committed, ranks: Ranks
) -> Callable[[Step, tfpipe.State], None]:
    """Returns a function to call after each step, which commits from time to time.

    It commits every _STEPS_BETWEEN_COMMITS steps and at the end of an epoch.
    """
    used: list[npt.NDArray[np.int64]] = []

    def after_step(step: Step, state: tfpipe.State) -> None:
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
