"""Sends small images to a broker; a kill at any moment loses no image.

    python -m tests.support.processes.stream_producer URL NUM_IMAGES FILE

The number of the next image is kept in FILE after the images before it are sent: a
producer that starts again repeats some images, whose ids are those of the first time.
Each 50th image is sent twice in any case.
"""

import asyncio
import functools
import pathlib
import sys
import time
import urllib.parse
from collections.abc import Sequence
from typing import Any

from tests.support.data.trees import make_jpeg

NUM_CLASSES = 10
_AT_ONCE = 100
_Fields = dict[str, bytes]


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


def _redis(port: int, stream: str, messages: Sequence[_Fields]) -> None:
    import redis

    pipeline = redis.Redis(port=port).pipeline(transaction=False)
    for fields in messages:
        pipeline.xadd(stream, fields)  # type: ignore[arg-type]
    pipeline.execute()


def _kafka(port: int, stream: str, messages: Sequence[_Fields]) -> None:
    import confluent_kafka

    lost: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "message.timeout.ms": 5000}
    )
    for fields in messages:
        headers = [(name, fields[name]) for name in ("id", "label", "name")]
        producer.produce(
            stream,
            fields["image"],
            headers=headers,
            on_delivery=lambda error, _: lost.append(error) if error else None,
        )
    if producer.flush(10) or lost:
        raise ConnectionError(f"{len(lost)} messages were not sent")


def _nats(port: int, stream: str, messages: Sequence[_Fields]) -> None:
    import nats

    async def publish() -> None:
        url = f"nats://127.0.0.1:{port}"
        client = await nats.connect(url, allow_reconnect=False, connect_timeout=5)
        try:
            for fields in messages:
                headers = {n: fields[n].decode() for n in ("id", "label", "name")}
                image = fields["image"]
                await client.jetstream().publish(stream, image, headers=headers)
        finally:
            await client.close()

    asyncio.run(publish())


_SENDERS = {"redis": _redis, "kafka": _kafka, "nats": _nats}


def make_stream(url: str) -> None:
    """Makes the stream of NATS, or the topic of Kafka; Redis makes its own."""
    at = urllib.parse.urlsplit(url)
    name = at.path.strip("/")
    if at.scheme == "nats":
        asyncio.run(_make_jetstream(f"nats://{at.netloc}", name))
    elif at.scheme == "kafka":
        from confluent_kafka import admin

        client = admin.AdminClient({"bootstrap.servers": at.netloc})
        client.create_topics([admin.NewTopic(name, 2, 1)])[name].result(30)


async def _make_jetstream(server: str, name: str) -> None:
    import nats

    client = await nats.connect(server)
    await client.jetstream().add_stream(name=name, subjects=[name])
    await client.close()


def send(url: str, numbers: Sequence[int]) -> None:
    """Sends images, each 50th twice."""
    at = urllib.parse.urlsplit(url)
    messages = [
        fields_of(number)
        for number in numbers
        for _ in range(2 if number % 50 == 0 else 1)
    ]
    assert at.port is not None
    _SENDERS[at.scheme](at.port, at.path.strip("/"), messages)


def main(url: str, num_images: int, file: pathlib.Path) -> None:
    """Sends what is left."""
    while True:
        start = int(file.read_text()) if file.exists() else 0
        if start >= num_images:
            return
        stop = min(start + _AT_ONCE, num_images)
        try:
            send(url, range(start, stop))
        except Exception as error:  # of the clients: the broker is away
            print(error, file=sys.stderr)
            time.sleep(0.05)
            continue
        part = file.with_suffix(".part")
        part.write_text(str(stop))
        part.replace(file)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]))
