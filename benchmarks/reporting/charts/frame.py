"""Parts, colors and library that all charts have in common.

In: rows of numbers. Out: specifications in which a color is a variable of the page's
style sheet, so that one drawing is right in light, in dark and on paper. Specifications
are data: no text of a result becomes part of an expression.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.reporting.results import Result

Spec = dict[str, Any]

MAX_COLORS = 6  # the style sheet has --c1 to --c6

_TEXT = {
    "labelColor": "var(--soft)",
    "titleColor": "var(--soft)",
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
}
CONFIG: Spec = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        **_TEXT,
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        # A long name must not take the place of the chart on a small screen.
        "labelLimit": {"expr": "containerSize()[0] < 500 ? 110 : 260"},
    },
    "text": {"fill": "var(--text)", "fontSize": 12},
    "bar": {"height": {"band": 0.72}},
}


class Plot(NamedTuple):
    """One drawing of a chart.

    Attributes:
        title: What it shows.
        spec: Its Vega-Lite specification, without `CONFIG`.
    """

    title: str
    spec: Spec


class Chart(NamedTuple):
    """A chart with everything that a page says about it.

    Attributes:
        name: Name in links, unique on a page.
        title: Its heading.
        sentences: What the chart shows, in words.
        legend: Text and color of each series; empty where the axis names them.
        plots: At least one.
        columns: Heading of each column of its numbers.
        rows: The numbers as texts.
    """

    name: str
    title: str
    sentences: Sequence[str]
    legend: Sequence[tuple[str, str]]
    plots: Sequence[Plot]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def of_each(
    results: Sequence[Result], draw: Callable[[int, Result], Chart | None]
) -> list[Chart]:
    """Returns the charts of results, without those that have nothing to draw.

    Args:
        results: The results of one command.
        draw: Takes the number of a result, from 1, and the result.
    """
    charts = (draw(place, result) for place, result in enumerate(results, 1))
    return [chart for chart in charts if chart is not None]


def library() -> str:
    """Returns Vega, Vega-Lite and Vega-Embed as JavaScript, about 0.9 MB.

    Raises:
        ImportError: If vl-convert-python is not installed: pip install tfpipe[report].
    """
    import vl_convert

    return str(vl_convert.javascript_bundle())


def color(place: int) -> str:
    """Returns the color of a series, from 0, as a variable of the style sheet."""
    return f"var(--c{place % MAX_COLORS + 1})"


def colors(labels: Sequence[str]) -> Spec:
    """Returns the scale that gives each label its color; the page has the legend."""
    return {
        "scale": {
            "domain": list(labels),
            "range": [color(place) for place in range(len(labels))],
        },
        "legend": None,
    }


def legend(labels: Sequence[str]) -> list[tuple[str, str]]:
    """Returns text and color of each label."""
    return [(label, color(place)) for place, label in enumerate(labels)]


def spec(rows: Sequence[Spec], *, height: int, **rest: Any) -> Spec:
    """Returns a specification that is as wide as its place on the page.

    Args:
        rows: The data.
        height: Height of the drawing in pixels, without its axis.
        rest: Mark and encoding, or layers.
    """
    return {
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": [_rounded(row) for row in rows]},
        **rest,
    }


def bar_height(num_bars: int) -> int:
    """Returns the height of a drawing with horizontal bars, in pixels."""
    return 30 * num_bars


def labels_axis() -> Spec:
    """Returns the axis of bars that have names."""
    return {"title": None, "ticks": False, "domain": False, "labelPadding": 6}


def _rounded(row: Spec) -> Spec:
    """Returns a row with six digits of each number: a chart shows fewer."""
    return {
        key: float(f"{value:.6g}") if isinstance(value, float) else value
        for key, value in row.items()
    }


def amount(value: float | None) -> str:
    """Returns a number with three to four digits that matter, or a dash."""
    if value is None:
        return "—"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """Returns a share as a percentage, or a dash."""
    return "—" if value is None else f"{value:.1%}"


def milliseconds(seconds: float | None) -> str:
    """Returns seconds as a number of milliseconds, or a dash."""
    return amount(None if seconds is None else seconds * 1e3)


def with_interval(value: float, half: float | None) -> str:
    """Returns a number and half the width of its interval, with as many decimals."""
    text = amount(value)
    if half is None:
        return text
    decimals = len(text.partition(".")[2])
    return f"{text} ± {half:,.{decimals}f}"
