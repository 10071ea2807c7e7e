"""Decides races: which settings run on, which one leads, which pipeline is returned.

In: the turns of a race. Out: names. Pure arithmetic, so each rule is tested with
made-up figures.
"""

import statistics
from collections.abc import Mapping

from tfpipe.profiling.host_share import QUIET_SHARE
from tfpipe.tuner.race import Turns

GIVEN, AUTOTUNE, BEST = "as given", "AUTOTUNE", "the best so far"

# A setting must be this many times as fast to win: less is the noise of a race.
GAIN = 1.03
# A step must be this many times as fast to be taken. Several small steps add up, and
# the last race corrects a step that was taken by chance.
STEP_GAIN = 1.01
# A race on a busy host is noisier: with all cores taken, a winner needs 10 % more.
_BUSY_GAIN = 0.1

# A setting that lost all of its n rounds leaves if it is slower by this fraction
# divided by n.
_CLEARLY = 0.3
_FEW = 3
# Rounds without which the given pipeline is not replaced, on a quiet and a busy host.
_ENOUGH, ENOUGH_BUSY = 3, 5


def gain(taken: float) -> float:
    """Returns how many times as fast a winner must be.

    Args:
        taken: Fraction of the cores that other processes had, 0 to 1.
    """
    return GAIN + _BUSY_GAIN * taken


def still_open(turns: Mapping[str, Turns], *, fewest: int = 1) -> list[str]:
    """Returns the names that run another round; none if the race is decided.

    A name leaves when it lost all its rounds against the fastest one, and by much: by
    30 % in one round, 15 % in two, 10 % in three.

    Args:
        turns: The turns so far. A name with fewer rounds than others has left.
        fewest: Rounds that all run.
    """
    num_rounds = max(mine.num_rounds for mine in turns.values())
    running = [name for name, mine in turns.items() if mine.num_rounds == num_rounds]
    if num_rounds < fewest:
        return running
    first = max(running, key=lambda name: turns[name].rate)
    going = [n for n in running if n == first or not _lost(turns[n], turns[first])]
    return going if len(going) > 1 else []


def _lost(mine: Turns, first: Turns) -> bool:
    ratios = mine.ratios(first)
    clearly = 1 - _CLEARLY / len(ratios)
    return max(ratios) < 1 and statistics.median(ratios) < clearly


def leader(turns: Mapping[str, Turns], base: str, *, least: float) -> str:
    """Returns the name with the highest ratio to the base, if it is high enough.

    Args:
        turns: The turns of a race, of at least one round each.
        base: Name that stays if no other one is better.
        least: Ratio from which another one is better. After fewer than three rounds it
            must be higher.
    """
    ratios = {name: mine.ratio(turns[base]) for name, mine in turns.items()}
    better = [
        name
        for name, mine in turns.items()
        if name != base and ratios[name] >= _least(mine, turns[base], least)
    ]
    return max(better, key=ratios.__getitem__, default=base)


def _least(mine: Turns, other: Turns, least: float) -> float:
    num_rounds = len(mine.ratios(other))
    return least if num_rounds >= _FEW else max(least, 1 + _CLEARLY / num_rounds)


def _beats(mine: Turns, other: Turns, least: float) -> bool:
    return mine.beats(other, _least(mine, other, least))


def chosen(turns: Mapping[str, Turns], *, may_stay: bool, taken: float = 0.0) -> str:
    """Returns the name of the winner of the last race.

    AUTOTUNE wins unless another setting is 3 % faster, see `gain`. The pipeline as it
    was given stays unless the winner, or the fastest setting, is 3 % faster than it in
    three rounds or more. On a busy host, the faster one must win all of five rounds or
    more, or be faster in each of three by more than others can explain. So the given
    pipeline wins a tie, and whenever too little is known.

    Args:
        turns: The turns of the last race. Those of the pipeline as it was given are
            missing if it could not be run.
        may_stay: Whether the pipeline as it was given is within the budget.
        taken: Fraction of the cores that other processes had, 0 to 1.
    """
    settings = {name: mine for name, mine in turns.items() if name != GIVEN}
    if not settings:
        return GIVEN
    best = max(settings, key=lambda name: _against(settings, name))
    winner = best
    if AUTOTUNE in settings and not _beats(
        settings[best], settings[AUTOTUNE], gain(taken)
    ):
        winner = AUTOTUNE
    if not may_stay or GIVEN not in turns:
        return winner
    faster = (n for n in (winner, best) if _replaces(turns[n], turns[GIVEN], taken))
    return next(faster, GIVEN)


def _replaces(mine: Turns, given: Turns, taken: float) -> bool:
    ratios = mine.ratios(given)
    if taken > QUIET_SHARE and not _is_beyond_others(ratios, taken):
        return False
    return len(ratios) >= _ENOUGH and mine.beats(given, gain(taken))


def _is_beyond_others(ratios: list[float], taken: float) -> bool:
    """Checks whether other processes cannot explain that all rounds were won."""
    is_clear = min(ratios) * (1 - taken) >= 1 + _CLEARLY
    return is_clear or (len(ratios) >= ENOUGH_BUSY and min(ratios) > 1)


def _against(settings: Mapping[str, Turns], name: str) -> float:
    """Returns the ratio to AUTOTUNE, or the rate where AUTOTUNE did not run."""
    mine = settings[name]
    return mine.ratio(settings[AUTOTUNE]) if AUTOTUNE in settings else mine.rate
