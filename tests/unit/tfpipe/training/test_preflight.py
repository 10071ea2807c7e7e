import shutil
import threading

import pytest

import tfpipe
from tfpipe.training import preflight


def facts(**changes):
    return {"seed": "0", "num_ranks": "4", "shards": "24 records", **changes}


def gathered(*changes):
    """Four ranks, the first of which have these changes."""
    changes = [*changes, {}, {}, {}, {}][:4]
    return [(rank, facts(**change)) for rank, change in enumerate(changes)]


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (gathered(), []),
        (
            gathered({}, {"seed": "7"}),
            ["seed must be 0 as on most ranks, got 7 on rank 1"],
        ),
        (
            gathered({"shards": "9 records"}, {}, {"seed": "1"}),
            [
                "seed must be 0 as on most ranks, got 1 on rank 2",
                "shards must be 24 records as on most ranks, got 9 records on rank 0",
            ],
        ),
        (
            gathered({"seed": "1"}, {"seed": "1"}),
            [
                "seed must be the same on every rank, got 1 on rank 0, 1 on rank 1, "
                "0 on rank 2, 0 on rank 3"
            ],
        ),
        (
            gathered()[:2],
            [
                "num_ranks must be 2, as many as there are, got 4 on process 0",
                "num_ranks must be 2, as many as there are, got 4 on process 1",
            ],
        ),
        (
            [(0, facts(num_ranks="2")), (1, facts(num_ranks="2", seed="3"))],
            ["seed must be the same on every rank, got 0 on rank 0, 3 on rank 1"],
        ),
        (
            [(0, facts()), (1, facts()), (1, facts()), (3, facts())],
            [
                "the ranks must be 0 to 3, each once, got 0 on process 0, "
                "1 on process 1, 1 on process 2, 3 on process 3"
            ],
        ),
        ([(3, facts()), (1, facts()), (0, facts()), (2, facts())], []),
        ([(None, {"element": "x"}), (None, {"element": "x"})], []),
        (
            [(None, {}), *gathered()[1:]],
            [
                "the ranks must be 0 to 3, each once, got None on process 0, "
                "1 on process 1, 2 on process 2, 3 on process 3",
                "seed must be 0 as on most ranks, got absent on rank 0",
                "num_ranks must be 4 as on most ranks, got absent on rank 0",
                "shards must be 24 records as on most ranks, got absent on rank 0",
            ],
        ),
        (
            [(None, "ValueError: x"), *gathered({"seed": "1"})[1:]],
            ["rank 0 could not build its pipeline: ValueError: x"],
        ),
    ],
)
def test_what_differs_is_named_with_rank_and_both_values(ranks, expected):
    assert sorted(preflight.differences(ranks)) == sorted(expected)


def run_together(pipelines, states=None):
    """The error of each rank, every rank in a thread of its own; None is no error."""
    count = len(pipelines)
    values, errors = [None] * count, [None] * count
    barrier = threading.Barrier(count, timeout=60)

    def run(rank):
        def all_gather(value):
            values[rank] = value
            barrier.wait()
            return list(values)

        try:
            state = states[rank] if states else None
            tfpipe.preflight(pipelines[rank], all_gather, state=state)
        except Exception as error:
            errors[rank] = error

    threads = [threading.Thread(target=run, args=[rank]) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def make_pipeline(data_dir, *stages, rank, num_ranks=2, **options):
    source = tfpipe.TFRecordSource(
        data_dir, "train", rank=rank, num_ranks=num_ranks, **options
    )
    return tfpipe.Pipeline(source, [tfpipe.Interleave(), *stages])


def test_ranks_that_mean_the_same_run_go_on(data_dir):
    state = tfpipe.State(epoch=2)
    pipelines = [make_pipeline(data_dir, rank=rank) for rank in range(2)]

    assert run_together(pipelines) == [None, None]
    assert run_together(pipelines, [state, state]) == [None, None]


def test_one_process_agrees_with_itself(data_dir):
    synthetic = tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=2), [])

    tfpipe.preflight(synthetic, lambda value: [value])
    tfpipe.preflight(
        make_pipeline(data_dir, rank=0, num_ranks=1), lambda value: [value]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 5}, "seed must be .* got 0 on rank 0, 5 on rank 1"),
        ({"batch_size": 3}, "batch_size must be .* got 1 on rank 0, 3 on rank 1"),
        ({"shuffle": "none"}, "shuffle must be .* got window on rank 0, none on"),
        ({"window_size": 9}, "window_size must be .* 1024 on rank 0, 9 on rank 1"),
        ({"num_ranks": 3}, "num_ranks must be 2, .* got 3 on process 1"),
        ({"rank": 0}, "ranks must be 0 to 1, each once, got 0 on process 0, 0 on"),
    ],
)
def test_other_source_on_one_rank_is_the_same_error_on_both(data_dir, change, message):
    pipelines = [
        make_pipeline(data_dir, rank=0),
        make_pipeline(data_dir, **{"rank": 1, **change}),
    ]

    first, second = run_together(pipelines)

    assert isinstance(first, tfpipe.errors.TfpipeError)
    assert str(first) == str(second)
    with pytest.raises(tfpipe.errors.TfpipeError, match=message):
        raise first


