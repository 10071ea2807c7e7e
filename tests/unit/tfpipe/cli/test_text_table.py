"""tfpipe.cli.text_table: columns as wide as their cells."""

from tfpipe.cli import text_table
from tfpipe.cli.text_table import Column


def test_columns_are_as_wide_as_their_widest_text() -> None:
    columns = [
        Column[tuple[str, float | None]]("model", lambda row: row[0], is_left=True),
        Column[tuple[str, float | None]](
            "images/s", lambda row: "-" if row[1] is None else f"{row[1]:,.0f}"
        ),
        Column[tuple[str, float | None]]("", lambda row: "x" * (row[1] is None), True),
    ]

    assert text_table.lines(columns, [("resnet50", 1234567.0), ("vgg16", None)]) == [
        "model      images/s",
        "resnet50  1,234,567",
        "vgg16             -  x",
    ]
    assert text_table.lines(columns, []) == ["model  images/s"]
