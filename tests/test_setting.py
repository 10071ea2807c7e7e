"""benchmarks.setting: defaults, steps, and what does not fit the data."""

import pathlib

import pytest

import tfpipe
from benchmarks.checkpoint import Place
from benchmarks.config import Config
from benchmarks.ranks import Ranks
from benchmarks.setting import make_setting


def _config(data_dir: pathlib.Path, **fields: object) -> Config:
    values = {"model": "tiny", "batch_size": 4, **fields}
    return Config(data_dir=str(data_dir), **values)


def test_defaults_are_the_model_s(data_dir: pathlib.Path) -> None:
    setting = make_setting(Config(synthetic=True, model="resnet50"), Ranks())

    assert (setting.config.batch_size, setting.config.image_size) == (256, 224)
    assert setting.config.learning_rate == 0.1
    assert setting.pipeline.build().element_spec["image"].shape == (256, 224, 224, 3)


def test_threads_are_shared_by_local_ranks(data_dir: pathlib.Path) -> None:
    one = make_setting(_config(data_dir), Ranks())
    many = make_setting(_config(data_dir), Ranks(num_ranks=1, num_local_ranks=10**6))

    assert many.pipeline.tuning.private_threadpool_size == 1
    assert one.pipeline.tuning == tfpipe.Tuning.for_local_ranks(1)


@pytest.mark.parametrize(
    ("fields", "place", "expected"),
    [
        ({}, Place(0, 0, 6), (0, 6)),  # one epoch of 24 / 4 steps
        ({"num_epochs": 50}, Place(0, 0, 6), (10, 290)),
        ({"num_epochs": 5}, Place(0, 0, 6), (3, 27)),  # a tenth, as it is fewer
        ({"num_epochs": 5}, Place(4, 2, 6), (0, 4)),  # what a resumed run has left
        ({"num_epochs": 5, "num_warmup_steps": 7}, Place(0, 0, 6), (7, 23)),
        ({"num_steps": 3}, Place(0, 0, 6), (10, 3)),
        ({"num_steps": 3, "num_warmup_steps": 0}, Place(9, 5, 6), (0, 3)),
    ],
)
def test_steps(
    data_dir: pathlib.Path,
    fields: dict[str, int],
    place: Place,
    expected: tuple[int, int],
) -> None:
    setting = make_setting(_config(data_dir, **fields), Ranks())

    assert setting.num_steps(place) == expected


def test_nothing_left_to_train_is_an_error(data_dir: pathlib.Path) -> None:
    setting = make_setting(_config(data_dir, num_epochs=2), Ranks())

    with pytest.raises(
        ValueError, match=r"12 steps, of which 12 are done.*Raise --num"
    ):
        setting.num_steps(Place(2, 0, 6))


def test_resuming_within_an_epoch_needs_the_same_steps(data_dir: pathlib.Path) -> None:
    setting = make_setting(_config(data_dir), Ranks())

    setting.require_resumable(Place(3, 0, 99))
    with pytest.raises(ValueError, match=r"step 2 of an epoch of 99 steps.* 6 steps"):
        setting.require_resumable(Place(3, 2, 99))


@pytest.mark.parametrize(
    ("fields", "ranks", "message"),
    [
        ({"batch_size": 25}, Ranks(), "batch_size must be at most the 24 records"),
        ({}, Ranks(num_ranks=25), "24 records cannot be shared by 25 ranks"),
    ],
)
def test_what_does_not_fit_the_data_is_an_error(
    data_dir: pathlib.Path, fields: dict[str, int], ranks: Ranks, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_setting(_config(data_dir, **fields), ranks)


def test_evaluation_has_a_step_for_every_record(data_dir: pathlib.Path) -> None:
    config = _config(data_dir, mode="eval", checkpoint_dir="unused")

    setting = make_setting(config, Ranks())

    assert (setting.num_records, setting.steps_per_epoch) == (7, 2)
    assert setting.class_names[0] == "tench"
