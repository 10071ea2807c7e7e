"""Crops: example -> example, from JPEG bytes to an image of fixed size.

In: an example with `encoded`, `height`, `width` (see `parse.Parse`). Out: the example
with `image` in their place. An op chooses a crop box, the part of the image to keep.
`crop_image` turns a crop box into pixels in one pass: decode the box, at a smaller
scale where a smaller scale is enough, resize, mirror and, if asked to, normalize. Two
kernels do so: the native op, and TensorFlow's stock ops, the second half of this
module. Both do the same arithmetic in the same order, and give the same pixels. Where
an example has `boxes` (see `ops.boxes`), a crop moves them with the pixels.
"""

import dataclasses
import functools
from typing import Any, ClassVar, Literal, get_args

import tensorflow as tf

from tfpipe import errors
from tfpipe.native import op as native_op, selection
from tfpipe.native.selection import CropOp
from tfpipe.ops import boxes, other_formats, stateless_random
from tfpipe.ops.basic import Example, Flip, Normalize, ToNCHW, op_seed

Quality = Literal["fast", "exact"]
Dtype = Literal["uint8", "float32", "bfloat16"]
Layout = Literal["NHWC", "NCHW"]
ImageSize = int | tuple[int, int]

# Largest side of the native op's images; equals kMaxImageSize in native/src/crop.cc.
MAX_IMAGE_SIZE = 1 << 14

# Features of an example that a crop replaces.
_REPLACED = ("encoded", "height", "width", "entry_points", *boxes.FEATURES)

