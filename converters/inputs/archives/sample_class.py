"""The class of a sample of a WebDataset, from its parts or its key.

In: the bytes of a `.cls` or `.json` part, or the key. Out: the class as text, or the
reason why there is none. Nothing of these bytes is executed or trusted.
"""

import dataclasses
import json
from typing import Any, Literal

from converters.inputs import listing

Source = Literal["cls", "json", "key"]
FROM_CLS: Source = "cls"
FROM_JSON: Source = "json"
FROM_KEY: Source = "key"
SOURCES = [FROM_CLS, FROM_JSON, FROM_KEY]

# A class is a word or a number; a JSON part may describe an image at length.
_MAX_BYTES = {FROM_CLS: 4096, FROM_JSON: 1 << 20}
_MAX_CHARACTERS = 1000


def usual_source(json_key: str | None) -> Source:
    """Returns where the class is if a user says no more than the key of JSON."""
    return FROM_CLS if json_key is None else FROM_JSON


class NoClassError(Exception):
    """A sample has no class; the text is the reason, a constant of `listing`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassRule:
    """Where the class of a sample is.

    Attributes:
        source: "cls": the part `.cls`, a number or a text. "json": the value at
            `json_key` of the part `.json`. "key": the folders of the key, or without
            folders the key up to its first underscore.
        json_key: Keys of nested objects with dots between them, such as "meta.label".
    """

    source: Source = "cls"
    json_key: str = "label"

    @property
    def part(self) -> str | None:
        """Name of the part that holds the class; None for the key."""
        return None if self.source == FROM_KEY else self.source

    def max_bytes(self) -> int:
        """Returns the most bytes that this part may have."""
        return _MAX_BYTES.get(self.source, 0)

    def class_of(self, key: str, content: bytes | None) -> str:
        """Returns the class of a sample.

        Args:
            key: Key of the sample.
            content: Bytes of the part that holds the class; None without this part.

        Raises:
            NoClassError: If there is none, or it cannot be read.
        """
        if self.source == FROM_KEY:
            folder = key.rpartition("/")[0]
            prefix, underscore, _ = key.partition("_")
            return _checked(folder or (prefix if underscore else ""))
        if content is None:
            raise NoClassError(listing.NO_LABEL)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise NoClassError(listing.BAD_LABEL) from None
        return _checked(text if self.source == FROM_CLS else self._from_json(text))

    def _from_json(self, text: str) -> str:
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            raise NoClassError(listing.BAD_LABEL) from None
        for name in self.json_key.split("."):
            if not isinstance(value, dict) or name not in value:
                raise NoClassError(listing.NO_LABEL)
            value = value[name]
        if value is None:
            raise NoClassError(listing.NO_LABEL)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number and not isinstance(value, str):
            raise NoClassError(listing.BAD_LABEL)
        return str(value)


def _checked(text: str) -> str:
    text = text.strip()
    if not text:
        raise NoClassError(listing.NO_LABEL)
    if len(text) > _MAX_CHARACTERS or not text.isprintable():
        raise NoClassError(listing.BAD_LABEL)
    return text
