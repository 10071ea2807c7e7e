import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe.reading.order import Phase
from tfpipe.stages import philox

NUM_RECORDS = 24

FULL = tfpipe.State(
    epoch=3,
    step=5,
    num_ranks=4,
    batch_size=2,
    phases=(Phase(3, 4), Phase(2, 1)),
    digest="0123",
    data="4567",
)


def make_source(data_dir, **options):
    """Small blocks and windows, so that a step may end anywhere in them."""
    defaults = {"seed": 5, "batch_size": 2, "block_length": 2, "window_size": 5}
    return tfpipe.TFRecordSource(data_dir, "train", **defaults | options)


def make_pipeline(data_dir, **options):
    source = make_source(data_dir, **options)
    stages = [
        tfpipe.Interleave(),
        tfpipe.AssertCardinality(),
        tfpipe.Batch(source.batch_size),
    ]
    return tfpipe.Pipeline(source, stages)


def steps(dataset):
    """Each batch as lists of record numbers, epoch seeds, and what is real."""
    names = ("record_id", "epoch_seed", "is_real")
    return [
        tuple(batch[name].tolist() for name in names)
        for batch in dataset.as_numpy_iterator()
    ]


def read_on_ranks(data_dir, num_ranks, *, state, count=None, **options):
    """Real records of all ranks, from a state to its epoch's end or for some steps."""
    found = []
    for rank in range(num_ranks):
        source = make_source(data_dir, rank=rank, num_ranks=num_ranks, **options)
        stop = None if count is None else count * source.batch_size
        found += [n for n, is_real in elements(source, state, 1)[:stop] if is_real]
    return found


