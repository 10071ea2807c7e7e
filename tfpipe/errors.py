"""The exceptions of tfpipe, the checks of arguments, and a word for messages.

    Exception
    └── TfpipeError         a fault of the data or the pipeline
        ├── BadIndexError   index.json or catalog.parquet is missing, unreadable, or
        │                   contradicts the shards
        ├── BadSubsetError  a subset is unreadable, or belongs to other data
        ├── BadRecordError  a record whose frame, checksum or content is wrong
        └── RemoteError     a request for a file by its URL failed
            └── MissingFileError

A wrong argument raises ValueError or TypeError before any work starts. A check gets the
owner of the argument, its name and its value. The check returns the value as a plain
Python value, or raises an error such as "TFRecordSource.batch_size must be a whole
number >= 1, got 2.5.". NumPy's numbers are accepted as numbers; True and False are not.
The owner is an object, whose class is named in the error, or a name; "" names no owner.
Every check raises ValueError for anything else than its first sentence says;
`require_kind`, `require_callable` and `require_op` raise TypeError. Imports neither
TensorFlow nor NumPy.

An error of TensorFlow while a pipeline is built keeps its type and gets a note with the
name of the stage.
"""

import contextlib
import dataclasses
import functools
import io
import math
import numbers
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

# TensorFlow and NumPy count in int64. A seed is not negative, and has 64 bits.
LEAST_INT, MOST_INT = -(1 << 63), (1 << 63) - 1
MOST_SEED = (1 << 64) - 1

# Errors of the system for a file that is not there.
LOST = (FileNotFoundError, NotADirectoryError)
# What helps if this process has too many open files (EMFILE).
OPEN_FILES = "Raise the limit of open files: ulimit -n."

# Least likeness of two words, from 0 to 1, for a proposal. --output_dir is like
# --report_dir by 0.6, and is no misspelling of it.
_LIKENESS = 0.65

# A scheme of two letters or more; pathlib makes one slash of the two after it.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")

# Credentials in a URL: a user with a password, and a signed query.
_SECRETS = re.compile(r"(?<=:/)(/?)[^@/]*:[^@]*@|[?#].*", re.DOTALL)


class TfpipeError(Exception):
    """The data or the pipeline has a fault; all other errors here are kinds of it.

    Example:
        >>> try:
        ...     tfpipe.TFRecordSource("no/such/folder", "train")
        ... except tfpipe.errors.TfpipeError as error:
        ...     print(error)
        No data set in no/such/folder: index.json is missing. There is no such ...
    """


class BadIndexError(TfpipeError):
    """The index or the catalog is missing, unreadable, or contradicts the shards.

    Example:
        >>> try:
        ...     tfpipe.TFRecordSource("DIR", "test")
        ... except tfpipe.errors.BadIndexError as error:
        ...     print(error)
        Unknown split 'test' in DIR: choose one of train, validation.
    """


class BadSubsetError(TfpipeError):
    """A subset is missing or unreadable, or belongs to another data set.

    Example:
        >>> try:
        ...     tfpipe.TFRecordSource("DIR", "train", subset="cats.parquet")
        ... except tfpipe.errors.BadSubsetError as error:
        ...     print(error)
        Subset cats.parquet cannot be read: it does not exist.
    """


class BadRecordError(TfpipeError):
    """A record's frame, checksum or content is wrong.

    Example:
        >>> from tfpipe.shards.example import decode_example
        >>> try:
        ...     decode_example(b"no record")
        ... except tfpipe.errors.BadRecordError as error:
        ...     print(error)
        The data is not a tf.train.Example: ...
    """


class RemoteError(TfpipeError):
    """A request to a store, such as s3://bucket, failed or took too long.

    Example:
        >>> try:
        ...     tfpipe.Files("DIR").read("lost.json")
        ... except tfpipe.errors.RemoteError as error:
        ...     print(error)
        Reading DIR/lost.json failed: No such file or directory. Check its name ...
    """


class MissingFileError(RemoteError):
    """A file does not exist, or neither does its folder or bucket.

    Example:
        >>> try:
        ...     tfpipe.Files("DIR").size("lost.json")
        ... except tfpipe.errors.MissingFileError:
        ...     print("missing")
        missing
    """