# Factors by which libjpeg can decode smaller: the scales of its inverse DCT.
_RATIOS = (1, 2, 4, 8)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Crop:
    """Decodes a crop box of the image and resizes it; the base of the ops below.

    Element: example -> example. Replaces `encoded`, `height`, `width` by `image`, and
    moves `boxes` if there are any. Uses `entry_points` if there are any, see
    `crop_image`.
        out  image: `dtype` [height, width, 3] of `image_size`, 0..255

    Args:
        image_size: Height and width of the result in pixels: a number for a square, or
            (height, width).
        quality: "fast" or "exact", see `crop_image`.
        dtype: "uint8", or "float32" or "bfloat16" for values without rounding.
        normalize: Normalization of float values, done in the same pass.
        layout: "NHWC", or "NCHW" for [3, height, width].
        crop_op: "auto", "native" or "stock", see `native.selection.resolve`.
        jpeg_only: Whether PNG is refused. A pipeline then builds sooner.

    Raises:
        ValueError: If an argument is out of range, or `normalize` comes with "uint8".
        RuntimeError: If `crop_op` is "native" and the native op cannot be used.
    """

    takes_batches: ClassVar[bool] = True

    image_size: ImageSize
    quality: Quality = "fast"
    dtype: Dtype = "uint8"
    normalize: Normalize | None = None
    layout: Layout = "NHWC"
    crop_op: CropOp = "auto"
    jpeg_only: bool = False

    def __post_init__(self) -> None:
        errors.settle_sides(self, "image_size", most=MAX_IMAGE_SIZE)
        errors.require_kind(self, "normalize", self.normalize, Normalize, or_none=True)
        errors.settle_bools(self, "jpeg_only")
        # tf.float32 is "float32" too.
        errors.settle(self, "dtype", getattr(self.dtype, "name", self.dtype))
        for name, choices in (
            ("quality", Quality),
            ("dtype", Dtype),
            ("layout", Layout),
        ):
            errors.require_choice(self, name, getattr(self, name), get_args(choices))
        if self.normalize is not None and self.dtype == "uint8":
            raise ValueError(
                f"{type(self).__name__}.normalize must come with dtype float32 or "
                "bfloat16, got uint8."
            )
        # Settled here, so that the printed op is the op at work.
        errors.settle(self, "crop_op", selection.resolve(self.crop_op))

    def __repr__(self) -> str:
        # The op's own fields stand after image_size, as in the op's documentation.
        image_size, *names = (field.name for field in dataclasses.fields(self))
        num_shared = len(dataclasses.fields(Crop)) - 1
        names = [image_size, *names[num_shared:], *names[:num_shared]]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({values})"

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of the result in pixels."""
        return errors.require_sides(self, "image_size", self.image_size)

    def __call__(self, example: Example) -> Example:
        kept = {n: value for n, value in example.items() if n not in _REPLACED}
        is_batch = tf.convert_to_tensor(example["encoded"]).shape.rank > 0
        if self.crop_op == "native" or not is_batch:
            return kept | self._made(example)
        # The stock ops take one example. A loop draws, decodes and crops in each round.
        needed = {n: example[n] for n in (*_REPLACED, "seed") if n in example}
        shape = [*self.sides, 3] if self.layout == "NHWC" else [3, *self.sides]
        specs = {"image": tf.TensorSpec(shape, self.dtype)}
        for name in boxes.FEATURES:
            if name in example:
                value = example[name]
                specs[name] = tf.TensorSpec(value.shape[1:], value.dtype)
        cropped: Example = stateless_random.each(
            self._made, [needed], specs, is_batch=True
        )
        return kept | cropped

    def _made(self, example: Example) -> Example:
        """Returns the features that a crop makes: the image, and moved boxes."""
        flips, crop_box = None, self.window(example)
        if getattr(self, "flip", False):
            # The draw of tf.image.stateless_random_flip_left_right, which Flip calls.
            seed = op_seed(Flip(), example["seed"])
            drawn = stateless_random.uniform(seed, 1, crop_op=self.crop_op)
            flips = drawn[..., 0] < 0.5
        image = crop_image(
            example["encoded"],
            crop_box,
            self.image_size,
            flip=flips,
            quality=self.quality,
            dtype=self.dtype,
            normalize=self.normalize,
            layout=self.layout,
            crop_op=self.crop_op,
            jpeg_only=self.jpeg_only,
            entry_points=example.get("entry_points"),
        )
        if "boxes" not in example:
            return {"image": image}
        moved = boxes.cropped(example, crop_box, self.sides, flips)
        return {"image": image, **moved}

    def window(self, example: Example) -> tf.Tensor:
        """Returns the crop box: int32 [..., 4], top, left, height, width in pixels."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class RandomCrop(Crop):
    """Decodes a random part of the image and resizes it: Inception's augmentation.

    The crop box's aspect ratio is uniform in `ratio`, its height uniform among the
    heights with an area in `area` (after Szegedy et al., "Going Deeper with
    Convolutions", 2014, section 6). If no box fits in `max_attempts` attempts, the box
    is the whole image. `tf.image.stateless_sample_distorted_bounding_box` draws the
    box. Only the box is decoded. The box is stretched to the shape of the result, as by
    torchvision's `RandomResizedCrop`, and does not depend on that shape: for results
    that are not square, choose a suitable `ratio`.

    Example:
        >>> jpeg = tf.io.encode_jpeg(tf.zeros([40, 60, 3], tf.uint8))
        >>> example = {"encoded": jpeg, "height": 40, "width": 60}
        >>> example["seed"] = tf.constant([1, 2], tf.int64)
        >>> tfpipe.RandomCrop(image_size=32)(example)["image"].shape
        TensorShape([32, 32, 3])

    Args:
        area: Smallest and largest share of the image's area, 0 < low <= high <= 1.
        ratio: Smallest and largest width / height.
        max_attempts: Number of boxes to try.
        flip: Whether to mirror half of the images, the same images as `Flip` mirrors.

    `Crop` describes the element and the other arguments.
    """

    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    max_attempts: int = 10
    flip: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        errors.settle_range(self, "area", above=0, most=1)
        errors.settle_range(self, "ratio", above=0)
        errors.settle_ints(self, ["max_attempts"], least=1)
        errors.settle_bools(self, "flip")

    def window(self, example: Example) -> tf.Tensor:
        return stateless_random.random_crop_box(
            example["height"],
            example["width"],
            op_seed(self, example["seed"]),
            area=self.area,
            ratio=self.ratio,
            max_attempts=self.max_attempts,
            crop_op=self.crop_op,
        )


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class RandomScaleCrop(Crop):
    """Decodes a random square of random size and resizes it: VGG's augmentation.

    Equals scaling the image so that its short side is S, a whole number drawn from
    `short_side`, and cropping image_size x image_size anywhere in the scaled image
    (Simonyan & Zisserman, "Very Deep Convolutional Networks", 2014, section 3.1,
    multi-scale). A difference: the square is rounded to whole pixels of the image and
    resized once.

    For a result that is not square the crop box has the result's aspect ratio, and S is
    the short side of the largest box of this aspect ratio within the scaled image.

    Example:
        >>> jpeg = tf.io.encode_jpeg(tf.zeros([40, 60, 3], tf.uint8))
        >>> example = {"encoded": jpeg, "height": 40, "width": 60}
        >>> example["seed"] = tf.constant([1, 2], tf.int64)
        >>> op = tfpipe.RandomScaleCrop(image_size=32, short_side=(36, 72))
        >>> op(example)["image"].shape
        TensorShape([32, 32, 3])

    Args:
        short_side: Smallest and largest S in pixels; low must be at least the short
            side of the result.
        flip: Whether to mirror half of the images, the same images as `Flip` mirrors.

    `Crop` describes the element and the other arguments.
    """

    short_side: tuple[int, int] = (256, 512)
    flip: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        errors.settle_range(self, "short_side", least=min(self.sides), whole=True)
        errors.settle_bools(self, "flip")

    def window(self, example: Example) -> tf.Tensor:
        low, high = self.short_side
        seed = op_seed(self, example["seed"])
        drawn = stateless_random.uniform(seed, 3, crop_op=self.crop_op)
        scaled = low + tf.floor(drawn[..., :1] * (high + 1 - low))
        sizes = tf.stack([example["height"], example["width"]], -1)
        extents = _share(sizes, self.sides, min(self.sides) / scaled)
        free = tf.cast(sizes - extents + 1, tf.float32)
        begin = tf.cast(tf.floor(drawn[..., 1:] * free), tf.int32)
        # The product may be rounded up to `free` itself.
        begin = tf.minimum(begin, sizes - extents)
        return tf.concat([begin, extents], -1)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class CenterCrop(Crop):
    """Decodes the central square of the image and resizes it, for evaluation.

    Equals resizing the short side to image_size / fraction and cropping the center,
    except that the square is rounded to whole pixels of the image. 0.875 is the
    customary 224 of 256 (He et al., "Deep Residual Learning", 2015). For a result that
    is not square the crop box has the result's aspect ratio.

    Example:
        >>> jpeg = tf.io.encode_jpeg(tf.zeros([40, 60, 3], tf.uint8))
        >>> example = {"encoded": jpeg, "height": 40, "width": 60}
        >>> tfpipe.CenterCrop(image_size=32)(example)["image"].shape
        TensorShape([32, 32, 3])

    Args:
        fraction: Sides of the crop box as a share of the sides of the largest box of
            its aspect ratio within the image, 0 < fraction <= 1.

    `Crop` describes the element and the other arguments.
    """

    fraction: float = 0.875

    def __post_init__(self) -> None:
        super().__post_init__()
        errors.settle_numbers(self, ["fraction"], above=0, most=1)

    def window(self, example: Example) -> tf.Tensor:
        sizes = tf.stack([example["height"], example["width"]], -1)
        extents = _share(sizes, self.sides, self.fraction)
        return tf.concat([(sizes - extents) // 2, extents], -1)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Resize(Crop):
    """Decodes the whole image and resizes it to any aspect ratio.

    Example:
        >>> jpeg = tf.io.encode_jpeg(tf.zeros([40, 60, 3], tf.uint8))
        >>> example = {"encoded": jpeg, "height": 40, "width": 60}
        >>> tfpipe.Resize(image_size=(16, 24))(example)["image"].shape
        TensorShape([16, 24, 3])

    `Crop` describes the element and the arguments.
    """

    def window(self, example: Example) -> tf.Tensor:
        height, width = example["height"], example["width"]
        zero = tf.zeros_like(height)
        return tf.stack([zero, zero, height, width], -1)


CROPS = (RandomCrop, RandomScaleCrop, CenterCrop, Resize)


def crop_image(
    encoded: tf.Tensor,
    crop_box: tf.Tensor,
    image_size: ImageSize,
    *,
    flip: tf.Tensor | None = None,
    quality: Quality = "fast",
    dtype: Dtype = "uint8",
    normalize: Normalize | None = None,
    layout: Layout = "NHWC",
    crop_op: CropOp = "auto",
    jpeg_only: bool = False,
    entry_points: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns a crop box of an image, resized, for an image or a batch.

    The result is resized bilinearly with half-pixel centers. Neither quality smooths
    the image before the resizing skips pixels; a smaller DCT smooths a little.

    | quality | decodes the crop box               | edges of the crop box            |
    |---------|------------------------------------|----------------------------------|
    | "exact" | in full                            | stay                             |
    | "fast"  | at 1/2, 1/4 or 1/8 of its size, by | move out by less than a pixel of |
    |         | libjpeg's smaller inverse DCT, if  | the scaled image and of the      |
    |         | no side falls below the result's   | result; stay if nothing is scaled|

    Args:
        encoded: string [] or [n], JPEG, of any subsampling; gray and CMYK become RGB.
            PNG as well: only the stock ops decode PNG, always as a whole.
        crop_box: int32 [4] or [n, 4], top, left, height, width in pixels of the image.
        image_size, normalize, layout, jpeg_only: See `Crop`.
        flip: bool [] or [n], whether to mirror the result left to right.
        quality: "fast" or "exact".
        dtype: "uint8", rounded to even, or "float32" or "bfloat16", not rounded.
        crop_op: "auto", "native" or "stock", see `native.selection.resolve`. The pixels
            are the same, so far as the libjpeg-turbo of TensorFlow and of Pillow agree.
        entry_points: string [] or [n], the results of `native.entry_points.find`, or
            empty strings. The native op then reaches the crop box sooner. The pixels
            are the same; a table with damage or of another image is ignored.

    Returns:
        `dtype` [height, width, 3], or [3, height, width] for "NCHW", with a first
        dimension n for a batch; RGB, 0..255 if not normalized.

    Raises:
        tf.errors.InvalidArgumentError: If the bytes are neither JPEG nor PNG, or the
            crop box is not within the image. The native op's message tells the two
            errors apart, and names the image's position in a batch.
        RuntimeError: If `crop_op` is "native" and the native op cannot be used.
        ValueError: If a side of `image_size` is not from 1 to MAX_IMAGE_SIZE.
    """
    sides = errors.require_sides("", "image_size", image_size, most=MAX_IMAGE_SIZE)
    encoded, crop_box = map(tf.convert_to_tensor, (encoded, crop_box))
    shared: dict[str, Any] = {"dtype": dtype, "layout": layout}
    values = [encoded, crop_box, *([] if flip is None else [flip])]
    num_stock = len(values)
    values += [] if entry_points is None else [entry_points]

    def native(*values: tf.Tensor) -> tf.Tensor:
        return native_op.load()[0].tfpipe_crop(
            encoded=values[0],
            window=values[1],
            flip=values[2] if flip is not None else tf.zeros(tf.shape(values[0]), bool),
            height=sides[0],
            width=sides[1],
            quality=quality,
            **shared,
            entry_points=values[num_stock:],
            **({} if normalize is None else normalize.by_channel()),
        )

    crop = functools.partial(
        _stock_crop,
        sides=sides,
        fast=quality == "fast",
        **shared,
        normalize=normalize,
        jpeg_only=jpeg_only,
    )

    def stock(*values: tf.Tensor) -> tf.Tensor:
        spec = tf.TensorSpec([*sides, 3] if layout == "NHWC" else [3, *sides], dtype)
        is_batch = encoded.shape.rank > 0
        return stateless_random.each(crop, values[:num_stock], spec, is_batch=is_batch)

    if selection.resolve(crop_op) == "stock":
        return stock(*values)
    if jpeg_only:
        return native(*values)
    return other_formats.by_format(native, stock, values)


def _share(
    sizes: tf.Tensor, sides: tuple[int, int], share: tf.Tensor | float
) -> tf.Tensor:
    """Returns the sides of a box within the image, at least one pixel each.

    Args:
        sizes: int32 [..., 2], height and width of the image in pixels.
        sides: Height and width of the result, whose aspect ratio the box gets.
        share: Sides of the box as a share of the sides of the largest such box, above 0
            and at most 1; a number, or float32 [..., 1].

    Returns:
        int32 [..., 2], height and width in pixels.
    """
    height, width = sides
    exact = tf.cast(sizes, tf.float32)
    # The largest height that the image's width allows, and the other way round.
    across = exact[..., ::-1] * [height / width, width / height]
    pixels = tf.round(tf.minimum(exact, across) * share)
    return tf.maximum(tf.cast(pixels, tf.int32), 1)


def _stock_crop(
    encoded: tf.Tensor,
    crop_box: tf.Tensor,
    *flips: tf.Tensor,
    sides: tuple[int, int],
    fast: bool,
    dtype: str,
    normalize: Normalize | None,
    layout: str,
    jpeg_only: bool,
) -> tf.Tensor:
    """Returns the pixels of an image by TensorFlow's own kernels, see `crop_image`.

    `sides` are height and width of the result in pixels. `flips` has a bool [], or
    nothing for an image without mirroring.
    """

    def from_jpeg() -> tf.Tensor:
        if fast:
            return _decode_scaled(encoded, crop_box, sides)
        return _decode(encoded, crop_box, ratio=1)

    if jpeg_only:
        pixels = from_jpeg()
    else:
        pixels = other_formats.crop_box_pixels(encoded, crop_box, from_jpeg)
    # Mirrored while a pixel is still 3 bytes: floats would cost three times as much.
    if dtype != "uint8":
        pixels = _mirror(pixels, *flips)
    # tf.image.resize would add a dozen small ops to this kernel, 4 % of the whole cost.
    resized = tf.raw_ops.ResizeBilinear(
        images=tf.expand_dims(pixels, 0), size=sides, half_pixel_centers=True
    )
    image = tf.reshape(resized, [*sides, 3])
    if dtype == "uint8":
        image = tf.cast(tf.round(image), tf.uint8)
        image = _mirror(image, *flips)
    if normalize is not None:
        image = normalize({"image": image})["image"]
    if dtype == "bfloat16":
        image = tf.cast(image, tf.bfloat16)
    return image if layout == "NHWC" else ToNCHW()({"image": image})["image"]


def scaled_crop_box(crop_box: tf.Tensor, ratio: int) -> tf.Tensor:
    """Returns the crop box within an image decoded at 1 / ratio of its size.

    The result is the smallest box around the crop box. An edge moves out by less than a
    scaled pixel, so the center moves by less than half a scaled pixel. The box stays
    within the scaled image, whose sides are ceil(size / ratio).

    Args:
        crop_box: int32 [4], top, left, height, width.
        ratio: 1, 2, 4 or 8.

    Returns:
        int32 [4], top, left, height, width.
    """
    begin = crop_box[:2] // ratio
    end = (crop_box[:2] + crop_box[2:] + ratio - 1) // ratio
    return tf.concat([begin, end - begin], 0)


def _decode_scaled(
    encoded: tf.Tensor, crop_box: tf.Tensor, sides: tuple[int, int]
) -> tf.Tensor:
    times = tf.minimum(crop_box[2] // sides[0], crop_box[3] // sides[1])
    # The ratio is an attribute of the op, so every ratio needs an op of its own.
    return tf.switch_case(
        sum(tf.cast(times >= ratio, tf.int32) for ratio in _RATIOS[1:]),
        [
            lambda ratio=ratio: _decode(
                encoded,
                scaled_crop_box(crop_box, ratio) if ratio > 1 else crop_box,
                ratio,
            )
            for ratio in _RATIOS
        ],
    )


def _decode(encoded: tf.Tensor, crop_box: tf.Tensor, ratio: int) -> tf.Tensor:
    return tf.raw_ops.DecodeAndCropJpeg(
        contents=encoded,
        crop_window=crop_box,
        channels=3,
        ratio=ratio,
        # INTEGER_FAST, the default, is 3 % faster at most where there is AVX2, and
        # 44 dB away.
        dct_method="INTEGER_ACCURATE",
        # In a scaled crop of 4x2 or 2x4 chroma, libjpeg-turbo before 3.0 makes noise
        # when it upscales smoothly; scaled down, hardly anything is left to upscale.
        fancy_upscaling=ratio == 1,
    )


def _mirror(image: tf.Tensor, *flips: tf.Tensor) -> tf.Tensor:
    for flip in flips:
        image = tf.cond(
            flip, lambda image=image: tf.reverse(image, [1]), lambda image=image: image
        )
    return image
