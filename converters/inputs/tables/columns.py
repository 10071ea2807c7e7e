"""The columns of a table with a meaning, and the choices for missing values.

In: names of columns from flags, and the columns of a table. Out: checked names.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence

from tfpipe import errors
from tfpipe.shards import catalog, index
from tfpipe.shards.example import Kind
from tfpipe.shards.sql import identifier

FAIL, SKIP = "fail", "skip"
# The option of a conversion, as the index records it.
IN_RECORDS_OPTION = "extra_in_records"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """How the values of a row become an image; the fields are named as their flags."""

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
            if name.lower() in (*index.CATALOG_COLUMNS, catalog.LABELS):
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

    def in_table(self, there: Sequence[str], files: Collection[str] = ()) -> "Columns":
        """Returns the columns with the column `split`, if no other says the splits.

        The folders `name=value` above files are hints for errors.
        """
        columns = self
        named = [name for name in there if name.lower() == "split"]
        if self.split_column is None and named:
            columns = dataclasses.replace(self, split_column=named[0])
        for role, name in columns.by_role.items():
            if there.count(name) != 1:
                flag = "extra_columns" if role.startswith("extra") else f"{role}_column"
                times = "twice" if name in there else "none of this name"
                hint = "" if name in there else errors.did_you_mean(name, there)
                if any(f"/{name}=" in f"/{file}" for file in files):
                    hint = f" --hive_columns={name} takes it from the folders {name}=."
                raise ValueError(
                    f"--{flag} must name one column of the table, got {name}: there "
                    f"is {times}. The columns are {', '.join(there)}.{hint}"
                )
        return columns


# The kind of the feature that holds values of a type of DuckDB, or lists of them.
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT"), "int64"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER"), "int64"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), "float"),
    **dict.fromkeys(("VARCHAR", "BLOB", "ENUM", "UUID", "JSON"), "bytes"),
}
# Types to which other ones are cast; all others are cast to text.
_CASTS = {"UBIGINT": "BIGINT", "HUGEINT": "BIGINT", "UHUGEINT": "BIGINT"} | {
    "DECIMAL": "DOUBLE"
}
# Digits that a float64 holds.
MAX_DIGITS = 15


def kind_of(name: str, type_name: str) -> Kind:
    """Returns the kind of the feature for a column of a type of DuckDB.

    >>> kind_of("score", "DECIMAL(9,2)"), kind_of("tags", "VARCHAR[]")
    ('float', 'bytes')
    """
    inner = re.sub(r"\[[0-9]*\]$", "", type_name)
    base, _, more = inner.partition("(")
    is_wide = base == "DECIMAL" and int(more.partition(",")[0]) > MAX_DIGITS
    if not inner.endswith("]") and not is_wide and base in _KINDS:
        return _KINDS[base]
    cast = _CASTS.get(inner if base != "DECIMAL" else base, "VARCHAR")
    raise ValueError(
        "--extra_in_records needs columns of numbers or texts, or of lists of these, "
        f"which a feature can hold, got {name} of type {type_name}. Cast it in --query,"
        f" as in {identifier(name)}::{cast}, or leave out --extra_in_records: the "
        "catalog holds every type."
    )
