"""sampling.py: records come as often as their weights say, on any rank, at any step."""

import collections
import dataclasses
import itertools
from fractions import Fraction

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.unit.tfpipe.reading.test_order import leftover
from tfpipe.reading.order import EpochPosition, Order, Phase, epoch_seed
from tfpipe.reading.sampling import Sampling

exhaustive = hypothesis.settings(max_examples=25, deadline=None)

CLASSES = [("n1", "cat"), ("n2", "dog"), ("n3", "crane"), ("n4", "crane")]
EPOCHS = st.integers(0, 2**63 - 1)
SEEDS = st.integers(0, 2**64 - 1)
WEIGHTS = st.lists(
    st.one_of(st.sampled_from([0, 1, 1, 2, 1e-9, 1e9]), st.floats(0, 10)),
    min_size=1,
    max_size=40,
).filter(any)
LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=40)
SHAPES = {
    "seed": SEEDS,
    "shuffle": st.sampled_from(["window", "full"]),
    "remainder": st.sampled_from(["drop", "pad"]),
    "block_length": st.integers(1, 9),
    "window_size": st.integers(1, 30),
}


def expected(sampling, labels=(), num_records=None):
    labels = np.array(labels, np.int64)
    num_records = len(labels) if num_records is None else num_records
    return sampling.expected_copies(num_records, lambda: labels, CLASSES)


def of_records(weights, num_draws=None):
    sampling = Sampling(record_weights=weights, num_draws=num_draws)
    return expected(sampling, num_records=len(weights))


def exact(weights, num_draws):
    """The averages that weights ask for, as exact fractions."""
    weights = [Fraction(weight) for weight in weights]
    return [weight * num_draws / sum(weights) for weight in weights]


def averages(copies):
    return [
        int(whole) + Fraction(int(part), 2**64)
        for whole, part in zip(copies.whole, copies.part, strict=True)
    ]


def words(copies, seed=0):
    """The random words of an epoch."""
    return np.random.Philox(key=seed).random_raw(copies.num_words)


