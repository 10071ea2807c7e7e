"""A Redis stream, read by a consumer group.

In: a server and the name of a stream whose entries have the fields label, image or
location, and maybe id and name. Out: messages. An entry without an acknowledgement for
the time of a takeover goes to another worker. The server must keep its data
(appendonly yes, appendfsync always), or a message may be lost before it is read.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from converters.streams.message import Message, RefusedError, StreamError, message_of


class RedisStream:
    """The entries of a Redis stream.

    Args:
        host: Host of the server. The password comes from $REDIS_PASSWORD.
        port: Port of the server.
        name: Name of the stream.
        group: Consumer group, made if it is missing; it begins with the first entry.
        worker: Name of this worker in the group.
        takeover_seconds: Age from which an entry of another worker is taken over.
    """

    def __init__(
        self,
        host: str,
        port: int,
        name: str,
        *,
        group: str,
        worker: str,
        takeover_seconds: float,
    ) -> None:
        import redis

        self._errors = (redis.ConnectionError, redis.TimeoutError)
        self._login = (
            redis.exceptions.AuthenticationError,
            redis.exceptions.AuthorizationError,
        )
        self._refused = redis.ResponseError
        self._redis: Any = redis.Redis(
            host=host, port=port, password=os.environ.get("REDIS_PASSWORD")
        )
        self._name, self._group, self._worker = name, group, worker
        self._idle_ms = int(takeover_seconds * 1000)
        self._is_ready = False
        self._own: str | None = "0"  # entries of an earlier run of the worker

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        try:
            if not self._is_ready:
                with contextlib.suppress(self._refused):  # the group exists
                    self._redis.xgroup_create(
                        self._name, self._group, id="0", mkstream=True
                    )
                self._is_ready = True
            yield
        except self._login as error:  # kinds of ConnectionError
            raise RefusedError(
                f"Redis refuses the login: {error}. Set REDIS_PASSWORD."
            ) from error
        except self._refused as error:
            raise RefusedError(f"Redis refuses {self._name}: {error}.") from error
        except self._errors as error:
            self._own, self._is_ready = "0", False
            raise StreamError(f"Redis does not answer: {error}") from error

    def read(self, count: int, seconds: float) -> list[Message]:
        """Returns own entries of an earlier run, then new ones, then abandoned ones."""
        with self._asked():
            if self._own is not None:
                entries = self._ask(self._own, count, None)
                self._own = entries[-1][0].decode() if entries else None
                if entries:
                    return self._messages(entries)
            entries = self._ask(">", count, max(int(seconds * 1000), 1))
            if not entries:
                _, entries, *_ = self._redis.xautoclaim(
                    *(self._name, self._group, self._worker, self._idle_ms),
                    count=count,
                )
            return self._messages(entries)

    def _ask(self, after: str, count: int, block: int | None) -> list[Any]:
        answer = self._redis.xreadgroup(
            *(self._group, self._worker, {self._name: after}), count=count, block=block
        )
        return list(answer[0][1]) if answer else []

    def _messages(self, entries: Sequence[Any]) -> list[Message]:
        return [_message(position, fields) for position, fields in entries if fields]

    def fetch(self, positions: Sequence[str]) -> list[Message]:
        """Reads entries by their ids."""
        with self._asked():
            pipeline = self._redis.pipeline(transaction=False)
            for position in positions:
                pipeline.xrange(self._name, position, position)
            return self._messages(
                [e for entries in pipeline.execute() for e in entries]
            )

    def acknowledge(self, positions: Sequence[str]) -> None:
        """Acknowledges entries; Redis keeps the entries until a person trims them."""
        with self._asked():
            self._redis.xack(self._name, self._group, *positions)

    def close(self) -> None:
        """Ends the connection."""
        self._redis.close()


def _message(position: bytes, fields: Mapping[bytes, bytes]) -> Message:
    named = {name.decode(errors="replace"): value for name, value in fields.items()}
    return message_of(position.decode(), named, named.pop("image", b""))
