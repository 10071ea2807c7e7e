import pytest
import tensorflow as tf

from tfpipe.stages import philox

# Sizes around a batch of four random numbers, and those of windows.
SIZES = [1, 2, 3, 4, 5, 7, 8, 31, 97, 255, 1024, 1025, 2999, 3000]
LIMITS = tf.int64.limits
SEEDS = [
    (1, 0),
    (0, 1),
    (-1, -1),
    (LIMITS[0], LIMITS[1]),
    (2**32, -(2**32)),
    (-4242424242424242, 8765432109876543),
]


def shuffled_by_tensorflow(sizes, seeds):
    """The orders, from one graph for all sizes and seeds."""
    spec = tf.TensorSpec([], tf.int64)

    @tf.function(input_signature=[spec, spec, spec])
    def order(size, seed, seed2):
        variant = tf.raw_ops.ShuffleDatasetV3(
            input_dataset=tf.data.experimental.to_variant(tf.data.Dataset.range(size)),
            buffer_size=size,
            seed=seed,
            seed2=seed2,
            seed_generator=tf.raw_ops.DummySeedGenerator(),
            output_types=[tf.int64],
            output_shapes=[[]],
            reshuffle_each_iteration=False,
        )
        dataset = tf.data.experimental.from_variant(variant, spec)
        return dataset.batch(size).get_single_element()

    cases = zip(sizes, seeds, strict=True)
    return [order(size, *seed).numpy().tolist() for size, seed in cases]


@pytest.mark.parametrize("seed", SEEDS)
def test_order_is_that_of_tensorflow(seed):
    expected = shuffled_by_tensorflow(SIZES, [seed] * len(SIZES))

    result = [philox.shuffled(size, seed).tolist() for size in SIZES]

    assert result == expected


def test_order_is_that_of_tensorflow_for_any_size_and_seed():
    random = tf.random.Generator.from_seed(20)
    sizes = random.uniform([40], 1, 3001, tf.int64).numpy().tolist()
    seeds = random.uniform_full_int([40, 2], tf.int64).numpy().tolist()
    assert min(min(seed) for seed in seeds) < 0

    result = [
        philox.shuffled(size, tuple(seed)).tolist()
        for size, seed in zip(sizes, seeds, strict=True)
    ]

    assert result == shuffled_by_tensorflow(sizes, seeds)


def test_nothing_is_shuffled_to_nothing():
    assert philox.shuffled(0, (1, 2)).tolist() == []
