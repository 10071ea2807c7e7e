"""The policy: what a converter does about each kind of image, and its limits.

In: the choice for each kind, from flags or from the index of a data set. Out: a
`Policy` whose values are checked. No image is read here; `prepare` applies the policy.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from converters.images import jpeg_header, limits, shrink

# JPEG quality for images of other formats and for CMYK JPEGs, which are encoded without
# chroma subsampling. The loss is not visible.
REENCODE_QUALITY = 95

# The choices of each policy; the first is the default.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "other_format": ("convert", "skip", "fail"),
    "cmyk": ("convert", "skip", "fail"),
    "grayscale": ("keep", "convert", "skip"),
    "exif_orientation": ("keep", "apply"),
    "progressive": ("keep", "baseline"),
    "truncated": ("skip", "fail", "keep"),
    "not_an_image": ("skip", "fail"),
    "undecodable": ("skip", "fail"),
    "too_many_pixels": ("skip", "fail"),
    "too_expensive": ("skip", "fail"),
    "too_many_bytes": ("skip", "fail"),
    "decode": ("header", "full"),
    "optimize": ("none", "keep_subsampling", "420"),
}
# The largest allowed value of each numeric field; the smallest is 1.
MOST: Mapping[str, int] = {
    "max_side": jpeg_header.MAX_SIDE,
    "short_side": jpeg_header.MAX_SIDE,
    "quality": 100,
    "max_pixels": limits.MAX_PIXELS,
    "max_decoded_pixels": limits.MAX_PIXELS,
    "max_image_bytes": limits.MOST_IMAGE_BYTES,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """The choices about each kind of image. The defaults suit training.

    Each field is a flag of `converters.options.policy`, whose help explains it.

    Raises:
        ValueError: If a value is not one of its choices, or is out of range.
    """

    other_format: str = "convert"
    cmyk: str = "convert"
    grayscale: str = "keep"
    exif_orientation: str = "keep"
    progressive: str = "keep"
    truncated: str = "skip"
    not_an_image: str = "skip"
    undecodable: str = "skip"
    too_many_pixels: str = "skip"
    too_expensive: str = "skip"
    too_many_bytes: str = "skip"
    max_pixels: int = limits.MAX_PIXELS
    max_decoded_pixels: int = limits.MAX_DECODED_PIXELS
    max_image_bytes: int = limits.MAX_IMAGE_BYTES
    decode: str = "header"
    max_side: int | None = None
    short_side: int | None = None
    quality: int | None = None
    baseline: bool = False
    optimize: str = "none"
    restart_rows: bool = False

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

    def fit(self, height: int, width: int) -> tuple[int, int] | None:
        """Returns height and width in pixels to scale down to; None to leave them."""
        if self.max_side is None and self.short_side is None:
            return None
        return shrink.fit(
            height, width, max_side=self.max_side, short_side=self.short_side
        )

    @property
    def squeezes(self) -> bool:
        """Whether every JPEG is encoded again, and kept so if that makes it smaller."""
        return self.quality is not None or self.optimize != "none"


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
