"""The critical path: where the time of a job went, whichever rank it was lost on.

In: the times of the steps of every rank, each on the clock of the rank. Out: for each
step the seconds of input, compute, communication and late, and their rank. The seconds
of all steps add up to the time of the job. Only arithmetic here.

A step of all ranks ends with its average over ranks. The last rank decides the time:

  | time of the last rank             | part                                      |
  |-----------------------------------|-------------------------------------------|
  | waits for a batch                 | input                                     |
  | computes, and updates weights     | compute; at most the emulated time        |
  | from its gradients to the average | communication                             |
  | everything else                   | late: stopped, descheduled, between steps |

Without averages no rank waits for another: the slowest rank is the path.

The own time of a rank is its step without the wait for other ranks: input, compute,
late, and the communication of the last rank, which waited for nobody. The slowest rank
has the longest own time.
"""

import dataclasses
import itertools
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.results.train_result import SlowestRank, SlowLink

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

PARTS = ("input", "compute", "communication", "late")
_INPUT, _COMPUTE, _COMMUNICATION, _LATE = range(len(PARTS))
# The parts between the eight borders of `_borders`.
_KINDS = [_COMMUNICATION, _COMPUTE, _LATE, _INPUT]
_KINDS += [_COMPUTE, _COMMUNICATION, _COMPUTE]
_STEPS_PER_OFFSET = 64  # clocks drift: an offset is estimated for as many steps
_OUTLIER = 5.0  # times the median step; a longer loss in a step is named
_MOST_OUTLIERS = 5
_SKEW = 1e-3  # the clocks of the cores of a machine may differ by less
_NAMES = {
    "late": "Late ranks, stopped or without a core,",
    "input": "Input",
    "communication": "Communication",
}
_NAMED = 0.01  # smaller shares of the time are not worth a sentence
_SLOW = 1.05  # smallest ratio of own times at which a rank holds the others back
_CAUSES = {
    "input": "waiting for input",
    "compute": "computing and averaging",
    "late": "neither input nor computing: the rank was stopped, had no core, or was "
    "late between steps",
}


class StepTimes(NamedTuple):
    """Times of a step of a rank, in the order in which they happen.

    Attributes:
        ready: The rank asks for a batch.
        fed: The batch is there.
        done: The gradients of the rank are computed.
        averaged: The average over ranks is there; equal to `done` without an average.
        ended: The step is over.
    """

    ready: float
    fed: float
    done: float
    averaged: float
    ended: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankTimes:
    """The timed steps of a rank, on its own clock.

    Attributes:
        steps: float64 [num_steps, 5], the `StepTimes`, in seconds since the rank began
            its timed steps.
        silences: float64 [n, 2], begins and ends of times in which the process of the
            rank did not run.
        origin: The begin of the timed steps on the clock of the rank.
        emulated_seconds: Configured time of an emulated step; None if a model computes.

    Raises:
        ValueError: If the times are not in order, as with a clock that was set back.
    """

    steps: Array
    silences: Array
    origin: float = 0.0
    emulated_seconds: float | None = None

    def __post_init__(self) -> None:
        passed = np.diff(self.steps.ravel(), prepend=0.0)
        if np.any(passed < -_SKEW):
            step = int(passed.argmin()) // 5
            raise ValueError(
                "The times of a rank's steps must be in order, on a clock that never "
                f"goes back, got {self.steps[step].tolist()} in step {step + 1}."
            )


