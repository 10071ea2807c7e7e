"""Decides races: the settings that run on, the leader, and the returned pipeline.

In: the turns of a race. Out: names. Pure arithmetic, so every rule is tested with
made-up figures.
"""

import statistics
from collections.abc import Mapping

from tfpipe.profiling.process_usage import QUIET_SHARE
from tfpipe.tuner.race import Turns

GIVEN, AUTOTUNE = "as given", "AUTOTUNE"

# A winner is at least so many times as fast: less is the noise of a race.
GAIN = 1.03
# A race on a busy host is noisier: with all cores taken, a winner needs 10 % more.
_BUSY_GAIN = 0.1

# A setting that lost all of its n rounds leaves if it is slower by this / n.
_CLEARLY = 0.3
# Fewest rounds to replace the original pipeline, on a quiet and a busy host. The
# original pipeline runs the larger number, if there is time.
_ENOUGH, ENOUGH_BUSY = 3, 5


def gain(taken: float) -> float:
    """Returns how many times as fast a winner must be.

    Args:
        taken: Fraction of the cores in use by other processes, 0 to 1.
    """
    return GAIN + _BUSY_GAIN * taken


def still_open(turns: Mapping[str, Turns]) -> list[str]:
    """Returns the names that run another round; none if the race is decided.

    A name leaves when it lost all its rounds against the fastest name, and by much: by
    30 % in a single round, 15 % in two, 10 % in three. The original pipeline leaves
    after five rounds at the earliest: fewer rounds cannot replace the pipeline.

    Args:
        turns: The turns so far. A name with fewer rounds than others has left.
    """
    num_rounds = max(mine.num_rounds for mine in turns.values())
    running = [name for name, mine in turns.items() if mine.num_rounds == num_rounds]
    first = max(running, key=lambda name: turns[name].rate)
    stays = {first} if num_rounds >= ENOUGH_BUSY else {first, GIVEN}
    going = [n for n in running if n in stays or not _lost(turns[n], turns[first])]
    return going if len(going) > 1 else []


def _lost(mine: Turns, first: Turns) -> bool:
    ratios = mine.ratios(first)
    clearly = 1 - _CLEARLY / len(ratios)
    return max(ratios) < 1 and statistics.median(ratios) < clearly


def leader(turns: Mapping[str, Turns], base: str) -> str:
    """Returns the name with the highest ratio to the base, if it is 3 % faster.

    Chance must not explain the gain, see `Turns.beats`. After fewer than three rounds
    the ratio must be higher.

    Args:
        turns: The turns of a race, all of at least one round.
        base: Name that stays if no other name is better.
    """
    ratios = {name: mine.ratio(turns[base]) for name, mine in turns.items()}
    better = [name for name in turns if _beats(turns[name], turns[base], GAIN)]
    return max(better, key=ratios.__getitem__, default=base)


def _beats(mine: Turns, other: Turns, least: float) -> bool:
    num_rounds = len(mine.ratios(other))
    if num_rounds < _ENOUGH:
        least = max(least, 1 + _CLEARLY / num_rounds)
    return mine.beats(other, least)


def chosen(turns: Mapping[str, Turns], *, may_stay: bool, taken: float = 0.0) -> str:
    """Returns the name of the winner of a race.

    | wins              | unless                                                      |
    |-------------------|-------------------------------------------------------------|
    | AUTOTUNE          | another setting is 3 % faster, see `gain`                   |
    | the original      | the winner, or the fastest setting, is 3 % faster in three  |
    | pipeline          | rounds or more; on a busy host also wins all of five rounds |
    |                   | or more, or is faster in all of three rounds by more than   |
    |                   | other processes can explain                                 |

    So the original pipeline wins a tie, and whenever too little is known.

    Args:
        turns: The turns of a race. The turns of the original pipeline are missing if it
            could not be run.
        may_stay: Whether the original pipeline is within the budget.
        taken: Fraction of the cores in use by other processes, 0 to 1.
    """
    settings = {name: mine for name, mine in turns.items() if name != GIVEN}
    if not settings:
        return GIVEN
    best = _best(settings)
    winner = best
    if AUTOTUNE in settings and not _beats(
        settings[best], settings[AUTOTUNE], gain(taken)
    ):
        winner = AUTOTUNE
    if not may_stay or GIVEN not in turns:
        return winner
    faster = (n for n in (winner, best) if _replaces(turns[n], turns[GIVEN], taken))
    return next(faster, GIVEN)


def _best(settings: Mapping[str, Turns]) -> str:
    """Returns the fastest setting; the first setting wins a tie.

    A setting with fewer rounds has lost. A cache costs memory: caches come after the
    settings without a cache, and must be 3 % faster.
    """
    names = [name for name in settings if name != AUTOTUNE] or [AUTOTUNE]
    # At the end of the time some settings lack the last round.
    least = max(settings[name].num_rounds for name in names) - 1
    running = {n: settings[n] for n in names if settings[n].num_rounds >= least}
    return leader(running, next(iter(running)))


def _replaces(mine: Turns, original: Turns, taken: float) -> bool:
    ratios = mine.ratios(original)
    if taken > QUIET_SHARE and not _is_beyond_others(ratios, taken):
        return False
    return len(ratios) >= _ENOUGH and mine.beats(original, gain(taken))


def _is_beyond_others(ratios: list[float], taken: float) -> bool:
    """Checks whether other processes cannot explain that all rounds were won."""
    is_clear = min(ratios) * (1 - taken) >= 1 + _CLEARLY
    return is_clear or (len(ratios) >= ENOUGH_BUSY and min(ratios) > 1)
