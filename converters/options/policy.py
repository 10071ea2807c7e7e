"""The flags of `images.Policy`: what to do about each kind of image.

A command line that stores images calls `flags.adopt_module_key_flags` on this module
and `policy_from_flags()`, and need not know what policies there are.
"""

from absl import flags

from converters.images import jpeg_header, limits, policy, shrink

_DEFAULTS = policy.Policy()

_OTHER_FORMAT = flags.DEFINE_enum(
    "other_format",
    _DEFAULTS.other_format,
    policy.CHOICES["other_format"],
    "Images that are no JPEG, whatever their name (PNG, GIF, WebP, BMP, TIFF, AVIF), "
    "and JPEGs in arithmetic coding. convert: store the first frame as an RGB JPEG of "
    f"quality {policy.REENCODE_QUALITY} without chroma subsampling, transparency on "
    "white, 16 bits a sample cut to 8. skip: leave it out and report it. fail: stop.",
)
_CMYK = flags.DEFINE_enum(
    "cmyk",
    _DEFAULTS.cmyk,
    policy.CHOICES["cmyk"],
    "JPEGs in CMYK or YCCK, such as print uses. convert: store an RGB JPEG of quality "
    f"{policy.REENCODE_QUALITY}, inverted where an Adobe marker says so, colors as "
    "TensorFlow computes them. skip: leave it out and report it. fail: stop.",
)
_GRAYSCALE = flags.DEFINE_enum(
    "grayscale",
    _DEFAULTS.grayscale,
    policy.CHOICES["grayscale"],
    "Images of one channel. keep: store one channel; readers decode it to three equal "
    "ones. convert: store three channels. skip: leave it out and report it.",
)
_EXIF_ORIENTATION = flags.DEFINE_enum(
    "exif_orientation",
    _DEFAULTS.exif_orientation,
    policy.CHOICES["exif_orientation"],
    "Images whose EXIF data asks viewers to turn or mirror them. keep: as they are, "
    "counted; TensorFlow and ImageNet's published results ignore EXIF. apply: turn the "
    "pixels and encode them with the same quantization tables. Boxes are not turned.",
)
_PROGRESSIVE = flags.DEFINE_enum(
    "progressive",
    _DEFAULTS.progressive,
    policy.CHOICES["progressive"],
    "Progressive JPEGs, which take about three times as long to decode. keep: the "
    "bytes as they are. baseline: decode and encode with the same quantization tables "
    "and chroma subsampling; larger files, pixels off by rounding.",
)
_TRUNCATED = flags.DEFINE_enum(
    "truncated",
    _DEFAULTS.truncated,
    policy.CHOICES["truncated"],
    "Images that end before their end marker. skip: leave it out and report it. fail: "
    "stop. keep: give a JPEG the end marker, so that it decodes with the missing part "
    "gray; what cannot be saved so is left out.",
)
_NOT_AN_IMAGE = flags.DEFINE_enum(
    "not_an_image",
    _DEFAULTS.not_an_image,
    policy.CHOICES["not_an_image"],
    "Files of zero bytes, or whose first bytes are no image format known here. skip: "
    "leave it out and report it. fail: stop.",
)
_UNDECODABLE = flags.DEFINE_enum(
    "undecodable",
    _DEFAULTS.undecodable,
    policy.CHOICES["undecodable"],
    "Images that are damaged, or JPEGs of a kind that TensorFlow cannot decode (12 "
    "bits, lossless, two components). skip: leave it out and report it. fail: stop.",
)
_TOO_MANY_PIXELS = flags.DEFINE_enum(
    "too_many_pixels",
    _DEFAULTS.too_many_pixels,
    policy.CHOICES["too_many_pixels"],
    "Images of more than --max_pixels. skip: leave it out and report it. fail: stop.",
)
_MAX_PIXELS = flags.DEFINE_integer(
    "max_pixels",
    _DEFAULTS.max_pixels,
    "Most pixels of an image, height times width, by its header: a few bytes can claim "
    "more pixels than memory holds. The default is the most that TensorFlow decodes.",
    lower_bound=1,
    upper_bound=limits.MAX_PIXELS,
)
_TOO_EXPENSIVE = flags.DEFINE_enum(
    "too_expensive",
    _DEFAULTS.too_expensive,
    policy.CHOICES["too_expensive"],
    "Images that take too much time or memory to decode: of more than "
    "--max_decoded_pixels where they must be decoded to be stored, and progressive "
    "JPEGs of more than --max_pixels for each ten scans, which would keep every reader "
    "busy. skip: leave it out and report it. fail: stop.",
)
_MAX_DECODED_PIXELS = flags.DEFINE_integer(
    "max_decoded_pixels",
    _DEFAULTS.max_decoded_pixels,
    "Most pixels of an image that must be decoded to be stored: one that is no JPEG, "
    "or that another flag encodes again; with --decode=full a progressive one too, "
    "whose pixels count once for each ten scans. A worker takes 6 to 16 bytes a pixel, "
    "at most 1 GiB by default.",
    lower_bound=1,
    upper_bound=limits.MAX_PIXELS,
)
_TOO_MANY_BYTES = flags.DEFINE_enum(
    "too_many_bytes",
    _DEFAULTS.too_many_bytes,
    policy.CHOICES["too_many_bytes"],
    "Files of more than --max_image_bytes, which are not read. skip: leave it out and "
    "report it. fail: stop.",
)
_MAX_IMAGE_BYTES = flags.DEFINE_integer(
    "max_image_bytes",
    _DEFAULTS.max_image_bytes,
    "Most bytes of an image file, by default 512 MiB. A record of 2 GiB cannot be "
    "parsed.",
    lower_bound=1,
    upper_bound=limits.MOST_IMAGE_BYTES,
)
_DECODE = flags.DEFINE_enum(
    "decode",
    _DEFAULTS.decode,
    policy.CHOICES["decode"],
    "How closely JPEGs are looked at. header: the markers up to the first scan and the "
    "end marker, about 10 microseconds an image; damage inside a scan stays unseen. "
    "full: decode every image, some milliseconds each.",
)
_MAX_SIDE = flags.DEFINE_integer(
    "max_side",
    _DEFAULTS.max_side,
    "Scale images down so that the longer side has at most this many pixels. Default: "
    "no limit. Images are never made larger.",
    lower_bound=1,
    upper_bound=jpeg_header.MAX_SIDE,
)
_SHORT_SIDE = flags.DEFINE_integer(
    "short_side",
    _DEFAULTS.short_side,
    "Scale images down so that the shorter side has at most this many pixels, 256 or "
    "more for training at 224. Default: no limit. With --max_side, both hold.",
    lower_bound=1,
    upper_bound=jpeg_header.MAX_SIDE,
)
_QUALITY = flags.DEFINE_integer(
    "quality",
    _DEFAULTS.quality,
    "Quality of every JPEG that is encoded, 1 to 100. If given, every JPEG is encoded "
    "again and replaces the original where that has fewer bytes. Default: originals "
    f"stay; {shrink.DEFAULT_QUALITY} for images that are scaled down, "
    f"{policy.REENCODE_QUALITY} for what was no JPEG.",
    lower_bound=1,
    upper_bound=100,
)
_BASELINE = flags.DEFINE_boolean(
    "baseline",
    _DEFAULTS.baseline,
    "Store nothing but baseline JPEGs, which every decoder takes: --progressive="
    "baseline, and extended sequential ones likewise.",
)
_OPTIMIZE = flags.DEFINE_enum(
    "optimize",
    _DEFAULTS.optimize,
    policy.CHOICES["optimize"],
    "Encode every JPEG again, where that has fewer bytes. keep_subsampling: same "
    "quantization tables and chroma, Huffman tables fitted to the image, pixels off by "
    "rounding. 420: chroma at half the height and width too, which also decodes "
    "faster. none: originals stay.",
)
_RESTART_ROWS = flags.DEFINE_boolean(
    "restart_rows",
    _DEFAULTS.restart_rows,
    "Write each JPEG again with a restart marker after each row of blocks and Huffman "
    "tables fitted to it, which tfpipe's native op decodes faster: same pixels and "
    "metadata, mostly fewer bytes; progressive ones become sequential. What is damaged "
    "stays as it is, and is counted. Needs what `python -m tfpipe.native` builds.",
)


def policy_from_flags() -> policy.Policy:
    """The only reader of the flags' values."""
    return policy.Policy(
        other_format=_OTHER_FORMAT.value,
        cmyk=_CMYK.value,
        grayscale=_GRAYSCALE.value,
        exif_orientation=_EXIF_ORIENTATION.value,
        progressive=_PROGRESSIVE.value,
        truncated=_TRUNCATED.value,
        not_an_image=_NOT_AN_IMAGE.value,
        undecodable=_UNDECODABLE.value,
        too_many_pixels=_TOO_MANY_PIXELS.value,
        too_expensive=_TOO_EXPENSIVE.value,
        too_many_bytes=_TOO_MANY_BYTES.value,
        max_pixels=_MAX_PIXELS.value,
        max_decoded_pixels=_MAX_DECODED_PIXELS.value,
        max_image_bytes=_MAX_IMAGE_BYTES.value,
        decode=_DECODE.value,
        max_side=_MAX_SIDE.value,
        short_side=_SHORT_SIDE.value,
        quality=_QUALITY.value,
        baseline=_BASELINE.value,
        optimize=_OPTIMIZE.value,
        restart_rows=_RESTART_ROWS.value,
    )