@dataclasses.dataclass(frozen=True)
class CriticalPath:
    """The time of a job, by step and by part.

    Attributes:
        seconds: float64 [num_steps, 4], the seconds of `PARTS`.
        ranks: int64 [num_steps, 4], the rank that spent the seconds.
        last: int64 [num_steps], the rank that the others waited for.
        offsets: float64 [num_ranks], the clock of each rank minus that of rank 0, from
            the ends of the averages; 0 without averages.
        of_ranks: float64 [num_ranks, 4], the mean seconds of `PARTS` in a step of each
            rank. Communication is the wait for the average, and for other ranks.
    """

    seconds: Array
    ranks: Indices
    last: Indices
    offsets: Array
    of_ranks: Array
    slowest: SlowestRank

    @property
    def shares(self) -> dict[str, float]:
        """The share of each part in the time of the job; the shares add up to 1."""
        shares = self.seconds.sum(axis=0) / self.seconds.sum()
        return dict(zip(PARTS, shares.tolist(), strict=True))

    def by_rank(self, part: str) -> Array:
        column = PARTS.index(part)
        ranks, seconds = self.ranks[:, column], self.seconds[:, column]
        sums: npt.NDArray[Any] = np.bincount(ranks, seconds, len(self.offsets))
        return sums

    def outliers(self) -> list[dict[str, Any]]:
        """Returns the longest losses of single steps, the longest first.

        Timed steps count from 1. The seconds are beyond the median of the part.
        """
        beyond = self.seconds - np.median(self.seconds, axis=0)
        beyond[:, _COMPUTE] = 0.0
        least = _OUTLIER * np.median(self.seconds.sum(axis=1))
        order = np.argsort(beyond, axis=None)[::-1][:_MOST_OUTLIERS]
        steps, parts = np.unravel_index(order, beyond.shape)
        return [
            {
                "step": int(step) + 1,
                "rank": int(self.ranks[step, part]),
                "part": PARTS[part],
                "seconds": float(beyond[step, part]),
            }
            for step, part in zip(steps, parts, strict=True)
            if beyond[step, part] > least
        ]

    def as_json(self) -> dict[str, Any]:
        times_last = np.bincount(self.last, minlength=len(self.offsets))
        own = list(self.slowest.own_seconds_per_step_per_rank)
        return {
            "seconds": float(self.seconds.sum()),
            "shares": self.shares,
            **{f"{p}_seconds_per_rank": self.by_rank(p).tolist() for p in PARTS},
            "num_times_last_per_rank": times_last.tolist(),
            "clock_offset_seconds_per_rank": self.offsets.tolist(),
            "outliers": self.outliers(),
            "slowest": {**vars(self.slowest), "own_seconds_per_step_per_rank": own},
            "text": self.sentence(),
        }

    def sentence(self) -> str:
        """Returns the causes, ranks and steps of the lost time."""
        losses = []
        for part, name in _NAMES.items():
            if (share := self.shares[part]) < _NAMED:
                continue
            text = f"{name} took {share:.1%} of the time"
            seconds = self.by_rank(part)
            if len(self.offsets) > 1 and part != "communication":
                rank = int(seconds.argmax())
                text += f", {seconds[rank]:.3g} of {seconds.sum():.3g} s on rank {rank}"
            steps = [
                f"{outlier['seconds']:.3g} s in step {outlier['step']}"
                for outlier in self.outliers()
                if outlier["part"] == part
            ]
            if steps:
                text += f" ({', '.join(steps[:3])})"
            losses.append(text)
        nothing = "Nothing but computing took more than 1% of the time"
        return f"{'; '.join(losses) or nothing}."


def trace(ranks: Sequence[RankTimes]) -> CriticalPath:
    """Returns the critical path of a job from its ranks, which begin together."""
    steps = np.stack([rank.steps for rank in ranks])
    alone = [_path([rank]) for rank in ranks]
    of_ranks = np.stack([seconds.mean(axis=0) for seconds, *_ in alone])
    if np.any(steps[..., 3] > steps[..., 2]):
        seconds, blamed, last, offsets = _path(ranks)
    else:  # The ranks do not wait for each other.
        rank = int(steps[:, -1, -1].argmax())
        seconds, blamed, last, _ = alone[rank]
        blamed, last, offsets = blamed + rank, last + rank, np.zeros(len(ranks))
    slowest = _slowest(steps, of_ranks, last)
    return CriticalPath(seconds, blamed, last, offsets, of_ranks, slowest)


