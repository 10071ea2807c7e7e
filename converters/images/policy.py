"""The policy: what a converter does about each kind of image, and its limits.

In: the choice for each kind, from flags or from the index of a data set. Out: a
`Policy` whose values are checked. No image is read here; `prepare` applies the policy.
"""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from converters.images import jpeg_header, limits, shrink

# JPEG quality for images of other formats and for CMYK JPEGs, which are encoded without
# chroma subsampling. The loss is not visible.
REENCODE_QUALITY = 95

# About two seconds of decoding on one core. The size of the input decides and no clock,
# so that the same input gives the same data set. Sizes may be unknown, as at a URL.
_QUICK_IMAGES, _QUICK_BYTES = 2_000, 150_000_000

ENTRY_POINTS_HELP = (
    "Also write the file entry_points-<split> for each split: where in its codes a "
    "decoder may begin, for each baseline JPEG. tfpipe's native op then decodes less "
    "of each image, and the stored JPEGs stay as they are. About 0.6 % of their bytes. "
    "Needs the library that `python -m tfpipe.native` builds."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """The choices about each kind of image. The defaults suit training.

    Each field is a flag of `converters.options.policy`, whose help explains it. The
    type of a field holds its choices, the default first, or the largest value of a
    number; the smallest value is 1.

    Raises:
        ValueError: If a value is not one of its choices, or is out of range.
    """

    other_format: Literal["convert", "skip", "fail"] = "convert"
    cmyk: Literal["convert", "skip", "fail"] = "convert"
    grayscale: Literal["keep", "convert", "skip"] = "keep"
    exif_orientation: Literal["keep", "apply"] = "keep"
    progressive: Literal["keep", "baseline"] = "keep"
    truncated: Literal["skip", "fail", "keep"] = "skip"
    not_an_image: Literal["skip", "fail"] = "skip"
    undecodable: Literal["skip", "fail"] = "skip"
    corrupt: Literal["ignore", "skip", "keep", "fail"] = "ignore"
    too_many_pixels: Literal["skip", "fail"] = "skip"
    too_expensive: Literal["skip", "fail"] = "skip"
    too_many_bytes: Literal["skip", "fail"] = "skip"
    max_pixels: Annotated[int, limits.MAX_PIXELS] = limits.MAX_PIXELS
    max_decoded_pixels: Annotated[int, limits.MAX_PIXELS] = limits.MAX_DECODED_PIXELS
    max_image_bytes: Annotated[int, limits.MOST_IMAGE_BYTES] = limits.MAX_IMAGE_BYTES
    decode: Literal["auto", "header", "full"] = "auto"
    max_side: Annotated[int | None, jpeg_header.MAX_SIDE] = None
    short_side: Annotated[int | None, jpeg_header.MAX_SIDE] = None
    quality: Annotated[int | None, 100] = None
    baseline: bool = False
    optimize: Literal["none", "keep_subsampling", "420"] = "none"
    restart_rows: bool = False
    lossless_rotation: bool = False
    entry_points: bool = False

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(
                    f"--{name} must be one of {', '.join(choices)}, got {value!r}."
                )
        for name, most in MOST.items():
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise ValueError(f"--{name} must be 1 to {most}, got {value}.")
        if self.decode == "header" and self.corrupt != "ignore":
            raise ValueError(
                f"--corrupt={self.corrupt} needs every image to be decoded, got "
                "--decode=header. Take --decode=full, or leave --corrupt out."
            )

    def for_input(self, num_images: int, num_bytes: int) -> "Policy":
        """Returns the policy with `decode` decided for an input of this size."""
        if self.decode != "auto":
            return self
        if num_images <= _QUICK_IMAGES and num_bytes <= _QUICK_BYTES:
            return dataclasses.replace(self, decode="full")
        return dataclasses.replace(self, decode="header", corrupt="ignore")

    def fit(self, height: int, width: int) -> tuple[int, int] | None:
        """Returns height and width in pixels to scale down to; None to leave them."""
        if self.max_side is None and self.short_side is None:
            return None
        return shrink.fit(
            height, width, max_side=self.max_side, short_side=self.short_side
        )

    @property
    def shrinks(self) -> bool:
        """Whether images are encoded again to be smaller, in pixels or in bytes."""
        return self.squeezes or (self.max_side or self.short_side) is not None

    @property
    def squeezes(self) -> bool:
        """Whether every JPEG is encoded again, and kept so if that makes it smaller."""
        return self.quality is not None or self.optimize != "none"


_TYPES = typing.get_type_hints(Policy, include_extras=True)
# The choices of each policy; the first is the default.
CHOICES: Mapping[str, tuple[str, ...]] = {
    name: typing.get_args(kind)
    for name, kind in _TYPES.items()
    if typing.get_origin(kind) is Literal
}
# The largest allowed value of each numeric field; the smallest is 1.
MOST: Mapping[str, int] = {
    name: kind.__metadata__[0]
    for name, kind in _TYPES.items()
    if typing.get_origin(kind) is Annotated
}


def policy_of(fields: Mapping[str, Any]) -> Policy:
    """Returns the policy that a data set was made with, from the options in its index.

    Indexes of earlier versions lack the limits that were added later; the policy then
    has the largest allowed limits, because none was checked.

    Raises:
        TypeError: If there is a field of another name.
        ValueError: If a value is not one of its choices, or is out of range.
    """
    without_limits = {
        "max_decoded_pixels": limits.MAX_PIXELS,
        "max_image_bytes": limits.MOST_IMAGE_BYTES,
    }
    return Policy(**{**without_limits, **fields})
