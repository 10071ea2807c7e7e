"""Finds the blocks of files that occur in other files, at any byte.

In: groups of files. Out: the share of their blocks that another group holds too. A
storage that keeps equal blocks once saves at most this share. A rolling hash (Karp and
Rabin, 1987, modulo 2 ** 64) finds candidates, and their bytes are compared.
"""

import concurrent.futures
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

BLOCK = 4096
_BASE = 0x9E3779B97F4A7C15
# The upper bits of a product depend on all bytes, the lowest only on their sum.
_MIX = np.uint64(0xD1342543DE82EF95)
_PIECE = 1 << 16
_ROWS = _PIECE // BLOCK
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

    def look(group: int, content: np.ndarray) -> None:
        for start, hashes in _rolling(content):
            found = np.flatnonzero(known[_slots(hashes)])
            found = found[np.isin(hashes[found], blocks.hashes)]
            for place in found:
                at = start + int(place)
                window = content[at : at + BLOCK]
                _mark(contents, blocks, group, hashes[place], window, shared)

    # numpy works on all cores, as it holds no lock of Python within an operation.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = [
            pool.submit(look, number, content)
            for number, group in enumerate(contents)
            for content in group
        ]
        for job in jobs:
            job.result()
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
            hashes = _aligned(content)
            columns[0].append(hashes)
            columns[1].append(np.full(hashes.size, group))
            columns[2].append(np.full(hashes.size, number))
            columns[3].append(np.arange(hashes.size) * BLOCK)
    if not columns[0]:
        return _Blocks(*(np.zeros(0, np.uint64) for _ in range(4)))
    joined = [np.concatenate(column) for column in columns]
    order = np.argsort(joined[0], kind="stable")
    return _Blocks(*(column[order] for column in joined))


def _aligned(content: np.ndarray) -> np.ndarray:
    """Returns the hashes of the blocks at whole multiples of BLOCK."""
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(BLOCK, _BASE, np.uint64))
        blocks = content[: content.size // BLOCK * BLOCK].reshape(-1, BLOCK)
        sums = [
            (blocks[start : start + _ROWS] * powers).sum(axis=1, dtype=np.uint64)
            for start in range(0, len(blocks), _ROWS)
        ]
        return np.concatenate([np.zeros(0, np.uint64), *sums]) * _MIX


def _rolling(content: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields a place and the hashes of the windows of BLOCK bytes from there on."""
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(_PIECE + BLOCK, _BASE, np.uint64))
        inverse = np.cumprod(np.full(_PIECE, pow(_BASE, -1, 2**64), np.uint64))
        inverse *= np.uint64(_BASE) * _MIX
        for start in range(0, content.size - BLOCK + 1, _PIECE):
            piece = content[start : start + _PIECE + BLOCK - 1]
            sums = np.zeros(piece.size + 1, np.uint64)
            np.cumsum(piece * powers[: piece.size], out=sums[1:])
            hashes = sums[BLOCK:] - sums[:-BLOCK]
            hashes *= inverse[: hashes.size]
            yield start, hashes