def _path(ranks: Sequence[RankTimes]) -> tuple[Array, Indices, Indices, Array]:
    """Returns `seconds`, `ranks`, `last` and `offsets` of a `CriticalPath`."""
    steps = np.stack([rank.steps for rank in ranks])
    offsets = _offsets(steps[..., 3])
    medians = np.median(offsets, axis=1)
    steps = steps - offsets[..., None]
    begin = -offsets[:, 0]
    last = steps[..., 2].argmax(axis=0)
    ends = np.maximum(steps[..., 3].min(axis=0), steps[..., 2].max(axis=0))
    ends = np.maximum.accumulate(ends)
    borders = _borders(steps, begin, last, ends)
    # The silence of every rank before the borders, float64 [num_ranks, num_steps, 8].
    silent = np.stack([*map(_silence, ranks, medians, itertools.repeat(borders))])
    own = np.diff(silent[last, np.arange(len(last))], axis=1)
    seconds = _parts(borders, own, ranks[0].emulated_seconds)
    blamed = np.repeat(last[:, None], len(PARTS), axis=1)
    _blame_silence(seconds, blamed, silent[..., 6] - silent[..., 5])
    origins = np.array([rank.origin for rank in ranks])
    return seconds, blamed, last, medians + origins - origins[0]


def _slowest(steps: Array, of_ranks: Array, last: Indices) -> SlowestRank:
    """Returns the rank with the longest own time, and the cause of a long one."""
    spent = of_ranks.copy()
    # The last rank waits for nobody: its whole average is communication.
    sync = np.maximum(0.0, steps[..., 3] - steps[..., 2])
    spent[:, _COMMUNICATION] = sync.min(axis=0).mean()
    own = spent.sum(axis=1)
    rank = int(own.argmax())
    others = np.delete(spent, rank, axis=0)
    ratio, cause = 1.0, None
    text = "One rank alone waits for no other."
    if len(others):
        ratio = float(own[rank] / np.median(others.sum(axis=1)))
        text = (
            "No rank holds the others back: the slowest is rank "
            f"{rank}, with {ratio:.2f} times the time of the others."
        )
    if ratio >= _SLOW:
        cause = PARTS[int((spent[rank] - np.median(others, axis=0)).argmax())]
        shares = dict(zip(PARTS, spent[rank] / own[rank], strict=True))
        shares["compute"] += shares["communication"]
        text = (
            f"Rank {rank} holds the others back: its steps take {ratio:.2f} times as "
            f"long as theirs ({own[rank] * 1e3:.1f} ms), of which {shares[cause]:.0%} "
            f"is {_CAUSES[cause]}. It came last in {np.count_nonzero(last == rank)} of "
            f"{len(last)} steps."
        )
    return SlowestRank(
        rank=rank,
        over_others=ratio,
        own_seconds_per_step_per_rank=tuple(own.tolist()),
        cause=cause,
        text=text,
    )