@pytest.mark.parametrize("state", [tfpipe.State(), tfpipe.State(epoch=2**62), FULL])
def test_json_gives_the_same_state(state):
    text = state.to_json()

    assert "\n" not in text
    assert tfpipe.State.from_json(text) == state
    assert all(
        isinstance(phase, Phase) for phase in tfpipe.State.from_json(text).phases
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "[]",
        "{}",
        '{"epoch": 1}',
        '{"phases": [], "steps": 1}',
        '{"phases": 3}',
    ],
)
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match=r"must get a text that State\.to_json"):
        tfpipe.State.from_json(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epoch": -1}, "must be a whole number >= 0, got -1"),
        ({"step": -1}, "must be a whole number >= 0, got -1"),
        ({"num_ranks": 0}, r"State\.num_ranks must be .* >= 1 or None, got 0"),
        ({"batch_size": 0}, r"State\.batch_size must be .* >= 1 or None, got 0"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tfpipe.State(**arguments)

    wrong = json.loads(tfpipe.State().to_json()) | arguments
    with pytest.raises(ValueError, match=message):
        tfpipe.State.from_json(json.dumps(wrong))


def test_checkpoint_gives_the_same_state(tmp_path):
    weight = tf.Variable(1.0)
    saved = tfpipe.CheckpointState(FULL)
    path = tf.train.Checkpoint(weight=weight, data=saved).save(tmp_path / "ckpt")
    saved.state = tfpipe.State()

    restored = tfpipe.CheckpointState()
    checkpoint = tf.train.Checkpoint(weight=tf.Variable(0.0), data=restored)
    checkpoint.restore(path).assert_consumed()

    assert restored.state == FULL
    assert checkpoint.weight == 1.0


def test_checkpoint_saves_the_state_of_the_moment(tmp_path):
    saved = tfpipe.CheckpointState()
    checkpoint = tf.train.Checkpoint(data=saved)
    paths = []
    for step in (1, 2):
        saved.state = dataclasses.replace(FULL, step=step)
        paths.append(checkpoint.save(tmp_path / "ckpt"))

    checkpoint.restore(paths[0])

    assert saved.state.step == 1


@pytest.mark.parametrize(("remainder", "per_epoch"), [("drop", 3), ("pad", 4)])
def test_advance_counts_steps(data_dir, remainder, per_epoch):
    source = make_source(
        data_dir, num_ranks=2, batch_size=3 + (remainder == "drop"), remainder=remainder
    )
    assert source.steps_per_epoch == per_epoch
    state = tfpipe.State(epoch=2)

    for count in range(1, 3 * per_epoch):
        state = source.advance(state)
        epoch, step = divmod(count, per_epoch)

        assert (state.epoch, state.step) == (2 + epoch, step)
        assert (state.num_ranks, state.batch_size) == (2, source.batch_size)
        assert state == source.advance(tfpipe.State(epoch=2), count)
        assert state.digest == source.digest


def test_advance_counts_the_steps_that_are_left_after_other_ranks(data_dir):
    three = make_source(data_dir, num_ranks=3)
    one = make_source(data_dir, num_ranks=1)
    state = three.advance(tfpipe.State(), 2)  # 12 of 24 records

    later = one.advance(state, 5)
    assert (later.epoch, later.step, later.phases) == (0, 5, (Phase(3, 4),))
    later = one.advance(later, 1)
    assert (later.epoch, later.step, later.phases) == (1, 0, ())
    assert one.advance(state, 6 + 12 + 3) == one.advance(later, 12 + 3)


def elements(source, state, num_epochs):
    """(record, whether it is real) of each element, by the windows of a source."""
    found = []
    for window in source(state, num_epochs).as_numpy_iterator():
        ranges = zip(window["first_record"], window["num_records"], strict=True)
        numbers = np.concatenate([np.arange(count) + first for first, count in ranges])
        if "shuffle_seed" in window:
            seed = tuple(window["shuffle_seed"].tolist())
            numbers = numbers[philox.shuffled(len(numbers), seed)]
        taken = numbers[window["skip"] :][: window["take"]].tolist()
        found += [(number, bool(window["is_real"])) for number in taken]
    return found


def last_rank(num_ranks):
    """Options of the last rank, whose batches do not divide the records evenly."""
    batch_size = 5 if num_ranks == 1 else 3
    return {"rank": num_ranks - 1, "num_ranks": num_ranks, "batch_size": batch_size}


# test_order has all combinations.
@pytest.mark.parametrize(
    ("num_ranks", "remainder", "shuffle"),
    [(3, "drop", "none"), (1, "pad", "window"), (3, "pad", "full")],
)
def test_a_source_resumes_exactly_from_every_step(
    data_dir, num_ranks, remainder, shuffle
):
    source = make_source(
        data_dir, **last_rank(num_ranks), remainder=remainder, shuffle=shuffle
    )
    whole = elements(source, tfpipe.State(epoch=1), 2)
    num_steps = 2 * source.steps_per_epoch
    assert len(whole) == num_steps * source.batch_size

    for count in range(num_steps):
        state = source.advance(tfpipe.State(epoch=1), count)
        rest = elements(source, state, 3 - state.epoch)
        assert rest == whole[count * source.batch_size :]


@pytest.mark.parametrize(
    ("remainder", "num_ranks", "shuffle"),
    [("drop", 3, "none"), ("pad", 1, "window")],
)
def test_a_pipeline_resumes_exactly_where_it_stopped(
    data_dir, num_ranks, remainder, shuffle
):
    pipeline = make_pipeline(
        data_dir, **last_rank(num_ranks), remainder=remainder, shuffle=shuffle
    )
    whole = steps(pipeline.build(epoch=1, num_epochs=2))

    built = pipeline.build(epoch=1, start_step=1, num_epochs=2)
    assert steps(built) == whole[1:]
    state = pipeline.source.advance(tfpipe.State(epoch=1), len(whole) - 1)
    assert steps(pipeline.build(state=state)) == whole[-1:]


@pytest.mark.parametrize(
    ("num_steps", "shuffle"), [(0, "window"), (2, "window"), (2, "none")]
)
def test_fewer_ranks_read_the_rest_exactly_once(data_dir, num_steps, shuffle):
    options = {"shuffle": shuffle, "remainder": "pad"}
    start = tfpipe.State(epoch=1)
    seen = read_on_ranks(data_dir, 3, state=start, count=num_steps, **options)
    state = make_source(data_dir, num_ranks=3, **options).advance(start, num_steps)

    # The batches change as well.
    options["batch_size"] = 3
    seen += read_on_ranks(data_dir, 2, state=state, count=1, **options)
    state = make_source(data_dir, num_ranks=2, **options).advance(state)
    seen += read_on_ranks(data_dir, 1, state=state, **options)

    assert sorted(seen) == list(range(NUM_RECORDS))


def test_fewer_ranks_under_drop_read_no_record_twice(data_dir):
    start = tfpipe.State()
    seen = read_on_ranks(data_dir, 3, state=start, count=2)
    state = make_source(data_dir, num_ranks=3).advance(start, 2)
    seen += read_on_ranks(data_dir, 2, state=state, count=1, batch_size=3)
    state = make_source(data_dir, num_ranks=2, batch_size=3).advance(state)
    seen += read_on_ranks(data_dir, 1, state=state, batch_size=5)

    assert len(seen) == len(set(seen)) == 12 + 6 + 5


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 6},
        {"shuffle": "full"},
        {"remainder": "pad"},
        {"block_length": 3},
        {"window_size": 6},
    ],
)
def test_state_of_another_order_is_refused(data_dir, options):
    state = make_source(data_dir).advance(tfpipe.State())

    with pytest.raises(ValueError, match="must be of the same data, seed and shuff"):
        make_pipeline(data_dir, **options).build(state=state)


def test_state_of_other_data_is_refused(data_dir, tmp_path):
    copy = shutil.copytree(data_dir, tmp_path / "copy")
    path = copy / "index.json"
    document = json.loads(path.read_text())
    document["splits"]["train"][0]["digest"] = "0" * 32
    path.write_text(json.dumps(document))
    state = make_source(data_dir).advance(tfpipe.State())

    with pytest.raises(ValueError, match="the data set was replaced since then"):
        make_source(copy).advance(state)
    older = dataclasses.replace(state, data="")  # of a version without this field
    with pytest.raises(ValueError, match="must be of the same data"):
        make_source(copy).advance(older)


def test_state_holds_on_every_rank_and_in_another_folder(data_dir, tmp_path):
    copy = shutil.copytree(data_dir, tmp_path / "copy")
    state = make_source(data_dir, num_ranks=2).advance(tfpipe.State())

    other = make_source(copy, rank=1, num_ranks=2).advance(tfpipe.State())

    assert state == other
