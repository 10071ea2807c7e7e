"""A stream of NATS JetStream, read by a durable consumer.

In: a server and the name of a stream whose messages have an image as data, and the
headers label and maybe name, location and Nats-Msg-Id. Out: messages. The consumer
gives a message to another worker if none acknowledged it for the time of a takeover.
"""

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from converters.streams.message import Message, RefusedError, StreamError, message_of

_Result = TypeVar("_Result")
_ID_HEADER = "Nats-Msg-Id"


class NatsStream:
    """The messages of a JetStream stream.

    Args:
        host: Host of the server. A token comes from $NATS_TOKEN.
        port: Port of the server.
        name: Name of the stream, which must exist.
        group: Name of the durable consumer, made if it is missing.
        takeover_seconds: Time after which a message goes to another worker.
        seconds_to_answer: Time limit of a request.
    """

    def __init__(
        self,
        host: str,
        port: int,
        name: str,
        *,
        group: str,
        takeover_seconds: float,
        seconds_to_answer: float = 5,
    ) -> None:
        import nats
        from nats import errors
        from nats.js import errors as js_errors

        self._nats, self._timeout = nats, (errors.TimeoutError, asyncio.TimeoutError)
        self._missing = js_errors.NotFoundError
        self._errors = (errors.Error, OSError, asyncio.TimeoutError)
        self._url, self._name, self._group = f"nats://{host}:{port}", name, group
        self._ack_wait, self._limit = takeover_seconds, seconds_to_answer
        self._loop = asyncio.new_event_loop()
        self._client: Any = None
        self._waiting: dict[str, Any] = {}

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        try:
            if self._client is None:
                self._run(self._connect())
            yield
        except self._missing as error:
            raise RefusedError(
                f"NATS must have the JetStream stream {self._name}, and has none. "
                "Check the name, or make the stream."
            ) from error
        except self._errors as error:
            self.close()
            if "authorization" in str(error).lower():
                raise RefusedError(
                    f"NATS refuses the login: {error}. Set NATS_TOKEN."
                ) from error
            raise StreamError(f"NATS does not answer: {error!r}") from error

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self._loop.run_until_complete(work)

    async def _connect(self) -> None:
        self._client = await self._nats.connect(
            self._url,
            token=os.environ.get("NATS_TOKEN"),
            allow_reconnect=False,
            connect_timeout=int(self._limit),
            error_cb=_ignored,
        )
        self._jetstream = self._client.jetstream(timeout=self._limit)
        config = self._nats.js.api.ConsumerConfig(
            durable_name=self._group,
            ack_policy=self._nats.js.api.AckPolicy.EXPLICIT,
            ack_wait=self._ack_wait,
            max_ack_pending=1_000_000,
        )
        await self._jetstream.add_consumer(self._name, config)
        self._consumer = await self._jetstream.pull_subscribe_bind(
            self._group, stream=self._name
        )

    def read(self, count: int, seconds: float) -> list[Message]:
        """Returns messages of the consumer."""
        with self._asked():
            try:
                messages = self._run(
                    self._consumer.fetch(min(count, 256), timeout=max(seconds, 0.1))
                )
            except self._timeout:
                return []
            read = []
            for message in messages:
                position = str(message.metadata.sequence.stream)
                self._waiting[position] = message
                read.append(_message(position, message.headers, message.data))
            return read

    def fetch(self, positions: Sequence[str]) -> list[Message]:
        """Reads messages by their numbers in the stream."""
        messages = []
        with self._asked():
            for position in positions:
                with contextlib.suppress(self._missing):
                    raw = self._run(
                        self._jetstream.get_msg(self._name, seq=int(position))
                    )
                    messages.append(_message(position, raw.headers, raw.data or b""))
        return messages

    def acknowledge(self, positions: Sequence[str]) -> None:
        """Acknowledges messages that this connection has read.

        The consumer gives others again later; they are duplicates then.
        """
        with self._asked():
            for position in positions:
                if (message := self._waiting.pop(position, None)) is not None:
                    self._run(message.ack_sync(timeout=self._limit))

    def close(self) -> None:
        """Ends the connection."""
        client, self._client = self._client, None
        self._waiting.clear()
        if client is not None:
            with contextlib.suppress(*self._errors):
                self._run(client.close())


async def _ignored(error: Exception) -> None:
    """Takes errors of a connection; the next request raises them."""


def _message(position: str, headers: Any, data: bytes) -> Message:
    fields = {name: str(value).encode() for name, value in (headers or {}).items()}
    return message_of(
        position, fields, data, id=fields.get(_ID_HEADER, b"").decode(errors="replace")
    )
