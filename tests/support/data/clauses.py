"""Random WHERE clauses, each with a Python function of a row that gives its value.

The functions know SQL's three values: None stands for NULL, as a value and as a truth.
"""

import functools
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

Row = dict[str, Any]
Truth = bool | None

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "<>": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}


class Value(NamedTuple):
    """An expression of SQL, and what it is for a row."""

    text: str
    of: Callable[[Row], Any]


class Clause(NamedTuple):
    """A condition of SQL, and whether it is true for a row; None if unknown."""

    text: str
    of: Callable[[Row], Truth]


def literal(value: int | float | str | None) -> str:
    """Returns a value as SQL has it."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else repr(value)


def both(left: Truth, right: Truth) -> Truth:
    """Returns AND of two truths."""
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def negated(truth: Truth) -> Truth:
    """Returns NOT of a truth."""
    return None if truth is None else not truth


def either(left: Truth, right: Truth) -> Truth:
    """Returns OR of two truths."""
    return negated(both(negated(left), negated(right)))


def compared(sign: str, left: Any, right: Any) -> Truth:
    """Returns a comparison of two values."""
    return None if left is None or right is None else _COMPARISONS[sign](left, right)


def is_in(value: Any, listed: list[Any]) -> Truth:
    """Returns whether a value is IN a list."""
    return functools.reduce(either, (compared("=", value, one) for one in listed))


def is_like(value: str | None, pattern: str, *, any_case: bool) -> Truth:
    """Returns whether a text is LIKE a pattern."""
    if value is None:
        return None
    parts = {"%": ".*", "_": "."}
    text = "".join(parts.get(each, re.escape(each)) for each in pattern)
    flags = re.DOTALL | (re.IGNORECASE if any_case else re.NOFLAG)
    return re.fullmatch(text, value, flags) is not None


def item(name: str, place: int) -> Value:
    """Returns an item of a list column; lists begin at 1 and end with NULL."""

    def value(row: Row) -> Any:
        listed = row[name] or ()
        return listed[place - 1] if place <= len(listed) else None

    return Value(f"{name}[{place}]", value)


def _column(name: str) -> Value:
    return Value(name, operator.itemgetter(name))


def _length(name: str) -> Value:
    return Value(
        f"len({name})", lambda row: None if row[name] is None else len(row[name])
    )


def _area(name: str) -> Value:
    """Returns the area of a box of xmin, ymin, xmax and ymax."""

    def area(row: Row) -> float | None:
        if row[name] is None:
            return None
        left, top, right, bottom = row[name]
        return float((right - left) * (bottom - top))

    sides = f"({name}[3] - {name}[1]) * ({name}[4] - {name}[2])"
    return Value(sides, area)


class Columns(NamedTuple):
    """Names of the columns that clauses name, by what they hold."""

    numbers: list[str]
    texts: list[str]
    lists: list[str]
    boxes: list[str]


def clauses(columns: Columns, rows: list[Row]) -> st.SearchStrategy[Clause]:
    """Returns a strategy for clauses whose literals are near the values of rows."""
    of_columns = [_column(name) for name in columns.numbers]
    of_lists = [item(name, n) for name in columns.lists + columns.boxes for n in (1, 2)]
    lengths = [_length(name) for name in columns.lists + columns.boxes]
    areas = [_area(name) for name in columns.boxes]
    numbers = st.sampled_from([*of_columns, *of_lists, *lengths, *areas])
    texts = st.sampled_from([_column(name) for name in columns.texts])

    def literals(value: Value) -> st.SearchStrategy[Any]:
        found = sorted({value.of(row) for row in rows} - {None})
        return st.sampled_from([*found * max(1, 12 // len(found)), None])

    terms = st.one_of(
        numbers.flatmap(lambda value: _number_terms(value, literals(value), numbers)),
        texts.flatmap(lambda value: _text_terms(value, literals(value))),
        st.sampled_from(columns.lists).flatmap(_list_terms),
    )
    return st.recursive(terms, _combined, max_leaves=5)


def _combined(inner: st.SearchStrategy[Clause]) -> st.SearchStrategy[Clause]:
    return st.one_of(
        st.builds(
            lambda a, b: Clause(
                f"({a.text} AND {b.text})", lambda row: both(a.of(row), b.of(row))
            ),
            inner,
            inner,
        ),
        st.builds(
            lambda a, b: Clause(
                f"({a.text} OR {b.text})", lambda row: either(a.of(row), b.of(row))
            ),
            inner,
            inner,
        ),
        st.builds(
            lambda a: Clause(f"NOT ({a.text})", lambda row: negated(a.of(row))), inner
        ),
    )


def _common_terms(
    value: Value, literals: st.SearchStrategy[Any]
) -> list[st.SearchStrategy[Clause]]:
    """Returns terms that numbers and texts have."""
    signs = st.sampled_from(sorted(_COMPARISONS))

    def comparison(sign: str, other: Any) -> Clause:
        return Clause(
            f"{value.text} {sign} {literal(other)}",
            lambda row: compared(sign, value.of(row), other),
        )

    def between(one: Any, other: Any) -> Clause:
        is_turned = one is not None and other is not None and other < one
        low, high = (other, one) if is_turned else (one, other)
        return Clause(
            f"{value.text} BETWEEN {literal(low)} AND {literal(high)}",
            lambda row: both(
                compared(">=", value.of(row), low), compared("<=", value.of(row), high)
            ),
        )

    def membership(listed: list[Any]) -> Clause:
        text = ", ".join(map(literal, listed))
        return Clause(
            f"{value.text} IN ({text})", lambda row: is_in(value.of(row), listed)
        )

    return [
        st.builds(comparison, signs, literals),
        st.builds(between, literals, literals),
        st.builds(membership, st.lists(literals, min_size=1, max_size=3)),
        st.sampled_from(
            [
                Clause(f"{value.text} IS NULL", lambda row: value.of(row) is None),
                Clause(f"{value.text} IS NOT NULL", lambda r: value.of(r) is not None),
            ]
        ),
    ]


def _number_terms(
    value: Value, literals: st.SearchStrategy[Any], others: st.SearchStrategy[Value]
) -> st.SearchStrategy[Clause]:
    def comparison(sign: str, other: Value) -> Clause:
        return Clause(
            f"{value.text} {sign} {other.text}",
            lambda row: compared(sign, value.of(row), other.of(row)),
        )

    signs = st.sampled_from(sorted(_COMPARISONS))
    two = st.builds(comparison, signs, others)
    return st.one_of(*_common_terms(value, literals), two)


def _text_terms(
    value: Value, literals: st.SearchStrategy[Any]
) -> st.SearchStrategy[Clause]:
    def pattern(text: str, start: int, stop: int, rest: str) -> str:
        return f"{'%' if start else ''}{text[start : start + stop]}{rest}"

    def like(pattern: str, any_case: bool) -> Clause:
        word = "ILIKE" if any_case else "LIKE"
        return Clause(
            f"{value.text} {word} {literal(pattern)}",
            lambda row: is_like(value.of(row), pattern, any_case=any_case),
        )

    patterns = st.builds(
        pattern,
        literals.filter(lambda text: text is not None),
        st.integers(0, 3),
        st.integers(1, 4),
        st.sampled_from(["%", "_%", "", "%_", "%.jpg"]),
    )
    likes = st.builds(like, patterns, st.booleans())
    return st.one_of(*_common_terms(value, literals), likes)


def _list_terms(name: str) -> st.SearchStrategy[Clause]:
    def contains(number: int) -> Clause:
        return Clause(
            f"list_contains({name}, {number})",
            lambda row: None if row[name] is None else number in row[name],
        )

    return st.integers(0, 5).map(contains)
