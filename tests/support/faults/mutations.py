"""Inputs of a parser, changed at random: flips, cuts, repeats, numbers at their limits.

In: sound inputs, words of their format, and a seeded source of chance. Out: another
input, which is equal for equal chance.
"""

import random
from collections.abc import Callable, Sequence

MAX_BYTES = 1 << 20
# Whole numbers at which programs fail: around powers of two, and the negative ones.
_NUMBERS = [0, 1, *(n + d for n in (1 << 7, 1 << 15, 1 << 31) for d in (-1, 0))]
_NUMBERS += [(1 << 8 * size) - 1 for size in (1, 2, 4, 8)] + [1 << 62, 1 << 63]
_TEXTS = (b"-1", b"1e999", b"NaN", b"9" * 30, b"9" * 5000, b"\xff", b"\0", b"\\ud800")

_Change = Callable[[bytearray, random.Random, Sequence[bytes]], None]


def mutated(
    sound: Sequence[bytes], words: Sequence[bytes], dice: random.Random
) -> bytes:
    """Returns one of some sound inputs with one change or a few."""
    data = bytearray(dice.choice(sound))
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        dice.choice(_CHANGES)(data, dice, words)
    if dice.random() < 0.05:
        other = dice.choice(sound)
        data[_at(data, dice) :] = other[dice.randrange(len(other) + 1) :]
    return bytes(data[:MAX_BYTES])


def _at(data: bytearray, dice: random.Random) -> int:
    return dice.randrange(len(data) + 1)


def _span(data: bytearray, dice: random.Random) -> slice:
    start = _at(data, dice)
    return slice(start, start + dice.choice((1, 2, 4, 12, 100, len(data))))


def _flip(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _overwrite(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    size, number = dice.choice((1, 2, 4, 8)), dice.choice(_NUMBERS)
    order = dice.choice(("little", "big"))
    start = _at(data, dice)
    data[start : start + size] = (number % (1 << 8 * size)).to_bytes(size, order)


def _remove(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    del data[_span(data, dice)]


def _cut(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    del data[_at(data, dice) :]


def _repeat(data: bytearray, dice: random.Random, _: Sequence[bytes]) -> None:
    span = _span(data, dice)
    part, times = data[span], dice.choice((1, 1, 1, 2, 20, 2000))
    data[span.start : span.start] = part * min(times, MAX_BYTES // (len(part) + 1))


def _insert(data: bytearray, dice: random.Random, words: Sequence[bytes]) -> None:
    start = _at(data, dice)
    word = dice.choice((*words, *_TEXTS))
    data[start : start + dice.choice((0, len(word)))] = word


def _nest(data: bytearray, dice: random.Random, words: Sequence[bytes]) -> None:
    """Repeats a word of the format, as brackets within brackets."""
    start = _at(data, dice)
    word = dice.choice((*words, b"["))
    data[start:start] = word * dice.choice((10, 1000, 100_000 // len(word)))


_USUAL: tuple[_Change, ...] = (_flip, _overwrite, _remove, _cut, _repeat, _insert)
_CHANGES = (*_USUAL * 5, _nest)
