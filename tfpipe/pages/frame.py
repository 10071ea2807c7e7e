"""Parts, colors, renderers and library of all charts.

In: rows of typed figures. Out: a `Chart`, declared as data: drawings, and a table of
the same numbers. `bars` draws all bars and `lines` all lines. A specification is data:
its colors are variables of the page's style sheet, so that a drawing is right in light,
in dark and on paper, and no text of a result becomes part of an expression.
"""

import functools
import importlib.resources
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

Spec = dict[str, Any]
Row = TypeVar("Row")
Item = TypeVar("Item")

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
        "labelLimit": {"expr": "containerSize()[0] < 500 ? 150 : 260"},
    },
    "text": {"fill": "var(--text)", "fontSize": 12},
    "bar": {"height": {"band": 0.72}},
}
# Invisible points, with numbers for a pointer.
_UNSEEN = {"type": "point", "filled": True, "opacity": 0, "size": 120}
# Zooming in time by Shift and wheel: a wheel alone scrolls the page.
ZOOM: Spec = {
    "name": "zoom",
    "bind": "scales",
    "select": {
        "type": "interval",
        "encodings": ["x"],
        "zoom": "wheel![event.shiftKey]",
        "translate": "[pointerdown[event.pointerType === 'mouse'], "
        "window:pointerup] > window:pointermove!",
    },
}


class Plot(NamedTuple):
    """A drawing of a chart."""

    title: str
    spec: Spec


class Chart(NamedTuple):
    """A chart with all its text on a page.

    Attributes:
        legend: Text and color of the series; empty where the axis names the series.
    """

    name: str
    title: str
    sentences: Sequence[str]
    legend: Sequence[tuple[str, str]]
    plots: Sequence[Plot]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Bar(NamedTuple):
    """A bar of `bars`.

    Attributes:
        name: Name at the left, of which the first line is shown.
        half: Half the width of the interval around the value; None without an interval.
        ideal: A value to mark beside the bar; None without a mark.
    """

    name: str
    value: float
    part: str = ""
    half: float | None = None
    ideal: float | None = None


def of_each(
    draw: Callable[[int, Item], Chart | None],
) -> Callable[[Sequence[Item]], list[Chart]]:
    """Returns a function that draws each of several results with a figure to draw.

    Args:
        draw: Takes the index of a result, from 1, and the result.
    """

    @functools.wraps(draw)
    def draw_each(results: Sequence[Item]) -> list[Chart]:
        charts = itertools.starmap(draw, enumerate(results, 1))
        return [chart for chart in charts if chart and chart.rows]

    return draw_each


def table(
    columns: Mapping[str, Callable[[Row], str]], rows: Iterable[Row]
) -> tuple[list[str], list[list[str]]]:
    """Returns the headings and the texts of a table.

    Args:
        columns: Heading -> function from a row to its text in the column.
    """
    return list(columns), [[show(row) for show in columns.values()] for row in rows]


def declared(package: str, name: str) -> Any:
    """Returns a part of a specification, a JSON file in the templates of a package."""
    file = importlib.resources.files(package) / "templates" / name
    return json.loads(file.read_text(encoding="utf-8"))


def library() -> str:
    """Returns Vega, Vega-Lite and Vega-Embed as JavaScript, about 0.9 MB.

    Raises:
        ImportError: If vl-convert-python is not installed: pip install tfpipe[report].
    """
    import vl_convert

    # Its stub asks for a snippet; the default makes vegaEmbed known to the page.
    return str(vl_convert.javascript_bundle())  # type: ignore[call-arg]


def _color(index: int) -> str:
    """Returns the color of a series as a variable of the style sheet."""
    return f"var(--c{index % MAX_COLORS + 1})"


def colors(labels: Sequence[str]) -> Spec:
    """Returns the scale from labels to colors; the page has the legend."""
    return {"scale": scale(dict(legend(labels))), "legend": None}


def scale(hues: Mapping[str, str]) -> Spec:
    """Returns a scale from labels to colors."""
    return {"domain": list(hues), "range": list(hues.values())}


def legend(labels: Iterable[str]) -> list[tuple[str, str]]:
    """Returns the texts and colors of labels."""
    return [(label, _color(index)) for index, label in enumerate(labels)]


