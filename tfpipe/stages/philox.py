"""Computes, without TensorFlow, how tf.data's shuffle permutes a whole window.

In: the number of elements and the two seeds of `ShuffleDatasetV3`. Out: the order of
the elements. A run stopped within a window has read the first records in the same
order, so `reading.order` can resume the run. tf.data's shuffle moves records; a
permutation in numpy would copy the records.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

# Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
_KEY_STEPS = np.array([[0x9E3779B9], [0xBB67AE85]], np.uint64)
_NUM_ROUNDS = 10
_LOW = 0xFFFFFFFF
_HALF, _LOW_HALF = np.uint64(32), np.uint64(_LOW)


def shuffled(size: int, seed: Iterable[int]) -> npt.NDArray[np.int64]:
    """Returns the order of 0 .. size - 1 out of a shuffle buffer with room for all.

    Equals `Dataset.range(size)` through `tf.raw_ops.ShuffleDatasetV3` with the same
    seeds and a buffer of at least `size` elements (shuffle_dataset_op.cc): every draw
    swaps the first remaining element with a random remaining element.

    Args:
        size: Number of elements.
        seed: `seed` and `seed2` of the op, int64. With 0 and 0, which the op never
            gets, the elements keep their order.

    Returns:
        int64 [size].
    """
    first, second = (int(value) & 0xFFFFFFFFFFFFFFFF for value in seed)
    if not first and not second:
        return np.arange(size)
    left = np.arange(size, 0, -1, dtype=np.uint64)
    words = _random_uint32(size, first, second)
    drawn = np.arange(size) + (words % left).astype(np.int64)
    order = list(range(size))
    for front, other in enumerate(drawn.tolist()):
        order[front], order[other] = order[other], order[front]
    return np.array(order, np.int64)


def _random_uint32(size: int, first: int, second: int) -> npt.NDArray[np.uint64]:
    """Returns uint64 [size]: the 32-bit values of TensorFlow's PhiloxRandom."""
    # Words 0 and 2 of each counter, and words 1 and 3; a round works on two at once.
    even = np.zeros((2, -(-size // 4)), np.uint64)
    even[0], even[1] = np.arange(even.shape[1]), second & _LOW
    odd = np.zeros_like(even)
    odd[1] = second >> 32
    rounds = np.arange(_NUM_ROUNDS, dtype=np.uint64)[:, None, None]
    start = np.array([[first & _LOW], [first >> 32]], np.uint64)
    for key in (start + rounds * _KEY_STEPS) & _LOW_HALF:
        product = (even * _MULTIPLIERS)[::-1]
        even, odd = (product >> _HALF) ^ odd ^ key, product & _LOW_HALF
    words: npt.NDArray[np.uint64] = np.stack([even[0], odd[0], even[1], odd[1]], axis=1)
    return words.reshape(-1)[:size]
