"""A topic of a broker with Kafka's protocol, read by a consumer group.

In: a broker and a topic whose messages have an image as value, and the headers label
and maybe id, name and location. Out: messages; the position is partition/offset.
The broker keeps the offset of the group in every partition.
"""

from collections.abc import Sequence
from typing import Any

from converters.streams.message import Message, StreamError, message_of

_SECONDS_TO_ANSWER = 10.0


class KafkaStream:
    """The messages of a topic.

    Args:
        host: Host of a broker.
        port: Port of the broker.
        name: Name of the topic.
        group: Consumer group; it begins with the first message.
        takeover_seconds: Time without a read after which the group goes on without
            this worker.
    """

    def __init__(
        self, host: str, port: int, name: str, *, group: str, takeover_seconds: float
    ) -> None:
        import confluent_kafka

        self._kafka, self._name = confluent_kafka, name
        self._settings = {
            "bootstrap.servers": f"{host}:{port}",
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "max.poll.interval.ms": max(int(takeover_seconds * 1000), 45_000),
        }
        self._consumer: Any = None

    def _opened(self) -> Any:
        if self._consumer is None:
            self._consumer = self._kafka.Consumer(self._settings)
            self._consumer.subscribe([self._name])
        return self._consumer

    def read(self, count: int, seconds: float) -> list[Message]:
        """Returns messages of the partitions of this worker."""
        try:
            records = self._opened().consume(min(count, 500), timeout=seconds)
        except self._kafka.KafkaException as error:
            raise self._failed(error) from error
        for record in records:
            if record.error() and not record.error().retriable():
                raise self._failed(record.error())
        return [_message(record) for record in records if not record.error()]

    def _failed(self, error: object) -> StreamError:
        self.close()
        return StreamError(f"Kafka does not answer: {error}")

    def fetch(self, positions: Sequence[str]) -> list[Message]:
        """Reads messages by partition and offset, with a consumer of its own."""
        consumer = self._kafka.Consumer(
            self._settings | {"group.id": f"{self._settings['group.id']}-again"}
        )
        wanted = [tuple(map(int, position.split("/"))) for position in positions]
        messages: dict[str, Message] = {}
        try:
            for partition in sorted({each[0] for each in wanted}):
                offsets = {pair[1] for pair in wanted if pair[0] == partition}
                start = self._kafka.TopicPartition(self._name, partition, min(offsets))
                consumer.assign([start])
                while offsets:
                    # The client waits until it has as many records.
                    count = min(len(offsets), 500)
                    records = consumer.consume(count, timeout=_SECONDS_TO_ANSWER)
                    for record in (r for r in records if not r.error()):
                        last = int(record.offset() or 0)
                        offsets = {each for each in offsets if each > last}
                        message = _message(record)
                        messages[message.position] = message
                    if not records:
                        break
        except self._kafka.KafkaException as error:
            raise self._failed(error) from error
        finally:
            consumer.close()
        return [messages[each] for each in positions if each in messages]

    def acknowledge(self, positions: Sequence[str]) -> None:
        """Commits the offset behind the last message of every partition."""
        ends: dict[int, int] = {}
        for position in positions:
            partition, offset = map(int, position.split("/"))
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        offsets = [
            self._kafka.TopicPartition(self._name, partition, end)
            for partition, end in ends.items()
        ]
        try:
            self._opened().commit(offsets=offsets, asynchronous=False)
        except self._kafka.KafkaException as error:
            if error.args[0].retriable() or error.args[0].fatal():
                raise self._failed(error) from error
            # The group gave the partition to another worker, who gets duplicates.

    def close(self) -> None:
        """Leaves the group."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


def _message(record: Any) -> Message:
    headers = {name: value or b"" for name, value in record.headers() or ()}
    position = f"{record.partition()}/{record.offset()}"
    return message_of(position, headers, record.value() or b"")
