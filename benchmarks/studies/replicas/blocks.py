"""Finds the blocks of files that occur in other files, at any byte.

In: groups of files. Out: the share of their blocks that another group holds too. A
storage that keeps equal blocks once saves at most this share. A rolling hash (Karp and
Rabin, 1987, modulo 2 ** 64) finds candidates, and their bytes are compared.
"""

import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

BLOCK = 4096
_BASE = 0x9E3779B97F4A7C15
_PIECE = 1 << 18
_FILTER_BITS = 24

Groups = Sequence[Sequence[pathlib.Path]]


class _Blocks(NamedTuple):
    """The blocks at whole multiples of BLOCK, sorted by their hash.

    `files` and `places` say where a block is, `groups` whose it is.
    """

    hashes: np.ndarray
    groups: np.ndarray
    files: np.ndarray
    places: np.ndarray


def shared_share(groups: Groups) -> float:
    """Returns the share of blocks that also occur in another group, 0 to 1.

    Args:
        groups: The files of each copy. A block is BLOCK bytes at a multiple of BLOCK;
            in the other groups it may begin at any byte.
    """
    contents = [[np.memmap(path, np.uint8, "r") for path in group] for group in groups]
    blocks = _blocks(contents)
    if blocks.hashes.size == 0:
        return 0.0
    known = np.zeros(1 << _FILTER_BITS, bool)
    known[_slots(blocks.hashes)] = True
    shared = np.zeros(blocks.hashes.size, bool)
    for number, group in enumerate(contents):
        for content in group:
            for start, hashes in _rolling(content):
                found = np.flatnonzero(known[_slots(hashes)])
                found = found[np.isin(hashes[found], blocks.hashes)]
                for place in found:
                    at = start + int(place)
                    window = content[at : at + BLOCK]
                    _mark(contents, blocks, number, hashes[place], window, shared)
    return float(shared.mean())


def _mark(
    contents: Sequence[Sequence[np.ndarray]],
    blocks: _Blocks,
    group: int,
    wanted: np.uint64,
    window: np.ndarray,
    shared: np.ndarray,
) -> None:
    """Marks the blocks of other groups that have the same bytes as the window."""
    first = np.searchsorted(blocks.hashes, wanted, "left")
    last = np.searchsorted(blocks.hashes, wanted, "right")
    for i in range(first, last):
        if blocks.groups[i] == group or shared[i]:
            continue
        place = blocks.places[i]
        block = contents[blocks.groups[i]][blocks.files[i]][place : place + BLOCK]
        shared[i] = np.array_equal(block, window)


def _slots(hashes: np.ndarray) -> np.ndarray:
    return hashes >> np.uint64(64 - _FILTER_BITS)


def _blocks(contents: Sequence[Sequence[np.ndarray]]) -> _Blocks:
    columns: list[list[np.ndarray]] = [[], [], [], []]
    for group, files in enumerate(contents):
        for number, content in enumerate(files):
            for start, hashes in _rolling(content):
                places = np.arange(-start % BLOCK, hashes.size, BLOCK)
                columns[0].append(hashes[places])
                columns[1].append(np.full(places.size, group))
                columns[2].append(np.full(places.size, number))
                columns[3].append(start + places)
    joined = [np.concatenate(column) for column in columns if column]
    if not joined:
        return _Blocks(*(np.zeros(0, np.uint64) for _ in range(4)))
    order = np.argsort(joined[0], kind="stable")
    return _Blocks(*(column[order] for column in joined))


def _rolling(content: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields a place and the hashes of the windows of BLOCK bytes from there on."""
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(_PIECE + BLOCK, _BASE, np.uint64))
        inverse = np.cumprod(np.full(_PIECE, pow(_BASE, -1, 2**64), np.uint64))
        for start in range(0, content.size - BLOCK + 1, _PIECE):
            piece = content[start : start + _PIECE + BLOCK - 1].astype(np.uint64)
            sums = np.cumsum(piece * powers[: piece.size])
            sums = np.concatenate([np.zeros(1, np.uint64), sums])
            hashes = (sums[BLOCK:] - sums[:-BLOCK]) * inverse[: sums.size - BLOCK]
            # The upper bits depend on all bytes, the lowest only on their sum.
            yield start, hashes * np.uint64(0xD1342543DE82EF95)
