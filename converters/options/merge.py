"""Options of a merge, and the flags that set them.

In: sources as NAME=PLACE, and values of flags as NAME=VALUE. Out: `MergeOptions`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from converters.catalog import near_duplicates
from converters.inputs.tables import columns, table_sources
from converters.options import labelled, shared
from tfpipe.location import urls

flags.adopt_module_key_flags(labelled)

# Flags with values NAME=VALUE.
_HOW = (
    *("image_column", "label_column", "name_column", "split_column", "root", "query"),
    *("label_from", "label_key", "image_part", "image_key", "name_key"),
)
shared.define(*_HOW, "on_null", "file_in_names")
flags.adopt_module_key_flags(shared)

_CLASS_MAP = flags.DEFINE_multi_string(
    "class_map",
    [],
    "NAME=FILE: other names for classes of the source NAME, as lines of a class, a tab "
    "and its new class. A class without a line keeps its name; a class with an empty "
    "new class is left out. May be given once for each source.",
)
flags.DEFINE_integer(
    "near_duplicates",
    None,
    "Decode all images at the end, and list those whose 64-bit hashes of pixels differ "
    "in at most this many bits in near_duplicates.jsonl. 0 finds copies that were "
    "scaled or encoded again; 4 finds small changes too, and some chance pairs. "
    "Default: no such list.",
    lower_bound=0,
    upper_bound=near_duplicates.MAX_DISTANCE,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergeOptions(labelled.LabelledOptions):
    """Options of one merge; the flags of the same names describe them.

    Attributes:
        sources: Path, pattern or URL of each source, by name.
        class_map: File with the new classes of a source, by its name.
        how: Values of the flags of `sources.FLAGS`, by flag and name of the source.
        on_null: What to do about a row of a table without an image or a label.
        file_in_names: Whether names of images in archives begin with that of the file.
        near_duplicates: Most bits by which hashes of images that look alike differ;
            None looks for none.

    Raises:
        ValueError: If values do not fit together.
    """

    sources: Mapping[str, str] = dataclasses.field(repr=False)
    class_map: Mapping[str, str] = dataclasses.field(default_factory=dict)
    how: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    on_null: str = columns.FAIL
    file_in_names: bool = False
    near_duplicates: int | None = None
    name: str = "merge"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sources:
            raise ValueError("Sources must be given as NAME=PLACE, got none.")
        if self.near_duplicates is not None:
            near_duplicates.require()
            if urls.is_url(self.output_dir):
                raise ValueError(
                    "--near_duplicates needs an --output_dir that is a folder. Merge "
                    "into a folder, and copy that to the store."
                )
        if self.engine == shared.RAY:
            raise ValueError(
                "--engine=ray is not for merges: its nodes do not see the sources "
                "under one folder. Share the work with --num_tasks."
            )
        for flag, values in {"class_map": self.class_map, **self.how}.items():
            for name in values:
                if name not in self.sources:
                    raise ValueError(
                        f"--{flag} must be of one of the sources "
                        f"{', '.join(self.sources)}, got {name!r}."
                    )

    def options_of(self, name: str) -> dict[str, str]:
        """Returns how a source is read: the values of its flags, by flag."""
        return {f: values[name] for f, values in self.how.items() if name in values}

    def to_json(self) -> dict[str, Any]:
        """Returns the options as JSON values, without passwords."""
        shown = {
            name: table_sources.shown(place) for name, place in self.sources.items()
        }
        return super().to_json() | {"sources": shown}


def config_from_flags(arguments: Sequence[str]) -> MergeOptions:
    """Returns the options that the arguments and flags describe.

    Raises:
        ValueError: If values do not fit together.
    """
    how = {
        flag: shared.by_name(f"--{flag}", shared.value_of(flag), may_be_empty=True)
        for flag in _HOW
    }
    return labelled.options_from_flags(
        MergeOptions,
        sources=shared.by_name(
            "Sources", arguments, form="NAME=PLACE", may_be_empty=False
        ),
        class_map=shared.by_name(
            "--class_map", _CLASS_MAP.value, form="NAME=FILE", may_be_empty=False
        ),
        how={flag: values for flag, values in how.items() if values},
    )
