"""Crops: example -> example, from JPEG bytes to a square image of fixed size.

In: an example with `encoded`, `height`, `width` (see `ops.Parse`). Out: the example
with `image` in their place. Each op only says which window of the image it wants;
`crop_image` alone turns a window into pixels, in one go: it decodes the window, at a
smaller scale where that is enough, resizes and mirrors it.
"""

import dataclasses
from typing import Literal, Protocol

import tensorflow as tf

from tfpipe.ops import Example, Flip, op_seed

Quality = Literal["fast", "exact"]
Dtype = Literal["uint8", "float32"]

# How much smaller libjpeg can decode: scales of its inverse DCT.
_RATIOS = (1, 2, 4, 8)


class _Crop(Protocol):
    """What the ops of this module have in common."""

    @property
    def image_size(self) -> int: ...
    @property
    def quality(self) -> Quality: ...
    @property
    def dtype(self) -> Dtype: ...

    def window(self, example: Example) -> tf.Tensor:
        """The window: int32 [4], top, left, height, width in pixels."""


def _require(op: _Crop) -> None:
    name = type(op).__name__
    if op.image_size < 1:
        raise ValueError(f"{name}.image_size must be >= 1, got {op.image_size}.")
    if op.quality not in ("fast", "exact"):
        raise ValueError(f"{name}.quality must be fast or exact, got {op.quality!r}.")
    if op.dtype not in ("uint8", "float32"):
        raise ValueError(f"{name}.dtype must be uint8 or float32, got {op.dtype!r}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomCrop:
    """Decodes a random window of the image and resizes it: Inception's augmentation.

    Element: example -> example. Replaces `encoded`, `height`, `width` by `image`.
        out  image: `dtype` [image_size, image_size, 3], 0..255

    The window's aspect ratio is uniform in `ratio`, its height uniform among those that
    give an area in `area` (after Szegedy et al., "Going Deeper with Convolutions",
    2014, section 6); the whole image where no window fits in `max_attempts`. It is
    drawn by `tf.image.stateless_sample_distorted_bounding_box`. Only the window is
    decoded.

    Args:
        image_size: Height and width of the result in pixels.
        area: Smallest and largest share of the image's area, 0 < low <= high <= 1.
        ratio: Smallest and largest width / height.
        max_attempts: Windows to try.
        flip: Whether to mirror half of the images too, the same ones as `Flip`.
        quality: "fast" or "exact", see `crop_image`.
        dtype: "uint8", or "float32" for values that are not rounded.
    """

    image_size: int
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    max_attempts: int = 10
    flip: bool = False
    quality: Quality = "fast"
    dtype: Dtype = "uint8"

    def __post_init__(self) -> None:
        _require(self)
        if not 0 < self.area[0] <= self.area[1] <= 1:
            raise ValueError(
                f"RandomCrop.area must be 0 < low <= high <= 1, got {self.area}."
            )
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(
                f"RandomCrop.ratio must be 0 < low <= high, got {self.ratio}."
            )
        if self.max_attempts < 1:
            raise ValueError(
                f"RandomCrop.max_attempts must be >= 1, got {self.max_attempts}."
            )

    def __call__(self, example: Example) -> Example:
        return _with_image(self, example, flip=self.flip)

    def window(self, example: Example) -> tf.Tensor:
        """The window: int32 [4], top, left, height, width in pixels."""
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.stack([example["height"], example["width"], 3]),
            tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
            seed=op_seed(self, example["seed"]),
            min_object_covered=0.0,
            aspect_ratio_range=self.ratio,
            area_range=self.area,
            max_attempts=self.max_attempts,
        )
        return tf.concat([begin[:2], size[:2]], 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomScaleCrop:
    """Decodes a random square window of random size and resizes it: VGG's augmentation.

    Element: example -> example. Replaces `encoded`, `height`, `width` by `image`.
        out  image: `dtype` [image_size, image_size, 3], 0..255

    Equals scaling the image so that its short side is S, a whole number drawn from
    `short_side`, and cropping image_size x image_size anywhere in it (Simonyan &
    Zisserman, "Very Deep Convolutional Networks", 2014, section 3.1, multi-scale),
    but that the window is rounded to whole pixels of the image and resized once.

    Args:
        image_size: Height and width of the result in pixels.
        short_side: Smallest and largest S, image_size <= low <= high.
        flip: Whether to mirror half of the images too, the same ones as `Flip`.
        quality: "fast" or "exact", see `crop_image`.
        dtype: "uint8", or "float32" for values that are not rounded.
    """

    image_size: int
    short_side: tuple[int, int] = (256, 512)
    flip: bool = False
    quality: Quality = "fast"
    dtype: Dtype = "uint8"

    def __post_init__(self) -> None:
        _require(self)
        if not self.image_size <= self.short_side[0] <= self.short_side[1]:
            raise ValueError(
                "RandomScaleCrop.short_side must be image_size <= low <= high, got "
                f"image_size {self.image_size} and {self.short_side}."
            )

    def __call__(self, example: Example) -> Example:
        return _with_image(self, example, flip=self.flip)

    def window(self, example: Example) -> tf.Tensor:
        """The window: int32 [4], top, left, height, width in pixels."""
        low, high = self.short_side
        drawn = tf.random.stateless_uniform([3], op_seed(self, example["seed"]))
        scaled = low + tf.floor(drawn[0] * (high + 1 - low))
        sizes = tf.stack([example["height"], example["width"]])
        side = _share(tf.reduce_min(sizes), self.image_size / scaled)
        free = tf.cast(sizes - side + 1, tf.float32)
        begin = tf.cast(tf.floor(drawn[1:] * free), tf.int32)
        # The product may be rounded up to `free` itself.
        begin = tf.minimum(begin, sizes - side)
        return tf.concat([begin, tf.stack([side, side])], 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CenterCrop:
    """Decodes the central square of the image and resizes it, for evaluation.

    Element: example -> example. Replaces `encoded`, `height`, `width` by `image`.
        out  image: `dtype` [image_size, image_size, 3], 0..255

    Equals resizing the short side to image_size / fraction and cropping the center,
    but that the square is rounded to whole pixels of the image: 0.875 is the customary
    256 to 224 (He et al., "Deep Residual Learning", 2015).

    Args:
        image_size: Height and width of the result in pixels.
        fraction: Side of the square as a share of the short side, 0 < fraction <= 1.
        quality: "fast" or "exact", see `crop_image`.
        dtype: "uint8", or "float32" for values that are not rounded.
    """

    image_size: int
    fraction: float = 0.875
    quality: Quality = "fast"
    dtype: Dtype = "uint8"

    def __post_init__(self) -> None:
        _require(self)
        if not 0 < self.fraction <= 1:
            raise ValueError(
                f"CenterCrop.fraction must be 0 < fraction <= 1, got {self.fraction}."
            )

    def __call__(self, example: Example) -> Example:
        return _with_image(self, example)

    def window(self, example: Example) -> tf.Tensor:
        """The window: int32 [4], top, left, height, width in pixels."""
        height, width = example["height"], example["width"]
        side = _share(tf.minimum(height, width), self.fraction)
        return tf.stack([(height - side) // 2, (width - side) // 2, side, side])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resize:
    """Decodes the whole image and resizes it, whatever its aspect ratio.

    Element: example -> example. Replaces `encoded`, `height`, `width` by `image`.
        out  image: `dtype` [image_size, image_size, 3], 0..255

    Args:
        image_size: Height and width of the result in pixels.
        quality: "fast" or "exact", see `crop_image`.
        dtype: "uint8", or "float32" for values that are not rounded.
    """

    image_size: int
    quality: Quality = "fast"
    dtype: Dtype = "uint8"

    def __post_init__(self) -> None:
        _require(self)

    def __call__(self, example: Example) -> Example:
        return _with_image(self, example)

    def window(self, example: Example) -> tf.Tensor:
        """The window: int32 [4], top, left, height, width in pixels."""
        return tf.stack([0, 0, example["height"], example["width"]])


def crop_image(
    encoded: tf.Tensor,
    window: tf.Tensor,
    image_size: int,
    *,
    flip: tf.Tensor | None = None,
    quality: Quality = "fast",
    dtype: Dtype = "uint8",
) -> tf.Tensor:
    """A window of a JPEG image as a square image, bilinear with half-pixel centers.

    "exact" decodes the window in full and resizes it. "fast" decodes it at 1/2, 1/4 or
    1/8 of its size, by libjpeg's smaller inverse DCT, where no side of it then falls
    below `image_size`; the window's edges move out by less than a scaled pixel, which
    is less than a pixel of the result. Where nothing is scaled both give equal pixels.
    Neither smooths before it skips pixels, but the smaller DCT does a part of that.

    Args:
        encoded: string [], JPEG, of any subsampling; gray and CMYK become RGB.
        window: int32 [4], top, left, height, width in pixels, within the image.
        image_size: Height and width of the result in pixels.
        flip: bool [], whether to mirror the result left to right.
        quality: "fast" or "exact".
        dtype: "uint8", rounded to even, or "float32", not rounded.

    Returns:
        `dtype` [image_size, image_size, 3], RGB, 0..255.

    Raises:
        tf.errors.InvalidArgumentError: If the bytes are no JPEG, or the window is not
            within the image; libjpeg does not tell which.
    """
    if quality == "fast":
        pixels = _decode_scaled(encoded, window, image_size)
    else:
        pixels = _decode(encoded, window, ratio=1)
    # Mirrored where a pixel is 3 bytes: floats would cost three times as much.
    if flip is not None and dtype == "float32":
        pixels = _mirror(pixels, flip)
    # The kernel itself: tf.image.resize adds a dozen small ops, 4 % of the whole.
    resized = tf.raw_ops.ResizeBilinear(
        images=pixels[tf.newaxis],
        size=[image_size, image_size],
        half_pixel_centers=True,
    )
    resized = tf.reshape(resized, [image_size, image_size, 3])
    if dtype == "float32":
        return resized
    image = _round(resized)
    return image if flip is None else _mirror(image, flip)


def scaled_window(window: tf.Tensor, ratio: int) -> tf.Tensor:
    """The window in an image that is decoded at 1 / ratio of its size.

    The smallest that covers it: each edge moves out by less than a scaled pixel. Its
    center so moves by less than half of one, and it never leaves the scaled image,
    which is ceil(size / ratio).

    Args:
        window: int32 [4], top, left, height, width.
        ratio: 1, 2, 4 or 8.

    Returns:
        int32 [4], top, left, height, width.
    """
    begin = window[:2] // ratio
    end = (window[:2] + window[2:] + ratio - 1) // ratio
    return tf.concat([begin, end - begin], 0)


def _decode_scaled(encoded: tf.Tensor, window: tf.Tensor, image_size: int) -> tf.Tensor:
    times = tf.minimum(window[2], window[3]) // image_size
    # The ratio is an attribute of the op, so there is one op for each.
    return tf.switch_case(
        sum(tf.cast(times >= ratio, tf.int32) for ratio in _RATIOS[1:]),
        [
            lambda ratio=ratio: _decode(
                encoded, scaled_window(window, ratio) if ratio > 1 else window, ratio
            )
            for ratio in _RATIOS
        ],
    )


def _decode(encoded: tf.Tensor, window: tf.Tensor, ratio: int) -> tf.Tensor:
    return tf.raw_ops.DecodeAndCropJpeg(
        contents=encoded,
        crop_window=window,
        channels=3,
        ratio=ratio,
        # INTEGER_FAST, the default, is 3 % faster at most where there is AVX2, and
        # 44 dB away.
        dct_method="INTEGER_ACCURATE",
        # libjpeg-turbo before 3.0 makes noise of a scaled crop of 4x2 or 2x4 chroma
        # with it; scaled down there is next to nothing to upscale.
        fancy_upscaling=ratio == 1,
    )


def _round(image: tf.Tensor) -> tf.Tensor:
    """Equals tf.cast(tf.round(image), tf.uint8) for 0..255, in one op of half the cost.

    With the range 0..255 the scale of quantization is 1.
    """
    quantized, _, _ = tf.raw_ops.QuantizeV2(
        input=image,
        min_range=0.0,
        max_range=255.0,
        T=tf.quint8,
        mode="SCALED",
        round_mode="HALF_TO_EVEN",
    )
    return tf.bitcast(quantized, tf.uint8)


def _mirror(image: tf.Tensor, flip: tf.Tensor) -> tf.Tensor:
    return tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image)


def _share(side: tf.Tensor, share: tf.Tensor | float) -> tf.Tensor:
    """That share of a side in whole pixels, one at least."""
    pixels = tf.round(tf.cast(side, tf.float32) * share)
    return tf.maximum(tf.cast(pixels, tf.int32), 1)


def _with_image(op: _Crop, example: Example, *, flip: bool = False) -> Example:
    """The example with the op's window as an image in place of the JPEG bytes."""
    drawn = None
    if flip:
        # As tf.image.stateless_random_flip_left_right draws, which Flip calls.
        drawn = tf.random.stateless_uniform([], op_seed(Flip(), example["seed"])) < 0.5
    image = crop_image(
        example["encoded"],
        op.window(example),
        op.image_size,
        flip=drawn,
        quality=op.quality,
        dtype=op.dtype,
    )
    replaced = ("encoded", "height", "width")
    kept = {name: value for name, value in example.items() if name not in replaced}
    return kept | {"image": image}
