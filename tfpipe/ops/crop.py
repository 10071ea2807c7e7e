"""Crops: example -> example, from JPEG bytes to a square image of fixed size.

In: an example with `encoded`, `height`, `width` (see `ops.Parse`). Out: the example
with `image` in their place. Each op only says which window of the image it wants;
`crop_image` alone turns a window into pixels, in one go: it decodes the window, at a
smaller scale where that is enough, resizes, mirrors and, if asked to, normalizes it. It
does so by the native op or by stock ones; the pixels are the same.
"""

import dataclasses
from typing import Any, Literal, Protocol

import tensorflow as tf

from tfpipe import errors, native
from tfpipe.native import CropOp
from tfpipe.ops import crop_stock, stateless_random
from tfpipe.ops.basic import Example, Flip, Normalize, op_seed

Quality = Literal["fast", "exact"]
Dtype = Literal["uint8", "float32", "bfloat16"]
Layout = Literal["NHWC", "NCHW"]


# The largest that the native op makes; kMaxImageSize in native/crop.cc.
MAX_IMAGE_SIZE = 1 << 14


class _Crop(Protocol):
    """What the ops of this module have in common."""

    @property
    def image_size(self) -> int: ...
    @property
    def quality(self) -> Quality: ...
    @property
    def dtype(self) -> Dtype: ...
    @property
    def normalize(self) -> Normalize | None: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def crop_op(self) -> CropOp: ...

    def window(self, example: Example) -> tf.Tensor:
        """The window: int32 [..., 4], top, left, height, width in pixels."""


