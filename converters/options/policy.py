"""The flags of `Policy`: a flag for every field, with the default of the field.

Three flags differ: a command may `set_default`, and --lossless_rotation and --corrupt
depend on the library of the host.

A command for images calls `flags.adopt_module_key_flags` on this module and
`policy_from_flags()`, and names no policy.
"""

import dataclasses
from typing import Any

from absl import flags

from converters.images import policy
from converters.options import shared
from tfpipe.native import libraries

# Help of the flags, by the field of the policy. All else follows from the field.
_HELP = {
    "other_format": (
        "Images that are not JPEGs, whatever their name (PNG, WebP, TIFF, AVIF and "
        "the others that Pillow reads; HEIC where pillow-heif is installed), and JPEGs "
        "in arithmetic coding. convert: store the first frame as an "
        f"RGB JPEG of quality {policy.REENCODE_QUALITY} without chroma subsampling, "
        "with white behind transparent pixels, and 16 bits a sample cut to 8. skip: "
        "leave the image out and report it. fail: stop."
    ),
    "cmyk": (
        "JPEGs in CMYK or YCCK, as used in printing. convert: store an RGB JPEG of "
        f"quality {policy.REENCODE_QUALITY}, inverted where an Adobe marker says so, "
        "with the colors that TensorFlow computes. skip: leave the image out and "
        "report it. fail: stop."
    ),
    "grayscale": (
        "Images of one channel. keep: store one channel; readers decode it to three "
        "equal channels. convert: store three channels. skip: leave the image out and "
        "report it."
    ),
    "exif_orientation": (
        "Images whose EXIF data asks viewers to turn or mirror them. apply: store them "
        "upright; see --lossless_rotation. Boxes are not turned. keep: store them as "
        "they are, and warn; TensorFlow and ImageNet's published results ignore EXIF."
    ),
    "lossless_rotation": (
        "Whether --exif_orientation=apply turns a JPEG by its coefficients, without "
        "loss. Metadata are dropped. Other images are decoded, turned and encoded with "
        "the same quantization tables: those that other flags encode again, and those "
        "with a side to be mirrored that is not a multiple of its block, 8 or 16 "
        "pixels. Default: yes where `python -m tfpipe.native` has built its library; "
        "all tasks and later runs of a job must agree."
    ),
    "progressive": (
        "Progressive JPEGs, which take about three times as long to decode. keep: "
        "store the bytes as they are. baseline: decode and encode with the same "
        "quantization tables and chroma subsampling; files are larger, and pixels "
        "differ by rounding."
    ),
    "truncated": (
        "Images that end before their end marker. skip: leave the image out and "
        "report it. fail: stop. keep: add the end marker to a JPEG, so that it "
        "decodes with the missing part gray; an image that does not decode even so is "
        "left out."
    ),
    "not_an_image": (
        "Files of zero bytes, or whose first bytes are those of no known image "
        "format. skip: leave the file out and report it. fail: stop."
    ),
    "undecodable": (
        "Images that are damaged, or JPEGs of a kind that TensorFlow cannot decode "
        "(12 bits, lossless, two components). skip: leave the image out and report "
        "it. fail: stop."
    ),
    "corrupt": (
        "JPEGs with damaged codes, for example bytes that are missing or zero, that "
        "decode to wrong or gray pixels: libjpeg warns about them. They are found "
        "where images are decoded (--decode). skip: leave the image out and report "
        "it. keep: store it, counted and named as kept_corrupt in the catalog. fail: "
        "stop. ignore: store it, and do not look for damage. Default: skip where "
        "`python -m tfpipe.native` has built its library, else ignore; all tasks and "
        "later runs of a job must agree."
    ),
    "too_many_pixels": (
        "Images of more than --max_pixels. skip: leave the image out and report it. "
        "fail: stop."
    ),
    "max_pixels": (
        "Largest number of pixels of an image, height times width, as its header "
        "says: a few bytes can claim more pixels than fit into memory. The default is "
        "the largest number that TensorFlow decodes."
    ),
    "too_expensive": (
        "Images that take too much time or memory to decode: those of more than "
        "--max_decoded_pixels that must be decoded to be stored, and progressive "
        "JPEGs of more than --max_pixels for each ten scans, which would keep every "
        "reader busy. skip: leave the image out and report it. fail: stop."
    ),
    "max_decoded_pixels": (
        "Largest number of pixels of an image that must be decoded to be stored: one "
        "that is not a JPEG, or that another flag encodes again; with --decode=full "
        "also a progressive JPEG, whose pixels count once for each ten scans. A "
        "worker takes 6 to 16 bytes a pixel, at most 1 GiB by default."
    ),
    "too_many_bytes": (
        "Files of more than --max_image_bytes, which are not read. skip: leave the "
        "file out and report it. fail: stop."
    ),
    "max_image_bytes": (
        "Largest number of bytes of an image file, by default 512 MiB. A record of 2 "
        "GiB cannot be parsed."
    ),
    "decode": (
        "How closely JPEGs are checked. header: the markers up to the first scan and "
        "the end marker, about 10 microseconds an image; damage inside a scan is not "
        "found. full: decode every image, half a millisecond to three each, and find "
        "damage: see --corrupt. auto: full for at most 2,000 images and 150 MB, "
        "which takes about two seconds; otherwise header."
    ),
    "max_side": (
        "Scale images down so that the longer side has at most this many pixels. "
        "Default: no limit. Images are never made larger."
    ),
    "short_side": (
        "Scale images down so that the shorter side has at most this many pixels, 256 "
        "or more for training at 224. Default: no limit. With --max_side, both "
        "limits hold."
    ),
    "quality": shared.QUALITY_HELP,
    "baseline": (
        "Store only baseline JPEGs, which every decoder accepts: as "
        "--progressive=baseline, and extended sequential JPEGs are encoded again too."
    ),
    "optimize": (
        "Encode every JPEG again, and store the result where it has fewer bytes. "
        "keep_subsampling: same quantization tables and chroma, Huffman tables fitted "
        "to the image; pixels differ by rounding. 420: chroma at half the height and "
        "width too, which also decodes faster. none: originals stay."
    ),
    "restart_rows": (
        "Write each JPEG again with a restart marker after each row of blocks and "
        "Huffman tables fitted to it, which tfpipe's native op decodes faster: same "
        "pixels and metadata, mostly fewer bytes; progressive JPEGs become "
        "sequential. A damaged image stays as it is, and is counted. Needs the "
        "library that `python -m tfpipe.native` builds."
    ),
    "entry_points": policy.ENTRY_POINTS_HELP,
}