def _offsets(averaged: Array) -> Array:
    """Returns the clock of each rank minus that of rank 0, float64 [ranks, steps].

    All ranks have an average at about the same time. The median of many steps is not
    moved by a rank that was stopped in some of them.
    """
    num_steps = averaged.shape[1]
    shifts = averaged - averaged[0]
    index = np.arange(num_steps)
    blocks = np.array_split(index, max(1, num_steps // _STEPS_PER_OFFSET))
    centers = [block.mean() for block in blocks]
    medians = np.stack([np.median(shifts[:, block], axis=1) for block in blocks], 1)
    return np.stack([np.interp(index, centers, median) for median in medians])


def _borders(steps: Array, begin: Array, last: Indices, ends: Array) -> Array:
    """Returns the borders of the parts of each step, float64 [num_steps, 8].

    They are, on the timeline of the last rank of the step: the end of the step before;
    the rank has its average, and has ended the step before; it is ready, fed, and done;
    the step ends. The last border is later than that in the last step only, whose
    average is followed by an update.
    """
    index = np.arange(len(last))
    own = steps[last, index]
    before = np.concatenate([np.stack([begin] * 2, 1)[:, None], steps[:, :-1, 3:]], 1)
    starts = np.concatenate([[begin[last[0]]], ends[:-1]])
    final = ends.copy()
    final[-1] = max(final[-1], steps[:, -1, 4].max())
    borders = np.column_stack([starts, before[last, index], own[:, :3], ends, final])
    borders[:, :-1] = np.clip(borders[:, :-1], starts[:, None], ends[:, None])
    return np.maximum.accumulate(borders, axis=1)


def _silence(rank: RankTimes, offset: float, times: Array) -> Array:
    """Returns the seconds of silence of a rank before each of the times."""
    edges = np.reshape(rank.silences, (-1, 2)) - offset
    if not len(edges):
        return np.zeros_like(times)
    lengths = np.pad(np.diff(edges, axis=1), ((0, 0), (1, 0)))
    return np.interp(times, edges.ravel(), np.cumsum(lengths))


def _parts(borders: Array, silent: Array, emulated_seconds: float | None) -> Array:
    """Returns the seconds of `PARTS` in each step, float64 [num_steps, 4]."""
    durations, late = np.diff(borders, axis=1), silent
    if emulated_seconds is not None:
        # A stopped process does not stop the accelerator that the step stands for.
        computes = np.equal(_KINDS, _COMPUTE)
        whole = durations[:, computes].sum(axis=1, keepdims=True)
        excess = np.maximum(0.0, 1 - emulated_seconds / np.maximum(whole, 1e-12))
        late = np.where(computes, durations * excess, silent)
    late = np.clip(late, 0.0, durations)
    seconds: Array = (durations - late) @ np.eye(len(PARTS))[_KINDS]
    seconds[:, _LATE] += late.sum(axis=1)
    return seconds


def _blame_silence(seconds: Array, blamed: Indices, silent: Array) -> None:
    """Moves communication with a silent rank to late, in place.

    The last rank was done, and another rank was stopped before the average was there.
    `silent` is float64 [num_ranks, num_steps], the silence in the average.
    """
    for rank, grown in enumerate(silent):
        others = blamed[:, _COMMUNICATION] != rank  # its own silence is late already
        moved = np.where(others, np.clip(grown, 0.0, seconds[:, _COMMUNICATION]), 0.0)
        blamed[moved > seconds[:, _LATE], _LATE] = rank
        seconds[:, _COMMUNICATION] -= moved
        seconds[:, _LATE] += moved


_FELT = 0.05  # share of the time of the job, from which on a slow link is named
# Part of the communication that the longer wait of a rank must explain. The others wait
# too: their receipts queue behind the bytes on the slow link. Measured: 0.37 to 0.59
# with a sender of 10 Mbit/s and queues of 200 to 10 ms, 0.04 if both senders are slow.
_EXPLAINED = 0.25


def slow_link(
    sending_seconds: Sequence[float | None], communicated: float, total: float
) -> SlowLink | None:
    """Returns the rank behind a slow network; None without such a rank.

    The bytes of each rank were on their way for `sending_seconds`; None if unknown.

    Example:
        >>> slow_link([0.2, 8.0, 0.3], communicated=8.5, total=20.0).rank
        1
    """
    ranks = [seconds for seconds in sending_seconds if seconds is not None]
    if len(ranks) < max(2, len(sending_seconds)):
        return None
    most = max(ranks)
    rank = ranks.index(most)
    others = statistics.median(ranks[:rank] + ranks[rank + 1 :])
    is_felt = min(communicated, most) >= _FELT * total
    if not is_felt or most - others < _EXPLAINED * max(communicated, most):
        return None
    return SlowLink(
        rank=rank,
        seconds=most,
        text=f"Rank {rank} is behind a slow network: its bytes waited {most:.3g} s for "
        f"their receiver, those of the other ranks {others:.3g} s. The link of its "
        "host, or that of the receiver, is slow.",
    )
