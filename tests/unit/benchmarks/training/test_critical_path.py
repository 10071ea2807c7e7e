"""benchmarks.training.critical_path over simulated jobs: what was injected is named.

A simulated job knows when each rank really waited, computed, was stopped and
communicated. The critical path sees only what each rank can see on its own clock.
"""

import dataclasses
from collections.abc import Callable

import hypothesis
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import strategies as st

from benchmarks.training import critical_path
from benchmarks.training.critical_path import RankTimes

Array = npt.NDArray[np.float64]

NUM_STEPS = 120
COMPUTE, WAIT, UPDATE, AVERAGE, BETWEEN = 0.040, 0.0004, 0.0002, 0.0008, 0.0001
STOP = 0.030  # seconds until a stop is noticed, at most
_TOLERANCE = 0.02


@dataclasses.dataclass(kw_only=True)
class Job:
    """A simulated job: the seconds that each rank spends in each step.

    Attributes:
        num_ranks: Number of ranks.
        averages: Whether the ranks average after each step.
        is_emulated: Whether the steps have a configured time.
        random: Noise.
        wait: float64 [num_ranks, num_steps], for a batch.
        compute: The same, for the gradients.
        between: The same, between two steps.
        network: float64 [num_steps], for the average.
        stops: (rank, step, phase, seconds); the phase is wait, compute, average or
            update.
    """

    num_ranks: int
    random: np.random.Generator
    averages: bool = True
    is_emulated: bool = True
    stops: list[tuple[int, int, str, float]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        shape = (self.num_ranks, NUM_STEPS)
        self.wait = WAIT * self.random.uniform(0.5, 1.5, shape)
        noise = 1e-4 if self.is_emulated else 2e-3
        self.compute = COMPUTE + self.random.exponential(noise, shape)
        self.between = BETWEEN * self.random.uniform(0.5, 1.5, shape)
        self.network = AVERAGE * self.random.uniform(0.5, 1.5, NUM_STEPS)

    def ranks(self, clocks: Callable[[int, Array], Array]) -> list[RankTimes]:
        """Runs the job; returns what the ranks see on their clocks.

        Args:
            clocks: The true time -> the time on the clock of a rank.
        """
        stamps = np.zeros((self.num_ranks, NUM_STEPS, 5))
        silences: list[list[tuple[float, float]]] = [[] for _ in range(self.num_ranks)]
        now = np.full(self.num_ranks, 1000.0)
        for step in range(NUM_STEPS):
            for rank in range(self.num_ranks):
                stopped = {
                    phase: seconds
                    for r, k, phase, seconds in self.stops
                    if (r, k) == (rank, step)
                }
                times = stamps[rank, step]
                times[0] = now[rank] + self.between[rank, step]
                times[1] = times[0] + self.wait[rank, step] + stopped.get("wait", 0.0)
                times[2] = (
                    times[1] + self.compute[rank, step] + stopped.get("compute", 0.0)
                )
                # A stopped rank takes no part in the average.
                times[3] = times[2] + stopped.get("average", 0.0)
                for phase, begin in zip(
                    ("wait", "compute", "average"), times[:3], strict=True
                ):
                    if phase in stopped:
                        begin += 1e-5
                        silences[rank].append((begin, begin + stopped[phase]))
                if "update" in stopped:
                    silences[rank].append((np.nan, stopped["update"]))
            if self.averages:
                end = stamps[:, step, 3].max() + self.network[step]
                noise = self.random.exponential(5e-5, self.num_ranks)
                stamps[:, step, 3] = end + noise
                for rank, found in enumerate(silences):
                    if found and np.isnan(found[-1][0]):
                        seconds = found.pop()[1]
                        found.append((end, end + seconds))
                        stamps[rank, step, 3] = end + seconds
                stamps[:, step, 4] = stamps[:, step, 3] + UPDATE
            else:
                stamps[:, step, 3:] = stamps[:, step, 2:3]
            now = stamps[:, step, 4]
        origin = np.array([clocks(r, np.array(1000.0)) for r in range(self.num_ranks)])
        return [
            RankTimes(
                steps=clocks(rank, stamps[rank]) - origin[rank],
                silences=self._noticed(clocks(rank, np.array(silences[rank])))
                - origin[rank],
                origin=float(origin[rank]),
                emulated_seconds=COMPUTE if self.is_emulated else None,
            )
            for rank in range(self.num_ranks)
        ]

    def _noticed(self, silences: Array) -> Array:
        """Returns the silences as a thread that looks from time to time sees them."""
        silences = silences.reshape(-1, 2)
        # The thread may wake up soon after the stop, or a little later.
        silences[:, 0] += self.random.uniform(0, STOP / 2, len(silences))
        silences[:, 1] += self.random.uniform(0, STOP / 10, len(silences))
        return silences


def _same(_: int, times: Array) -> Array:
    return times


def _others(rank: int, times: Array) -> Array:
    """Clocks of machines that were started at other times, and that drift."""
    return times * (1 + 40e-6 * rank) + 1e5 * rank


def _slow_input(job: Job, rank: int) -> None:
    job.wait[rank, ::2] += 0.060


def _input_in_turns(job: Job, _: int) -> None:
    for step in range(NUM_STEPS):
        job.wait[step // 5 % job.num_ranks, step] += 0.050


def _stop_in(phase: str) -> Callable[[Job, int], None]:
    def inject(job: Job, rank: int) -> None:
        job.stops += [(rank, 20, phase, 2.0), (rank, 77, phase, 1.0)]

    return inject


def _slow_network(job: Job, _: int) -> None:
    job.network += 0.025


def _slow_loop(job: Job, rank: int) -> None:
    job.between[rank, ::3] += 0.050


def _slow_copy(job: Job, rank: int) -> None:
    job.compute[rank] += 0.020


_INPUT, _LATE, _COMMUNICATION = "input", "late", "communication"
CASES: dict[str, tuple[Callable[[Job, int], None], str, float]] = {
    "slow input": (_slow_input, _INPUT, 0.060 * NUM_STEPS / 2),
    "input in turns": (_input_in_turns, _INPUT, 0.050 * NUM_STEPS),
    "stop in wait": (_stop_in("wait"), _LATE, 3.0),
    "stop in compute": (_stop_in("compute"), _LATE, 3.0),
    "stop in average": (_stop_in("average"), _LATE, 3.0),
    "stop in update": (_stop_in("update"), _LATE, 3.0),
    "slow network": (_slow_network, _COMMUNICATION, 0.025 * NUM_STEPS),
    "slow loop": (_slow_loop, _LATE, 0.050 * NUM_STEPS / 3),
    "nothing": (lambda *_: None, _LATE, 0.0),
}


# A single rank averages nothing, and its update is part of the step.
_OF_SEVERAL = ("slow network", "stop in average", "stop in update")


@pytest.mark.parametrize("is_emulated", [True, False])
@pytest.mark.parametrize("clocks", [_same, _others])
@pytest.mark.parametrize(
    ("case", "num_ranks"),
    [(c, n) for c in CASES for n in (1, 2, 5) if n > 1 or c not in _OF_SEVERAL],
)
def test_the_injected_part_is_named_and_the_shares_add_up(
    case: str,
    num_ranks: int,
    clocks: Callable[[int, Array], Array],
    is_emulated: bool,
) -> None:
    inject, part, seconds = CASES[case]
    random = np.random.default_rng([num_ranks, is_emulated, len(case)])
    job = Job(num_ranks=num_ranks, random=random, is_emulated=is_emulated)
    job.averages = num_ranks > 1
    culprit = num_ranks - 1
    inject(job, culprit)
    ranks = job.ranks(clocks)

    path = critical_path.trace(ranks)

    total = max(rank.steps[-1, -1] for rank in ranks)
    assert path.seconds.sum() == pytest.approx(total, rel=1e-3)
    assert path.seconds.min() >= 0
    assert sum(path.shares.values()) == pytest.approx(1)
    injected = seconds / total
    assert path.shares[part] == pytest.approx(injected, abs=_TOLERANCE)
    rest = {name: share for name, share in path.shares.items() if name != part}
    small = {"input": 0.01, "communication": 0.02, "late": 0.01}
    for name in rest.keys() & small.keys():
        assert rest[name] <= small[name] + _TOLERANCE, name
    if (
        num_ranks > 1
        and "network" not in case
        and case not in ("nothing", "input in turns")
    ):
        assert path.by_rank(part).argmax() == culprit


_seconds = st.floats(0.0, 0.060)


@hypothesis.given(
    num_ranks=st.integers(2, 6),
    culprits=st.tuples(*[st.integers(0, 5)] * 3),
    waits=_seconds,
    network=_seconds,
    between=_seconds,
    stop=st.floats(0.6, 3.0),
    phase=st.sampled_from(["wait", "compute", "average", "update"]),
    starts=st.floats(-1e6, 1e6),
    drift=st.floats(-50e-6, 50e-6),
)
@hypothesis.settings(max_examples=25, deadline=None)
def test_losses_of_several_kinds_are_each_named(
    num_ranks: int,
    culprits: tuple[int, int, int],
    waits: float,
    network: float,
    between: float,
    stop: float,
    phase: str,
    starts: float,
    drift: float,
) -> None:
    """Slow input, a slow network, a slow loop and a stop, on ranks of any clocks."""
    job = Job(num_ranks=num_ranks, random=np.random.default_rng(num_ranks))
    of_input, of_loop, stopped = (culprit % num_ranks for culprit in culprits)
    job.wait[of_input, ::4] += waits
    job.network[1::4] += network
    job.between[of_loop, 2::4] += between
    job.stops = [(stopped, 43, phase, stop)]
    injected = {
        "input": (waits / 4 + WAIT) * NUM_STEPS,
        "communication": (network / 4 + AVERAGE) * NUM_STEPS,
        "late": (between / 4 + BETWEEN) * NUM_STEPS + stop,
    }

    path = critical_path.trace(
        job.ranks(lambda rank, times: times * (1 + drift * rank) + starts * rank)
    )

    total = path.seconds.sum()
    assert sum(path.shares.values()) == pytest.approx(1)
    assert path.seconds.min() >= 0
    for part, seconds in injected.items():
        assert path.shares[part] == pytest.approx(seconds / total, abs=_TOLERANCE), part
    if waits * NUM_STEPS / 4 > _TOLERANCE * total:
        assert path.by_rank("input").argmax() == of_input
    (longest, *_) = path.outliers()
    assert (longest["rank"], longest["part"]) == (stopped, "late")
    assert longest["step"] in (44, 45)  # a stop after the average is of the next step


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_an_emulated_step_computes_at_most_its_configured_time(num_ranks: int) -> None:
    job = Job(num_ranks=num_ranks, random=np.random.default_rng(0))
    job.averages = num_ranks > 1
    _slow_copy(job, 0)

    path = critical_path.trace(job.ranks(_same))

    assert path.by_rank("compute").sum() == pytest.approx(COMPUTE * NUM_STEPS, rel=1e-6)
    assert path.by_rank("late")[0] == pytest.approx(0.020 * NUM_STEPS, rel=0.05)


def test_ranks_that_average_nothing_are_as_slow_as_the_slowest() -> None:
    job = Job(num_ranks=3, random=np.random.default_rng(0), averages=False)
    _slow_input(job, 1)
    ranks = job.ranks(_others)

    path = critical_path.trace(ranks)

    assert path.seconds.sum() == pytest.approx(ranks[1].steps[-1, -1])
    assert set(path.last) == {1}
    assert path.by_rank("input").argmax() == 1
    assert path.by_rank("input").shape == (3,)


def test_offsets_of_the_clocks_are_found() -> None:
    job = Job(num_ranks=3, random=np.random.default_rng(0))
    job.stops = [(1, step, "update", 1.0) for step in range(0, NUM_STEPS, 3)]

    path = critical_path.trace(job.ranks(lambda rank, times: times + 7.5 * rank))

    assert path.offsets == pytest.approx([0.0, 7.5, 15.0], abs=1e-3)


def test_the_longest_losses_are_named() -> None:
    job = Job(num_ranks=2, random=np.random.default_rng(0))
    job.stops = [(1, 20, "compute", 2.0), (0, 77, "wait", 1.0)]

    found = critical_path.trace(job.ranks(_same)).outliers()

    assert [(one["step"], one["rank"], one["part"]) for one in found] == [
        (21, 1, "late"),
        (78, 0, "late"),
    ]
    assert [one["seconds"] for one in found] == pytest.approx([2.0, 1.0], abs=0.05)


@pytest.mark.parametrize("jump", [-30.0, -0.5])
def test_a_clock_that_is_set_back_is_an_error(jump: float) -> None:
    """A job of such times could have a share below 0, or above 1."""
    job = Job(num_ranks=2, random=np.random.default_rng(0))
    steps = job.ranks(_same)[0].steps.copy()
    steps[50:] += jump

    with pytest.raises(ValueError, match="on a clock that never goes back"):
        RankTimes(steps=steps, silences=np.empty((0, 2)))
