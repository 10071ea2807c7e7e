"""converters.synthetic: scenes, camera, objects and noise."""

import io

import numpy as np
import pytest
from PIL import Image

from converters.synthetic import camera, objects, scenes
from converters.synthetic.noise import generator, noise

# Draws are stratified over 1000 numbers, so that few thousands have the distribution.
_NUM_DRAWS = 2000


@pytest.fixture(scope="module")
def photos() -> list[camera.Photo]:
    """Properties of the files of a large collection."""
    return [camera.draw_photo(0, 1, number) for number in range(_NUM_DRAWS)]


def _open(encoded: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(encoded))
    image.load()
    return image


def test_sizes_follow_imagenet(photos):
    widths = np.array([photo.width for photo in photos])
    heights = np.array([photo.height for photo in photos])

    assert widths.mean() == pytest.approx(468, rel=0.05)
    assert heights.mean() == pytest.approx(401, rel=0.05)
    np.testing.assert_allclose(
        np.percentile(widths, [5, 50, 95]), [240, 500, 700], rtol=0.1
    )
    assert np.percentile(heights, 95) == pytest.approx(535, rel=0.05)
    assert np.mean((widths == 500) & (heights == 375)) > 0.1
    assert np.mean((widths == 375) & (heights == 500)) > 0.03
    assert np.mean(np.maximum(widths, heights) == 500) == pytest.approx(0.69, abs=0.03)


def test_bytes_per_pixel_follow_imagenet(photos):
    density = np.array([photo.bytes_per_pixel for photo in photos])
    pixels = np.array([photo.width * photo.height for photo in photos])

    np.testing.assert_allclose(
        np.percentile(density, [5, 25, 50, 75, 95]),
        [0.143, 0.339, 0.567, 0.781, 1.074],
        rtol=0.1,
    )
    assert np.log(density).std() == pytest.approx(0.61, abs=0.05)
    assert abs(np.corrcoef(np.log(density), np.log(pixels))[0, 1]) < 0.15
    assert density @ pixels / pixels.sum() == pytest.approx(0.512, rel=0.06)
    assert density.mean() == pytest.approx(camera.MEAN_BYTES_PER_PIXEL, rel=0.03)


def test_jpeg_settings_follow_imagenet(photos):
    chroma = [photo.subsampling for photo in photos if not photo.grayscale]
    quality = [photo.quality for photo in photos]

    assert np.mean(np.equal(chroma, 0)) == pytest.approx(0.76, abs=0.03)
    assert np.mean(np.equal(chroma, 1)) == pytest.approx(0.012, abs=0.008)
    assert np.mean(np.equal(chroma, 2)) == pytest.approx(0.21, abs=0.03)
    assert np.mean([photo.grayscale for photo in photos]) == pytest.approx(
        0.023, abs=0.01
    )
    assert np.mean(np.equal(quality, 96)) == pytest.approx(0.66, abs=0.03)


def test_a_few_hundred_images_already_have_the_mean_size(photos):
    """Stratified draws make the mean of 300 independent of the heavy tail."""
    pixels = np.array([photo.width * photo.height for photo in photos])

    assert pixels[:300].mean() == pytest.approx(pixels.mean(), rel=0.1)
    assert pixels[:1000].mean() == pytest.approx(pixels.mean(), rel=0.02)


def test_scales_multiply_sides_and_bytes():
    plain = camera.draw_photo(0, 1, 7)
    scaled = camera.draw_photo(0, 1, 7, size_scale=0.5, bytes_scale=2)

    assert scaled.width == round(plain.width * 0.5)
    assert scaled.height == round(plain.height * 0.5)
    assert scaled.bytes_per_pixel == pytest.approx(2 * plain.bytes_per_pixel)


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_encoded_file_keeps_to_its_photo(subsampling):
    photo = camera.Photo(320, 240, False, 90, subsampling, 0.5)
    base, detail = scenes.draw(generator(0, 9), noise(0), 3, 320, 240)

    encoded = camera.encode(base, detail, photo)

    image = _open(encoded)
    assert image.size == (320, 240)
    assert len(encoded) == pytest.approx(0.5 * 320 * 240, rel=0.2)
    across, down = {0: (1, 1), 1: (2, 1), 2: (2, 2)}[subsampling]
    assert image.layer[0][1:3] == (across, down)


def test_grayscale_file_has_one_component():
    photo = camera.Photo(160, 120, True, 90, 0, 0.4)
    base, detail = scenes.draw(generator(0, 9), noise(0), 3, 160, 120)

    assert _open(camera.encode(base, detail, photo)).mode == "L"


