"""An image of an input: its name, its class, and where its bytes are.

In: the words of a reader about an image. Out: the bytes, from a file on a disk or by
URL. Never here: the format of the bytes.
"""

import collections
import concurrent.futures
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from converters.inputs import files, reading
from tfpipe.location.location import Location

Box = tuple[float, float, float, float]  # xmin, ymin, xmax and ymax, 0 to 1
# Number of the class of an image until the classes have labels.
NO_CLASS = -1


class Image(NamedTuple):
    """An image of an input.

    Attributes:
        name: Its name in the catalog, before `catalog_name`.
        class_index: Number of its class in label order, from 0; NO_CLASS if the classes
            have no labels yet.
        file: The file of the bytes, relative to the input folder; or a URL.
        offset: Start of the bytes in the file.
        num_bytes: Size in bytes; may be 0.
    """

    name: str
    class_index: int
    file: str
    offset: int
    num_bytes: int


def whole_file(path: str, num_bytes: int) -> Image:
    """Returns a whole file of the input folder as an image."""
    # One string object for both fields saves a quarter of the memory of an image.
    return Image(path, NO_CLASS, path, 0, num_bytes)


def read_image(input_dir: Location, image: Image) -> bytes:
    """Reads the bytes of an image."""
    if reading.is_remote(input_dir, image.file):
        return reading.read(input_dir, image.file, image.offset, image.num_bytes)
    # Plain system calls, because pathlib and file objects double the time of a read
    # from the page cache.
    path = f"{input_dir.text}/{image.file}"
    # O_NONBLOCK: if a pipe has replaced the file, opening it would wait forever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        data = os.pread(descriptor, image.num_bytes, image.offset)
    except OSError as error:
        raise files.with_path(error, path) from error
    finally:
        os.close(descriptor)
    if len(data) != image.num_bytes:
        raise OSError(
            f"{path} must have {image.num_bytes} bytes of {image.name} at byte "
            f"{image.offset}, got {len(data)}: it has changed since it was listed."
        )
    return data


# Images that are read or wait for their use, beside the one in use.
_MAX_BYTES = 64 << 20


def read_ahead(
    input_dir: Location, images: Sequence[Image], *, is_read: Callable[[Image], bool]
) -> Iterator[tuple[Image, Callable[[], bytes]]]:
    """Yields the images in order, with a function for the bytes of each.

    Images at URLs are requested several at a time and ahead of their use.

    Args:
        is_read: Whether the bytes of an image are needed. Others are not read ahead.

    Returns:
        The images and functions. A function raises as `read_image` does.
    """
    read = functools.partial(read_image, input_dir)
    if not any(reading.is_remote(input_dir, image.file) for image in images):
        yield from ((image, functools.partial(read, image)) for image in images)
        return
    waiting: collections.deque[tuple[Image, Callable[[], bytes]]] = collections.deque()
    pool = concurrent.futures.ThreadPoolExecutor(reading.NUM_REQUESTS)
    num_bytes = 0
    try:
        for image in images:
            size = image.num_bytes if is_read(image) else 0
            while len(waiting) >= 2 * reading.NUM_REQUESTS or (
                waiting and num_bytes + size > _MAX_BYTES
            ):
                num_bytes -= waiting[0][0].num_bytes
                yield waiting.popleft()
            read_one = functools.partial(read, image)
            waiting.append((image, pool.submit(read_one).result if size else read_one))
            num_bytes += image.num_bytes
        yield from waiting
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def catalog_name(name: str) -> str:
    r"""Returns a file name as text for storage in UTF-8.

    File systems allow any bytes in names. Bytes that are not UTF-8 are lone surrogates
    in a Python string; a byte XX becomes the text `\udcXX`.
    """
    return name.encode(errors="backslashreplace").decode()
