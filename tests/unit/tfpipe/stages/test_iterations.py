"""reading.iterations: numbers that go on in each iteration of a dataset."""

from tfpipe.stages.iterations import counters


def as_list(dataset):
    return list(dataset.as_numpy_iterator())


def test_each_iteration_has_the_next_numbers():
    dataset = counters(2, 3)

    assert [as_list(dataset) for _ in range(3)] == [[0, 1], [2, 3, 4], [5, 6, 7]]
    assert as_list(counters(2, 3).repeat(2)) == [0, 1, 2, 3, 4]


def test_iterators_that_are_open_at_once_have_different_numbers():
    dataset = counters(2, 3)
    first, second = iter(dataset), iter(dataset)

    pairs = [(int(next(first)), int(next(second))) for _ in range(2)]

    assert pairs == [(0, 2), (1, 3)]
    assert next(first, None) is None
    assert int(next(second)) == 4
