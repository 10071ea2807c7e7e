"""tfpipe.stages.philox: equal to TensorFlow's shuffle for any size of a window."""

from tests.support.faults.torture import rounds
from tests.unit.tfpipe.stages.test_philox import shuffled_by_tensorflow
from tfpipe.stages import philox


def test_order_is_that_of_tensorflow_for_any_size():
    sizes = range(1, 3001, rounds(few=4, many=1))
    seeds = [(7 * size - 9000, -size) for size in sizes]

    result = [
        philox.shuffled(size, seed).tolist()
        for size, seed in zip(sizes, seeds, strict=True)
    ]

    assert result == shuffled_by_tensorflow(sizes, seeds)
