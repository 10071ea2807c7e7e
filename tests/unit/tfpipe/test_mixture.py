import fractions
import itertools
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe import mixture


def part(data_dir, split="train", *, rank=0, num_ranks=1, number=0, **options):
    """Records of a split, as {"set": number, "record": its number in the split}."""

    def name(record):
        return {"set": tf.constant(number), "record": record["record_id"]}

    source = tfpipe.TFRecordSource(
        data_dir, split, rank=rank, num_ranks=num_ranks, window_size=4, **options
    )
    return tfpipe.Pipeline(
        source, [tfpipe.Interleave(), tfpipe.AssertCardinality(), tfpipe.Map(name)]
    )


def make_mixture(data_dir, *, weights=(3, 2), rank=0, num_ranks=1, seed=0, **options):
    """Returns a mixture of the 24 training and the 7 validation records."""
    parts = [
        part(data_dir, split, rank=rank, num_ranks=num_ranks, number=number, seed=seed)
        for number, split in enumerate(("train", "validation"))
    ]
    return tfpipe.Mixture(parts, weights, **options)


def elements(source, state=None, num_epochs=1, count=None):
    """(set, record) of each element."""
    dataset = source(state or tfpipe.State(), num_epochs)
    if count is not None:
        dataset = dataset.take(count)
    return [
        (int(element["set"]), int(element["record"]))
        for element in dataset.as_numpy_iterator()
    ]


def damaged(data_dir, folder, split):
    """A copy of the data with a byte of the first record of a split changed."""
    copy = shutil.copytree(data_dir, folder)
    path = sorted(copy.glob(f"{split}-0*"))[0]
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    return copy


def test_faults_are_those_of_all_parts(data_dir, tmp_path, capfd):
    logs = [tfpipe.FaultLog(5), tfpipe.FaultLog(0)]
    parts = []
    for log, split in zip(logs, ("train", "validation"), strict=True):
        source = tfpipe.TFRecordSource(
            damaged(data_dir, tmp_path / split, split), split, shuffle="none"
        )
        stages = [tfpipe.Interleave(faults=log), tfpipe.Map(tfpipe.Select("record_id"))]
        parts.append(tfpipe.Pipeline(source, stages))
    whole = tfpipe.Pipeline(tfpipe.Mixture(parts, [24, 7]), [tfpipe.Batch(1)])
    only = tfpipe.Pipeline(tfpipe.Mixture(parts[:1], [1]), [])
    assert only.faults is logs[0]
    assert whole.faults.faults == []
    assert whole.faults.error() is None

    with pytest.raises(tf.errors.UnknownError, match="max_faults allows 0"):
        list(whole.build())
    list(only.build())

    assert [fault.reason for fault in whole.faults.faults] == ["crc", "crc"]
    assert whole.faults.num_faults_by_reason == {"crc": 2}
    assert whole.faults.summary().startswith("Skipped 2 records.\ncrc: 2\n")
    assert "Found 1 damaged record, max_faults allows 0" in str(whole.faults.error())
    assert "Skipped 1 record." in capfd.readouterr().err  # after the epoch
    with pytest.raises(TypeError, match="must be added to one of the 2 logs"):
        whole.faults.add(whole.faults.faults[0])


def test_faults_are_those_of_all_stages(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train")
    one, other = (tfpipe.FaultLog(n, locate=source.locate) for n in (1, 2))
    flip = tfpipe.Flip()

    def faults(of_reading, of_ops):
        stages = [tfpipe.Interleave(faults=of_reading), tfpipe.Map(flip, faults=of_ops)]
        return tfpipe.Pipeline(source, stages).faults

    assert faults(one, other).logs == (one, other)
    assert faults(one, one) is faults(None, one) is one
    assert faults(None, None) is None


@pytest.mark.parametrize(
    ("weights", "whole"),
    [
        ([1, 1], [1, 1]),
        ([6, 4], [3, 2]),
        ([0.7, 0.3], [7, 3]),
        ([0.5, 0.25, 0.25], [2, 1, 1]),
        ([1e-3, 1], [1, 1000]),
        ([fractions.Fraction(1, 3), fractions.Fraction(1, 2)], [2, 3]),
        ([5], [1]),
    ],
)
def test_weights_as_whole_numbers(weights, whole):
    assert mixture.integer_weights(weights) == whole


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 0], "a finite number > 0, got 0"),
        ([1, -2], "a finite number > 0"),
        ([1.0, float("nan")], "a finite number > 0"),
        ([1.0, float("inf")], "a finite number > 0"),
        (
            [1 / 3, 1],
            r"repeat within 1048576 elements, got a period of \d+\. Round",
        ),
    ],
)
def test_weights_that_cannot_be_met_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        mixture.integer_weights(weights)