def test_quality_gives_way_to_few_bytes():
    base, detail = scenes.draw(generator(0, 9), noise(0), 3, 320, 240)

    encoded = camera.encode(base, detail, camera.Photo(320, 240, False, 96, 0, 0.1))

    assert len(encoded) < 0.15 * 320 * 240


def test_very_noisy_picture_is_encoded():
    """Its file is larger than the output buffer that Pillow makes by default."""
    base = Image.new("RGB", (64, 64), (128, 128, 128))
    detail = 10 * generator(1).standard_normal((64, 192), np.float32)

    encoded = camera.encode(base, detail, camera.Photo(64, 64, False, 96, 0, 9.0))

    assert len(encoded) > 2 * 64 * 64


def test_image_is_a_pure_function_of_its_numbers():
    def make(*numbers: int) -> bytes:
        return scenes.make_image(*numbers, size_scale=0.1)[0]

    first = make(0, 1, 5, 2)

    assert make(0, 1, 5, 2) == first
    others = [make(1, 1, 5, 2), make(0, 2, 5, 2), make(0, 1, 6, 2), make(0, 1, 5, 3)]
    assert first not in others


def test_image_reports_its_size():
    encoded, width, height = scenes.make_image(0, 1, 0, 0, size_scale=0.2)

    assert _open(encoded).size == (width, height)


@pytest.mark.parametrize("size", [(8, 8), (8, 200), (200, 8), (33, 17)])
def test_odd_sizes_are_drawn(size):
    width, height = size
    base, detail = scenes.draw(generator(2), noise(0), 4, width, height)

    assert base.size == size
    assert detail.shape == (height, 3 * width)
    encoded = camera.encode(base, detail, camera.Photo(*size, True, 96, 0, 0.5))
    assert _open(encoded).size == size


@pytest.mark.parametrize("class_index", range(10))
def test_object_is_in_the_middle_and_has_the_hue_of_its_class(class_index):
    """Averaged over many pictures the clutter is gray and the object is not."""
    total = np.zeros((60, 80, 3))
    for number in range(6):
        rng = generator(5, class_index, number)
        base, _ = scenes.draw(rng, noise(0), class_index, 80, 60)
        total += np.asarray(base, float)
    spread = total.max(axis=-1) - total.min(axis=-1)
    middle, border = spread[15:45, 20:60], np.r_[spread[:4], spread[-4:]]

    assert middle.mean() > 1.3 * border.mean()
    hue_of = {"red": 0, "lime": 1, "green": 1, "sky": 2, "blue": 2}
    name = objects.HUES[objects.look_of(class_index).hue]
    if name in hue_of:
        assert total[15:45, 20:60].mean((0, 1)).argmax() == hue_of[name]


def test_looks_are_pairwise_different():
    looks = [objects.look_of(index) for index in range(20_000)]

    assert len(set(looks)) == 20_000
    assert len({one.name for one in looks[:1000]}) == 1000


def test_first_ten_looks_differ_in_every_way():
    first = [objects.look_of(index) for index in range(10)]

    for field in ("outline", "hue", "pattern"):
        assert len({getattr(one, field) for one in first}) == 10


def test_different_looks_paint_different_objects():
    """Pose and light are the same, so that only the look differs."""
    painted = set()
    # The first looks, and others that have each value of the third digit.
    indices = [*range(100), *range(100, 1000, 7)]
    for index in indices:
        look = objects.look_of(index)
        color, mask = objects.paint(look, generator(1), noise(0), (32, 32), (13, 13))
        color.paste((0, 0, 0), mask=mask.point(lambda value: 255 - value))
        painted.add(color.tobytes())

    assert len(painted) == len(indices)


def test_every_pattern_and_outline_paints_two_shades_or_is_plain():
    for index in range(10):
        look = objects.look_of(index)
        color, mask = objects.paint(look, generator(3), noise(0), (64, 64), (26, 26))
        inside = np.asarray(color.convert("L"), float)[np.asarray(mask) > 200]

        assert 0.1 < np.mean(np.asarray(mask) > 128) < 0.7
        assert (inside.std() > 15) == (objects.PATTERNS[look.pattern] != "plain")


def test_noise_has_zero_mean_and_unit_spread():
    tiles = noise(0)

    for tile in (tiles.clouds, tiles.sensor, *tiles.textures):
        assert tile.dtype == np.float32
        assert tile.mean() == pytest.approx(0, abs=0.01)
        assert tile.std() == pytest.approx(1, abs=0.1)


def test_large_pictures_repeat_the_tile():
    assert noise(0).cut_sensor(generator(0), 1500, 1100).shape == (1100, 4500)
