"""The interface of all readers: an input in, its images by split and class out.

In: places and options in the words of a user. Out: `Listed`. The readers stand in
`classtree`, `ilsvrc`, `archives.samples`, `archives.example_images`,
`archives.data_set`, `tables.reader` and, for a join of inputs, `merged.reader`.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from converters.inputs import servers
from converters.inputs.listed import Listed
from converters.inputs.meaning import Meaning

# Fields with places, also below a field; a place may hold a password.
_PLACES = ("input", "input_dir", "root", "sources", "table")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workspace:
    """Where a reader keeps data until the images are stored.

    Attributes:
        folder: Working folder of the output. A reader of tables makes the folder.
        stack: Locks of folders below, against other tasks until the plan is made.
        num_workers: Most processes to use.
        held: The locked folders.
    """

    folder: pathlib.Path
    stack: contextlib.ExitStack
    num_workers: int = 1
    held: set[pathlib.Path] = dataclasses.field(default_factory=set)


class Reader(Protocol):
    """A kind of input. A reader is a frozen dataclass and checks its fields.

    The names of the fields are the names of their flags.
    """

    def list_images(self, meaning: Meaning, workspace: Workspace) -> Listed:
        """Lists the images of the input; opens none.

        Raises:
            BadIndexError: If the input is a damaged data set.
        """
        ...

    @property
    def recorded(self) -> Mapping[str, Any]:
        """The fields that decide about the images: JSON values for the index.

        Places of the input and the values make the same reader again.
        """
        return {}

    @property
    def slow_files(self) -> Sequence[str] | None:
        """Files of a slow input on this host; None if the input is quick to list."""
        return None

    def to_json(self) -> dict[str, Any]:
        """Returns all fields as JSON values, without passwords."""
        values = dataclasses.asdict(self)  # type: ignore[call-overload]
        return {key: _as_json(value, key in _PLACES) for key, value in values.items()}


def _as_json(value: Any, is_place: bool) -> Any:
    if isinstance(value, Mapping):
        return {
            k: _as_json(each, is_place or k in _PLACES) for k, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_as_json(each, is_place) for each in value]
    return servers.shown(value) if is_place and isinstance(value, str) else value