def random_weights():
    random = np.random.default_rng(5)
    sizes = random.integers(1, 9, 60)
    return [random.integers(1, 40, size).tolist() for size in sizes]


def test_shares_are_exact_at_every_point():
    """Within Tijdeman's bound, which is less than one element."""
    for weights in [*random_weights(), [1], [1000, 1], [1] * 9]:
        chosen = mixture.schedule(weights)

        numbers = np.arange(len(chosen) + 1)[:, None]
        given = np.zeros((len(chosen) + 1, len(weights)), int)
        given[1:] = np.cumsum(np.eye(len(weights), dtype=int)[chosen], axis=0)
        # In units of 1 / sum: whole numbers, so compared without rounding.
        total = sum(weights)
        off = np.abs(given * total - numbers * np.array(weights)).max()
        num_twice = 2 * max(len(weights), 2) - 2
        assert off * num_twice <= total * (num_twice - 1)
        assert given[-1].tolist() == mixture.integer_weights(weights)


def test_elements_are_those_of_each_set_in_its_own_epochs(data_dir):
    source = make_mixture(data_dir, epoch_steps=50)
    alone = [
        list(
            pipeline.build(num_epochs=None)
            .map(lambda element: element["record"])
            .take(50)
            .as_numpy_iterator()
        )
        for pipeline in source.pipelines
    ]

    got = elements(source)

    assert [number for number, _ in got] == source._schedule.tolist() * 10
    for number, count in enumerate((30, 20)):
        records = [record for which, record in got if which == number]
        assert records == alone[number][:count]
    # The small set is in its third epoch: 7 records each.
    small = [record for which, record in got if which == 1]
    assert sorted(small[:7]) == sorted(small[7:14]) == list(range(7))
    assert small[:7] != small[7:14]


def test_pipeline_that_goes_on_at_any_step_gives_what_would_have_followed(data_dir):
    pipeline = tfpipe.Pipeline(
        make_mixture(data_dir, batch_size=4, epoch_steps=6),
        [tfpipe.AssertCardinality(), tfpipe.Batch(4)],
    )
    whole = list(pipeline.build(num_epochs=3).as_numpy_iterator())
    for step in (6, 13):
        state = pipeline.source.advance(tfpipe.State(), step)

        rest = pipeline.build(state=state, num_epochs=3 - state.epoch)

        assert (state.epoch, state.step) == divmod(step, 6)
        assert rest.cardinality() == 18 - step
        for got, expected in zip(rest.as_numpy_iterator(), whole[step:], strict=True):
            np.testing.assert_equal(got, expected)


def test_states_follow_each_other_and_parts_give_their_counts(data_dir):
    source = make_mixture(data_dir, batch_size=4, epoch_steps=6)
    state = tfpipe.State()

    for step in range(30):
        assert source.advance(tfpipe.State(), step) in (state, source.advance(state, 0))
        train, validation = source.part_states(state)
        given = source.num_given(4 * step)
        assert sum(given) == 4 * step
        assert (
            given
            == np.bincount(np.resize(source._schedule, 4 * step), minlength=2).tolist()
        )
        assert (train.epoch, train.step) == divmod(given[0], 24)
        assert (validation.epoch, validation.step) == divmod(given[1], 7)
        state = source.advance(state)


def test_first_set_decides_the_steps_of_an_epoch_unless_they_are_given(data_dir):
    def steps(**options):
        return make_mixture(data_dir, **options).steps_per_epoch

    assert steps(weights=(3, 1)) == 32  # 24 of the first, 8 of the other
    assert steps(weights=(3, 1), batch_size=5) == 6
    assert steps(weights=(3, 1), num_ranks=2) == 16
    assert steps(weights=(1, 1), batch_size=99) == 1
    assert steps(epoch_steps=7) == 7


