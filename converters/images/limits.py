"""Checks whether an image is too large to be stored or to be decoded.

In: the header of an image and the limits of the policy. Out: nothing, or an error with
the reason to leave the image out. The limits protect against hostile files: a few bytes
can claim more pixels than memory holds, and a small progressive JPEG can keep every
reader busy for a minute.
"""

from typing import Protocol

from converters.images import jpeg_header, shrink

# TensorFlow refuses a decoded image of 2 ** 29 bytes or more, and 3 * 178,956,970 is
# the largest multiple of 3 below. Pillow refuses larger images too.
MAX_PIXELS = 178_956_970
# Decoding and encoding take 6 to 16 bytes a pixel: 64 million pixels fit into 1 GiB.
MAX_DECODED_PIXELS = 64_000_000
# More than a JPEG needs even with one bit of one coefficient a scan.
MAX_SCANS = 10_000
MAX_IMAGE_BYTES = 512 << 20
# A record above 2 GiB cannot be parsed, and one system call reads at most 2 GiB.
MOST_IMAGE_BYTES = (2 << 30) - (1 << 20)


class Limits(Protocol):
    """The limits of a policy."""

    @property
    def max_pixels(self) -> int:
        """Most pixels of an image."""

    @property
    def max_decoded_pixels(self) -> int:
        """Most pixels of an image for the converter to decode."""

    @property
    def max_image_bytes(self) -> int:
        """Most bytes of an image file."""


def check_bytes(num_bytes: int, limits: Limits) -> None:
    """Checks the size of a file before it is read.

    Raises:
        BadImageError: "too_many_bytes".
    """
    if num_bytes > limits.max_image_bytes:
        raise jpeg_header.BadImageError(
            "too_many_bytes",
            f"an image must have at most {limits.max_image_bytes} bytes "
            f"(--max_image_bytes), got {num_bytes}",
        )


def check_pixels(height: int, width: int, limits: Limits) -> None:
    """Checks the number of pixels that a header claims.

    Raises:
        BadImageError: "too_many_pixels".
    """
    if height * width > limits.max_pixels:
        raise jpeg_header.BadImageError(
            "too_many_pixels",
            f"an image must have at most {limits.max_pixels} pixels (--max_pixels), "
            f"got {width}x{height}",
        )


def check_decoding(height: int, width: int, limits: Limits) -> None:
    """Checks the pixels of an image of another format, which is always decoded.

    Raises:
        BadImageError: "too_expensive".
    """
    if height * width > limits.max_decoded_pixels:
        raise _too_expensive(limits, f"{width}x{height}")


def check_jpeg(
    data: bytes,
    header: jpeg_header.Header,
    limits: Limits,
    *,
    looks: bool,
    encodes: bool,
    size: tuple[int, int] | None,
) -> None:
    """Checks the cost of decoding a JPEG, for the converter and for later readers.

    Args:
        data: Content of the file.
        header: Its header.
        limits: The limits.
        looks: Whether the converter decodes the image as a check.
        encodes: Whether the converter decodes the image to encode it again.
        size: Height and width after scaling down; None leaves the size.

    Raises:
        BadImageError: "too_expensive".
    """
    pixels = header.height * header.width
    got = f"{header.width}x{header.height}"
    if header.multi_scan:
        num_scans = jpeg_header.count_scans(data, header.scan)
        got += f" in {num_scans} scans"
        # Decoders go through all pixels once for every scan.
        pixels = pixels * max(num_scans, jpeg_header.SCANS_OF_ONE_DECODE)
        pixels //= jpeg_header.SCANS_OF_ONE_DECODE
        if pixels > limits.max_pixels or num_scans > MAX_SCANS:
            raise jpeg_header.BadImageError(
                "too_expensive",
                f"a progressive JPEG must have at most {limits.max_pixels} pixels "
                f"(--max_pixels) for each {jpeg_header.SCANS_OF_ONE_DECODE} scans, and "
                f"{MAX_SCANS} scans, got {got}",
            )
        decoded = pixels if looks or encodes else 0
    elif not encodes:
        # Checking a JPEG of one scan needs memory for one row of blocks only.
        return
    else:
        height, width = header.height, header.width
        decoded = shrink.decoded_pixels(height, width, size) if size else pixels
    if decoded > limits.max_decoded_pixels:
        raise _too_expensive(limits, got)


def _too_expensive(limits: Limits, got: str) -> jpeg_header.BadImageError:
    return jpeg_header.BadImageError(
        "too_expensive",
        f"an image that must be decoded must have at most {limits.max_decoded_pixels} "
        f"pixels (--max_decoded_pixels), got {got}",
    )
