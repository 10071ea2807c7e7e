"""Sends small images to a Redis stream; a kill at any moment loses no image.

    python -m tests.support.processes.stream_producer PORT STREAM NUM_IMAGES

The number of the next image is kept in Redis after the images before it: a producer
that starts again repeats some images, whose ids are those of the first time. Each 50th
image is sent twice in any case.
"""

import functools
import sys
import time

import redis

from tests.support.data.trees import make_jpeg

NUM_CLASSES = 10
_AT_ONCE = 100


@functools.cache
def _base(label: int) -> bytes:
    return make_jpeg(label, height=16, width=16)


def image_of(number: int) -> bytes:
    """Returns the JPEG of a number: no other number has the same bytes."""
    base, comment = _base(number % NUM_CLASSES), b"%012d" % number
    segment = b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment
    return base[:2] + segment + base[2:]


def fields_of(number: int) -> dict[str, bytes]:
    """Returns the fields of a message."""
    return {
        "id": b"id-%d" % number,
        "label": b"class-%d" % (number % NUM_CLASSES),
        "name": b"%08d.jpg" % number,
        "image": image_of(number),
    }


def main(port: int, stream: str, num_images: int) -> None:
    """Sends what is left."""
    server = redis.Redis(host="127.0.0.1", port=port)
    while True:
        try:
            start = int(server.get(f"{stream}-sent") or 0)  # type: ignore[arg-type]
            if start >= num_images:
                return
            stop = min(start + _AT_ONCE, num_images)
            pipeline = server.pipeline(transaction=False)
            for number in range(start, stop):
                for _ in range(2 if number % 50 == 0 else 1):
                    pipeline.xadd(stream, fields_of(number))  # type: ignore[arg-type]
            pipeline.set(f"{stream}-sent", stop)
            pipeline.execute()
        except (redis.ConnectionError, redis.TimeoutError):
            time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
