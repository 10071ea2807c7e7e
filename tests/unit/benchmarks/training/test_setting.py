"""benchmarks.training.setting: defaults, numbers of steps, and errors."""

import dataclasses
import pathlib

import pytest

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.training.setting import make_setting


def _config(data_dir: pathlib.Path, **fields: object) -> Config:
    values = {"model": "tiny", "batch_size": 4, **fields}
    return Config(data_dir=str(data_dir), **values)


def test_defaults_are_those_of_the_model(data_dir: pathlib.Path) -> None:
    setting = make_setting(Config(synthetic=True, model="resnet50"), Ranks())

    assert (setting.config.batch_size, setting.config.image_size) == (256, 224)
    assert setting.config.learning_rate == 0.1
    assert setting.pipeline.build().element_spec["image"].shape == (256, 224, 224, 3)


def test_threads_are_shared_by_local_ranks(data_dir: pathlib.Path) -> None:
    one = make_setting(_config(data_dir), Ranks())
    many = make_setting(_config(data_dir), Ranks(num_ranks=1, num_local_ranks=10**6))

    assert many.pipeline.tuning.private_threadpool_size == 1
    alone = tfpipe.Tuning.for_local_ranks(1)
    assert one.pipeline.tuning == dataclasses.replace(
        alone, ram_budget_bytes=one.pipeline.tuning.ram_budget_bytes
    )
    shares = [s.pipeline.tuning.ram_budget_bytes for s in (one, many)]
    assert shares[1] < shares[0] // 10**5


def test_models_may_have_more_classes_than_the_data(data_dir: pathlib.Path) -> None:
    setting = make_setting(_config(data_dir, num_classes=1050), Ranks())

    assert setting.config.num_classes == 1050
    with pytest.raises(ValueError, match="--num_classes must be >= "):
        make_setting(_config(data_dir, num_classes=999), Ranks())


@pytest.mark.parametrize(
    ("fields", "state", "expected"),
    [
        ({}, tfpipe.State(), (0, 6)),  # one epoch of 24 / 4 steps
        # Two windows of 24 records are read ahead, for 12 steps.
        ({"num_epochs": 50}, tfpipe.State(), (12, 288)),
        ({"num_epochs": 3}, tfpipe.State(), (1, 17)),  # they are more than half
        (
            {"num_epochs": 5},
            tfpipe.State(epoch=4, step=2),
            (0, 4),
        ),  # the steps that a resumed run has left
        ({"num_epochs": 5, "num_warmup_steps": 7}, tfpipe.State(), (7, 23)),
        ({"num_steps": 3}, tfpipe.State(), (12, 3)),
        (
            {"num_steps": 3, "num_warmup_steps": 0},
            tfpipe.State(epoch=9, step=5),
            (0, 3),
        ),
    ],
)
def test_steps(
    data_dir: pathlib.Path,
    fields: dict[str, int],
    state: tfpipe.State,
    expected: tuple[int, int],
) -> None:
    setting = make_setting(_config(data_dir, **fields), Ranks())

    assert setting.num_steps(state) == expected


def test_nothing_left_to_train_is_an_error(data_dir: pathlib.Path) -> None:
    setting = make_setting(_config(data_dir, num_epochs=2), Ranks())

    with pytest.raises(ValueError, match=r"12 steps, of which 0 are left.*Raise --num"):
        setting.num_steps(tfpipe.State(epoch=2, step=0))


@pytest.mark.parametrize(
    ("fields", "ranks", "message"),
    [
        ({"batch_size": 25}, Ranks(), "24 records cannot give 1 rank a batch of 25"),
        ({}, Ranks(num_ranks=25), "24 records cannot give 25 ranks"),
    ],
)
def test_config_that_does_not_fit_the_data_is_an_error(
    data_dir: pathlib.Path, fields: dict[str, int], ranks: Ranks, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_setting(_config(data_dir, **fields), ranks)


def test_evaluation_has_a_step_for_every_record(data_dir: pathlib.Path) -> None:
    config = _config(data_dir, mode="eval", checkpoint_dir="unused")

    setting = make_setting(config, Ranks())

    assert (setting.num_records, setting.source.steps_per_epoch) == (7, 2)
    assert setting.class_names[0] == "tench"
