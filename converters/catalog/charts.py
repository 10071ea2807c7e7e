"""Charts of the page as geometry: bars, histograms, a map of widths and heights.

In: the connection of a question, or counts. Out: plain values in percent and in units
of a drawing, which the template turns into HTML and SVG.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from converters.exports.sizing import shown

if TYPE_CHECKING:
    import duckdb

MAX_NAMED_BARS = 30
_NUM_BINS = 40
_NUM_RANKS = 160
_NUM_CELLS = 28
# A drawing: units of its view box, without the room for labels.
WIDTH, HEIGHT = 320.0, 120.0
_SQUARE = 320.0
# Log2 of the largest aspect ratio with a bin of its own.
_ASPECT = 2.0
# Ratio of the end of an axis to the 95th percentile.
_FAR = 1.6
_NUM_TICKS = 5


class NamedBar(NamedTuple):
    """A bar with a name: its number, and its length in percent."""

    name: str
    number: int
    percent: float


class Bar(NamedTuple):
    """A bar of a drawing, in its units, and what it says."""

    x: float
    y: float
    width: float
    height: float
    text: str
    opacity: float = 1.0


class Tick(NamedTuple):
    """A mark on an axis: its place in units, and its text."""

    place: float
    text: str


class Chart(NamedTuple):
    """A drawing of bars, with ticks below and on the left."""

    name: str
    title: str
    sentence: str
    bars: Sequence[Bar]
    ticks: Sequence[Tick]
    side: Sequence[Tick]
    width: float = WIDTH
    height: float = HEIGHT


def named_bars(
    pairs: Sequence[tuple[str, int]], *, most: int | None = None
) -> list[NamedBar]:
    """Returns a bar for every name and number.

    Args:
        pairs: Names and numbers.
        most: Number with the longest bar; None takes the largest.
    """
    most = most or max((number for _, number in pairs), default=1) or 1
    return [NamedBar(name, n, round(100 * n / most, 2)) for name, n in pairs]


def ranks(numbers: Sequence[int]) -> Chart:
    """Returns the records of every class, the largest class on the left.

    Many classes share bars, which have the height of their largest class.
    """
    groups = min(len(numbers), _NUM_RANKS)
    most, bars = numbers[0], []
    step = WIDTH / groups
    for place in range(groups):
        start, stop = (len(numbers) * n // groups for n in (place, place + 1))
        height = HEIGHT * numbers[start] / most
        which = f"class {start + 1:,}"
        if stop - start > 1:
            which = f"classes {start + 1:,} to {stop:,}"
        text = f"{which}: {numbers[start]:,} records"
        bars.append(Bar(place * step, HEIGHT - height, step, height, text))
    ends = [Tick(0, "1"), Tick(WIDTH / 2, f"{(len(numbers) + 1) // 2:,}")]
    ends.append(Tick(WIDTH, f"{len(numbers):,}"))
    return Chart(
        "ranks",
        "Records of each class",
        "The largest class is on the left.",
        bars,
        ends,
        _side(most),
    )


def sizes(
    connection: "duckdb.DuckDBPyConnection", found: Mapping[str, Mapping[str, float]]
) -> list[Chart]:
    """Returns the charts of widths, heights, aspect ratios and bytes.

    Args:
        connection: The connection of a question with at least one chosen record.
        found: The sizes that `counts.count` returned.
    """
    return [
        _map(connection, found),
        _linear(connection, "width", "Width in pixels", found["width"]),
        _linear(connection, "height", "Height in pixels", found["height"]),
        _aspects(connection, found["aspect_ratio"]),
        _linear(connection, "num_bytes", "Bytes of a record", found["num_bytes"]),
    ]


def _linear(
    connection: "duckdb.DuckDBPyConnection",
    column: str,
    title: str,
    values: Mapping[str, float],
) -> Chart:
    """Returns a histogram from 0 to nearly the largest value."""
    text = shown if column == "num_bytes" else _whole
    most = _end(values)
    step = _nice(most / _NUM_BINS)
    top = math.ceil((most + 1) / step)
    rows = connection.execute(
        f"SELECT least({column} // {step}, {top}) AS bin, count(*) FROM chosen "
        "GROUP BY bin"
    ).fetchall()
    numbers = {int(place): count for place, count in rows}
    labels = [f"{text(n * step)} to {text((n + 1) * step)}" for n in range(top)]
    labels.append(f"{text(top * step)} and more")
    count = top + (top in numbers)
    ticks = _ticks(top * step, WIDTH / (count * step), text)
    sentence = (
        f"Median {text(values['median'])}; 90 % from {text(values['p5'])} to "
        f"{text(values['p95'])}; all from {text(values['min'])} to "
        f"{text(values['max'])}."
    )
    bars = _bars([numbers.get(n, 0) for n in range(count)], labels)
    most_records = max(numbers.values())
    return Chart(column, title, sentence, bars, ticks, _side(most_records))


def _aspects(
    connection: "duckdb.DuckDBPyConnection", values: Mapping[str, float]
) -> Chart:
    """Returns the histogram of width by height, on a scale of powers of 2."""
    half = _NUM_BINS // 2
    ratio = "log2(greatest(width, 1) / greatest(height, 1))"
    rows = connection.execute(
        f"SELECT least(greatest(floor({ratio} * {half / _ASPECT}), {-half}), "
        f"{half - 1}) AS bin, count(*) FROM chosen GROUP BY bin"
    ).fetchall()
    numbers = {int(place) + half: count for place, count in rows}
    edges = [2 ** ((n - half) * _ASPECT / half) for n in range(2 * half + 1)]
    labels = [
        f"width by height {low:.2f} to {high:.2f}"
        for low, high in itertools.pairwise(edges)
    ]
    labels[0], labels[-1] = f"less than {edges[1]:.2f}", f"{edges[-2]:.2f} and more"
    ticks = [
        Tick(WIDTH * (place + 2) / 4, text)
        for place, text in enumerate(("1:4", "1:2", "1:1", "2:1", "4:1"), -2)
    ]
    sentence = (
        f"Median {values['median']:.2f}; 90 % from {values['p5']:.2f} to "
        f"{values['p95']:.2f}; all from {values['min']:.2f} to {values['max']:.2f}."
    )
    bars = _bars([numbers.get(n, 0) for n in range(2 * half)], labels)
    return Chart(
        "aspect_ratio",
        "Width by height",
        sentence,
        bars,
        ticks,
        _side(max(numbers.values())),
    )


def _map(
    connection: "duckdb.DuckDBPyConnection", found: Mapping[str, Mapping[str, float]]
) -> Chart:
    """Returns a map: width to the right, height upward, its color for the number."""
    most = max(_end(found["width"]), _end(found["height"]))
    step = _nice(most / _NUM_CELLS)
    count = math.ceil((most + 1) / step)
    rows = connection.execute(
        f"SELECT least(width // {step}, {count - 1}) AS x, "
        f"least(height // {step}, {count - 1}) AS y, count(*) FROM chosen GROUP BY x, y"
    ).fetchall()
    cell, largest = _SQUARE / count, max(row[2] for row in rows)
    bars = [
        Bar(
            x * cell,
            _SQUARE - (y + 1) * cell,
            cell,
            cell,
            f"{_range(x, step, count)} wide, {_range(y, step, count)} high: {n:,}",
            round(0.15 + 0.85 * math.log1p(n) / math.log1p(largest), 3),
        )
        for x, y, n in sorted(rows)
    ]
    ticks = _ticks(count * step, cell / step, _whole)
    return Chart(
        "map",
        "Width and height",
        "Width goes to the right, height upward; a full color has most images.",
        bars,
        ticks,
        [Tick(_SQUARE - tick.place, tick.text) for tick in ticks[1:]],
        _SQUARE,
        _SQUARE,
    )


def _range(place: int, step: int, count: int) -> str:
    if place == count - 1:
        return f"{place * step:,} and more"
    return f"{place * step:,} to {(place + 1) * step:,}"


def _bars(numbers: Sequence[int], labels: Sequence[str]) -> list[Bar]:
    """Returns the bars of a histogram, without the empty ones."""
    most, step = max(numbers), WIDTH / len(numbers)
    return [
        Bar(
            place * step,
            HEIGHT * (1 - number / most),
            step,
            HEIGHT * number / most,
            f"{label}: {number:,}",
        )
        for place, (number, label) in enumerate(zip(numbers, labels, strict=False))
        if number
    ]


def _side(most: int) -> list[Tick]:
    """Returns the largest number of records as a tick at the top."""
    return [Tick(0, f"{most:,}"), Tick(HEIGHT, "0")]


def _end(values: Mapping[str, float]) -> int:
    """Returns the end of an axis: few very large values share its last bin."""
    return max(math.ceil(min(values["max"], _FAR * values["p95"])), 1)


def _ticks(end: int, scale: float, text: Callable[[float], str]) -> list[Tick]:
    """Returns marks at round values from 0 to the end of an axis."""
    step = _nice(end / _NUM_TICKS)
    return [Tick(value * scale, text(value)) for value in range(0, end + 1, step)]


def _nice(step: float) -> int:
    """Returns the whole number 1, 2 or 5 times a power of 10 that is not below."""
    if step <= 1:
        return 1
    power = 10 ** math.floor(math.log10(step))
    return int(next(n * power for n in (1, 2, 5, 10) if n * power >= step))


def _whole(value: float) -> str:
    return f"{value:,.0f}"
