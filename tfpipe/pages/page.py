"""A page: the templates of a room, filled with values.

In: a package with a folder `templates`, and values. Out: HTML. The templates of this
room stand beside the templates of the package: base.css.j2 has the look, macros.html.j2
the tables, cards and figures. Every text is escaped, so a name cannot become markup.
"""

import html
from typing import Any, NamedTuple


class Cell(NamedTuple):
    """A cell of a table; on a small screen, a line of a card.

    Attributes:
        text: The text.
        note: A second line, in small letters.
        mark: A class of the style sheet: good, bad, warn, differs, badge.
        link: Name of the target on the page.
        is_number: Whether the cell is aligned at the right, as numbers are.
        folded: More text, closed until a reader opens the text.
    """

    text: str
    note: str = ""
    mark: str = ""
    link: str = ""
    is_number: bool = False
    folded: str = ""


class Table(NamedTuple):
    """A table, whose rows are cards on a small screen; false without rows.

    Attributes:
        caption: Name of the table.
        columns: Headings of the columns.
        rows: The cells of the rows; the first cell is the heading of its row.
        text: How to read the table.
    """

    caption: str
    columns: tuple[str, ...] | list[str]
    rows: list[list[Cell]]
    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.rows)


def render(package: str, template: str, /, **values: Any) -> str:
    """Returns a page as HTML.

    Args:
        package: The package whose folder `templates` holds the template.
        template: Name of the template.
        values: The values of the names in the template.

    Raises:
        ImportError: If Jinja2 is not installed.
    """
    import jinja2

    packages = (package, "tfpipe.pages")
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in packages]),
        autoescape=True,  # the default of Jinja2 escapes nothing
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**values)


def printed(text: str) -> str:
    """Returns a printed text as HTML for notebooks; columns stay columns.

    Example:
        >>> printed("a  <b>")
        '<pre>a  &lt;b&gt;</pre>'
    """
    return f"<pre>{html.escape(text)}</pre>"


def verbatim(text: str) -> Any:
    """Returns a text without escapes; the text must hold no text of a result."""
    import markupsafe

    return markupsafe.Markup(text)
