"""A remedy for a folder without a data set, or without an input.

In: the path. Out: a sentence for the error: the content of the folder, and the command
to make a data set of the content. Only names are looked at, in a limited number of
folders: a large data set may have many.
"""

import collections
import contextlib
import itertools
import os
import pathlib
import re
import shlex
from collections.abc import Mapping

from tfpipe.shards import split_names

_MOST_NAMES, _MOST_FOLDERS, _MOST_LEVELS = 1000, 50, 4
_NUM_SHOWN = 5

_INDEX = "index.json"
# The folder of a conversion that has not ended, see `converters.jobs.work_dir`.
_UNFINISHED = ".converting"
_SHARD = re.compile(r".*-\d{5}-of-\d{5}(\.tfrecord)?")
_SYNSET = re.compile(r"n\d{8}")

# Kinds, the first one decides where several are there.
_KINDS = ("shards", "records", "tars", "table", "classes", "photos")

# Kinds of files, by the ends of their names.
_ENDS: Mapping[str, tuple[str, ...]] = {
    "records": (".tfrecord", ".tfrecords", ".tfrec"),
    "tars": (".tar", ".tar.gz", ".tgz"),
    "table": (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson", ".sqlite", ".db"),
    "photos": (
        *(".jpg", ".jpeg", ".jfif", ".png", ".webp", ".heic", ".heif", ".avif"),
        *(".gif", ".bmp", ".tif", ".tiff"),
    ),
}


def remedy(folder: pathlib.Path) -> str:
    """Returns the remedy for a folder without index.json.

    | content | remedy |
    |---|---|
    | no folder, or an empty folder | convert into the folder |
    | an unfinished conversion | run its command again |
    | a data set one level up or down | name its folder |
    | shards without an index | `converters.verify --write_index` |
    | TFRecords of another tool | `TFRecordSource(files=...)`, `converters.tfrecord` |
    | tars, a table, photos | the converter of the kind, with its input |
    """
    if folder.is_file():
        kind = _kind(folder.name)
        if kind == "index":
            return f"It is a file: give its folder, {folder.parent}."
        return _converted(folder.parent, folder, kind) if kind else _create(folder)
    if not folder.is_dir():
        return f"There is no such folder. {_create(folder)}"
    files, names = _look(folder)
    if _UNFINISHED in names:
        return (
            "A conversion into this folder has not ended, or a task of it failed: run "
            "its command again, which does what is left."
        )
    if (index := files.get("index")) is not None:
        return f"There is one in {index.parent}: give that folder."
    if (folder.absolute().parent / _INDEX).is_file():
        return f"There is one in {folder.parent}: give that folder."
    if kind := _first_kind(files):
        return _converted(folder, files[kind], kind)
    if not names:
        return f"The folder is empty. {_create(folder)}"
    return f"It holds {', '.join(names[:_NUM_SHOWN])}. {_create(folder)}"


def other_converter(location: str, asked: str) -> str:
    """Returns the command for an input with nothing of the kind of a converter.

    Args:
        location: The input, a path or a URL.
        asked: Module of the converter.

    Returns:
        A sentence after a blank; "" for a URL, and without a remedy.

    Example:
        >>> other_converter("photos.csv", "converters.folder")
        ' For a table: use python -m converters.table photos.csv DIR ...'
    """
    path = pathlib.Path(location)
    if "://" in location or not path.exists():
        return ""
    files: Mapping[str, pathlib.Path] = {str(_kind(path.name)): path}
    if path.is_dir():
        files, _ = _look(path)
    if "index" in files:
        return " It is a data set already, and needs no conversion."
    if (kind := _first_kind(files)) is None:
        return ""
    file = files[kind]
    kind = "records" if kind == "shards" else kind
    what, command = _input_of(path, file, kind, output="DIR")
    has_folder = asked in ("converters.folder", "converters.imagenet")
    same = f"{asked} {shlex.quote(os.fspath(path))} DIR" if has_folder else f"{asked} "
    if command.startswith(same):
        return ""
    where = f"It holds {what} such as {file.name}" if path.is_dir() else f"For {what}"
    return f" {where}: use python -m {command}."


def _first_kind(files: Mapping[str, pathlib.Path]) -> str | None:
    return next((kind for kind in _KINDS if kind in files), None)


def _look(folder: pathlib.Path) -> tuple[dict[str, pathlib.Path], tuple[str, ...]]:
    """Returns the first file of every kind in and below a folder, and the names in it.

    The upper levels come first.
    """
    files: dict[str, pathlib.Path] = {}
    top: tuple[str, ...] = ()
    left = collections.deque([(folder, 1)])
    for _ in range(_MOST_FOLDERS):
        if not left:
            break
        place, level = left.popleft()
        names = _names(place)
        top = top or tuple(names)
        for name, is_folder in names.items():
            is_class = is_folder and _SYNSET.fullmatch(name)
            kind = None if is_folder else _kind(name)
            if is_class or kind:
                files.setdefault(kind or "classes", place / name)
            if is_folder and level < _MOST_LEVELS and not name.startswith("."):
                left.append((place / name, level + 1))
    return files, top


def _names(folder: pathlib.Path) -> dict[str, bool]:
    """Returns the first names in a folder, sorted, and the folders among the names."""
    names = {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in itertools.islice(entries, _MOST_NAMES):
            names[entry.name] = False
            with contextlib.suppress(OSError):  # a link that cannot be followed
                names[entry.name] = entry.is_dir()
    return dict(sorted(names.items()))


def _kind(name: str) -> str | None:
    if name == _INDEX:
        return "index"
    if _SHARD.fullmatch(name):
        return "shards"
    ends = _ENDS.items()
    return next((k for k, end in ends if name.lower().endswith(end)), None)


def _create(folder: pathlib.Path) -> str:
    path = shlex.quote(os.fspath(folder))
    return f"Create one with python -m converters.folder PHOTOS {path}."


def _converted(folder: pathlib.Path, file: pathlib.Path, kind: str) -> str:
    """Returns the way to a data set from files of a kind; `file` is the first file."""
    what, command = _input_of(folder, file, kind, output="NEW")
    if kind == "shards":
        return f"Its shards have no index: python -m {command} writes one."
    if kind == "records":
        depth = len(file.relative_to(folder).parts)
        pattern = ("**/" if depth > 1 else "") + f"*{file.suffix}"
        return (
            f"It holds TFRecords such as {file.name}: tfpipe.TFRecordSource(DIR, "
            f'files="{pattern}") reads them in place; python -m {command} '
            "converts them, labels that are texts too."
        )
    return (
        f"It holds {what} such as {file.name}: make a data set with python -m "
        f"{command}, and give NEW."
    )


def _input_of(
    folder: pathlib.Path, file: pathlib.Path, kind: str, *, output: str
) -> tuple[str, str]:
    """Returns the words for files of a kind, and the command to make `output` of them.

    `file` is the first file of the kind in and below the folder.
    """
    path = shlex.quote(os.fspath(file))
    if kind == "shards":
        where = shlex.quote(os.fspath(file.parent))
        return "shards", f"converters.verify {where} --level=crc --write_index"
    if kind == "records":
        where = shlex.quote(os.fspath(folder))
        return "TFRecords", f"converters.tfrecord {where} {output}"
    if kind == "tars" and not file.name.startswith("ILSVRC2012"):
        is_deep = folder not in (file, file.parent)  # in folders that may be splits
        tars = folder if is_deep else file.parent / f"*{file.suffix}"
        where = shlex.quote(os.fspath(tars))
        return "tars", f"converters.webdataset {where} {output}"
    if kind == "table":
        columns = "--image_column=COLUMN --label_column=COLUMN"
        return "a table", f"converters.table {path} {output} {columns}"
    photo = file / "photo" if kind == "classes" else file
    root = file.parent if kind == "tars" else _root(folder, photo)
    where = shlex.quote(os.fspath(root))
    if kind != "photos" or _SYNSET.fullmatch(file.parent.name):
        return "images of ImageNet", f"converters.imagenet {where} {output}"
    return "photos", f"converters.folder {where} {output}"


def _root(folder: pathlib.Path, photo: pathlib.Path) -> pathlib.Path:
    """Returns the folder above the folders of splits or classes of a photo."""
    root = photo.absolute().parent.parent
    if split_names.split_of_word(root.name):
        root = root.parent
    # As the caller wrote it, if the caller means this folder or a part of it.
    near = (folder, folder.parent, folder.parent.parent)
    return next((path for path in near if path.absolute() == root), root)