class RefusedError(RemoteError):
    """The store refuses the request: the same request will fail again.

    Example:
        >>> try:
        ...     tfpipe.Files("http://localhost/images").names()
        ... except tfpipe.errors.RefusedError as error:
        ...     print(error)
        http://localhost/images is a web server, which cannot list its files. Use ...
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Bounds:
    """The range of a number; None is no bound."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def hold(self, value: float) -> bool:
        """Checks whether a number is finite and within the bounds."""
        return (
            abs(value) < math.inf  # also of a whole number that is no float
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f" from {_plain(self.least)} to {_plain(self.most)}"
        named = {">=": self.least, ">": self.above, "<=": self.most, "<": self.below}
        words = [
            f"{k} {_plain(bound)}" for k, bound in named.items() if bound is not None
        ]
        return f" {' and '.join(words)}" if words else ""


def from_json(text: str | bytes) -> Any:
    """Returns the value of a text in JSON that others may have written.

    Python's own function has another error for brackets that are nested too deeply.

    Raises:
        json.JSONDecodeError: If the text is not JSON; a ValueError.
        UnicodeDecodeError: If the bytes are no text; a ValueError.
    """
    import json  # the menu of commands needs none

    try:
        return json.loads(text)
    except RecursionError:
        fault = "Brackets must be nested less deeply"
        raise json.JSONDecodeError(fault, "", 0) from None


def require_int(
    owner: object,
    name: str,
    value: Any,
    *,
    least: int | None = None,
    most: int | None = None,
    also: Sequence[int | str | None] = (),
) -> Any:
    """Requires a whole number from `least` to `most`, or one of `also`.

    Returns:
        The value, as an `int` if it is a number.
    """
    bounds = _Bounds(least=least, most=most)
    if (value is None or isinstance(value, str)) and value in also:
        return value
    if _is_number(value, numbers.Integral):
        whole = int(value)
        fits_int64 = whole >= LEAST_INT and (most is not None or whole <= MOST_INT)
        if whole in also or (bounds.hold(whole) and fits_int64):
            return whole
        if bounds.hold(whole):
            bounds = _Bounds(least=LEAST_INT if least is None else least, most=MOST_INT)
    others = "".join(f" or {other!r}" for other in also)
    raise _wrong(owner, name, f"a whole number{bounds}{others}", value)


def require_number(
    owner: object, name: str, value: Any, *, or_none: bool = False, **bounds: float
) -> Any:
    """Requires a finite number, within the bounds if there are any.

    Args:
        owner, name, value: See the module.
        or_none: Whether None is allowed too.
        bounds: `least`, `most`, `above` (exclusive) and `below` (exclusive).

    Returns:
        The value, as an `int` or a `float` if it is a number.
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
    """Requires a list, a tuple or an array of `count` finite numbers.

    Returns:
        The numbers, each as an `int` or a `float`.
    """
    wanted, kind = _Bounds(**bounds), numbers.Integral if whole else numbers.Real
    items = tuple(values) if _is_list(values) else ()
    sound = all(_is_number(value, kind) and wanted.hold(value) for value in items)
    if len(items) != count or not sound:
        what = "whole" if whole else "finite"
        raise _wrong(owner, name, f"{count} {what} numbers{wanted}", values)
    return tuple(map(_as_plain, items))


def require_sides(
    owner: object, name: str, value: Any, **bounds: Any
) -> tuple[int, int]:
    """Checks an image size: a whole number >= 1, or two numbers, (height, width).

    Args:
        owner, name, value: See the module; the value is in pixels.
        bounds: `most`, the largest side.

    Returns:
        Height and width in pixels.
    """
    bounds = {"least": 1} | bounds
    if not _is_list(value):
        value = [require_int(owner, name, value, **bounds)] * 2
    height, width = require_numbers(owner, name, value, count=2, whole=True, **bounds)
    return height, width


def require_bool(owner: object, name: str, value: Any) -> bool:
    """Requires True or False, and neither 1 nor "no"."""
    if not isinstance(value, (bool, *_of_numpy("bool_"))):
        raise _wrong(owner, name, "True or False", value)
    return bool(value)


def require_choice(
    owner: object, name: str, value: Any, choices: Sequence[str]
) -> None:
    """Requires a word among some words."""
    if not isinstance(value, str) or value not in choices:
        wrong = _wrong(owner, name, f"one of {', '.join(choices)}", value)
        raise ValueError(f"{wrong}{did_you_mean(str(value), choices)}")


def require_kind(
    owner: object, name: str, value: Any, kind: type, *, or_none: bool = False
) -> None:
    """Requires an object of some type."""
    if not isinstance(value, kind) and not (or_none and value is None):
        others = " or None" if or_none else ""
        wanted = f"of type {kind.__name__}{others}"
        raise TypeError(str(_wrong(owner, name, wanted, value)))


def require_callable(
    owner: object, name: str, value: Any, *, or_none: bool = False
) -> None:
    """Requires a callable, and no class of an op or a stage."""
    if isinstance(value, type) and dataclasses.is_dataclass(value):
        raise TypeError(
            f"{named(owner, name)} must be an object, got the class {value.__name__}: "
            f"write {value.__name__}(...)."
        )
    if not callable(value) and not (or_none and value is None):
        raise TypeError(str(_wrong(owner, name, "callable", value)))


def require_op(owner: object, name: str, value: Any) -> None:
    """Requires a callable, as `require_callable` does, and no layer of Keras."""
    require_callable(owner, name, value)
    bases = type(value).__mro__
    if any(t.__name__ == "Layer" and t.__module__.startswith("keras.") for t in bases):
        raise TypeError(
            f"{named(owner, name)} must be an op, which takes a dict of features, got "
            f"{type(value).__name__} of Keras, which takes images. Begin the model "
            "with this layer, or use an op of tfpipe: Flip, ColorJitter, RandAugment, "
            "RandomErasing, Normalize, Cast."
        )


def require_local_path(owner: object, name: str, value: Any) -> None:
    """Checks that a path is not a URL: the system would take a URL for a folder.

    Args:
        owner, name: See the module.
        value: A path, or a list or tuple of paths. Values of other types pass.

    Raises:
        ValueError: If a path is a URL, such as s3://bucket/photos or file:///photos.
    """
    for item in value if isinstance(value, list | tuple) else [value]:
        text = os.fspath(item) if isinstance(item, str | os.PathLike) else ""
        scheme = _URL.match(text) if isinstance(text, str) else None
        if scheme is None:
            continue
        path = "/" + text[scheme.end() :].lstrip("/")
        remedy = (
            f"Write the path: {path}."
            if scheme[1].lower() == "file"
            else "A URL cannot be given here. Mount that place as a folder, or copy "
            "its files to this machine, and give the path."
        )
        shown = _SECRETS.sub(r"\1", text)
        raise ValueError(
            f"{named(owner, name)} must be a path on this machine, got {shown}. "
            f"{remedy}"
        )


def require_visible(path: str | os.PathLike[str]) -> None:
    """Checks that a folder may be searched, before an error says that a path is absent.

    `os.path.exists` is False for a path that may not be looked at.

    Raises:
        OSError: If the system does not say whether the path exists.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.lstat(path)


def is_of_host(error: BaseException) -> bool:
    """Whether the host cannot read a file, which says nothing about its content."""
    cause = error.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, LOST)


