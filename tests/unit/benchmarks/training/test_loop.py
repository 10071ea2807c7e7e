"""benchmarks.training.loop without a model: the emulated accelerator is fed."""

import pathlib

import pytest

from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.training import loop, steps
from benchmarks.training.setting import make_setting


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_emulated_accelerator_is_fed_without_a_model(
    data_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(steps, "build_model", None)
    config = Config(
        data_dir=str(data_dir),
        mode=mode,
        image_size=32,
        batch_size=4,
        num_epochs=3,
        num_warmup_steps=1,
        step_time_ms=2.0,
    )
    work = loop.train if mode == "train" else loop.infer

    result = work(make_setting(config, Ranks()), Ranks())

    assert result["emulated_seconds_per_step"] == 0.002
    assert result["compute_seconds_per_step"] >= 0.002
    num_records = 24 if mode == "train" else 7
    assert result["records"]["num_used"] == 3 * num_records
    assert not {"loss_first", "num_parameters"} & set(result)


def test_emulated_accelerator_has_its_published_time(data_dir: pathlib.Path) -> None:
    config = Config(
        data_dir=str(data_dir),
        image_size=32,
        batch_size=4,
        num_steps=2,
        num_warmup_steps=0,
        emulate="h100_mlperf_storage",
    )

    result = loop.train(make_setting(config, Ranks()), Ranks())

    assert result["emulated_seconds_per_step"] == pytest.approx(0.224 * 4 / 400)


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_records_are_read_and_not_decoded(
    data_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    fed = []
    real = steps._copy
    monkeypatch.setattr(steps, "_copy", lambda b, to: fed.append(b) or real(b, to))
    config = Config(
        data_dir=str(data_dir),
        mode=mode,
        batch_size=4,
        num_epochs=2,
        num_warmup_steps=1,
        step_time_ms=1.0,
        read_only=True,
    )
    work = loop.train if mode == "train" else loop.infer

    result = work(make_setting(config, Ranks()), Ranks())

    records = [record for batch in fed for record in batch["encoded"].numpy()]
    assert {record[:2] for record in records} == {b"\xff\xd8"}  # JPEGs
    assert "image" not in fed[0]
    num_records = 24 if mode == "train" else 7
    assert result["records"]["num_used"] == 2 * num_records
