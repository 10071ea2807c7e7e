"""The columns of a table that have a meaning, and how their absence is told.

In: names of columns from flags, and the columns that a table has. Out: checked names.
"""

import dataclasses
from collections.abc import Sequence

from tfpipe.shards import index

FAIL, SKIP = "fail", "skip"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of columns, as in the table.

    Attributes:
        image: Paths, URLs or bytes of images, or structs {bytes, path}.
        label: Class of each image, or a list of classes.
        name: Name of each image; None takes the path, or else the number of the row.
        split: Split of each image; None puts all images into train.
        extra: Columns that are kept beside the image.

    Raises:
        ValueError: If an extra column has a name that the catalog uses.
    """

    image: str
    label: str
    name: str | None = None
    split: str | None = None
    extra: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in self.extra:
            if name.lower() in (*index.CATALOG_COLUMNS, "labels"):
                raise ValueError(
                    f"--extra_columns must not name {name}: the catalog has a column "
                    f"of this name. Rename it in --query: SELECT {name} AS my_{name}."
                )
        if len({name.lower() for name in self.extra}) != len(self.extra):
            raise ValueError("--extra_columns must name each column once.")

    @property
    def by_flag(self) -> dict[str, Sequence[str]]:
        """Names by the flag that gave them."""
        single = {
            "--image_column": self.image,
            "--label_column": self.label,
            "--name_column": self.name,
            "--split_column": self.split,
        }
        found: dict[str, Sequence[str]] = {
            flag: [name] for flag, name in single.items() if name is not None
        }
        return found | {"--extra_columns": self.extra}

    def require_in(self, there: Sequence[str]) -> None:
        """Checks that a table has the columns.

        Raises:
            ValueError: If one is missing.
        """
        for flag, names in self.by_flag.items():
            for name in names:
                if there.count(name) != 1:
                    times = "twice" if name in there else "none of this name"
                    raise ValueError(
                        f"{flag} must name one column of the table, got {name}: there "
                        f"is {times}. The columns are {', '.join(there)}."
                    )