def spec(rows: Iterable[Spec], *, height: int, **rest: Any) -> Spec:
    """Returns a specification of a drawing as wide as the page.

    Args:
        height: Height of the drawing in pixels, without its axis.
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


def names() -> Spec:
    """Returns the channel of the names of bars, in the order of the data."""
    first_line = "split(datum.label, '\\n')[0]"
    axis = {"title": None, "ticks": False, "domain": False, "labelPadding": 6}
    return category("name", sort=None, axis={**axis, "labelExpr": first_line})


def bar_height(num_bars: int) -> int:
    """Returns the height of a drawing with horizontal bars, in pixels."""
    return 30 * num_bars


def bars(
    drawn: Sequence[Bar],
    unit: str,
    *,
    parts: Sequence[str] = (),
    is_stacked: bool = False,
) -> Spec:
    """Returns horizontal bars, each with its number at the end.

    Args:
        parts: The parts with a color of their own; empty for a single color.
        is_stacked: Whether bars of equal names are one bar of parts, without numbers.
            Otherwise they lie side by side.
    """
    rows = [_bar_row(bar, parts) for bar in drawn]
    num_names = len({bar.name for bar in drawn})
    x = quantity("value", title=unit, axis={"tickCount": 4})
    tips = [category("name"), *([category("part")] if parts else [])]
    hue = category("part", **colors(parts)) if parts else {"value": _color(0)}
    y = names()
    both: Spec = {"x": x, "y": y, "tooltip": [*tips, category("shown", title=unit)]}
    if is_stacked:
        encoding = {**both, "color": hue, "order": quantity("order")}
        height = bar_height(num_names)
        return spec(rows, height=height, mark={"type": "bar"}, encoding=encoding)
    longest = max(max(row["high"], row.get("ideal", 0.0)) for row in rows)
    x["scale"] = {"domain": [0, 1.3 * longest or 1]}  # room for the number
    if num_names < len(rows):
        both["yOffset"] = category("part", sort=list(parts))
    text = {"type": "text", "align": "left", "dx": 5}
    at_end = {**both, "x": {**x, "field": "high"}, "text": category("shown")}
    layer: list[Spec] = [
        {"mark": {"type": "bar"}, "encoding": {**both, "color": hue}},
        {"mark": text, "encoding": at_end},
    ]
    if any(bar.half is not None for bar in drawn):
        rule = {"type": "rule", "strokeWidth": 2, "stroke": "var(--text)"}
        ends = {"x": quantity("low"), "x2": {"field": "high"}, "y": y}
        layer.append({"mark": rule, "encoding": ends})
    if any(bar.ideal is not None for bar in drawn):
        tick = {"type": "tick", "thickness": 2, "color": "var(--text)"}
        layer.append({"mark": tick, "encoding": {"x": {**x, "field": "ideal"}, "y": y}})
    return spec(rows, height=bar_height(len(rows)), layer=layer)


def parted(
    title: str,
    unit: str,
    parts: Iterable[str],
    values: Iterable[tuple[str, Iterable[float | None]]],
    *,
    is_stacked: bool = True,
) -> Plot:
    """Returns bars with a color for each part.

    Args:
        values: Names, each with a value for each part; None has no bar.
    """
    drawn = [
        Bar(name, value, part)
        for name, each in values
        for part, value in zip(parts, each, strict=True)
        if value is not None
    ]
    return Plot(title, bars(drawn, unit, parts=list(parts), is_stacked=is_stacked))


def _bar_row(bar: Bar, parts: Sequence[str]) -> Spec:
    low, high = max(0.0, bar.value - (bar.half or 0.0)), bar.value + (bar.half or 0.0)
    row = {"name": bar.name, "value": bar.value, "shown": amount(bar.value)}
    row |= {"low": low, "high": high}
    if parts:
        row |= {"part": bar.part, "order": parts.index(bar.part)}
    return row if bar.ideal is None else {**row, "ideal": bar.ideal}


def lines(
    points: Mapping[str, Sequence[tuple[float, float]]],
    x: Spec,
    y: Spec,
    *,
    height: int,
    mark: Spec | None = None,
    params: Sequence[Spec] = (),
    layers: Sequence[Spec] = (),
) -> Spec:
    """Returns lines, each in its color, with the numbers of a point for a pointer.

    Args:
        points: Label -> the points of its line.
        x: Title, axis and scale of `x`; the format of its axis is that of its number.
        params: How a reader may change the drawing, such as `ZOOM`.
    """
    x, y = quantity("x", **x), quantity("y", **y)
    both = {"x": x, "y": y, "color": category("line", **colors(list(points)))}
    numbers = [
        quantity(
            channel["field"],
            title=channel["title"] or "value",
            format=channel["axis"].get("format", ",.1f"),
        )
        for channel in (x, y)
    ]
    tips = {**both, "tooltip": [category("line"), *numbers]}
    layer: list[Spec] = [
        {"mark": {"type": "line", "strokeWidth": 1.8, **(mark or {})}, "encoding": both}
    ]
    layer.append({"mark": _UNSEEN, "encoding": tips, "params": list(params)})
    rows = [{"x": x, "y": y, "line": k} for k, line in points.items() for x, y in line]
    return spec(rows, height=height, layer=[*layer, *layers])


def _rounded(row: Spec) -> Spec:
    """Returns a row with numbers of six digits: a chart shows fewer."""
    return {
        key: float(f"{value:.6g}") if isinstance(value, float) else value
        for key, value in row.items()
    }


def amount(value: float | None, *, scale: float = 1.0) -> str:
    """Returns a number times a factor, with three to four digits, or a dash."""
    if value is None:
        return "—"
    value *= scale
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """Returns a share as a percentage, or a dash."""
    return "—" if value is None else f"{value:.1%}"


def milliseconds(seconds: float | None) -> str:
    """Returns seconds as a number of milliseconds, or a dash."""
    return amount(seconds, scale=1e3)


def with_interval(value: float, half: float | None) -> str:
    """Returns a number and half the width of its interval, with as many decimals.

    An interval that reaches below 0 says nothing about a rate and is left out.
    """
    text = amount(value)
    if half is None or half >= value:
        return text
    decimals = len(text.partition(".")[2])
    return f"{text} ± {half:,.{decimals}f}"
