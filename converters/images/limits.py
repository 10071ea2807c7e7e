"""Which images are too large to be stored, or to be decoded on the way.

In: the header of an image and the limits of the policy. Out: nothing, or the reason to
leave it out. A few bytes can claim more pixels than memory holds, and a small
progressive JPEG can keep every reader busy for a minute.
"""

from typing import Protocol

from converters.images import jpeg_header, shrink

# 3 * 178,956,970 is the last product below 2 ** 29, TensorFlow's limit of a decoded
# image in bytes; Pillow refuses larger ones too.
MAX_PIXELS = 178_956_970
# Decoding and encoding again takes 6 to 16 bytes a pixel: 64 million fit into 1 GiB.
MAX_DECODED_PIXELS = 64_000_000
# More than a bit of a coefficient in each scan would take.
MAX_SCANS = 10_000
MAX_IMAGE_BYTES = 512 << 20
# A record above 2 GiB cannot be parsed, and a system call reads no more.
MOST_IMAGE_BYTES = (2 << 30) - (1 << 20)


class Limits(Protocol):
    """The limits of a policy."""

    @property
    def max_pixels(self) -> int:
        """Most pixels of an image."""

    @property
    def max_decoded_pixels(self) -> int:
        """Most pixels of an image that is decoded here."""

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
    """Checks the size in pixels that a header gives.

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
    """Checks an image that is no JPEG, all of whose pixels are decoded and encoded.

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
    """Checks what it costs to decode a JPEG, here and by each reader of its record.

    Args:
        data: The file.
        header: What is known of it.
        limits: The limits.
        looks: Whether it is decoded to see whether it decodes.
        encodes: Whether it is decoded to be encoded again.
        size: Height and width that it is scaled down to; None leaves the size.

    Raises:
        BadImageError: "too_expensive".
    """
    pixels = header.height * header.width
    got = f"{header.width}x{header.height}"
    if header.multi_scan:
        num_scans = jpeg_header.count_scans(data, header.scan)
        got += f" in {num_scans} scans"
        # Decoders go through all of the image in each scan.
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
        # Looking at a single scan keeps no more than a row of blocks.
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
