import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tfpipe


@dataclasses.dataclass(frozen=True)
class Numbers:
    """A source of five numbers: epoch k counts from 10 * k."""

    def __call__(self, state, num_epochs):
        count = tf.int64.max if num_epochs is None else num_epochs
        epochs = tf.data.Dataset.range(count)
        numbers = epochs.flat_map(
            lambda k: tf.data.Dataset.range(5).map(lambda x: x + 10 * (k + state.epoch))
        )
        return numbers.skip(state.step)

    def num_records(self, state, num_epochs):
        return None if num_epochs is None else 5 * num_epochs - state.step


def add_one(x):
    return x + 1


def keep_small(dataset):
    return dataset.filter(lambda x: x % 10 < 3)


def as_list(dataset):
    return list(dataset.as_numpy_iterator())


def make_pipeline(*stages, **options):
    return tfpipe.Pipeline(Numbers(), stages, **options)


def test_pipeline_prints_one_line_a_stage_with_the_tuned_knobs():
    pipeline = make_pipeline(
        tfpipe.Shuffle(10, seed=3),
        tfpipe.Map(tfpipe.Flip(), tfpipe.Select("image")),
        tfpipe.Prefetch(),
        tuning=tfpipe.Tuning(num_parallel_maps=6, prefetch_buffer_size=2),
    )

    assert str(pipeline).splitlines() == [
        "   Numbers()",
        " 1 Shuffle(buffer_size=10, seed=3)",
        " 2 Map(Flip(), Select('image'), num_parallel_calls=6)",
        " 3 Prefetch(buffer_size=2)",
        f"   {pipeline.tuning!r}",
    ]


def test_knobs_of_a_stage_win_over_the_tuning():
    pipeline = make_pipeline(
        tfpipe.Prefetch(buffer_size=7), tuning=tfpipe.Tuning(prefetch_buffer_size=2)
    )

    assert " 1 Prefetch(buffer_size=7)" in str(pipeline)


def test_plain_functions_are_sources_stages_and_ops():
    def source(state, num_epochs):
        return tf.data.Dataset.range(4)

    pipeline = tfpipe.Pipeline(source, [keep_small, tfpipe.Map(add_one)])

    assert as_list(pipeline.build()) == [1, 2, 3]


def test_pipeline_without_stages_is_its_source():
    assert as_list(make_pipeline().build()) == [0, 1, 2, 3, 4]


def test_prefix_has_the_first_stages():
    pipeline = make_pipeline(tfpipe.Take(3), tfpipe.Map(add_one), tfpipe.Batch(2))

    built = [as_list(pipeline.prefix(number).build()) for number in range(3)]

    assert built == [[0, 1, 2, 3, 4], [0, 1, 2], [1, 2, 3]]
    assert pipeline.prefix(3) == pipeline
    assert pipeline.prefix(1).tuning == pipeline.tuning


@pytest.mark.parametrize("num_stages", [-1, 3])
def test_prefix_beyond_the_stages_is_refused(num_stages):
    pipeline = make_pipeline(tfpipe.Take(3), tfpipe.Batch(2))

    with pytest.raises(ValueError, match=f"from 0 to 2, got {num_stages}"):
        pipeline.prefix(num_stages)


def test_epoch_is_given_to_the_source():
    assert as_list(make_pipeline().build(epoch=3)) == [30, 31, 32, 33, 34]


@pytest.mark.parametrize("first", [0, 4])
def test_epochs_of_a_long_build_equal_those_built_alone(first):
    pipeline = make_pipeline(tfpipe.Map(add_one))
    alone = [as_list(pipeline.build(epoch=first + number)) for number in range(3)]

    together = as_list(pipeline.build(epoch=first, num_epochs=3))

    assert together == [x for epoch in alone for x in epoch]


def test_state_and_start_step_are_given_to_the_source():
    pipeline = make_pipeline(tfpipe.Map(add_one))
    expected = [24, 25, 31, 32, 33, 34, 35]

    assert as_list(pipeline.build(epoch=2, start_step=3, num_epochs=2)) == expected
    state = tfpipe.State(epoch=2, step=3)
    assert as_list(pipeline.build(state=state, num_epochs=2)) == expected


def test_build_without_number_of_epochs_has_no_end():
    dataset = make_pipeline().build(epoch=2, num_epochs=None)

    assert as_list(dataset.take(6)) == [20, 21, 22, 23, 24, 30]
    assert as_list(dataset.skip(5000).take(1)) == [10_020]


