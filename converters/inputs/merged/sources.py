"""The sources of a merge: their names, places, and new names of their classes.

In: what a user wrote of each source. Out: a checked `Source`, and its class map.
"""

import dataclasses
import pathlib
import re
from collections.abc import Mapping

from converters.inputs import files
from converters.inputs.archives import sample_class
from converters.inputs.merged import kinds

# A name is the first part of the names of images, and of a file in a folder of links.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """One input of a merge.

    Attributes:
        name: Name of the source, which the names of its images begin with.
        place: Path, pattern or URL of it; a URL may hold a password.
        kind: What it is.
        class_map: New class of some of its classes; an empty text leaves a class out.
        options: Values of the flags of `kinds.FLAGS` that say how it is read.

    Raises:
        ValueError: If the name is not letters, digits, dots, dashes and underscores, or
            an option is not one of the kind.
    """

    name: str
    place: str = dataclasses.field(repr=False)
    kind: kinds.Kind = kinds.TREE
    class_map: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                "The name of a source must be letters, digits, dots, dashes and "
                f"underscores, got {self.name!r}. Write NAME=PLACE."
            )
        for flag, value in self.options.items():
            if flag not in kinds.FLAGS[self.kind]:
                raise self._not_for_kind(flag)
            if not value and flag != "name_key":
                raise ValueError(f"--{flag} of {self.name!r} must not be empty.")
        label_from = self.options.get("label_from", sample_class.FROM_JSON)
        if label_from not in sample_class.SOURCES:
            raise ValueError(
                f"--label_from of {self.name!r} must be one of "
                f"{', '.join(sample_class.SOURCES)}, got {label_from!r}."
            )
        if "label_key" in self.options and label_from != sample_class.FROM_JSON:
            raise ValueError(
                f"--label_key of {self.name!r} needs --label_from={self.name}=json, "
                f"got {label_from}."
            )

    def _not_for_kind(self, flag: str) -> ValueError:
        takers = [
            kinds.WORDS[kind] for kind in kinds.FLAGS if flag in kinds.FLAGS[kind]
        ]
        return ValueError(
            f"--{flag} must be of a source that is {' or '.join(takers)}, got "
            f"{self.name!r}, which is {kinds.WORDS[self.kind]}."
        )


def read_class_map(path: pathlib.Path) -> dict[str, str]:
    """Reads the new class of each class from lines of `<class>TAB<new class>`.

    A line whose new class is empty leaves the class out of the data set. Empty lines
    are ignored.

    Raises:
        ValueError: If a line has no tab, or a class occurs twice.
        OSError: If the file cannot be read.
    """
    found: dict[str, str] = {}
    text = files.read_text(path, errors="surrogateescape", pipe=True)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        old, tab, new = line.partition("\t")
        if not tab or not old or "\t" in new:
            raise ValueError(
                f"{path} must have lines of a class, a tab and its new class, got "
                f"{line!r:.80} in line {number}."
            )
        if old in found:
            raise ValueError(f"{path} must name each class once, got {old!r} twice.")
        found[old] = new.strip()
    return found
