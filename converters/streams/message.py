"""The interface of all streams: a broker in, messages with images out.

In: the fields of a message in the words of a broker. Out: `Message`. The streams stand
in `folder`, `redis_stream`, `nats_stream` and `kafka_stream`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from tfpipe import errors
from tfpipe.location.files import Files

# Fields of a message: fields of Redis, headers of NATS and Kafka.
FIELDS = ("id", "label", "name", "location")
_MOST_CHARACTERS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Message:
    """A message with an image.

    Attributes:
        position: Where the broker has the message, for reading the message again.
        id: Id of the message. A later message of the same id is a duplicate.
        label: Name of the class.
        name: Name of the image in the catalog.
        image: The bytes of the image; empty if `location` says where the bytes are.
        location: File below --root with the image.
        fault: Why the message has no image or label; "" for a sound message.
    """

    position: str
    id: str
    label: str = ""
    name: str = ""
    image: bytes = b""
    location: str = ""
    fault: str = ""


def message_of(
    position: str, fields: Mapping[str, bytes], image: bytes, *, id: str = ""
) -> Message:
    """Returns the message in the fields of a broker.

    Args:
        position: Where the broker has the message.
        fields: `FIELDS`, in UTF-8. Without `id` the position is the id; without `name`
            the id is the name.
        image: The bytes of the image; empty with the field location.
        id: Id that the broker knows, if the fields have none.
    """
    text = {name: fields.get(name, b"").decode(errors="replace") for name in FIELDS}
    own_id = text["id"] or id or position
    fault = _fault(text["label"], image, text["location"])
    return Message(
        position=position,
        id=own_id,
        label=text["label"],
        name=text["name"] or own_id,
        image=image,
        location=text["location"],
        fault=fault,
    )


def _fault(label: str, image: bytes, location: str) -> str:
    if not label.strip() or label != label.strip() or len(label) > _MOST_CHARACTERS:
        return f"its label must have 1 to {_MOST_CHARACTERS} characters, got {label!r}"
    if len(label.splitlines()) != 1:
        return f"its label must be one line, got {label!r}"
    if bool(image) == bool(location):
        return "a message must have either the bytes of an image or a location"
    return ""


def bytes_of(message: Message, root: Files | None) -> bytes:
    """Returns the bytes of a message's image.

    Raises:
        ValueError: If the message names a location, and there is no root; or if the
            location leaves the root.
        RemoteError: If the file cannot be read.
    """
    if message.image:
        return message.image
    if root is None:
        raise ValueError(
            f"Message {message.id!r} names the location {message.location!r}: --root "
            "must say the folder or URL that locations are relative to."
        )
    return root.read(message.location)


class Stream(Protocol):
    """A source of messages. Reading does not acknowledge."""

    def read(self, count: int, seconds: float) -> list[Message]:
        """Returns messages that the worker has not read, at most `count`.

        The call waits for a first message for some of the seconds at most.

        Raises:
            StreamError: If the broker does not answer.
        """
        ...

    def fetch(self, positions: Sequence[str]) -> list[Message]:
        """Returns messages again, in order; lost messages are left out."""
        ...

    def acknowledge(self, positions: Sequence[str]) -> None:
        """Tells the broker that the messages are stored for good."""
        ...

    def close(self) -> None:
        """Ends the connection."""
        ...


class StreamError(OSError):
    """The broker does not answer. The same call may succeed later."""


class RefusedError(errors.RemoteError):
    """The broker answers, and refuses: the same call will not succeed later."""
