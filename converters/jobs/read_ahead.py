"""Reads the images of a shard, at URLs ahead of their use.

In: images. Out: each image with a function for its bytes. Memory holds a few images.
"""

import collections
import concurrent.futures
import functools
from collections.abc import Callable, Iterator, Sequence

from converters.inputs.image import Image, read_image
from tfpipe.location import limits, parts
from tfpipe.location.location import Location

# Images that are read or wait for their use, beside the one in use.
_MAX_BYTES = 64 << 20


def read_ahead(
    input_dir: Location, images: Sequence[Image], *, is_read: Callable[[Image], bool]
) -> Iterator[tuple[Image, Callable[[], bytes]]]:
    """Yields the images in order, with a function for the bytes of each.

    Images at URLs are requested several at a time and ahead of their use, if their
    bytes are needed: `is_read` says so.
    """
    read = functools.partial(read_image, input_dir)
    if not any(parts.is_remote(input_dir, image.file) for image in images):
        yield from ((image, functools.partial(read, image)) for image in images)
        return
    waiting: collections.deque[tuple[Image, Callable[[], bytes]]] = collections.deque()
    num_requests = limits.connections()
    pool = concurrent.futures.ThreadPoolExecutor(num_requests)
    num_bytes = 0
    try:
        for image in images:
            size = image.num_bytes if is_read(image) else 0
            while len(waiting) >= 2 * num_requests or (
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
