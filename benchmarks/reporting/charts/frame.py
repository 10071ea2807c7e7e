"""Parts, colors and library of all charts.

In: rows of numbers. Out: specifications whose colors are variables of the page's style
sheet, so that a drawing is right in light, in dark and on paper. Specifications are
data: no text of a result becomes part of an expression.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.results.collection import Result, T

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
        # A long name must leave room for the chart on a small screen.
        "labelLimit": {"expr": "containerSize()[0] < 500 ? 110 : 260"},
    },
    "text": {"fill": "var(--text)", "fontSize": 12},
    "bar": {"height": {"band": 0.72}},
}


class Plot(NamedTuple):
    """A drawing of a chart.

    Attributes:
        title: The heading.
        spec: The Vega-Lite specification, without `CONFIG`.
    """

    title: str
    spec: Spec


class Chart(NamedTuple):
    """A chart with all its text on a page.

    Attributes:
        name: Name in links, unique on a page.
        title: The heading.
        sentences: The message of the chart, in words.
        legend: Text and color of the series; empty where the axis names the series.
        plots: At least one drawing.
        columns: Headings of the numbers.
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
    results: Sequence[Result[T]], draw: Callable[[int, Result[T]], Chart | None]
) -> list[Chart]:
    """Returns the charts of results that have a figure to draw.

    Args:
        results: The results of a command.
        draw: Takes the index of a result, from 1, and the result.
    """
    charts = (draw(index, result) for index, result in enumerate(results, 1))
    return [chart for chart in charts if chart is not None]


def library() -> str:
    """Returns Vega, Vega-Lite and Vega-Embed as JavaScript, about 0.9 MB.

    Raises:
        ImportError: If vl-convert-python is not installed: pip install tfpipe[report].
    """
    import vl_convert

    return str(vl_convert.javascript_bundle())


def _color(index: int) -> str:
    """Returns the color of a series as a variable of the style sheet."""
    return f"var(--c{index % MAX_COLORS + 1})"


def colors(labels: Sequence[str]) -> Spec:
    """Returns the scale from labels to colors; the page has the legend."""
    return {
        "scale": {
            "domain": list(labels),
            "range": [_color(index) for index in range(len(labels))],
        },
        "legend": None,
    }


def legend(labels: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the texts and colors of labels."""
    return [(label, _color(index)) for index, label in enumerate(labels)]


def spec(rows: Sequence[Spec], *, height: int, **rest: Any) -> Spec:
    """Returns a specification of a drawing as wide as the page.

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


def quantity(field: str, **more: Any) -> Spec:
    """Returns the channel of a field with numbers: its title, format, scale or axis."""
    return {"field": field, "type": "quantitative", **more}


def category(field: str, **more: Any) -> Spec:
    """Returns the channel of a field with names."""
    return {"field": field, "type": "nominal", **more}


def number_bars(
    rows: Sequence[Spec],
    name: Spec,
    value: str,
    title: str,
    *,
    color: Spec | None = None,
    most: float = 0.0,
    **channels: Spec,
) -> Spec:
    """Returns a drawing of horizontal bars, each with its number at the end.

    Args:
        rows: The data.
        name: Channel for the names of the bars, from `bar_names`.
        value: Field of the lengths.
        title: Unit of the lengths.
        color: Channel for the colors; None for a single color.
        most: A value beside the bars that the axis must reach.
        channels: More channels of bars and numbers, such as yOffset and tooltip.
    """
    shown = [{**row, "shown": amount(row[value])} for row in rows]
    longest = max(most, *(row[value] for row in rows)) * 1.3  # room for the number
    x = quantity(value, title=title, scale={"domain": [0, longest or 1]})
    both = {"x": {**x, "axis": {"tickCount": 4}}, "y": name, **channels}
    text = {"type": "text", "align": "left", "dx": 5}
    hue = color or {"value": _color(0)}
    layer = [
        {"mark": {"type": "bar"}, "encoding": {**both, "color": hue}},
        {"mark": text, "encoding": {**both, "text": category("shown")}},
    ]
    return spec(shown, height=bar_height(len(rows)), layer=layer)


def bar_height(num_bars: int) -> int:
    """Returns the height of a drawing with horizontal bars, in pixels."""
    return 30 * num_bars


def bar_names(field: str, **axis: Any) -> Spec:
    """Returns the channel for the names of bars, in the order of the data.

    Args:
        field: Field of the names.
        axis: More settings of the axis.
    """
    own = {"title": None, "ticks": False, "domain": False, "labelPadding": 6}
    return category(field, sort=None, axis={**own, **axis})


def _rounded(row: Spec) -> Spec:
    """Returns a row with numbers of six digits: a chart shows fewer."""
    return {
        key: float(f"{value:.6g}") if isinstance(value, float) else value
        for key, value in row.items()
    }


def amount(value: float | None) -> str:
    """Returns a number with three to four significant digits, or a dash."""
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
    """Returns a number and half the width of its interval, with as many decimals.

    An interval that reaches below 0 says nothing about a rate and is left out.
    """
    text = amount(value)
    if half is None or half >= value:
        return text
    decimals = len(text.partition(".")[2])
    return f"{text} ± {half:,.{decimals}f}"
