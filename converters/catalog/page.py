"""The page about a data set: one HTML document that needs no other file.

In: what `facts.gather` returned. Out: the text of the page. The template escapes every
text, so that a name in a data set cannot become markup.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from tfpipe.shards import atomic


def require_library() -> None:
    """Checks that Jinja2 is installed.

    Raises:
        ValueError: If it is not.
    """
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "--report needs Jinja2: pip install 'tfpipe[report]'."
        ) from error


def render(found: Mapping[str, Any]) -> str:
    """Returns the page as HTML."""
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("converters.catalog"),
        autoescape=True,  # Jinja2 escapes nothing unless it is told to
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template("page.html.j2").render(**found)


def write(text: str, path: pathlib.Path) -> None:
    """Writes a page in one step.

    Raises:
        OSError: If it cannot be written.
    """
    # Names of files may hold bytes that are no UTF-8.
    content = text.encode(errors="backslashreplace")
    atomic.write(path, content, fsync=False)
