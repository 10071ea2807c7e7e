"""Each command that writes, run again after it ended: the same output, and no error."""

import os
import pathlib
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from converters import (
    export,
    query,
    replicate,
)
from converters.conversion import steps
from converters.jobs import work_dir
from converters.options.query import QueryOptions
from converters.options.replicate import ReplicateOptions
from tests.support.data.conversions import conversion
from tests.support.data.trees import convert, digests, make_jpeg, make_tree

Options = dict[str, Any]
Run = Callable[[pathlib.Path, Options], dict[str, Any]]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A tree, a data set, a database, tars and TFRecord files of eight images."""
    root = tmp_path_factory.mktemp("inputs")
    make_tree(root / "raw", num_images=8)
    convert(root / "raw", root / "set", num_train_shards=2)
    options: Options = {"output_dir": str(root / "tars"), "format": "webdataset"}
    export.export(
        export.ExportOptions(data_dir=str(root / "set"), num_workers=1, **options)
    )
    (root / "records").mkdir()
    for path in (root / "set").glob("train-*"):
        (root / "records" / f"{path.name}.tfrecord").write_bytes(path.read_bytes())
    with sqlite3.connect(root / "images.db") as connection:
        connection.execute("CREATE TABLE images (image BLOB, label TEXT)")
        rows = [(make_jpeg(number), "ab"[number % 2]) for number in range(8)]
        connection.executemany("INSERT INTO images VALUES (?, ?)", rows)
    connection.close()
    return root


def _config(kind: type[Any], out: pathlib.Path, options: Options) -> Any:
    return kind(output_dir=str(out), **{"num_workers": 1, "fsync": False} | options)


def _convert(kind: str, out: pathlib.Path, options: Options) -> dict[str, Any]:
    shared = {"output_dir": str(out), "num_workers": 1, "fsync": False}
    return conversion(kind, **shared | options).convert()


def _imagenet(out: pathlib.Path, options: Options) -> dict[str, Any]:
    options = {"input_dir": str(out.parent / "raw")} | options
    return _convert("imagenet", out, options)


def _folder(out: pathlib.Path, options: Options) -> dict[str, Any]:
    options = {"input_dir": str(out.parent / "raw")} | options
    return _convert("folder", out, options)


def _table(out: pathlib.Path, options: Options) -> dict[str, Any]:
    columns = {"image_column": "image", "label_column": "label"}
    options = {"input": str(out.parent / "images.db#images"), **columns} | options
    return _convert("table", out, options)


def _webdataset(out: pathlib.Path, options: Options) -> dict[str, Any]:
    options = {"input": [str(out.parent / "tars/*.tar")]} | options
    return _convert("webdataset", out, options)


def _tfrecord(out: pathlib.Path, options: Options) -> dict[str, Any]:
    options = {"input": [str(out.parent / "records")]} | options
    return _convert("tfrecord", out, options)


def _merge(out: pathlib.Path, options: Options) -> dict[str, Any]:
    places = {"a": str(out.parent / "images.db#images"), "b": str(out.parent / "set")}
    return _convert("merge", out, {"sources": places} | options)


def _replicate(out: pathlib.Path, options: Options) -> dict[str, Any]:
    options = {"data_dir": str(out.parent / "set"), "copies": 2} | options
    return replicate.make_copies(_config(ReplicateOptions, out, options))


def _query(out: pathlib.Path, options: Options) -> dict[str, Any]:
    options = {"num_workers": 1, "fsync": False} | options
    data_dir = str(out.parent / "set")
    return query.ask(QueryOptions(data_dir=data_dir, materialize=str(out), **options))


def _export(out: pathlib.Path, options: Options) -> dict[str, Any]:
    options = {"data_dir": str(out.parent / "set"), "format": "tree"} | options
    return export.export(_config(export.ExportOptions, out, options))


# The command, an option with another value, and how the error names the difference.
COMMANDS: list[tuple[Run, Options, str]] = [
    (_imagenet, {"seed": 5}, "options.seed was 0, is 5"),
    (_folder, {"seed": 5}, "options.seed was 0, is 5"),
    (_folder, {"num_train_shards": 3}, "shards.train was 1, is 3; "),
    (_folder, {"layout": "tfds"}, "options.layout was 'inception', is 'tfds'"),
    (_table, {"seed": 5}, "options.seed was 0, is 5"),
    (_table, {"query": "SELECT * FROM images"}, "query was None, is 'SELECT"),
    (_webdataset, {"seed": 5}, "options.seed was 0, is 5"),
    (_tfrecord, {"seed": 5}, "options.seed was 0, is 5"),
    (_merge, {"seed": 5}, "options.seed was 0, is 5"),
    (_merge, {"on_null": "skip"}, "on_null was 'fail', is 'skip'"),
    (_replicate, {"copies": 3}, "options.copies was 2, is 3"),
    (_replicate, {"mirror": True}, "options.change.mirror was False, is True"),
    (_query, {"clause": "label = 1"}, "options.clause was 'true', is 'label = 1'"),
    (_export, {"format": "webdataset"}, "format was 'tree', is 'webdataset'"),
    (_export, {"paths": "split"}, "paths was 'source', is 'split'"),
    (_export, {"format": "parquet"}, "format was 'tree', is 'parquet'"),
]
every_command = pytest.mark.parametrize(
    ("run", "other", "difference"),
    COMMANDS,
    ids=[f"{run.__name__.strip('_')}-{next(iter(more))}" for run, more, _ in COMMANDS],
)


@pytest.fixture
def out(inputs: pathlib.Path, request: pytest.FixtureRequest) -> pathlib.Path:
    """A new output folder beside the inputs."""
    return inputs / f"out-{request.node.name}"


@every_command
def test_an_ended_command_ends_again_and_names_what_differs(
    run: Run,
    other: Options,
    difference: str,
    out: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = run(out, {})
    before = digests(out)
    capsys.readouterr()

    again = run(out, {})

    assert f"{out} already holds this" in capsys.readouterr().err
    assert again.keys() == first.keys()
    times = {key for key in first if "seconds" in key} | {"full_decode", "estimate"}
    assert {key for key in first if first[key] != again[key]} <= times
    with pytest.raises(ValueError, match="that differs from this one") as error:
        run(out, other)
    assert difference in str(error.value)
    assert digests(out) == before
    assert not (out / work_dir.WORK_DIR_NAME).exists()
    if run is not _export:
        run(out, {**other, "overwrite": True})
        assert digests(out) != before


@every_command
def test_an_output_that_is_not_whole_is_refused(
    run: Run, other: Options, difference: str, out: pathlib.Path
) -> None:
    options = other if "format" in other else {}
    run(out, options)
    shards = [path for path in out.iterdir() if path.name.startswith("train")]
    if shards[0].is_dir():
        return  # export.json lists no image of a tree
    os.truncate(shards[0], 10)

    with pytest.raises(ValueError, match=f"its file {shards[0].name} is missing"):
        run(out, options)


@pytest.mark.parametrize(
    ("run", "name"),
    [
        *((_imagenet, "raw"), (_folder, "raw"), (_webdataset, "tars")),
        *((_tfrecord, "records"), (_table, "images.db"), (_merge, "images.db")),
    ],
)
def test_an_input_that_changed_since_is_named(
    run: Run, name: str, inputs: pathlib.Path, out: pathlib.Path
) -> None:
    run(out, {})
    files = sorted(path for path in (inputs / name).rglob("*") if path.is_file())
    edited = next(iter(files), inputs / name)
    if run in (_imagenet, _folder):
        edited = next((inputs / "raw/train").rglob("*.JPEG"))
    elif run is _webdataset:
        edited = next((inputs / "tars").glob("*.tar"))
    os.utime(edited)

    with pytest.raises(ValueError, match=rf"{edited.name} was changed after it was"):
        run(out, {})


@pytest.mark.parametrize("run", [_table, _merge])
def test_images_of_a_table_stay_while_a_job_needs_them(
    run: Run, out: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command is refused while another one is running or can go on."""
    refused = []
    write = steps.run.run

    def start_another(*arguments: Any, **options: Any) -> Any:
        if not refused:
            refused.append(True)
            job = out / work_dir.WORK_DIR_NAME / f"{work_dir._JOB_PREFIX}0"
            job.mkdir()
            (job / "job.json").write_text("{}")
            with pytest.raises(ValueError, match="num_train_shards"):
                run(out, {"num_train_shards": 99})
            with pytest.raises(ValueError, match="unfinished conversion that differs"):
                run(out, {"seed": 5})
            (job / "job.json").unlink()
        return write(*arguments, **options)

    monkeypatch.setattr(steps.run, "run", start_another)
    run(out, {})

    assert refused == [True]
    assert not (out / work_dir.WORK_DIR_NAME).exists()
