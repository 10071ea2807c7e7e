"""The exceptions of tfpipe, and the checks that refuse wrong arguments.

    Exception
    └── TfpipeError         anything tfpipe itself finds wrong with data or pipeline
        ├── BadIndexError   index.json or catalog.parquet: missing, unreadable, or
        │                   not what the shards on disk are
        └── BadRecordError  a record whose frame, checksum or content is wrong

A wrong argument raises ValueError or TypeError before any work starts. A check gets the
owner of the argument, its name and its value. It returns the value as a plain Python
value, or raises an error such as "TFRecordSource.batch_size must be a whole number >= 1,
got 2.5.". NumPy's numbers are accepted as numbers; True and False are not. The owner is
an object, whose class is named, or a name; "" names none. Imports no TensorFlow.

An error that TensorFlow raises while a pipeline is built keeps its type and gains a note
that names the stage.
"""

import dataclasses
import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

# What fits an int64, in which TensorFlow and NumPy count; a seed is not negative.
LEAST_INT, MOST_INT = -(1 << 63), (1 << 63) - 1
MOST_SEED = (1 << 64) - 1


class TfpipeError(Exception):
    """Anything tfpipe itself finds wrong with the data or the pipeline."""


class BadIndexError(TfpipeError):
    """The index or the catalog is missing, unreadable, or contradicts the shards."""


