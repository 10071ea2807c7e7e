"""A message with an image, and the interface of all its sources.

In: the fields of a message in the words of a broker. Out: `Message`. The sources stand
in `folder` and `brokers`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from tfpipe.location.files import Files

# Fields of a message: fields of Redis, headers of NATS and Kafka.
FIELDS = ("id", "label", "name", "location")
_MOST_CHARACTERS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Message:
    """A message with an image.

    Attributes:
        position: Address of the message at the source, for `Stream.acknowledge`.
        id: Id of the message. A later message of the same id is a duplicate.
        label: Name of the class.
        name: Name of the image in the catalog.
        image: The bytes of the image; empty if `location` says where the bytes are.
        location: File below --root with the image.
    """

    position: str
    id: str
    label: str
    name: str
    image: bytes
    location: str

    @property
    def fault(self) -> str:
        """Why the message has no image or label; "" for a sound message."""
        label = self.label
        if not label.strip() or label != label.strip() or len(label) > _MOST_CHARACTERS:
            return f"label must have 1 to {_MOST_CHARACTERS} characters, got {label!r}"
        if len(label.splitlines()) != 1:
            return f"label must be one line, got {label!r}"
        if bool(self.image) == bool(self.location):
            return "a message must have either the bytes of an image or a location"
        return ""

    def content(self, root: Files | None) -> bytes:
        """Returns the bytes of the image.

        Raises:
            ValueError: If there is no root, or the location leaves the root.
            RemoteError: If the file cannot be read.
        """
        if self.image:
            return self.image
        if root is None:
            raise ValueError(
                f"Message {self.id!r} names the location {self.location!r}: --root "
                "must say the folder or URL that locations are relative to."
            )
        return root.read(self.location)


def message_of(
    position: str, fields: Mapping[str, bytes], image: bytes, *, id: str = ""
) -> Message:
    """Returns the message in the fields of a broker.

    Args:
        position: Address of the message at the broker.
        fields: `FIELDS`, in UTF-8. Without `id` the position is the id; without `name`
            the id is the name.
        image: The bytes of the image; empty with the field location.
        id: Id that the broker knows, if the fields have none.
    """
    text = {name: fields.get(name, b"").decode(errors="replace") for name in FIELDS}
    text["id"] = text["id"] or id or position
    text["name"] = text["name"] or text["id"]
    return Message(position=position, image=image, **text)


class Stream(Protocol):
    """A source of messages. Reading does not acknowledge.

    Attributes:
        errors: Errors of the client, after which the worker closes the connection.
    """

    errors: tuple[type[Exception], ...]

    def refusal(self, error: Exception) -> str:
        """Returns why the same call will fail again, or "" if it may succeed later."""
        ...

    def read(self, count: int, seconds: float) -> list[Message]:
        """Returns messages that the group has not read, at most `count`.

        The call connects if there is no connection, and waits for a first message for
        some of the seconds at most. Messages that were read before a kill come again.
        """
        ...

    def acknowledge(self, positions: Sequence[str]) -> None:
        """Tells the broker that messages, and all read before, are stored for good."""
        ...

    def close(self) -> None:
        """Ends the connection."""
        ...
