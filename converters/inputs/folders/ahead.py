"""Reads images in order, those at URLs several at a time and ahead of their use.

In: the images of a shard. Out: for each image a function that returns its bytes. A
request to a store takes far longer than the bytes of one image need on the way.
"""

import collections
import concurrent.futures
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from converters.inputs.folders import reading

NUM_REQUESTS = 16
# Images that are read or wait for their use, beside the one in use.
_MAX_BYTES = 64 << 20

Read = Callable[[], bytes]


class _Image(Protocol):
    """A part of `ilsvrc.Image`."""

    @property
    def file(self) -> str: ...

    @property
    def num_bytes(self) -> int: ...


Image = TypeVar("Image", bound=_Image)


def readers(
    input_dir: pathlib.Path,
    images: Sequence[Image],
    *,
    read: Callable[[pathlib.Path, Image], bytes],
    is_read: Callable[[Image], bool],
) -> Iterator[tuple[Image, Read]]:
    """Yields the images in order, each with a function that returns its bytes.

    Args:
        input_dir: Path or URL of the input folder.
        images: The images.
        read: Reads an image of the folder, see `ilsvrc.read_image`.
        is_read: Whether the bytes of an image are needed. Others are not read ahead.

    Returns:
        The images and functions. A function raises what `read` raises.
    """
    if not any(reading.is_remote(input_dir, image.file) for image in images):
        for image in images:
            yield image, functools.partial(read, input_dir, image)
        return
    pool = concurrent.futures.ThreadPoolExecutor(NUM_REQUESTS)
    waiting: collections.deque[tuple[Image, Read]] = collections.deque()
    num_bytes = 0
    try:
        for image in images:
            size = image.num_bytes if is_read(image) else 0
            full = num_bytes + size > _MAX_BYTES or len(waiting) >= 2 * NUM_REQUESTS
            while waiting and full:
                num_bytes -= waiting[0][0].num_bytes
                yield waiting.popleft()
                full = num_bytes + size > _MAX_BYTES
            one: Read = functools.partial(read, input_dir, image)
            waiting.append((image, pool.submit(one).result if size else one))
            num_bytes += image.num_bytes
        yield from waiting
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