# The library of the host decides where the flag is not set.
_OF_HOST = ("lossless_rotation", "corrupt")


def _define(name: str, text: str) -> None:
    """Defines the flag of a field: a choice, a number, or a yes or no."""
    if name in ("quality", "entry_points"):
        shared.define(name)
        return
    default = None if name in _OF_HOST else getattr(policy.Policy(), name)
    if name in policy.CHOICES:
        flags.DEFINE_enum(name, default, policy.CHOICES[name], text)
    elif name in policy.MOST:
        most = policy.MOST[name]
        flags.DEFINE_integer(name, default, text, lower_bound=1, upper_bound=most)
    else:
        flags.DEFINE_boolean(name, default, text)


for _name, _text in _HELP.items():
    _define(_name, _text)


def policy_from_flags() -> policy.Policy:
    """Returns the policy of the flags."""
    return decided(**{name: shared.value_of(name) for name in _HELP})


def decided(
    *,
    lossless_rotation: bool | None = None,
    corrupt: str | None = None,
    **fields: Any,
) -> policy.Policy:
    """Returns a policy with fixed choices, whatever host reads the policy.

    Args:
        lossless_rotation: The field of the policy; None is yes if images are turned and
            the library is built on this host.
        corrupt: The field of the policy; None is "skip" if images may be decoded and
            the library is built on this host, else "ignore".
        fields: Other fields of the policy.
    """
    plain = policy.Policy(**fields)
    if lossless_rotation is None:
        lossless_rotation = plain.exif_orientation == "apply" and libraries.is_built()
    if corrupt is None:
        finds = plain.decode != "header" and libraries.is_built()
        corrupt = "skip" if finds else "ignore"
    chosen: dict[str, Any] = {"corrupt": corrupt}
    return dataclasses.replace(plain, lossless_rotation=lossless_rotation, **chosen)


def set_default(name: str, value: str) -> None:
    """Gives a flag another default in a command, before the flags are parsed."""
    flags.FLAGS.set_default(name, value)
