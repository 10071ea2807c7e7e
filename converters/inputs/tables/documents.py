"""Reads exports of mongoexport and mongodump: Extended JSON lines, and BSON.

In: files with documents. Out: a cursor over rows, as databases have. The columns are
the names on the top level of all documents, in the order of the documents;
`$binary` is bytes, `$oid` a text, `$numberLong` a whole number, `$date` a time. A
nested document is text in JSON. Memory holds a document.
"""

import contextlib
import gzip
import importlib
import re
from collections.abc import Iterator, Sequence
from typing import IO, Any, cast

from tfpipe.location.parts import open_file

# A value of Extended JSON in the first bytes of a file tells it from plain JSON.
_EXTENDED = re.compile(
    rb'\{\s*"\$(oid|binary|numberLong|numberInt|numberDouble|numberDecimal|date|uuid)"'
)
_HEAD_BYTES = 1 << 16


def is_extended(path: str) -> bool:
    """Whether a file of JSON lines on this host holds Extended JSON."""
    with opened(path) as file:
        return _EXTENDED.search(file.read(_HEAD_BYTES)) is not None


@contextlib.contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Opens a file, packed by gzip or not."""
    with open(open_file(path), "rb") as file:
        is_packed = path.lower().endswith(".gz")
        yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if is_packed else file


class DocumentCursor:
    """The documents of files as rows.

    Attributes:
        description: (name,) of each column, as cursors of databases have it.

    Args:
        files: Files on this host, of one kind.

    Raises:
        ValueError: If pymongo is not installed, or a file is damaged.
    """

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        names: dict[str, None] = {}
        for document in self._documents():
            names.update(dict.fromkeys(document))
        self.description = [(name,) for name in names]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        names = [name for (name,) in self.description]
        for document in self._documents():
            yield tuple(document.get(name) for name in names)

    def _documents(self) -> Iterator[dict[str, Any]]:
        try:
            bson = importlib.import_module("bson")
            json_util = importlib.import_module("bson.json_util")
        except ImportError as error:
            raise ValueError(
                f"{self._files[0]} needs pymongo: pip install 'tfpipe[mongo]'."
            ) from error
        for path in self._files:
            is_bson = path.lower().removesuffix(".gz").endswith(".bson")
            with opened(path) as file:
                if is_bson:
                    with _named(path, "document"):
                        yield from bson.decode_file_iter(file)
                    continue
                for row, line in enumerate(file, 1):
                    # With --jsonArray the lines stand between [ and ].
                    text = line.strip().removeprefix(b"[").rstrip(b",]")
                    if text:
                        with _named(path, f"line {row}"):
                            document = json_util.loads(text)
                            if not isinstance(document, dict):
                                raise ValueError("it is no document")
                        yield document


@contextlib.contextmanager
def _named(path: str, where: str) -> Iterator[None]:
    """Names the file in errors."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # of bson, of json, of values
        said = str(error).splitlines()[0].rstrip(".") if str(error) else "damaged"
        raise ValueError(
            f"{path} must hold documents as mongoexport or mongodump writes them; a "
            f"{where} cannot be read: {said}. Export it again, without --pretty."
        ) from error
