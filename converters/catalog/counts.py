"""Counts the chosen records: by split and class, and the spread of their sizes.

In: the connection of a question. Out: JSON values, and lines of text for people.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from converters.exports.sizing import shown
from tfpipe.errors import count_of, printable

if TYPE_CHECKING:
    import duckdb

_QUANTILES = {"min": 0.0, "p5": 0.05, "median": 0.5, "p95": 0.95, "max": 1.0}

NUM_CLASSES_SHOWN = 10
_BAR_WIDTH = 24
_NAME_WIDTH = 34


def count(connection: "duckdb.DuckDBPyConnection") -> dict[str, Any]:
    """Counts the chosen records of a question.

    Returns:
        num_records: Number of records of the data set.
        num_chosen: Number of chosen ones.
        share: Their share, 0 to 1.
        num_bytes: Bytes of the chosen records.
        splits: Number of chosen records of every split, without those that have none.
        num_classes: Number of classes with a chosen record.
        largest_classes: label, class, text and num_records of the largest classes, the
            largest first.
        smallest_class: The same of the smallest one; None without records.
        sizes: min, p5, median, p95, max and mean of width and height in pixels, aspect
            ratio (width by height) and bytes of the record; empty without records.
        weight: sum, min and max of the weights, if there are weights.
    """
    (num_records,) = _row(connection, "SELECT count(*) FROM file")
    num_chosen, num_bytes = _row(
        connection, "SELECT count(*), coalesce(sum(num_bytes), 0) FROM chosen"
    )
    splits = connection.execute(
        "SELECT split, count(*) FROM chosen GROUP BY split ORDER BY split"
    ).fetchall()
    classes = count_classes(connection)
    found = {
        "num_records": num_records,
        "num_chosen": num_chosen,
        "share": num_chosen / num_records if num_records else 0.0,
        "num_bytes": int(num_bytes),
        "splits": dict(splits),
        "num_classes": len(classes),
        "largest_classes": classes[:NUM_CLASSES_SHOWN],
        "smallest_class": classes[-1] if classes else None,
        "sizes": _sizes(connection),
    }
    if "weight" in connection.table("chosen").columns:
        names = ("sum", "min", "max")
        row = _row(
            connection, "SELECT sum(weight), min(weight), max(weight) FROM chosen"
        )
        found["weight"] = dict(zip(names, row, strict=True))
    return found


def count_classes(connection: "duckdb.DuckDBPyConnection") -> list[dict[str, Any]]:
    """Counts the chosen records of every class that has any, the largest class first.

    Returns:
        label, class, text and num_records of each. A label that the index does not
        name has None for its class and text.
    """
    rows = connection.execute(
        "SELECT label, class, text, n FROM (SELECT label, count(*) AS n FROM chosen "
        "GROUP BY label) LEFT JOIN classes ON label = number ORDER BY n DESC, label"
    ).fetchall()
    keys = ("label", "class", "text", "num_records")
    return [dict(zip(keys, row, strict=True)) for row in rows]


def class_name(item: Mapping[str, Any]) -> str:
    """Returns the name of a class for people."""
    return str(item["text"] or item["class"] or f"label {item['label']}")


def lines(found: Mapping[str, Any]) -> list[str]:
    """Returns the counts as a table for people."""
    chosen, total = found["num_chosen"], found["num_records"]
    text = [
        f"{chosen:,} of {total:,} records ({found['share']:.2%}), "
        f"{shown(found['num_bytes'])}"
    ]
    text += [
        f"  {split:<12} {number:>11,}" for split, number in found["splits"].items()
    ]
    if not chosen:
        return text
    text += _class_lines(found)
    text.append(
        f"  {'':<12} {'min':>9} {'5 %':>9} {'median':>9} {'95 %':>9} {'max':>9}"
    )
    for name, values in found["sizes"].items():
        digits = 2 if name == "aspect_ratio" else 0
        cells = [f"{values[q]:>9,.{digits}f}" for q in _QUANTILES]
        text.append(f"  {name.replace('_', ' '):<12} {' '.join(cells)}")
    if weight := found.get("weight"):
        text.append(
            f"  weight: {weight['min']:g} to {weight['max']:g}, sum {weight['sum']:g}"
        )
    return text


def _class_lines(found: Mapping[str, Any]) -> Sequence[str]:
    """Returns the largest classes with bars, and the smallest class."""
    largest, number = found["largest_classes"], found["num_classes"]
    text = [f"{count_of(number, 'class')}, the largest first:"]
    most = largest[0]["num_records"]
    for item in largest:
        bar = "#" * max(round(_BAR_WIDTH * item["num_records"] / most), 1)
        name = fit(class_name(item))
        text.append(f"  {name:<{_NAME_WIDTH}} {item['num_records']:>9,} {bar}")
    if (more := number - len(largest)) > 0:
        small = found["smallest_class"]
        text.append(
            f"  and {more:,} more, the smallest is {fit(class_name(small)).strip()} "
            f"with {small['num_records']:,}"
        )
    return text


def fit(name: str) -> str:
    """Returns a name on one line, cut if it is long."""
    line = printable(name)
    return line if len(line) <= _NAME_WIDTH else f"{line[: _NAME_WIDTH - 3]}..."


def _sizes(connection: "duckdb.DuckDBPyConnection") -> dict[str, dict[str, float]]:
    """Returns the spread of the sizes. NumPy needs a quarter of the time of DuckDB."""
    import numpy as np

    rows = connection.execute(
        "SELECT width, height, num_bytes FROM chosen WHERE width > 0 AND height > 0"
    ).fetchnumpy()
    width, height = (np.asarray(rows[name]) for name in ("width", "height"))
    columns = {
        "width": width,
        "height": height,
        "aspect_ratio": width / height,
        "num_bytes": np.asarray(rows["num_bytes"]),
    }
    if not len(width):  # an old catalog of another tool may know no sizes
        return {}
    steps = list(_QUANTILES.values())
    return {
        name: {
            **dict(
                zip(
                    _QUANTILES,
                    np.quantile(values, steps, method="inverted_cdf").tolist(),
                    strict=True,
                )
            ),
            "mean": round(float(values.mean()), 4),
        }
        for name, values in columns.items()
    }


def _row(connection: "duckdb.DuckDBPyConnection", query: str) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    assert row is not None, "a total has a row"
    return row