def name_file(error: OSError) -> None:
    """Gives an error the name of the file that the failing function worked on.

    The system names no file in errors of open files: reading, writing, fsync(2). The
    name is found by the variables of the functions: a path, or an open file.
    """
    import traceback  # the menu of commands needs none

    if error.errno is None or error.filename is not None:
        return
    for frame, _ in reversed([*traceback.walk_tb(error.__traceback__)]):
        for name in ("self", "path", "part", "file"):
            value = frame.f_locals.get(name)
            if isinstance(value, io.IOBase):
                value = getattr(value, "name", None)
            if isinstance(value, os.PathLike | str):
                error.filename = os.fspath(value)
                return


def masked(text: str, words: Iterable[str]) -> str:
    """Returns a text without the credentials of URLs among the words it may repeat."""
    for word in (word for word in words if "://" in word):
        for secret in _SECRETS.finditer(word):
            text = text.replace(secret[0], f"{secret[1] or ''}...")
    return text


def _settle_each(
    require: Callable[..., Any], owner: object, names: Sequence[str], **bounds: Any
) -> None:
    """Checks attributes of a frozen dataclass and stores them as plain values.

    A whole number of NumPy then prints, compares and is saved as an `int` does.

    Raises:
        ValueError: If a value is wrong, see `require_int` or `require_number`.
    """
    for name in names:
        settle(owner, name, require(owner, name, getattr(owner, name), **bounds))


