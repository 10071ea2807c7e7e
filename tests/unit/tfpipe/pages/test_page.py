"""tfpipe.pages: templates of a room beside those of the kit."""

import pytest

from tfpipe.pages import page
from tfpipe.pages.page import Cell, Table


def test_a_page_takes_the_look_of_the_kit_and_escapes_texts() -> None:
    values = {"headline": ("<b>", ""), "verdict": ("none", "none"), "library": ""}
    tables = dict.fromkeys(("gates", "runs", "environment", "comparison"))
    lists = {
        name: [] for name in ("findings", "left_out", "inputs", "charts", "details")
    }
    rows = [[Cell("<i>"), Cell("cold", folded="the proof")]]
    tables["runs"] = Table("Runs", ["Run", "Page cache"], rows)

    text = page.render(
        *("benchmarks.reporting", "page.html.j2"),
        **values,
        **tables,
        **lists,
        summary="",
        plots={},
        chart_config={},
    )

    assert "&lt;b&gt;" in text
    assert "&lt;i&gt;" in text
    assert '<td data-label="Page cache">' in text  # the name of a line of a card
    assert "<details><summary>Proof</summary>" in text
    assert "--good-back" in text


def test_a_value_that_a_template_lacks_is_an_error() -> None:
    with pytest.raises(Exception, match="undefined"):
        page.render("benchmarks.reporting", "page.html.j2")