def test_ranks_mix_their_own_shares_in_equal_steps(data_dir):
    sources = [
        make_mixture(data_dir, rank=rank, num_ranks=2, weights=(4, 1))
        for rank in range(2)
    ]

    shares = [elements(source) for source in sources]

    assert len({source.steps_per_epoch for source in sources}) == 1
    assert {len(share) for share in shares} == {sources[0].steps_per_epoch}
    assert len({source.digest for source in sources}) == 1
    seen = [record for number, record in itertools.chain(*shares) if number == 0]
    assert sorted(seen) == list(range(24))


def test_mixture_of_mixtures(data_dir):
    inner = make_mixture(data_dir, weights=(1, 1), epoch_steps=10)
    source = tfpipe.Mixture(
        [tfpipe.Pipeline(inner, []), part(data_dir, number=2)], [2, 1], epoch_steps=12
    )

    got = elements(source)

    assert np.bincount([number for number, _ in got]).tolist() == [4, 4, 4]
    assert elements(source, source.advance(tfpipe.State(), 5)) == got[5:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "same data, seeds, weights and steps"),
        ({"weights": (1, 1)}, "same data, seeds, weights and steps"),
        ({"epoch_steps": 9}, "same data, seeds, weights and steps"),
        ({"num_ranks": 2}, "the num_ranks .*the state has 1, the mixture 2"),
        ({"batch_size": 2}, "the batch_size .*the state has 4, the mixture 2"),
    ],
)
def test_state_of_another_mixture_is_refused(data_dir, change, message):
    options = {"batch_size": 4, "epoch_steps": 5}
    state = make_mixture(data_dir, **options).advance(tfpipe.State(), 2)

    with pytest.raises(ValueError, match=message):
        make_mixture(data_dir, **{**options, **change}).advance(state)


def test_start_beyond_the_epoch_is_refused(data_dir):
    with pytest.raises(ValueError, match="has 5 steps, got a start at step 6"):
        make_mixture(data_dir, epoch_steps=5).advance(tfpipe.State(step=6))


def test_wrong_arguments_are_refused(data_dir):
    good = part(data_dir)
    synthetic = tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=1), [])

    with pytest.raises(ValueError, match="got 1 pipelines and 2 weights"):
        tfpipe.Mixture([good], [1, 2])
    with pytest.raises(ValueError, match="got 0 pipelines and 0 weights"):
        tfpipe.Mixture([], [])
    with pytest.raises(
        ValueError, match=r"Mixture\.batch_size must be a whole number >= 1, got 0"
    ):
        tfpipe.Mixture([good], [1], batch_size=0)
    with pytest.raises(ValueError, match="same rank and num_ranks, got 0 of 1, 1 of 2"):
        tfpipe.Mixture([good, part(data_dir, rank=1, num_ranks=2)], [1, 1])
    with pytest.raises(ValueError, match="batch_size 1, pipeline 1 has 3"):
        tfpipe.Mixture([good, part(data_dir, batch_size=3)], [1, 1])
    with pytest.raises(TypeError, match="pipeline 0 must say where it is"):
        tfpipe.Mixture([synthetic], [1])


def test_elements_of_two_forms_are_refused(data_dir):
    bare = tfpipe.Pipeline(tfpipe.TFRecordSource(data_dir, "train"), [])
    source = tfpipe.Mixture([part(data_dir), bare], [1, 1])

    with pytest.raises(ValueError, match=r"of one form: pipeline 0 .* pipeline 1"):
        source(tfpipe.State(), 1)


def test_start_at_the_end_of_an_epoch_is_the_start_of_the_next(data_dir):
    mix = make_mixture(data_dir, batch_size=5, epoch_steps=3)
    pipeline = tfpipe.Pipeline(mix, [tfpipe.Batch(5)])

    def records(**options):
        return [batch["record"].tolist() for batch in pipeline.to_numpy(**options)]

    assert records(start_step=3) == []
    assert records(start_step=3, num_epochs=2) == records(epoch=1)
    with pytest.raises(ValueError, match="got a start at step 4"):
        pipeline.build(start_step=4)


@pytest.mark.parametrize(("num_epochs", "count"), [(2, 25), (None, -1)])
def test_number_of_elements_is_known(data_dir, num_epochs, count):
    mix = make_mixture(data_dir, batch_size=5, epoch_steps=3)

    dataset = mix(tfpipe.State(step=1), num_epochs)

    assert dataset.cardinality() == count