class BadRecordError(TfpipeError):
    """A record's frame, checksum or content is wrong."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Bounds:
    """The range of a number; None is no bound."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def hold(self, number: float) -> bool:
        """Whether a number is finite and within them."""
        return (
            math.isfinite(number)
            and (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f" from {_plain(self.least)} to {_plain(self.most)}"
        named = {">=": self.least, ">": self.above, "<=": self.most, "<": self.below}
        words = [
            f"{k} {_plain(bound)}" for k, bound in named.items() if bound is not None
        ]
        return f" {' and '.join(words)}" if words else ""


def require_int(
    owner: object,
    name: str,
    value: Any,
    *,
    least: int | None = None,
    most: int | None = None,
    also: Sequence[int | str | None] = (),
) -> Any:
    """A whole number from `least` to `most`, or one of `also`.

    Returns:
        The value, as an `int` if it is a number.

    Raises:
        ValueError: If it is anything else.
    """
    bounds = _Bounds(least=least, most=most)
    if (value is None or isinstance(value, str)) and value in also:
        return value
    if _is_number(value, numbers.Integral):
        number = int(value)
        if number in also or (bounds.hold(number) and _fits(number, most)):
            return number
        if bounds.hold(number):
            bounds = _Bounds(least=LEAST_INT if least is None else least, most=MOST_INT)
    others = "".join(f" or {other!r}" for other in also)
    raise _wrong(owner, name, f"a whole number{bounds}{others}", value)


def require_number(
    owner: object, name: str, value: Any, *, or_none: bool = False, **bounds: float
) -> Any:
    """A finite number; `least`, `most`, `above` and `below` are its bounds.

    Returns:
        The value, as an `int` or a `float` if it is a number.

    Raises:
        ValueError: If it is anything else.
    """
    if value is None and or_none:
        return None
    wanted = _Bounds(**bounds)
    if not _is_number(value, numbers.Real) or not wanted.hold(value):
        others = " or None" if or_none else ""
        raise _wrong(owner, name, f"a finite number{wanted}{others}", value)
    return _as_plain(value)


def require_numbers(
    owner: object,
    name: str,
    values: Any,
    *,
    count: int,
    whole: bool = False,
    **bounds: float,
) -> tuple[Any, ...]:
    """So many finite numbers, in a list, a tuple or an array.

    Raises:
        ValueError: If they are anything else.
    """
    wanted, kind = _Bounds(**bounds), numbers.Integral if whole else numbers.Real
    found = tuple(values) if isinstance(values, list | tuple | np.ndarray) else ()
    sound = all(_is_number(value, kind) and wanted.hold(value) for value in found)
    if len(found) != count or not sound:
        what = "whole" if whole else "finite"
        raise _wrong(owner, name, f"{count} {what} numbers{wanted}", values)
    return tuple(map(_as_plain, found))


def require_bool(owner: object, name: str, value: Any) -> bool:
    """True or False.

    Raises:
        ValueError: If it is anything else: 1 and "no" are not.
    """
    if not isinstance(value, bool | np.bool_):
        raise _wrong(owner, name, "True or False", value)
    return bool(value)


def require_choice(
    owner: object, name: str, value: Any, choices: Sequence[str]
) -> None:
    """One of some words.

    Raises:
        ValueError: If it is anything else.
    """
    if not isinstance(value, str) or value not in choices:
        raise _wrong(owner, name, f"one of {', '.join(choices)}", value)


def require_bools(owner: object, **values: Any) -> None:
    """As `require_bool`, of several by name.

    Raises:
        ValueError: If one is anything else.
    """
    for name, value in values.items():
        require_bool(owner, name, value)


def require_kind(
    owner: object, name: str, value: Any, kind: type, *, or_none: bool = False
) -> None:
    """An object of some kind.

    Raises:
        TypeError: If it is of another kind.
    """
    if not isinstance(value, kind) and not (or_none and value is None):
        others = " or None" if or_none else ""
        wanted = f"of type {kind.__name__}{others}"
        raise TypeError(str(_wrong(owner, name, wanted, value)))


def require_callable(
    owner: object, name: str, value: Any, *, or_none: bool = False
) -> None:
    """Something that can be called.

    Raises:
        TypeError: If it cannot; also if it is the class of an op or of a stage.
    """
    if isinstance(value, type) and dataclasses.is_dataclass(value):
        raise TypeError(
            f"{_named(owner, name)} must be an object, got the class {value.__name__}: "
            f"write {value.__name__}(...)."
        )
    if not callable(value) and not (or_none and value is None):
        raise TypeError(str(_wrong(owner, name, "callable", value)))


def settle_ints(of: object, names: Sequence[str], **bounds: Any) -> None:
    """Checks attributes of a frozen dataclass, and keeps them as `int`.

    A whole number of NumPy then prints, compares and is saved as what it is.

    Raises:
        ValueError: If one is not a whole number in the bounds, see `require_int`.
    """
    for name in names:
        settle(of, name, require_int(of, name, getattr(of, name), **bounds))


def settle_numbers(of: object, names: Sequence[str], **bounds: Any) -> None:
    """As `settle_ints`, of numbers; see `require_number`.

    Raises:
        ValueError: If one is not a finite number in the bounds.
    """
    for name in names:
        settle(of, name, require_number(of, name, getattr(of, name), **bounds))


def settle_range(of: object, name: str, **bounds: Any) -> None:
    """As `settle_ints`, of a pair: a low number and a high one.

    Raises:
        ValueError: If it is not two such numbers, see `require_numbers`, low <= high.
    """
    pair = require_numbers(of, name, getattr(of, name), count=2, **bounds)
    if pair[0] > pair[1]:
        raise _wrong(of, name, "low <= high", pair)
    settle(of, name, pair)


def settle_bools(of: object, *names: str) -> None:
    """As `settle_ints`, of what is True or False.

    Raises:
        ValueError: If one is neither.
    """
    for name in names:
        settle(of, name, require_bool(of, name, getattr(of, name)))


def settle(of: object, name: str, value: Any) -> None:
    """Sets an attribute of a frozen dataclass, while it is made."""
    object.__setattr__(of, name, value)


def _is_number(value: object, kind: type) -> bool:
    # For Python, True is 1.
    return isinstance(value, kind) and not isinstance(value, bool)


def _as_plain(value: Any) -> int | float:
    return int(value) if _is_number(value, numbers.Integral) else float(value)


def _fits(number: int, most: int | None) -> bool:
    """Whether a number fits an int64, if its owner says no more."""
    return number >= LEAST_INT and (most is not None or number <= MOST_INT)


def _wrong(owner: object, name: str, wanted: str, value: object) -> ValueError:
    return ValueError(f"{_named(owner, name)} must be {wanted}, got {value!r}.")


def _named(owner: object, name: str) -> str:
    if isinstance(owner, str):
        return f"{owner}.{name}" if owner else name
    return f"{type(owner).__name__}.{name}"


def _plain(bound: float) -> str:
    """A bound as people know it, such as 2**63 - 1."""
    power = int(bound).bit_length()
    is_known = power > 30 and bound == (1 << power) - 1
    return f"2**{power} - 1" if is_known else str(bound)
