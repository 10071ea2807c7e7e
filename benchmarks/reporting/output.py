"""Output of results, the same for every command: a file, and the last line of stdout.

In: the JSON object of a result. Out: the object as a line, and indented in a file. The
text is strict JSON: NaN and infinity, unknown to RFC 8259, become null.
"""

import datetime
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from benchmarks.results import checks
from tfpipe.cli import output as cli_output

# Names of what the process has open, with its number.
_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
_STREAMS |= {f"/dev/fd/{descriptor}": descriptor for descriptor in range(100)}


def now() -> datetime.datetime:
    """Returns the time in UTC."""
    return datetime.datetime.now(datetime.UTC)


def path_in(folder: str, name: str, time: datetime.datetime) -> pathlib.Path:
    """Returns the path of a result in --report_dir: files sort by time."""
    return pathlib.Path(folder, f"{time:%Y%m%d-%H%M%S-%f}-{name}.json")


def write(result: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes a result to a file, which is never half written under its name.

    The file gets the digest of the result. A result that contradicts itself is written
    all the same, with a warning.
    """
    path = pathlib.Path(path)
    document = sealed(result)
    for problem in checks.faults(document):
        print(f"Warning: {path} contradicts itself. {problem}", file=sys.stderr)
    write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", path)


def write_text(text: str, path: pathlib.Path) -> None:
    """Writes a text in UTF-8 to a file, see `write_bytes`."""
    write_bytes(text.encode(), path)


def write_bytes(content: bytes, path: pathlib.Path) -> None:
    """Writes a file, which is never half written under its name.

    A symbolic link stays, and the file behind it is replaced. A pipe or a device gets
    the content. /dev/stdout is what the process has open: the content follows what was
    printed, and what is printed later follows the content. Several processes may write
    the file at once.
    """
    target = os.fspath(path)
    try:
        if target in _STREAMS or (path.exists() and not path.is_file()):
            print(end="", flush=True)
            opened = _STREAMS.get(target, target)
            with open(opened, "wb", closefd=opened == target) as file:
                file.write(content)
        else:
            _replace(path.resolve() if path.is_symlink() else path, content)
    except OSError as error:
        error.filename = target
        del error.filename2  # None would be printed
        raise


def _replace(path: pathlib.Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.urandom(16).hex()}.partial")
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_each(writers: Mapping[pathlib.Path, Callable[[], object]]) -> None:
    """Writes files by their functions, each whole or not at all.

    An error costs only its file; an older file of the name stays.
    The OSError after all functions names each failed file and its error.
    """
    problems = []
    for path, write_one in writers.items():
        try:
            write_one()
        except Exception as error:  # a picture may fail in any way
            problems.append(f"{path} could not be written: {error}.")
    if problems:
        raise OSError(f"{' '.join(problems)} The result is complete on stdout.")


def show(
    result: Mapping[str, Any],
    *answer: str,
    notes: Iterable[str] = (),
    details: Iterable[str] = (),
) -> None:
    """Prints a result, as `tfpipe.cli.output.show` does, with strict JSON."""
    cli_output.show(sealed(result), answer, notes=notes, details=details)


def sealed(result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a result as strict JSON with a digest, which a change breaks.

    None stands for infinite numbers and for NaN. A result with such numbers gets the
    key `not_finite`, a list of the paths: keys joined by dots, without the indices of
    lists.
    """
    names: dict[str, None] = {}
    document: dict[str, Any] = _strict(result, "", names)
    if names:
        document["not_finite"] = list(names)
    if str(document.get("command")) in checks.VERSIONS:
        document[checks.DIGEST] = checks.digest(document)
    return document


def _strict(value: Any, name: str, names: dict[str, None]) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _strict(item, f"{name}.{key}".lstrip("."), names)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_strict(item, name, names) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        names[name] = None
        return None
    return value
