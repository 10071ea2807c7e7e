"""Golden files: what people and scripts see of the commands and of the library.

In: what a command or a call shows now. Out: what the file in tests/house/golden says
that it must show. With REWRITE_GOLDEN=1 in the environment the file is written first.
"""

import json
import os
import pathlib
import re
import shutil
import tarfile
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.data.trees import make_jpeg
from tests.support.faults.damage import flip

ROOT = pathlib.Path(__file__).parents[3]
FOLDER = ROOT / "tests/house/golden"

# In the files these stand for the two folders whose paths differ between machines.
SCENE = "{scene}"
CHECKOUT = "{checkout}"

# The first line of an entry of a file: a command line, or an expression of Python.
COMMAND, MENU, CALL = "$ python -m ", "$ tfpipe ", ">>> "
# What an entry shows that should have failed.
NO_ERROR = "There was no error."

# Path of a value in a JSON object -> the types of this value.
Types = Mapping[str, str]


def stored(name: str, text: str) -> str:
    """Returns the text of a golden file, which is `text` when the files are rewritten.

    Args:
        name: Path of the file below tests/house/golden.
        text: What the file would say now.
    """
    path = FOLDER / name
    if os.environ.get("REWRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return path.read_text()


def transcript(name: str, kind: str, show: Callable[[str], str]) -> tuple[str, str]:
    """Runs all entries of one kind in a golden file again.

    An entry is a line that begins with its kind, and below this line what it shows. A
    line that begins with # is a comment.

    Args:
        name: Path of the file below tests/house/golden.
        kind: COMMAND, MENU or CALL.
        show: Takes the first line of an entry without its kind, and returns what the
            entry shows now.

    Returns:
        What the file says, and what it would say now.
    """
    starts = "|".join(map(re.escape, (COMMAND, MENU, CALL, "# ")))
    pieces = re.split(rf"^(?={starts})", (FOLDER / name).read_text(), flags=re.M)
    now = ""
    for piece in pieces:
        if piece.startswith(kind):
            line = piece.splitlines()[0]
            piece = f"{line}\n{show(line.removeprefix(kind)).rstrip()}\n\n"
        now += piece
    now = now.rstrip() + "\n"
    return stored(name, now), now


def make_scene(
    folder: pathlib.Path, raw_dir: pathlib.Path, data_dir: pathlib.Path
) -> None:
    """Fills a folder with sound and damaged inputs, which the entries name."""
    shutil.copytree(raw_dir, folder / "raw")
    for name in ("records", "damaged", "short", "missing", "unfinished", "no_json"):
        shutil.copytree(data_dir, folder / name)
    flip(folder / "damaged/train-00001-of-00003", 3000)
    os.truncate(folder / "short/train-00002-of-00003", 9000)
    (folder / "missing/train-00000-of-00003").unlink()
    (folder / "unfinished/index.json").unlink()
    (folder / "no_json/index.json").write_text("{")
    (folder / "empty").mkdir()
    paths = sorted((folder / "raw/train").rglob("*.JPEG"))
    rows = [f"{path.relative_to(folder)},{path.parent.name}" for path in paths]
    (folder / "photos.csv").write_text("\n".join(["file,label", *rows, ""]))
    (folder / "holes.csv").write_text("file,label\nraw/nowhere.jpg,a\n")
    _make_other_kinds(folder, data_dir)


def _make_other_kinds(folder: pathlib.Path, data_dir: pathlib.Path) -> None:
    """Adds what a new user may have in place of a data set: names tell most of it."""
    for seed, name in enumerate(("cat/0", "cat/1", "dog/0", "dog/1")):
        path = folder / "photos" / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(seed))
    shutil.copytree(folder / "photos", folder / "home/album/photos")
    for name in ("foreign", "archives", "tables", "texts", "task_failed/.converting"):
        (folder / name).mkdir(parents=True)
    shutil.copy(data_dir / "train-00000-of-00003", folder / "foreign/part-0.tfrecord")
    with tarfile.open(folder / "archives/a.tar", "w") as tar:
        tar.add(folder / "photos/cat/0.jpg", "0.jpg")
    shutil.copy(data_dir / "catalog.parquet", folder / "tables/photos.parquet")
    (folder / "texts/notes.txt").write_text("none")
    shutil.copytree(data_dir, folder / "above/first")


def environment() -> dict[str, str]:
    """Returns the environment of a command whose output does not depend on a user."""
    own = {"PYTHONPATH": str(ROOT), "COLUMNS": "80", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return {**os.environ, **own}


def masked(text: str, scene: pathlib.Path) -> str:
    """Replaces the paths of this machine."""
    for path, mask in ((scene, SCENE), (ROOT, CHECKOUT)):
        text = text.replace(str(path), mask)
    return text


def types(document: Any) -> dict[str, str]:
    """Returns the types of all values in a JSON object, by path, sorted."""
    seen: dict[str, set[str]] = {}
    _collect(document, "", seen)
    return {
        path: "|".join(sorted(kinds - {"null"})) or "null"
        for path, kinds in sorted(seen.items())
    }


def _collect(value: Any, path: str, seen: dict[str, set[str]]) -> None:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _collect(item, f"{path}.{key}" if path else key, seen)
    elif isinstance(value, list) and value:
        for item in value:
            _collect(item, f"{path}[]", seen)
    else:
        kind = {bool: "bool", int: "number", float: "number", str: "text"}
        name = "null" if value is None else kind.get(type(value), json.dumps(value))
        seen.setdefault(path, set()).add(name)


def text_of(line: str, types: Types) -> str:
    """Returns the text of a golden file: a command line, and a line for each value."""
    return "\n".join([line, *(f"{path}: {kind}" for path, kind in types.items()), ""])


def types_of(text: str) -> tuple[str, dict[str, str]]:
    """Returns what `text_of` was given."""
    line, *lines = text.splitlines()
    return line, dict(line.rsplit(": ", 1) for line in lines)


def comparable(types: Types, others: Types) -> dict[str, str]:
    """Returns types in which each value is "any" that one of the two objects lacks.

    A machine or a run may lack a value that others have, such as a page cache that it
    can drop: the value is null or empty. The key itself must be there.
    """
    both = (*types.items(), *others.items())
    lacking = {path for path, kind in both if kind in ("null", "[]", "{}")}
    result = {}
    for path, kind in types.items():
        steps = re.finditer(r"[.\[]|$", path)
        above = (path[: step.start()] for step in steps)
        lacked = next((path for path in above if path in lacking), None)
        result[lacked or path] = "any" if lacked else kind
    return result
