import numpy as np
import pytest
import tensorflow as tf

import tfpipe


def make(data_dir, *stages, **options):
    options = {"window_size": 7, "block_length": 2, "seed": 3, **options}
    source = tfpipe.TFRecordSource(data_dir, "train", **options)
    return tfpipe.Pipeline(source, [tfpipe.Interleave(), *stages])


def ids(dataset):
    return [np.asarray(x["record_id"]).tolist() for x in dataset.as_numpy_iterator()]


BATCHED = [tfpipe.Shuffle(5), tfpipe.Batch(3)]
TWICE = [
    tfpipe.Shuffle(5),
    tfpipe.AssertCardinality(),
    tfpipe.Batch(3),
    tfpipe.Shuffle(3, seed=1),
]


def test_epochs_stay_whole_and_a_run_goes_on_with_what_would_have_followed(data_dir):
    options = {"num_ranks": 2, "remainder": "pad"}
    pipeline = make(data_dir, *TWICE, batch_size=3, **options)
    steps = pipeline.source.steps_per_epoch

    whole = ids(pipeline.build(num_epochs=3))

    assert len(whole) == 3 * steps
    assert whole[steps : 2 * steps] == ids(pipeline.build(epoch=1))
    state = pipeline.source.advance(tfpipe.State(), steps + 2)
    rest = pipeline.build(state=state, num_epochs=2)
    assert rest.cardinality() == 2 * steps - 2
    assert ids(rest) == whole[steps + 2 :]
    endless = pipeline.build(start_step=1, num_epochs=None)
    assert ids(endless.take(2 * steps)) == whole[1 : 1 + 2 * steps]


def test_every_record_comes_once_an_epoch_in_an_order_of_its_own(data_dir):
    pipeline = make(data_dir, tfpipe.Shuffle(10), shuffle="none")

    epochs = [ids(pipeline.build(epoch=epoch)) for epoch in range(3)]

    assert [sorted(epoch) for epoch in epochs] == [[*range(24)]] * 3
    assert len({str(epoch) for epoch in epochs}) == 3
    # A group of ten consecutive ones is permuted by itself.
    assert sorted(epochs[0][:10]) == [*range(10)]
    assert sorted(epochs[0][20:]) == [*range(20, 24)]


def test_mixture_shuffled_goes_on_with_what_would_have_followed(data_dir):
    parts = [make(data_dir, seed=seed) for seed in (1, 2)]
    mixture = tfpipe.Mixture(parts, [2, 1], batch_size=3, epoch_steps=5)
    pipeline = tfpipe.Pipeline(mixture, [tfpipe.Shuffle(4), tfpipe.Batch(3)])

    whole = ids(pipeline.build(num_epochs=3))

    state = mixture.advance(tfpipe.State(), 7)
    assert ids(pipeline.build(state=state, num_epochs=2)) == whole[7:]


def keep_even(dataset):
    return dataset.filter(lambda x: x["record_id"] % 2 == 0)


def test_shuffle_after_what_gives_any_number_is_refused(data_dir):
    pipeline = make(data_dir, keep_even, tfpipe.Shuffle(5))

    assert sorted(ids(pipeline.build())) == [*range(0, 24, 2)]
    for options in ({"num_epochs": 2}, {"start_step": 1}, {"num_epochs": None}):
        with pytest.raises(ValueError, match=r"TFRecordSource\(shuffle=\"window\"\)"):
            pipeline.build(**options)


def test_going_on_with_another_number_of_ranks_is_refused(data_dir):
    before, after = (
        make(data_dir, *BATCHED, batch_size=3, num_ranks=n) for n in (1, 2)
    )
    state = before.source.advance(tfpipe.State(), 2)

    with pytest.raises(ValueError, match="the number of ranks"):
        after.build(state=state)


def test_going_on_within_an_epoch_of_a_source_that_counts_nothing_is_refused():
    def source(state, num_epochs):
        return tf.data.Dataset.range(20)

    pipeline = tfpipe.Pipeline(source, [tfpipe.Shuffle(5)])

    assert sorted(pipeline.build().as_numpy_iterator()) == [*range(20)]
    with pytest.raises(ValueError, match="a source that counts records"):
        pipeline.build(start_step=1)
