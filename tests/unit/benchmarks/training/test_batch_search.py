"""The largest batch that fits, with a limit in place of the memory of a GPU."""

import pytest
import tensorflow as tf

from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.training import steps


@pytest.mark.parametrize("limit", [7, 8, 15, 16, 100, 255, 256, 257, 1000, 70_000])
@pytest.mark.parametrize("start", [8, 32, 256])
def test_answer_fits_and_little_more_does_not(limit: int, start: int) -> None:
    asked: list[int] = []

    def fits(size: int) -> bool:
        asked.append(size)
        return size <= limit

    found = steps.search_batch(fits, start)

    assert found <= limit
    assert found % 8 == 0
    assert found == 0 or found in asked, "no answer that was not tried"
    most = min(limit, 1 << 16)
    assert most - found < max(8, most / 16) + 8
    assert len(asked) == len(set(asked)) <= 20


def _config(**changes: object) -> Config:
    fields = {"synthetic": True, "model": "tiny", "image_size": 32, **changes}
    return Config(**fields, find_batch_size=True)


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_out_of_memory_ends_a_try(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """The step of a large batch fails as on a GPU; others run."""
    name = f"make_{mode}_step"
    make = getattr(steps, name)

    def make_limited(*arguments):
        step = make(*arguments)

        def limited(batch):
            if len(batch["label"]) > 20:
                raise tf.errors.ResourceExhaustedError(
                    None, None, "OOM when allocating"
                )
            return step(batch)

        return limited

    monkeypatch.setattr(steps, name, make_limited)
    config = _config(mode=mode)

    assert steps.fits(config, 8)
    assert not steps.fits(config, 24)


def test_other_errors_are_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_):
        raise tf.errors.InvalidArgumentError(None, None, "shapes differ")

    monkeypatch.setattr(steps, "make_train_step", lambda *_: fail)

    with pytest.raises(tf.errors.InvalidArgumentError, match="shapes differ"):
        steps.fits(_config(), 8)


class _Ranks(Ranks):
    """Two ranks, of which the other found room for 48 examples."""

    def gather(self, value):
        return [value, 48]


@pytest.mark.parametrize(("limit", "found"), [(1000, 48), (20, 16)])
def test_smallest_gpu_decides(
    monkeypatch: pytest.MonkeyPatch, limit: int, found: int
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU"])
    monkeypatch.setattr(steps, "fits", lambda _, size: size <= limit)

    assert steps.largest_batch(_config(), _Ranks()) == found
    monkeypatch.setattr(steps, "fits", lambda *_: False)
    with pytest.raises(ValueError, match="A batch of 8 examples of --model=tiny must"):
        steps.largest_batch(_config(), _Ranks())


def test_there_must_be_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: [])

    with pytest.raises(ValueError, match="--find_batch_size must have a GPU"):
        steps.largest_batch(_config(), Ranks())
