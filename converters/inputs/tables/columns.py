"""The columns of a table with a meaning, and the choices for missing values.

In: names of columns from flags, and the columns of a table. Out: checked names.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from converters.inputs.tables import extras
from tfpipe.shards import index

FAIL, SKIP = "fail", "skip"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of columns, as in the table.

    Attributes:
        image: Paths, URLs or bytes of images, or structs {bytes, path}.
        label: Classes of the images, or lists of classes.
        name: Names of the images; None takes the path, or else the number of the row.
        split: Splits of the images; None puts all images into train.
        extra: Columns kept beside the image.
        in_records: Whether records get the extra columns, as features.

    Raises:
        ValueError: If an extra column has the name of a column of the catalog.
    """

    image: str
    label: str
    name: str | None = None
    split: str | None = None
    extra: Sequence[str] = ()
    in_records: bool = False

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
    def texts(self) -> list[str]:
        """Columns of texts: their values stay as they stand in the file."""
        names = (self.image, self.label, self.name, self.split)
        return [name for name in names if name is not None]

    @property
    def by_flag(self) -> dict[str, Sequence[str]]:
        """Names of columns by their flag."""
        single = {
            "--image_column": self.image,
            "--label_column": self.label,
            "--name_column": self.name,
            "--split_column": self.split,
        }
        named: dict[str, Sequence[str]] = {
            flag: [name] for flag, name in single.items() if name is not None
        }
        return named | {"--extra_columns": self.extra}

    def require_in(self, there: Sequence[str]) -> None:
        """Checks for the columns in a table.

        Raises:
            ValueError: If a column is missing.
        """
        for flag, names in self.by_flag.items():
            for name in names:
                if there.count(name) != 1:
                    times = "twice" if name in there else "none of this name"
                    raise ValueError(
                        f"{flag} must name one column of the table, got {name}: there "
                        f"is {times}. The columns are {', '.join(there)}."
                    )

    def require_features(self, types: Mapping[str, str]) -> None:
        """Checks that features can hold the extra columns, if records get these.

        Args:
            types: Type in DuckDB of each column.

        Raises:
            ValueError: If no feature can hold a column.
        """
        for name in self.extra if self.in_records else ():
            extras.kind_of(name, types[name])
