"""The policy: what a converter does about every kind of image, and its limits.

In: the choice for every kind, from flags or from the index of a data set. Out: a
`Policy` whose values are checked. No image is read here; `prepare` applies the policy.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from converters.images import jpeg_header, limits, shrink
from tfpipe import cli
from tfpipe.cli import fields

# JPEG quality for images of other formats and for CMYK JPEGs, which are encoded without
# chroma subsampling. The loss is not visible.
REENCODE_QUALITY = 95

# About two seconds of decoding on one core. The size of the input decides and no clock,
# so that the same input gives the same data set. Sizes may be unknown, as at a URL.
_QUICK_IMAGES, _QUICK_BYTES = 2_000, 150_000_000

ENTRY_POINTS_HELP = (
    "Also write the file entry_points-<split> for each split: where in its codes a "
    "decoder may begin, for each baseline JPEG. tfpipe's native op then decodes less "
    "of each image, and the stored JPEGs stay as they are. About 2.6 % of their bytes. "
    "Needs the library that `python -m tfpipe.native` builds."
)

# Titles of the groups of flags in the help.
STORED, KINDS = "How images are stored", "Unusual and bad images"
_STORED, _KINDS = cli.group(STORED), cli.group(KINDS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """The choices about every kind of image. The defaults suit training.

    Every field is a flag of the commands that convert images.

    Raises:
        ValueError: If a value is not one of its choices, or is out of range.
    """

    max_side: int | None = _STORED(
        None,
        "Scale images down so that the longer side has at most this many pixels. "
        "Default: no limit. Images are never made larger.",
        least=1,
        most=jpeg_header.MAX_SIDE,
    )
    short_side: int | None = _STORED(
        None,
        "Scale images down so that the shorter side has at most this many pixels, 256 "
        "or more for training at 224. Default: no limit. With --max_side, both "
        "limits hold.",
        least=1,
        most=jpeg_header.MAX_SIDE,
    )
    quality: int | None = _STORED(
        None,
        "Quality of every JPEG that is encoded, 1 to 100. If given, every JPEG is "
        "encoded again and replaces the original where it has fewer bytes. Default: "
        f"originals stay; {shrink.DEFAULT_QUALITY} for images that are scaled down, "
        f"{REENCODE_QUALITY} for images that were not JPEGs.",
        least=1,
        most=100,
    )
    optimize: Literal["none", "keep_subsampling", "420"] = _STORED(
        "none",
        "Encode every JPEG again, and store the result where it has fewer bytes. "
        "keep_subsampling: same quantization tables and chroma, Huffman tables fitted "
        "to the image; pixels differ by rounding. 420: chroma at half the height and "
        "width too, which also decodes faster. none: originals stay.",
    )
    baseline: bool = _STORED(
        False,
        "Store only baseline JPEGs, which every decoder accepts: as "
        "--progressive=baseline, and extended sequential JPEGs are encoded again too.",
    )
    restart_rows: bool = _STORED(
        False,
        "Write each JPEG again with a restart marker after each row of blocks and "
        "Huffman tables fitted to it, which tfpipe's native op decodes faster: same "
        "pixels and metadata, mostly fewer bytes; progressive JPEGs become "
        "sequential. A damaged image stays as it is, and is counted. Needs the "
        "library that `python -m tfpipe.native` builds.",
    )
    entry_points: bool = _STORED(False, ENTRY_POINTS_HELP)
    exif_orientation: Literal["keep", "apply"] = _STORED(
        "keep",
        "Images whose EXIF data asks viewers to turn or mirror them. apply: store them "
        "upright; see --lossless_rotation. Boxes are not turned. keep: store them as "
        "they are, and warn; TensorFlow and ImageNet's published results ignore EXIF.",
    )
    lossless_rotation: bool = _STORED(
        False,
        "Whether --exif_orientation=apply turns a JPEG by its coefficients, without "
        "loss. Metadata are dropped. Other images are decoded, turned and encoded with "
        "the same quantization tables: those that other flags encode again, and those "
        "with a side to be mirrored that is not a multiple of its block, 8 or 16 "
        "pixels. Default: yes where `python -m tfpipe.native` has built its library; "
        "all tasks and later runs of a job must agree.",
    )
    decode: Literal["auto", "header", "full"] = _STORED(
        "auto",
        "How closely JPEGs are checked. header: the markers up to the first scan and "
        "the end marker, about 10 microseconds an image; damage inside a scan is not "
        "found. full: decode every image, half a millisecond to three each, and find "
        "damage: see --corrupt. auto: full for at most 2,000 images and 150 MB, "
        "which takes about two seconds; otherwise header.",
    )
    other_format: Literal["convert", "skip", "fail"] = _KINDS(
        "convert",
        "Images that are not JPEGs, whatever their name (PNG, WebP, TIFF, AVIF and "
        "the others that Pillow reads; HEIC where pillow-heif is installed), and JPEGs "
        "in arithmetic coding. convert: store the first frame as an "
        f"RGB JPEG of quality {REENCODE_QUALITY} without chroma subsampling, "
        "with white behind transparent pixels, and 16 bits a sample cut to 8. skip: "
        "leave the image out and report it. fail: stop.",
    )
    cmyk: Literal["convert", "skip", "fail"] = _KINDS(
        "convert",
        "JPEGs in CMYK or YCCK, as used in printing. convert: store an RGB JPEG of "
        f"quality {REENCODE_QUALITY}, inverted where an Adobe marker says so, "
        "with the colors that TensorFlow computes. skip: leave the image out and "
        "report it. fail: stop.",
    )
    grayscale: Literal["keep", "convert", "skip"] = _KINDS(
        "keep",
        "Images of one channel. keep: store one channel; readers decode it to three "
        "equal channels. convert: store three channels. skip: leave the image out and "
        "report it.",
    )
    progressive: Literal["keep", "baseline"] = _KINDS(
        "keep",
        "Progressive JPEGs, which take about three times as long to decode. keep: "
        "store the bytes as they are. baseline: decode and encode with the same "
        "quantization tables and chroma subsampling; files are larger, and pixels "
        "differ by rounding.",
    )
    truncated: Literal["skip", "fail", "keep"] = _KINDS(
        "skip",
        "Images that end before their end marker. skip: leave the image out and "
        "report it. fail: stop. keep: add the end marker to a JPEG, so that it "
        "decodes with the missing part gray; an image that does not decode even so is "
        "left out.",
    )
    not_an_image: Literal["skip", "fail"] = _KINDS(
        "skip",
        "Files of zero bytes, or whose first bytes are those of no known image "
        "format. skip: leave the file out and report it. fail: stop.",
    )
    undecodable: Literal["skip", "fail"] = _KINDS(
        "skip",
        "Images that are damaged, or JPEGs of a kind that TensorFlow cannot decode "
        "(12 bits, lossless, two components). skip: leave the image out and report "
        "it. fail: stop.",
    )
    corrupt: Literal["ignore", "skip", "keep", "fail"] = _KINDS(
        "ignore",
        "JPEGs with damaged codes, for example bytes that are missing or zero, that "
        "decode to wrong or gray pixels: libjpeg warns about them. They are found "
        "where images are decoded (--decode). skip: leave the image out and report "
        "it. keep: store it, counted and named as kept_corrupt in the catalog. fail: "
        "stop. ignore: store it, and do not look for damage. Default: skip where "
        "`python -m tfpipe.native` has built its library, else ignore; all tasks and "
        "later runs of a job must agree.",
    )
    too_many_pixels: Literal["skip", "fail"] = _KINDS(
        "skip",
        "Images of more than --max_pixels. skip: leave the image out and report it. "
        "fail: stop.",
    )
    max_pixels: int = _KINDS(
        limits.MAX_PIXELS,
        "Largest number of pixels of an image, height times width, as its header "
        "says: a few bytes can claim more pixels than fit into memory. The default is "
        "the largest number that TensorFlow decodes.",
        least=1,
        most=limits.MAX_PIXELS,
    )
    too_expensive: Literal["skip", "fail"] = _KINDS(
        "skip",
        "Images that take too much time or memory to decode: those of more than "
        "--max_decoded_pixels that must be decoded to be stored, and progressive "
        "JPEGs of more than --max_pixels for each ten scans, which would keep every "
        "reader busy. skip: leave the image out and report it. fail: stop.",
    )
    max_decoded_pixels: int = _KINDS(
        limits.MAX_DECODED_PIXELS,
        "Largest number of pixels of an image that must be decoded to be stored: one "
        "that is not a JPEG, or that another flag encodes again; with --decode=full "
        "also a progressive JPEG, whose pixels count once for each ten scans. A "
        "worker takes 6 to 16 bytes a pixel, at most 1 GiB by default.",
        least=1,
        most=limits.MAX_PIXELS,
    )
    too_many_bytes: Literal["skip", "fail"] = _KINDS(
        "skip",
        "Files of more than --max_image_bytes, which are not read. skip: leave the "
        "file out and report it. fail: stop.",
    )
    max_image_bytes: int = _KINDS(
        limits.MAX_IMAGE_BYTES,
        "Largest number of bytes of an image file, by default 512 MiB. A record of 2 "
        "GiB cannot be parsed.",
        least=1,
        most=limits.MOST_IMAGE_BYTES,
    )

    def __post_init__(self) -> None:
        fields.check(self)
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
