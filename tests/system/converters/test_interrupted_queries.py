"""Ctrl-C and SIGTERM end a command at once while a database works for the command."""

import json
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.support.data.tables import make_rows, write_tables
from tests.support.data.trees import convert, make_tree
from tests.support.processes import commands

# Runs a command whose reads of files in DuckDB take hours; touches a file at once.
_SLOW = """
import pathlib, runpy, sys
from tfpipe.shards import sql

mark, module, is_slow = sys.argv[1:4]
ever = '''(SELECT count(*) FROM range(1000000) a, range(1000000) b
           WHERE hash(a.range * b.range) = 0) >= 0'''
read_files, Interruptible = sql.read_files, sql.Interruptible

def slow(kind, paths, *options):
    return f"(FROM {read_files(kind, paths, *options)} WHERE {ever})"

def marked(interrupt):
    pathlib.Path(mark).touch()
    return Interruptible(interrupt)

sql.Interruptible = marked
if is_slow == "slow":
    sql.read_files = slow
    sql.PARQUET = f"(FROM {sql.PARQUET} WHERE {ever})"
sys.argv = [module, *sys.argv[4:]]
runpy.run_module(module, run_name="__main__")
"""
_EVER = (
    "(SELECT count(*) FROM range(1000000) a, range(1000000) b "
    "WHERE hash(a.range * b.range) = 0) >= 0"
)
_SQLITE_EVER = (
    "(WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
    "SELECT count(*) FROM n) >= 0"
)
_IMAGES = ("--image_column=path", "--label_column=label")
# Words of each command, and the same without what takes long in a user's own SQL.
_COMMANDS: dict[str, tuple[list[str], str]] = {
    "table of CSV": (["table", "--input=rows.csv", *_IMAGES], ""),
    "table of images": (
        ["table", "--input=structs.parquet", "--image_column=img", *_IMAGES[1:]],
        "",
    ),
    "--query": (["table", "--input=rows.csv", *_IMAGES, "--query=FROM input"], _EVER),
    "--query on SQLite": (
        ["table", "--input=rows.db", *_IMAGES, "--query=SELECT * FROM photos"],
        _SQLITE_EVER,
    ),
    "merge": (["merge", "t=rows.csv", "--image_column=t=path"], ""),
    "query": (["query", "set", "width > 0"], _EVER),
    "materialize": (["query", "set", "width > 0", "--materialize=out"], ""),
    "verify": (["verify", "set"], ""),
    "export": (["export", "set", "--format=parquet"], ""),
    "publish": (["imagenet", "--input_dir=raw"], ""),
}
_WITHOUT_OUTPUT = ("query", "materialize", "verify")


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with images, tables of some, and a data set of others."""
    raw = make_tree(tmp_path / "raw", num_images=3, num_validation_images=2)
    convert(raw, tmp_path / "set", num_train_shards=1)
    write_tables(tmp_path, make_rows(tmp_path, num_images=3))
    return tmp_path


def _words(name: str, *, slow: bool) -> list[str]:
    words, ever = _COMMANDS[name]
    if name not in _WITHOUT_OUTPUT:
        words = [*words, "--output_dir=out"]
    if slow and ever:
        words = [
            f"{word} WHERE {ever}"
            if word.startswith("--query=")
            else f"{word} AND {ever}"
            if word.startswith("width")
            else word
            for word in words
        ]
    return words


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, signal.SIGTERM) for name in _COMMANDS]
    + [(name, signal.SIGINT) for name in ("--query", "--query on SQLite", "query")],
)
def test_a_signal_ends_a_long_query_in_one_line(
    name: str, number: signal.Signals, folder: pathlib.Path
) -> None:
    command, *words = _words(name, slow=True)
    mark = folder / "mark"
    how = "as it is" if _COMMANDS[name][1] else "slow"
    with subprocess.Popen(
        [
            *(sys.executable, "-c", _SLOW, str(mark), f"converters.{command}", how),
            *words,
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            _wait_for(mark, process)
            time.sleep(1)
            assert process.poll() is None, process.communicate()
            process.send_signal(number)
            # Only the signal can end the query, which takes hours.
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()

    assert (process.returncode, out) == (1, ""), err
    assert err.startswith("Error: interrupted."), err
    assert err.count("\n") == 1, err

    command, *words = _words(name, slow=False)
    done = commands.run(f"converters.{command}", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])
    assert not (folder / "out" / ".converting").exists()


def _wait_for(mark: pathlib.Path, process: "subprocess.Popen[Any]") -> None:
    until = time.monotonic() + 60
    while not mark.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
