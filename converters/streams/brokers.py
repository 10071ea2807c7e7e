"""Brokers: Redis streams, NATS JetStream, and Kafka's protocol.

In: the URL of a stream that exists. Out: messages, see `message.Stream`. Each worker
of a group gets other messages. A message without an acknowledgement for the time of a
takeover goes to another worker.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from converters.streams.message import Message, Stream, message_of
from tfpipe.errors import from_json

_SECONDS = 10  # time limit of a request
_SESSION_SECONDS = 10.0  # after which Kafka gives up a silent worker


class BrokerOptions(NamedTuple):
    """A stream or topic of a server, and a worker of a group that reads it."""

    host: str
    port: int
    name: str
    group: str
    worker: str
    takeover_seconds: float


class RedisStream:
    """The entries of a Redis stream. The password comes from $REDIS_PASSWORD.

    The server must keep its data (appendonly yes, appendfsync always), or a message may
    be lost before it is read.
    """

    def __init__(self, options: BrokerOptions) -> None:
        import redis

        self.errors: tuple[type[Exception], ...] = (redis.RedisError,)
        self._refused = redis.ResponseError
        self._login = redis.AuthenticationError, redis.exceptions.AuthorizationError
        self._options, self._after = options, ""
        at, password = options[:2], os.environ.get("REDIS_PASSWORD")
        self._redis: Any = redis.Redis(*at, 0, password, socket_timeout=_SECONDS)

    def refusal(self, error: Exception) -> str:
        if isinstance(error, self._login):
            return f"Redis refuses the login: {error}. Set REDIS_PASSWORD."
        is_refused = isinstance(error, self._refused)
        return f"Redis refuses {self._options.name}: {error}." if is_refused else ""

    def read(self, count: int, seconds: float) -> list[Message]:
        """Returns own entries of an earlier run, then new ones, then abandoned ones."""
        options = self._options
        if not self._after:
            with contextlib.suppress(self._refused):  # the group exists
                self._redis.xgroup_create(options.name, options.group, "0", True)
            self._after = "0"
        entries = self._ask(self._after, count, seconds)
        if self._after != ">":
            self._after = entries[-1][0].decode() if entries else ">"
        elif not entries:
            idle = int(options.takeover_seconds * 1000)
            names = options.name, options.group, options.worker
            entries = self._redis.xautoclaim(*names, idle, count=count)[1]
        return [_of_redis(*each) for each in entries if each[1]]

    def _ask(self, after: str, count: int, seconds: float) -> list[Any]:
        options, block = self._options, max(int(seconds * 1000), 1)
        names = options.group, options.worker, {options.name: after}
        answer = self._redis.xreadgroup(*names, count=count, block=block)
        return list(answer[0][1]) if answer else []

    def acknowledge(self, positions: Sequence[str]) -> None:
        """Acknowledges entries; Redis keeps the entries until a person trims them."""
        self._redis.xack(self._options.name, self._options.group, *positions)

    def close(self) -> None:
        self._after = ""
        self._redis.close()


def _of_redis(position: bytes, fields: dict[bytes, bytes]) -> Message:
    named = {name.decode(errors="replace"): value for name, value in fields.items()}
    return message_of(position.decode(), named, named.pop("image", b""))


class NatsStream:
    """The messages of a JetStream stream. A token comes from $NATS_TOKEN.

    The position of a message is the subject for its acknowledgement. After a kill the
    server gives messages again when the time of a takeover has passed.
    """

    def __init__(self, options: BrokerOptions) -> None:
        import nats
        import nats.errors

        self.errors: tuple[type[Exception], ...] = (
            *(nats.errors.Error, OSError, asyncio.TimeoutError),
        )
        self._nats: Any = nats
        self._options, self._loop = options, asyncio.new_event_loop()
        self._client: Any = None

    def refusal(self, error: Exception) -> str:
        if isinstance(error, self._nats.js.errors.NotFoundError):
            return (
                f"NATS must have the JetStream stream {self._options.name}, and has "
                "none. Check the name, or make the stream."
            )
        is_login = "authorization" in str(error).lower()
        return f"NATS refuses the login: {error}. Set NATS_TOKEN." if is_login else ""

    async def _connect(self) -> None:
        options = self._options
        self._client = await self._nats.connect(
            f"nats://{options.host}:{options.port}",
            token=os.environ.get("NATS_TOKEN"),
            allow_reconnect=False,
            connect_timeout=_SECONDS,
            error_cb=_ignored,
        )
        jetstream = self._client.jetstream(timeout=_SECONDS)
        config = self._nats.js.api.ConsumerConfig(
            durable_name=options.group,
            ack_policy=self._nats.js.api.AckPolicy.EXPLICIT,
            ack_wait=options.takeover_seconds,
            max_ack_pending=1_000_000,
        )
        await jetstream.add_consumer(options.name, config)
        self._consumer = await jetstream.pull_subscribe_bind(
            options.group, stream=options.name
        )

    def read(self, count: int, seconds: float) -> list[Message]:
        return self._loop.run_until_complete(self._fetch(count, max(seconds, 0.1)))

    async def _fetch(self, count: int, seconds: float) -> list[Message]:
        if self._client is None:
            await self._connect()
        try:
            return list(map(_of_nats, await self._consumer.fetch(count, seconds)))
        except (TimeoutError, self._nats.errors.TimeoutError):
            return []

    def acknowledge(self, positions: Sequence[str]) -> None:
        self._loop.run_until_complete(self._acknowledge(positions))

    async def _acknowledge(self, positions: Sequence[str]) -> None:
        if self._client is None:
            await self._connect()
        for position in positions:
            await self._client.request(position, b"+ACK", timeout=_SECONDS)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(*self.errors):
                self._loop.run_until_complete(client.close())


async def _ignored(error: Exception) -> None:
    """Takes errors of a connection; the next request raises them."""


def _of_nats(message: Any) -> Message:
    headers = message.headers or {}
    fields = {name: str(value).encode() for name, value in headers.items()}
    id = headers.get("Nats-Msg-Id", str(message.metadata.sequence.stream))
    return message_of(message.reply, fields, message.data, id=id)


class KafkaStream:
    """The messages of a topic; their position is partition/offset.

    $KAFKA_SETTINGS may hold more settings of librdkafka in JSON, such as a login.
    """

    def __init__(self, options: BrokerOptions) -> None:
        import confluent_kafka

        self.errors: tuple[type[Exception], ...] = (confluent_kafka.KafkaException,)
        self._kafka: Any = confluent_kafka
        self._name, self._faults = options.name, list[Any]()
        self._consumer: Any = None
        self._has_joined = False
        poll_seconds = max(options.takeover_seconds, 45.0)
        # A group waits so long for members that store a generation or were killed.
        self._join_seconds = poll_seconds + _SESSION_SECONDS
        self._settings = {
            "bootstrap.servers": f"{options.host}:{options.port}",
            "group.id": options.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": int(_SESSION_SECONDS * 1000),
            "max.poll.interval.ms": int(poll_seconds * 1000),
            "error_cb": self._faults.append,
            "log_level": 0,
            **from_json(os.environ.get("KAFKA_SETTINGS", "{}")),
        }

    def refusal(self, error: Exception) -> str:
        fault, codes = error.args[0], self._kafka.KafkaError
        if fault.code() in (
            codes.UNKNOWN_TOPIC_OR_PART,
            codes._UNKNOWN_TOPIC,
            codes.TOPIC_EXCEPTION,
        ):
            return f"Kafka must have the topic {self._name}: {fault.str()}."
        if "AUTH" in fault.name():
            return f"Kafka refuses the login: {fault.str()}. Set KAFKA_SETTINGS."
        return ""

    def read(self, count: int, seconds: float) -> list[Message]:
        """Returns messages of the partitions of this worker.

        A new worker first waits until the group has dealt the partitions, which takes
        as long as the group waits for a killed worker.
        """
        if self._consumer is None:
            self._faults.clear()
            self._has_joined = False
            self._consumer = self._kafka.Consumer(self._settings)
            self._consumer.subscribe([self._name], on_assign=self._join)
        end = time.monotonic() + self._join_seconds
        records = self._consumer.consume(count, timeout=seconds)
        while not (self._has_joined or records or self._faults):
            if time.monotonic() > end:
                late = f"the group gave no partition in {self._join_seconds:.0f} s"
                error = self._kafka.KafkaError
                raise self._kafka.KafkaException(error(error._TIMED_OUT, late))
            records = self._consumer.consume(count, timeout=seconds)
        self._faults += [each.error() for each in records if each.error()]
        sound = [each for each in records if not each.error()]
        errors = list(map(self._kafka.KafkaException, self._faults))
        self._faults.clear()
        errors.sort(key=self.refusal, reverse=True)  # refusals come first
        if errors and (not sound or self.refusal(errors[0])):
            raise errors[0]
        return list(map(_of_kafka, sound))

    def _join(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Is told of the partitions of this worker, of none too."""
        self._has_joined = True

    def acknowledge(self, positions: Sequence[str]) -> None:
        """Commits the offset behind the last message of every partition.

        After a lost connection, or if the group gave a partition to another worker,
        the messages come again.
        """
        if self._consumer is None:
            return
        ends: dict[int, int] = {}
        for partition, offset in (map(int, each.split("/")) for each in positions):
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        offsets = [
            self._kafka.TopicPartition(self._name, *each) for each in ends.items()
        ]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except self._kafka.KafkaException as error:
            if error.args[0].retriable() or error.args[0].fatal():
                raise

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


def _of_kafka(record: Any) -> Message:
    headers = {name: value or b"" for name, value in record.headers() or ()}
    position = f"{record.partition()}/{record.offset()}"
    return message_of(position, headers, record.value() or b"")


# The port, and the package of the client, by the scheme of a URL.
BROKERS: dict[str, tuple[Callable[[BrokerOptions], Stream], int, str]] = {
    "redis": (RedisStream, 6379, "redis"),
    "nats": (NatsStream, 4222, "nats"),
    "kafka": (KafkaStream, 9092, "confluent_kafka"),
}
