"""Elastic training: a rank that dies leaves the run, and the others go on.

In: a setting whose ranks elastic Horovod started. Out: the figures of `loop.train`, of
the time since the last change of ranks. Every few steps the ranks commit: weights,
place in the data and which records were used are then the same on all of them. A death
takes the steps since then with it; the others go back to the commit and share what is
left of the epoch anew, so that every record is still used once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import tfpipe
from benchmarks.distributed.ranks import Committed, Ranks, run_elastic
from benchmarks.training import loop, metrics, steps
from benchmarks.training.metrics import Step
from benchmarks.training.setting import Setting, make_setting

# A commit copies the weights, and gathers the records used since the one before.
_STEPS_BETWEEN_COMMITS = 10


def train(setting: Setting, ranks: Ranks) -> dict[str, Any]:
    """Trains the epochs that the config asks for, on the ranks that are left.

    The learning rate stays that of the ranks at the beginning.

    Raises:
        ValueError: If a checkpoint does not fit, or no step is left to time.
    """
    model = steps.build_model(setting)
    optimizer = steps.make_optimizer(model, setting, ranks)
    training = loop.Training(model=model, optimizer=optimizer)
    start = training.checkpoint(setting, ranks).restore() or tfpipe.State()

    def work(world: Ranks, committed: Committed) -> dict[str, Any]:
        here = make_setting(setting.config, world)
        figures = loop.train_from(
            training,
            training.checkpoint(here, world),
            here,
            world,
            tfpipe.State.from_json(committed.place),
            after_step=_committer(committed, world),
        )
        return figures | {
            "records": metrics.coverage([committed.counts]),
            "num_ranks_at_start": ranks.num_ranks,
        }

    return run_elastic(
        training.variables,
        work,
        place=start.to_json(),
        counts=np.zeros(setting.num_records, np.int64),
    )


def _committer(
    committed: Committed, ranks: Ranks
) -> Callable[[Step, tfpipe.State], None]:
    """What is called after each step: commits now and then, and after an epoch."""
    used: list[npt.NDArray[np.int64]] = []

    def after_step(step: Step, place: tfpipe.State) -> None:
        used.append(step.record_ids)
        if len(used) < _STEPS_BETWEEN_COMMITS and place.step:
            return
        # A new array: the one committed before is what the run goes back to.
        counts = committed.counts.copy()
        np.add.at(counts, np.concatenate(ranks.gather(np.concatenate(used))), 1)
        committed.counts = counts
        committed.place = place.to_json()
        used.clear()
        committed.commit()

    return after_step