def draw_order(data, copies, num_records):
    """Any order of these copies that has at least one step."""
    options = {name: data.draw(kind) for name, kind in SHAPES.items()}
    sizes = np.array([num_records // 2, num_records - num_records // 2])
    num_ranks = data.draw(st.integers(1, min(4, copies.num_draws)))
    batch_size = data.draw(st.integers(1, min(6, copies.num_draws // num_ranks)))
    return Order(
        shard_sizes=sizes,
        expected_copies=copies,
        num_ranks=num_ranks,
        batch_size=batch_size,
        **options,
    )


def passed_on(of, rank, place):
    """(record, its seed, whether it is real), from a place to the end of the epoch."""
    found = []
    for number in of.windows(rank, place):
        window = of.window(rank, place, number)
        copies = window.copies_passed_on()
        seeds = epoch_seed(seed=of.seed, epoch=place.epoch, copy=copies).tolist()
        for record, seed in zip(window.records().tolist(), seeds, strict=True):
            found.append((record, seed, window.real))
    return found


def counted(elements, num_records):
    """How often each record is there and real."""
    found = collections.Counter(record for record, _, is_real in elements if is_real)
    return [found[record] for record in range(num_records)]


@exhaustive
@hypothesis.given(WEIGHTS, st.integers(1, 200), SEEDS)
def test_a_record_is_drawn_its_average_rounded_down_or_up(weights, num_draws, seed):
    copies = of_records(weights, num_draws)
    wanted = exact(weights, num_draws)

    times = copies.times(words(copies, seed)).tolist()

    assert copies.num_draws == sum(averages(copies)) == sum(times) == num_draws
    for average, found, number in zip(wanted, averages(copies), times, strict=True):
        assert abs(found - average) < Fraction(1, 2**63)
        assert average // 1 <= number <= -(-average // 1)
        assert number == 0 or average > 0


@exhaustive
@hypothesis.given(WEIGHTS, st.integers(1, 100), SEEDS)
def test_the_mean_over_all_starts_is_the_average_exactly(weights, num_draws, seed):
    copies = of_records(weights, num_draws)
    raw = words(copies, seed)
    # Between these starts the draws are the same: no mark reaches the end of a record.
    line = np.argsort(raw[1 : len(weights) + 1], kind="stable")
    ends = [0, *itertools.accumulate(int(copies.part[record]) for record in line)]
    starts = sorted({-end % 2**64 for end in ends} | {0})
    total = np.zeros(len(weights), object)
    for start, stop in itertools.pairwise([*starts, 2**64]):
        raw[0] = start
        total += copies.times(raw).astype(object) * (stop - start)

    assert [Fraction(number, 2**64) for number in total] == averages(copies)


@exhaustive
@hypothesis.given(LABELS, st.sampled_from([0, 0.25, 0.5, 1]), st.integers(1, 90), SEEDS)
@hypothesis.example([0, 0, 0, 1], 0, 9, 0)
def test_a_class_is_drawn_its_average_rounded_down_or_up(labels, power, draws, seed):
    copies = expected(Sampling(balance=power, num_draws=draws), labels)
    sizes = collections.Counter(labels)
    share = {label: size ** (1 - power) for label, size in sizes.items()}

    times = copies.times(words(copies, seed))

    for label in sizes:
        average = draws * share[label] / sum(share.values())
        drawn = times[np.array(labels) == label].sum()
        assert np.floor(average - 1e-9) <= drawn <= np.ceil(average + 1e-9)


def test_balanced_classes_are_equally_often_drawn_whatever_their_size():
    labels = [0] * 700 + [1] * 7 + [3] * 90
    copies = expected(Sampling(balance=1.0, num_draws=3000), labels)

    for seed in range(3):
        times = copies.times(words(copies, seed))
        assert np.bincount(labels, times).tolist() == [1000, 1000, 0, 1000]
        assert set(times[700:707]) == {142, 143}  # 1000 / 7


def test_weights_of_classes_are_those_of_their_records():
    labels = [0, 0, 1, 1, 1, 1]
    by_name = Sampling(class_weights={"cat": 3, "n2": 1, "n3": 9}, num_draws=20)
    by_label = Sampling(class_weights={0: 3.0, np.int64(1): 1}, num_draws=20)

    assert averages(expected(by_name, labels)) == [6, 6, 2, 2, 2, 2]
    assert averages(expected(by_label, labels)) == [6, 6, 2, 2, 2, 2]
    without = Sampling(class_weights={"cat": 0, "dog": 5})
    assert averages(expected(without, labels)) == [0, 0, 1.5, 1.5, 1.5, 1.5]


@pytest.mark.parametrize("labels", [[0] * 40, [0, 1, 2, 3] * 10])
def test_which_records_come_together_changes_from_epoch_to_epoch(labels):
    copies = expected(Sampling(balance=1, num_draws=20), labels)
    drawn = {tuple(copies.times(words(copies, seed))) for seed in range(40)}

    # Without a random order on the line there are 2 ways to draw every other record.
    assert len(drawn) == 40


def test_a_record_of_nearly_all_weight_is_nearly_all_draws():
    copies = of_records([1, 1e9, 1], num_draws=50)
    of = Order(shard_sizes=np.array([3]), expected_copies=copies, window_size=7)

    elements = passed_on(of, 0, EpochPosition())

    assert {record for record, _, _ in elements} == {1}
    assert len({seed for _, seed, _ in elements}) == 50


@exhaustive
@hypothesis.given(WEIGHTS, st.integers(1, 80), EPOCHS, st.data())
def test_ranks_read_what_is_drawn_each_copy_with_its_seed(
    weights, num_draws, epoch, data
):
    copies = of_records(weights, num_draws)
    of = draw_order(data, copies, len(weights))
    times = np.bincount(of._draws(epoch).records, minlength=len(weights))

    shares = [passed_on(of, rank, EpochPosition(epoch)) for rank in range(of.num_ranks)]

    assert {len(share) for share in shares} == {of.num_steps() * of.batch_size}
    everything = list(itertools.chain.from_iterable(shares))
    read = counted(everything, len(weights))
    real = [(record, seed) for record, seed, is_real in everything if is_real]
    assert len(set(real)) == len(real)
    assert all(times[record] for record, _, _ in everything)
    if of.remainder == "pad":
        assert read == times.tolist()
    else:
        assert (np.array(read) <= times).all()
        assert sum(read) > num_draws - of.num_ranks * of.batch_size
    again = dataclasses.replace(of)
    assert passed_on(again, 0, EpochPosition(epoch)) == shares[0]


@hypothesis.settings(max_examples=15, deadline=None)
@hypothesis.given(WEIGHTS, st.integers(1, 30), st.data())
def test_resuming_at_any_step_gives_the_rest_of_the_epoch(weights, num_draws, data):
    of = draw_order(data, of_records(weights, num_draws), len(weights))

    rank = of.num_ranks - 1
    whole = passed_on(of, rank, EpochPosition(2))
    for step in range(of.num_steps()):
        start = step * of.batch_size
        assert passed_on(of, rank, EpochPosition(2, (), start)) == whole[start:]


@exhaustive
@hypothesis.given(WEIGHTS, st.integers(6, 80), st.data())
def test_other_numbers_of_ranks_read_the_rest_of_the_draws(weights, num_draws, data):
    of = draw_order(data, of_records(weights, num_draws), len(weights))
    epoch, phases, seen = 3, (), []
    times = np.bincount(of._draws(epoch).records, minlength=len(weights))
    for _ in range(data.draw(st.integers(2, 4))):
        place = EpochPosition(epoch, phases)
        count = data.draw(st.integers(0, of.num_steps(place))) * of.batch_size
        for rank in range(of.num_ranks):
            seen += passed_on(of, rank, place)[:count]
        phases = (*phases, Phase(of.num_ranks, count))
        left = np.bincount(leftover(of, epoch, phases), minlength=len(weights))
        assert (counted(seen, len(weights)) + left).tolist() == times.tolist()
        num_ranks = data.draw(st.integers(1, 4))
        of = dataclasses.replace(of, num_ranks=num_ranks, batch_size=1)
    real = [(record, seed) for record, seed, is_real in seen if is_real]
    assert len(set(real)) == len(real)


def test_copies_of_a_record_are_spread_over_the_epoch():
    weights = [1.0] * 3500 + [100.0] * 5
    of = Order(
        shard_sizes=np.array([3505]),
        window_size=200,
        expected_copies=of_records(weights, 4000),
    )
    records = [record for record, _, _ in passed_on(of, 0, EpochPosition())]
    last, near = {}, 0
    for position, record in enumerate(records):
        near += position - last.get(record, -100) < 10
        last[record] = position

    # 5 records take 1/8 of the draws: one is among the 9 before it with 1/8 * 9/40.
    assert 60 < near < 170  # 112 by chance; 470 if blocks held copies of one record


def test_window_is_read_in_the_order_on_disk():
    of = Order(
        shard_sizes=np.array([30, 20]),
        window_size=40,
        block_length=4,
        expected_copies=of_records(np.arange(50), 120),
    )
    for number in of.windows(0, EpochPosition()):
        read = of.window(0, EpochPosition(), number).ranges.records()
        assert (np.diff(read) >= 0).all()


PINNED = (
    "a97bdd4f95e2e3551a440732aa6627d5",
    [4, 6, 6, 1, 7, 5, 8, 3, 8, 0, 7, 2],
    [0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0],
    [3845544696532098304, 5599683423530089621],
)


# Pinned: another value here means that checkpoints resume in another order.
def test_draws_are_the_same_on_every_machine_and_version():
    labels = [0, 0, 0, 0, 0, 0, 1, 1, 3]
    of = Order(
        shard_sizes=np.array([5, 4]),
        seed=7,
        expected_copies=expected(Sampling(balance=0.5, num_draws=12), labels),
    )

    assert of.expected_copies.digest == PINNED[0]
    assert of.window(0, EpochPosition(3), 0).records().tolist() == PINNED[1]
    assert of.window(0, EpochPosition(3), 0).copies_passed_on().tolist() == PINNED[2]
    assert epoch_seed(seed=7, epoch=3, copy=np.array([0, 2])).tolist() == PINNED[3]


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (
            {"class_weights": {"cta": 1}},
            "must be the label of a class, 0 to 3, or the name of one class, got "
            "'cta', which is that of 0 classes. Did you mean cat",
        ),
        ({"class_weights": {"crane": 1}}, "'crane', which is that of 2 classes"),
        ({"class_weights": {4: 1}}, "0 to 3, or the name of one class, got 4"),
        ({"class_weights": {-1: 1}}, "got -1"),
        ({"class_weights": {"cat": 1, 0: 2}}, "two keys for class 0, one of them 0"),
        (
            {"class_weights": {"n1": 1}},
            r"for each class with records, got none for 1 of them: 1 \(dog\)",
        ),
        (
            {"class_weights": {0: 0, 1: 0, 2: 5}},
            "every record of the split has the weight 0",
        ),
        ({"record_weights": [1, 2]}, "each of the 3 records of the split, got 2"),
    ],
)
def test_weights_that_do_not_fit_the_split_are_refused(sampling, message):
    with pytest.raises(ValueError, match=message):
        expected(Sampling(**sampling), [0, 0, 1])


def test_samplings_are_equal_if_their_weights_are():
    weights = np.array([1.0, 2, 3])
    made = Sampling(record_weights=weights)
    weights[0] = 9

    assert made == Sampling(record_weights=[1, 2, 3])
    assert hash(made) == hash(Sampling(record_weights=[1, 2, 3]))
    assert made != Sampling(record_weights=weights)
    assert repr(made) != repr(Sampling(record_weights=weights))
    assert Sampling(class_weights={0: 1}) != Sampling(class_weights={0: 2})


def test_sampling_needs_a_shuffle():
    with pytest.raises(ValueError, match='must be "window" or "full" with sampling'):
        Order(
            shard_sizes=np.array([2]),
            shuffle="none",
            expected_copies=of_records([1, 2]),
        )