def _require(op: _Crop) -> None:
    """Checks what all crops have in common, and settles which op they use."""
    name = type(op).__name__
    errors.settle_ints(op, ["image_size"], least=1, most=MAX_IMAGE_SIZE)
    errors.require_kind(op, "normalize", op.normalize, Normalize, or_none=True)
    if op.quality not in ("fast", "exact"):
        raise ValueError(f"{name}.quality must be fast or exact, got {op.quality!r}.")
    if op.dtype not in ("uint8", "float32", "bfloat16"):
        raise ValueError(
            f"{name}.dtype must be uint8, float32 or bfloat16, got {op.dtype!r}."
        )
    if op.normalize is not None and op.dtype == "uint8":
        raise ValueError(
            f"{name}.normalize must come with dtype float32 or bfloat16, got uint8."
        )
    if op.layout not in ("NHWC", "NCHW"):
        raise ValueError(f"{name}.layout must be NHWC or NCHW, got {op.layout!r}.")
    # What runs is what is printed.
    object.__setattr__(op, "crop_op", native.resolve(op.crop_op))


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
        dtype: "uint8", or "float32" or "bfloat16" for values that are not rounded.
        normalize: What to make of float values in the same pass.
        layout: "NHWC", or "NCHW" for [3, image_size, image_size].
        crop_op: "auto", "native" or "stock", see `native.resolve`.
    """

    image_size: int
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    max_attempts: int = 10
    flip: bool = False
    quality: Quality = "fast"
    dtype: Dtype = "uint8"
    normalize: Normalize | None = None
    layout: Layout = "NHWC"
    crop_op: CropOp = "auto"

    def __post_init__(self) -> None:
        _require(self)
        errors.settle_range(self, "area", above=0, most=1)
        errors.settle_range(self, "ratio", above=0)
        errors.settle_ints(self, ["max_attempts"], least=1)
        errors.settle_bools(self, "flip")

    def __call__(self, example: Example) -> Example:
        return _with_image(self, example, flip=self.flip)

    def window(self, example: Example) -> tf.Tensor:
        """The window: int32 [..., 4], top, left, height, width in pixels."""
        return stateless_random.random_window(
            example["height"],
            example["width"],
            op_seed(self, example["seed"]),
            area=self.area,
            ratio=self.ratio,
            max_attempts=self.max_attempts,
            crop_op=self.crop_op,
        )


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
        dtype: "uint8", or "float32" or "bfloat16" for values that are not rounded.
        normalize: What to make of float values in the same pass.
        layout: "NHWC", or "NCHW" for [3, image_size, image_size].
        crop_op: "auto", "native" or "stock", see `native.resolve`.
    """

    image_size: int
    short_side: tuple[int, int] = (256, 512)
    flip: bool = False
    quality: Quality = "fast"
    dtype: Dtype = "uint8"
    normalize: Normalize | None = None
    layout: Layout = "NHWC"
    crop_op: CropOp = "auto"

    def __post_init__(self) -> None:
        _require(self)
        errors.settle_range(self, "short_side", least=self.image_size, whole=True)
        errors.settle_bools(self, "flip")

    def __call__(self, example: Example) -> Example:
        return _with_image(self, example, flip=self.flip)

    def window(self, example: Example) -> tf.Tensor:
        """The window: int32 [..., 4], top, left, height, width in pixels."""
        low, high = self.short_side
        seed = op_seed(self, example["seed"])
        drawn = stateless_random.uniform(seed, 3, crop_op=self.crop_op)
        scaled = low + tf.floor(drawn[..., :1] * (high + 1 - low))
        sizes = tf.stack([example["height"], example["width"]], -1)
        shortest = tf.reduce_min(sizes, -1, keepdims=True)
        side = _share(shortest, self.image_size / scaled)
        free = tf.cast(sizes - side + 1, tf.float32)
        begin = tf.cast(tf.floor(drawn[..., 1:] * free), tf.int32)
        # The product may be rounded up to `free` itself.
        begin = tf.minimum(begin, sizes - side)
        return tf.concat([begin, side, side], -1)


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
        dtype: "uint8", or "float32" or "bfloat16" for values that are not rounded.
        normalize: What to make of float values in the same pass.
        layout: "NHWC", or "NCHW" for [3, image_size, image_size].
        crop_op: "auto", "native" or "stock", see `native.resolve`.
    """

    image_size: int
    fraction: float = 0.875
    quality: Quality = "fast"
    dtype: Dtype = "uint8"
    normalize: Normalize | None = None
    layout: Layout = "NHWC"
    crop_op: CropOp = "auto"

    def __post_init__(self) -> None:
        _require(self)
        errors.settle_numbers(self, ["fraction"], above=0, most=1)

    def __call__(self, example: Example) -> Example:
        return _with_image(self, example)

    def window(self, example: Example) -> tf.Tensor:
        """The window: int32 [..., 4], top, left, height, width in pixels."""
        height, width = example["height"], example["width"]
        side = _share(tf.minimum(height, width), self.fraction)
        return tf.stack([(height - side) // 2, (width - side) // 2, side, side], -1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resize:
    """Decodes the whole image and resizes it, whatever its aspect ratio.

    Element: example -> example. Replaces `encoded`, `height`, `width` by `image`.
        out  image: `dtype` [image_size, image_size, 3], 0..255

    Args:
        image_size: Height and width of the result in pixels.
        quality: "fast" or "exact", see `crop_image`.
        dtype: "uint8", or "float32" or "bfloat16" for values that are not rounded.
        normalize: What to make of float values in the same pass.
        layout: "NHWC", or "NCHW" for [3, image_size, image_size].
        crop_op: "auto", "native" or "stock", see `native.resolve`.
    """

    image_size: int
    quality: Quality = "fast"
    dtype: Dtype = "uint8"
    normalize: Normalize | None = None
    layout: Layout = "NHWC"
    crop_op: CropOp = "auto"

    def __post_init__(self) -> None:
        _require(self)

    def __call__(self, example: Example) -> Example:
        return _with_image(self, example)

    def window(self, example: Example) -> tf.Tensor:
        """The window: int32 [..., 4], top, left, height, width in pixels."""
        height, width = example["height"], example["width"]
        zero = tf.zeros_like(height)
        return tf.stack([zero, zero, height, width], -1)


CROPS = (RandomCrop, RandomScaleCrop, CenterCrop, Resize)


def crop_image(
    encoded: tf.Tensor,
    window: tf.Tensor,
    image_size: int,
    *,
    flip: tf.Tensor | None = None,
    quality: Quality = "fast",
    dtype: Dtype = "uint8",
    normalize: Normalize | None = None,
    layout: Layout = "NHWC",
    crop_op: CropOp = "auto",
) -> tf.Tensor:
    """A window of a JPEG image as a square image, bilinear with half-pixel centers.

    Of one image, or of each of a batch, in the place it has in the result.

    "exact" decodes the window in full and resizes it. "fast" decodes it at 1/2, 1/4 or
    1/8 of its size, by libjpeg's smaller inverse DCT, where no side of it then falls
    below `image_size`; the window's edges move out by less than a scaled pixel, which
    is less than a pixel of the result. Where nothing is scaled both give equal pixels.
    Neither smooths before it skips pixels, but the smaller DCT does a part of that.

    Args:
        encoded: string [] or [n], JPEG, of any subsampling; gray and CMYK become RGB.
        window: int32 [4] or [n, 4], top, left, height, width in pixels, within the
            image.
        image_size: Height and width of the result in pixels.
        flip: bool [] or [n], whether to mirror the result left to right.
        quality: "fast" or "exact".
        dtype: "uint8", rounded to even, or "float32" or "bfloat16", not rounded.
        normalize: What to make of float values in the same pass.
        layout: "NHWC" or "NCHW".
        crop_op: "auto", "native" or "stock", see `native.resolve`. The pixels are the
            same, so far as the libjpeg-turbo of TensorFlow and of Pillow agree.

    Returns:
        `dtype` [image_size, image_size, 3], or [3, image_size, image_size] for "NCHW",
        and n of them for a batch; RGB, 0..255 if not normalized.

    Raises:
        tf.errors.InvalidArgumentError: If the bytes are no JPEG, or the window is not
            within the image; the native op says which, and of which of the batch.
        RuntimeError: If `crop_op` is "native" and that is not built.
        ValueError: If `image_size` is not from 1 to MAX_IMAGE_SIZE.
    """
    errors.require_int("", "image_size", image_size, least=1, most=MAX_IMAGE_SIZE)
    encoded = tf.convert_to_tensor(encoded)
    if native.resolve(crop_op) == "native":
        return native.load()[0].tfpipe_crop(
            encoded=encoded,
            window=window,
            flip=tf.zeros_like(encoded, tf.bool) if flip is None else flip,
            image_size=image_size,
            quality=quality,
            dtype=dtype,
            layout=layout,
            **({} if normalize is None else _scale_and_offset(normalize)),
        )

    def crop(encoded: tf.Tensor, window: tf.Tensor, *flip: tf.Tensor) -> tf.Tensor:
        return crop_stock.crop(
            encoded,
            window,
            *(flip or [None]),
            image_size=image_size,
            fast=quality == "fast",
            dtype=dtype,
            normalize=normalize,
            layout=layout,
        )

    shape = [image_size, image_size, 3]
    return stateless_random.each(
        crop,
        [encoded, window, *([] if flip is None else [flip])],
        tf.TensorSpec(shape if layout == "NHWC" else shape[::-1], dtype),
        is_batch=encoded.shape.rank > 0,
    )


def _scale_and_offset(normalize: Normalize) -> dict[str, Any]:
    """As `Normalize` computes, in the order of the result's channels."""
    scale = [1 / std for std in normalize.std]
    offset = [-m / s for m, s in zip(normalize.mean, normalize.std, strict=True)]
    step = -1 if normalize.bgr else 1
    return {
        "scale": scale[::step],
        "offset": offset[::step],
        "bgr": normalize.bgr,
    }


def _share(side: tf.Tensor, share: tf.Tensor | float) -> tf.Tensor:
    """That share of a side in whole pixels, one at least."""
    pixels = tf.round(tf.cast(side, tf.float32) * share)
    return tf.maximum(tf.cast(pixels, tf.int32), 1)


def _with_image(op: _Crop, example: Example, *, flip: bool = False) -> Example:
    """The example with the op's window as an image in place of the JPEG bytes."""
    drawn = None
    if flip:
        # As tf.image.stateless_random_flip_left_right draws, which Flip calls.
        seed = op_seed(Flip(), example["seed"])
        drawn = stateless_random.uniform(seed, 1, crop_op=op.crop_op)[..., 0] < 0.5
    image = crop_image(
        example["encoded"],
        op.window(example),
        op.image_size,
        flip=drawn,
        quality=op.quality,
        dtype=op.dtype,
        normalize=op.normalize,
        layout=op.layout,
        crop_op=op.crop_op,
    )
    replaced = ("encoded", "height", "width")
    kept = {name: value for name, value in example.items() if name not in replaced}
    return kept | {"image": image}
