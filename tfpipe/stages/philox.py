"""Computes, without TensorFlow, how tf.data's shuffle permutes a whole window.

In: the number of elements and the two seeds of `ShuffleDatasetV3`. Out: the order of
the elements. A run that stopped within a window has read the first records in this
order, so `reading.order` can resume it. tf.data's shuffle moves records; a permutation
made here would copy them.
"""

import numpy as np
import numpy.typing as npt

# Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_NUM_ROUNDS = 10
_LOW = 0xFFFFFFFF


def shuffled(size: int, seed: tuple[int, int]) -> npt.NDArray[np.int64]:
    """Returns the order in which 0 .. size - 1 leave a shuffle buffer that holds all.

    Equals `Dataset.range(size)` through `tf.raw_ops.ShuffleDatasetV3` with these seeds
    and a buffer of at least `size` elements (shuffle_dataset_op.cc): each draw swaps
    the first of the remaining elements with a random one of them.

    Args:
        size: Number of elements.
        seed: `seed` and `seed2` of the op, int64, not both 0.

    Returns:
        int64 [size].
    """
    left = np.arange(size, 0, -1, dtype=np.uint64)
    drawn = np.arange(size) + (_random_uint32(size, seed) % left).astype(np.int64)
    order = list(range(size))
    for front, other in enumerate(drawn.tolist()):
        order[front], order[other] = order[other], order[front]
    return np.array(order, np.int64)


def _random_uint32(size: int, seed: tuple[int, int]) -> npt.NDArray[np.uint64]:
    """Returns uint64 [size]: the 32-bit values of TensorFlow's PhiloxRandom(*seed)."""
    first, second = (value & 0xFFFFFFFFFFFFFFFF for value in seed)
    counter = np.zeros((4, -(-size // 4)), np.uint64)
    counter[0] = np.arange(counter.shape[1])
    counter[2], counter[3] = second & _LOW, second >> 32
    key = [first & _LOW, first >> 32]
    for _ in range(_NUM_ROUNDS):
        low = counter[0] * _MULTIPLIERS[0]
        high = counter[2] * _MULTIPLIERS[1]
        counter = np.stack(
            [
                (high >> 32) ^ counter[1] ^ np.uint64(key[0]),
                high & np.uint64(_LOW),
                (low >> 32) ^ counter[3] ^ np.uint64(key[1]),
                low & np.uint64(_LOW),
            ]
        )
        key = [
            (value + step) & _LOW for value, step in zip(key, _KEY_STEPS, strict=True)
        ]
    return counter.T.reshape(-1)[:size]
