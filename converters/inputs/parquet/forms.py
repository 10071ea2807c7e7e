"""The error of a Parquet file that this room cannot read.

In: nothing. Out: the error, which the other modules raise.
"""


class UnknownFormError(Exception):
    """A file is in a form that this room does not read; DuckDB may read it."""