def test_other_data_and_state_on_one_rank_are_errors(data_dir, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    for shard in data_dir.glob("train-*"):
        shutil.copy(shard, bare)
    pipelines = [
        make_pipeline(folder, rank=rank, num_ranks=3)
        for rank, folder in enumerate([data_dir, bare, data_dir])
    ]

    errors = run_together(pipelines, [None, None, tfpipe.State(epoch=1)])

    assert len({str(error) for error in errors}) == 1
    first, shards, state, last = str(errors[0]).splitlines()
    assert first == "The 3 ranks do not mean the same run:"
    assert shards.startswith("  shards must be 24 records in 3 shards with digest ")
    assert shards.endswith(" on rank 1")
    assert state.startswith('  state must be none as on most ranks, got {"epoch": 1,')
    assert state.endswith(" on rank 2")
    assert last.startswith("Start all of them with the same data")


def test_other_elements_on_one_rank_are_an_error(data_dir):
    pipelines = [
        make_pipeline(data_dir, *stages, rank=rank)
        for rank, stages in enumerate([[], [lambda dataset: dataset.batch(2)]])
    ]

    first, second = run_together(pipelines)

    assert str(first) == str(second)
    assert "element must be the same on every rank, got {'record'" in str(first)
    assert "shape=(None,)" in str(first)


def test_copy_in_another_folder_is_the_same_data(data_dir, tmp_path):
    copy = shutil.copytree(data_dir, tmp_path / "copy")
    pipelines = [
        make_pipeline(data_dir, rank=0),
        make_pipeline(copy, rank=1),
    ]

    assert run_together(pipelines) == [None, None]


def test_weights_and_parts_of_a_mixture_are_compared(data_dir):
    def mix(rank, weights, seed):
        parts = [
            make_pipeline(data_dir, rank=rank, seed=number * seed) for number in (0, 1)
        ]
        return tfpipe.Pipeline(tfpipe.Mixture(parts, weights, epoch_steps=3), [])

    first, second = run_together([mix(0, [1, 2], 4), mix(1, [1, 3], 5)])

    assert str(first) == str(second)
    assert [line.split(" must be ")[0].strip() for line in str(first).splitlines()][
        1:-1
    ] == ["weights", "seed of part 1"]


def test_rank_that_cannot_build_is_named_on_the_others(data_dir):
    def fail(dataset):
        raise KeyError("image")

    pipelines = [
        make_pipeline(data_dir, rank=0),
        make_pipeline(data_dir, fail, rank=1),
    ]

    first, second = run_together(pipelines)

    assert isinstance(first, tfpipe.errors.TfpipeError)
    assert "rank 1 could not build its pipeline: KeyError: 'image'" in str(first)
    assert isinstance(second, KeyError)
