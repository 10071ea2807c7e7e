"""studies.loaders.images: crop boxes, loading by Pillow, jobs."""

import io
from typing import Any

import numpy as np
import PIL.Image
import pytest

from studies.loaders import images as image_work
from studies.loaders.images import Job


@pytest.mark.parametrize(
    ("height", "width", "draws", "expected"),
    [
        # 0.54 of the area, ratio 1, in the middle.
        (100, 100, [0.5] * 4, (14, 14, 73, 73)),
        # The whole area, ratio 4/3, and then 0.08 of it, ratio 3/4, in a corner.
        (100, 100, [1, 1, 0, 0, 0, 0], (0, 0, 33, 24)),
        # None of ten fits: the middle, within the ratios.
        (400, 100, [1, 0.5] * 10, (133, 0, 133, 100)),
        (100, 400, [1, 0.5] * 10, (0, 133, 100, 133)),
        (100, 120, [1, 0] * 10, (0, 0, 100, 120)),
    ],
)
def test_crop_box_follows_the_draws(
    height: int, width: int, draws: list[float], expected: tuple[int, ...]
) -> None:
    assert image_work.crop_box(height, width, iter(draws).__next__) == expected


def test_crop_boxes_lie_within_the_image() -> None:
    draw = np.random.default_rng(0).random
    shares = []
    for _ in range(2000):
        top, left, rows, columns = image_work.crop_box(60, 90, draw)
        assert 0 <= top <= 60 - rows
        assert 0 <= left <= 90 - columns
        shares.append(rows * columns / (60 * 90))
    assert 0.07 < min(shares) < 0.1
    assert max(shares) > 0.85


def test_pillow_crops_flips_and_normalizes_as_drawn() -> None:
    """Normalized is the uint8 image minus mean over std; flips follow the draw."""
    job = Job(data_dir="", image_size=8)
    encoded = _gradient()

    plain = image_work.load_pillow(encoded, job, iter([0.5] * 5).__next__)
    flipped = image_work.load_pillow(encoded, job, iter([0.5] * 4 + [0.0]).__next__)
    normal = image_work.load_pillow(
        encoded,
        Job(data_dir="", image_size=8, dtype="float32"),
        iter([0.5] * 5).__next__,
    )

    assert plain.dtype == np.uint8
    assert np.array_equal(flipped, plain[:, ::-1])
    assert plain[:, 0].mean() < plain[:, -1].mean()
    expected = (plain - np.array(image_work.MEAN)) / image_work.STD
    assert np.allclose(normal, expected, atol=1e-5)


def _gradient() -> bytes:
    row = np.linspace(0, 255, 64, dtype=np.uint8)
    pixels = np.broadcast_to(row[np.newaxis, :, np.newaxis], (64, 64, 3))
    out = io.BytesIO()
    PIL.Image.fromarray(np.ascontiguousarray(pixels)).save(out, "JPEG", quality=95)
    return out.getvalue()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": "float16"}, "dtype must be uint8 or float32, got 'float16'"),
        ({"num_workers": 0}, "num_workers must be >= 1, got 0"),
        ({"num_timed_images": 0}, "num_timed_images must be >= 1"),
    ],
)
def test_job_checks_its_values(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Job(data_dir="", **fields)
