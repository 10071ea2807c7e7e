"""Paths that users give: ~ is a home folder, and nothing is not the current folder."""

import pathlib


def path_of(name: str, value: str) -> pathlib.Path:
    """The path that a user gave, with ~ for a home folder.

    Args:
        name: The argument or flag, as a user writes it.
        value: Its value.

    Raises:
        ValueError: If it is empty, which would be the current folder, or names a user
            that is not known.
    """
    if not value:
        raise ValueError(f"{name} must be a path, got nothing. Write . for here.")
    try:
        return pathlib.Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError(
            f"{name} must be a path, got {value}, whose user has no home folder "
            f"here. Write ./{value} for a name that begins with ~."
        ) from error
