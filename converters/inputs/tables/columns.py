"""The columns of a table with a meaning, and the choices for missing values.

In: names of columns from flags, and the columns of a table. Out: checked names.
"""

import dataclasses
from collections.abc import Sequence

from tfpipe import errors
from tfpipe.shards import index

FAIL, SKIP = "fail", "skip"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """How the values of a row become an image; the fields are named as their flags.

    Raises:
        ValueError: If columns do not fit together.
    """

    image_column: str = "image"
    label_column: str = "label"
    name_column: str | None = None
    split_column: str | None = None
    label_separator: str | None = None
    extra_columns: Sequence[str] = ()
    extra_in_records: bool = False
    on_null: str = FAIL

    def __post_init__(self) -> None:
        if self.label_separator == "":
            raise ValueError("--label_separator must be a text, got nothing.")
        for name in self.extra_columns:
            if name.lower() in (*index.CATALOG_COLUMNS, "labels"):
                raise ValueError(
                    f"--extra_columns must not name {name}: the catalog has a column "
                    f"of this name. Rename it in --query: SELECT {name} AS my_{name}."
                )
        lower = [name.lower() for name in self.extra_columns]
        if len({*lower}) != len(lower):
            raise ValueError("--extra_columns must name each column once.")

    @property
    def by_role(self) -> dict[str, str]:
        """Names of columns in the table, by their names in `scan.scan`'s file."""
        roles = {
            role: getattr(self, f"{role}_column")
            for role in ("image", "label", "name", "split")
        }
        extra = {f"extra_{n}": name for n, name in enumerate(self.extra_columns)}
        return {role: name for role, name in roles.items() if name is not None} | extra

    @property
    def texts(self) -> list[str]:
        """Columns of texts: their values stay as they stand in the file."""
        return [n for role, n in self.by_role.items() if not role.startswith("extra")]

    def in_table(self, there: Sequence[str]) -> "Columns":
        """Returns the columns with the column `split`, if no other says the splits.

        Raises:
            ValueError: If a table does not have each column once.
        """
        columns = self
        if self.split_column is None and "split" in there:
            columns = dataclasses.replace(self, split_column="split")
        for role, name in columns.by_role.items():
            if there.count(name) != 1:
                flag = "extra_columns" if role.startswith("extra") else f"{role}_column"
                times = "twice" if name in there else "none of this name"
                hint = "" if name in there else errors.did_you_mean(name, there)
                raise ValueError(
                    f"--{flag} must name one column of the table, got {name}: there "
                    f"is {times}. The columns are {', '.join(there)}.{hint}"
                )
        return columns