@pytest.mark.parametrize(
    ("stages", "num_epochs", "cardinality"),
    [
        ([], 1, tf.data.UNKNOWN_CARDINALITY),
        ([tfpipe.AssertCardinality()], 1, 5),
        ([tfpipe.AssertCardinality()], 3, 15),
        ([tfpipe.AssertCardinality()], None, tf.data.INFINITE_CARDINALITY),
        ([tfpipe.AssertCardinality(), tfpipe.Batch(2)], 1, 2),
        ([tfpipe.AssertCardinality(), tfpipe.Batch(2)], 4, 10),
        ([keep_small], 1, tf.data.UNKNOWN_CARDINALITY),
        ([keep_small, tfpipe.AssertCardinality(6)], 2, 6),
    ],
)
def test_cardinality_is_that_of_all_epochs(stages, num_epochs, cardinality):
    dataset = make_pipeline(*stages).build(num_epochs=num_epochs)

    assert dataset.cardinality() == cardinality


def test_fewer_elements_than_the_source_has_records_are_an_error():
    pipeline = make_pipeline(keep_small, tfpipe.AssertCardinality())

    with pytest.raises(tf.errors.FailedPreconditionError, match="contain 5 elements"):
        as_list(pipeline.build())


def test_source_without_a_number_of_records_leaves_the_cardinality_open():
    def source(state, num_epochs):
        return tf.data.Dataset.range(4)

    pipeline = tfpipe.Pipeline(source, [tfpipe.AssertCardinality()])

    assert as_list(pipeline.build()) == [0, 1, 2, 3]


def test_built_dataset_has_the_options_of_the_tuning():
    tuning = tfpipe.Tuning(private_threadpool_size=3, deterministic=False)

    options = make_pipeline(tuning=tuning).build().options()

    assert options.threading.private_threadpool_size == 3
    assert options.deterministic is False


@pytest.mark.parametrize("num_epochs", [1, 2])
def test_error_of_a_stage_names_the_stage_and_what_came_in(num_epochs):
    def fail(dataset):
        raise KeyError("image")

    pipeline = make_pipeline(tfpipe.Take(2), fail, tfpipe.Batch(2))

    with pytest.raises(KeyError, match="image") as caught:
        pipeline.build(num_epochs=num_epochs)

    (note,) = caught.value.__notes__
    assert note.startswith("In stage 2 of the pipeline, <function")
    assert note.endswith(f"which takes {tf.TensorSpec([], tf.int64)}.")


def test_error_of_tensorflow_names_the_stage():
    pipeline = make_pipeline(tfpipe.Map(lambda x: {"x": x}), tfpipe.Map(add_one))

    with pytest.raises(TypeError, match="unsupported operand") as caught:
        pipeline.build()

    assert (
        "In stage 2 of the pipeline, Map(<function add_one" in caught.value.__notes__[0]
    )
    assert "which takes {'x': TensorSpec(" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epoch": -1}, "epoch must be a whole number >= 0, got -1"),
        ({"start_step": -2}, "start_step must be a whole number >= 0, got -2"),
        ({"num_epochs": 0}, "num_epochs must be a whole number >= 1 or None, got 0"),
        ({"state": tfpipe.State(), "epoch": 1}, "either state, or epoch"),
        ({"state": tfpipe.State(), "start_step": 1}, "either state, or epoch"),
    ],
)
def test_wrong_epochs_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_pipeline().build(**arguments)


def test_stage_that_is_no_callable_is_refused():
    with pytest.raises(TypeError, match=r"Stage 2 must be callable.*got 'Batch'"):
        make_pipeline(tfpipe.Take(1), "Batch")


@pytest.mark.parametrize(("source_size", "sizes"), [(1, [4]), (4, [5]), (4, [4, 2])])
def test_batches_that_the_source_does_not_count_in_are_refused(
    data_dir, source_size, sizes
):
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=source_size)
    stages = [tfpipe.Interleave(), *map(tfpipe.Batch, sizes)]

    product = int(np.prod(sizes))
    message = (
        f"that of the stages, {product} .stage 2, Batch.*, got {source_size}.*Give"
    )
    with pytest.raises(ValueError, match=message):
        tfpipe.Pipeline(source, stages)


def test_batch_larger_than_the_data_is_refused(data_dir):
    with pytest.raises(ValueError, match="at least one step"):
        tfpipe.TFRecordSource(data_dir, "train", batch_size=500)


def test_batches_of_batches_count_as_one(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=6)
    stages = [tfpipe.Interleave(), tfpipe.Batch(2), tfpipe.Batch(3)]
    pipeline = tfpipe.Pipeline(source, stages)

    assert len([*pipeline.build(start_step=1)]) == 3