settle_ints = functools.partial(_settle_each, require_int)
settle_numbers = functools.partial(_settle_each, require_number)


def settle_bools(owner: object, *names: str) -> None:
    """Checks attributes of a frozen dataclass and stores True or False, likewise."""
    _settle_each(require_bool, owner, names)


def settle_sides(owner: object, name: str, **bounds: Any) -> None:
    """Checks an image size of a frozen dataclass; equal sides are stored as a number.

    Raises:
        ValueError: If the value is no image size, see `require_sides`.
    """
    height, width = require_sides(owner, name, getattr(owner, name), **bounds)
    settle(owner, name, height if height == width else (height, width))


def settle_range(owner: object, name: str, **bounds: Any) -> None:
    """Checks a range, (low, high), of a frozen dataclass and stores it as a tuple.

    Raises:
        ValueError: If the value is not two numbers in the bounds, see
            `require_numbers`, or low > high.
    """
    pair = require_numbers(owner, name, getattr(owner, name), count=2, **bounds)
    if pair[0] > pair[1]:
        raise _wrong(owner, name, "low <= high", pair)
    settle(owner, name, pair)


def settle(owner: object, name: str, value: Any) -> None:
    """Sets an attribute of a frozen dataclass, in its `__post_init__`."""
    object.__setattr__(owner, name, value)


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple, *_of_numpy("ndarray")))


def _of_numpy(name: str) -> tuple[type, ...]:
    """Returns a type of NumPy; none before NumPy is imported, which takes 0.1 s."""
    numpy = sys.modules.get("numpy")
    return (getattr(numpy, name),) if hasattr(numpy, name) else ()


def _is_number(value: object, kind: type) -> bool:
    # In Python True is an instance of int.
    return isinstance(value, kind) and not isinstance(value, bool)


def _as_plain(value: Any) -> int | float:
    return int(value) if _is_number(value, numbers.Integral) else float(value)


def _wrong(owner: object, name: str, wanted: str, value: object) -> ValueError:
    return ValueError(f"{named(owner, name)} must be {wanted}, got {value!r}.")


def named(owner: object, name: str) -> str:
    """Returns an argument with its owner, as the module says."""
    if isinstance(owner, str):
        return f"{owner}.{name}" if owner else name
    return f"{type(owner).__name__}.{name}"


@functools.cache
def say_once(text: str) -> None:
    """Prints a line on stderr, once in a process."""
    print(text, file=sys.stderr)


def printable(text: str) -> str:
    r"""Returns a text on one line: unprintable characters become escapes such as \n."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def count_of(count: int, noun: str) -> str:
    """Returns a number with its noun, such as "1 class" or "2,000 records"."""
    if count != 1:
        ending = "es" if noun.endswith(("s", "x")) else "s"
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}{ending}"
    return f"{count:,} {noun}"


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Returns the word that a misspelled word most likely stands for, or None.

    Example:
        >>> nearest("Trian", ["train", "test"]), nearest("val", ["train", "validation"])
        ('train', 'validation')
    """
    import difflib  # slow to import

    lower, by_lower = word.lower(), {each.lower(): each for each in words}
    longer = [each for each in by_lower if lower[1:] and each.startswith(lower)]
    near = longer or difflib.get_close_matches(lower, by_lower, n=1, cutoff=_LIKENESS)
    return by_lower[min(near, key=len)] if near else None


def did_you_mean(word: str, words: Iterable[str], *, prefix: str = "") -> str:
    """Returns " Did you mean WORD?" with the nearest word, or "" if none is near.

    Args:
        word: The misspelled word.
        words: The right words.
        prefix: Characters before the nearest word, such as --.
    """
    near = nearest(word, words)
    return "" if near is None else f" Did you mean {prefix}{near}?"


def _plain(bound: float) -> str:
    """Returns a bound as people write it, such as 2**63 - 1."""
    power = int(bound).bit_length()
    is_known = power > 30 and bound == (1 << power) - 1
    return f"2**{power} - 1" if is_known else str(bound)
