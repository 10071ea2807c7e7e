"""Do all stores give what a local folder gives? A matrix with a digest in each cell.

  python -m studies.stores --input_dir=RAW --save_result=FILE

Question: does a store take and give the same bytes, records, images and answers as a
local folder? RAW is the input of `converters.imagenet`. The study starts all installed
stores on the local machine, see tests/support/servers/stores.py.

| column | digest of |
|---|---|
| convert | names and bytes of all files of `converters.imagenet` at the URL |
| verify | records and faults of `converters.verify --level=decode` |
| deliver | images and labels of an epoch through a new shard cache, in order |
| evaluate | images, labels and masks of `imagenet_eval` |
| query | counts by class of `converters.query` |
| tune | images and labels of an epoch of the tuned pipeline, by record |

A read-only store gets a copy of the local data set, and its cell says so. The
exit code is 2 if a cell differs from that of the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tfpipe
from studies import harness
from tests.support.servers import stores
from tfpipe import cli
from tfpipe.location.files import Files

COLUMNS = ("convert", "verify", "deliver", "evaluate", "query", "tune")
COPIED = "copied"
_CHARACTERS = 12  # of a digest


@cli.options
class StoresOptions(harness.StudyOptions):
    """Options of the study."""

    input_dir: str = cli.required("Input folder of converters.imagenet.")
    image_size: int = cli.flag(64, "Height and width of the images.", least=8)
    tune_seconds: float = cli.flag(5.0, "Seconds of the search.", above=0)


def fill(
    options: StoresOptions, work: pathlib.Path, store: stores.Store | None
) -> dict[str, str]:
    """Fills the row of a store, or of a local folder.

    Args:
        options: The options.
        work: An empty folder; the row of the local folder leaves `data` there.
        store: The store; None is the folder `work / "data"`.

    Returns:
        Name of the column -> digest, or `COPIED`.
    """
    folder = work / "data"
    with _variables({} if store is None else store.variables):
        if store is None or store.copy is None:
            target = str(folder) if store is None else f"{store.url}/data"
            _convert(options.input_dir, target)
            row = {"convert": _digest_of_files(target)}
        else:
            target, row = stores.upload(store, folder, "data"), {"convert": COPIED}
        cache = work / ("none" if store is None else store.name)
        return row | _read(options, target, tfpipe.ShardCache(cache))


def _convert(input_dir: str, target: str) -> None:
    command = ("-m", "converters.imagenet", f"--input_dir={input_dir}")
    shards = ("--num_train_shards=4", "--num_validation_shards=2", "--num_workers=2")
    harness.run_command(*command, f"--output_dir={target}", *shards)


def _digest_of_files(target: str) -> str:
    files = Files(target)
    return _digest((name, files.read(name)) for name in files.names())


def _read(
    options: StoresOptions, target: str, cache: tfpipe.ShardCache
) -> dict[str, str]:
    verified, _ = harness.run_command(
        *("-m", "converters.verify", target, "--level=decode", "--num_workers=2")
    )
    asked, _ = harness.run_command("-m", "converters.query", target, "split = 'train'")
    source = tfpipe.TFRecordSource(target, "train", batch_size=8, shard_cache=cache)
    train = tfpipe.imagenet_train(
        source, image_size=options.image_size, with_record_id=True
    )
    held_out = tfpipe.TFRecordSource(
        *(target, "validation"),
        batch_size=8,
        shard_cache=cache,
        shuffle="none",
        remainder="pad",
    )
    evaluation = tfpipe.imagenet_eval(held_out, image_size=options.image_size)
    tuned = tfpipe.tune(train, time_limit=options.tune_seconds)
    counted = ("num_records", "num_chosen", "largest_classes")
    return {
        "verify": _digest([verified["num_records"], verified["num_faults"]]),
        "deliver": _digest(_values(train)),
        "evaluate": _digest(_values(evaluation)),
        "query": _digest(asked[name] for name in counted),
        "tune": _digest(sorted(_records(tuned))),
    }


def _values(pipeline: tfpipe.Pipeline) -> Iterator[Any]:
    for batch in pipeline.build().as_numpy_iterator():
        yield [(name, batch[name].tobytes()) for name in sorted(batch)]


def _records(pipeline: tfpipe.Pipeline) -> Iterator[Any]:
    for batch in pipeline.build().as_numpy_iterator():
        images = (hashlib.sha256(image.tobytes()).digest() for image in batch["image"])
        labels, record_ids = batch["label"].tolist(), batch["record_id"].tolist()
        yield from zip(record_ids, labels, images, strict=True)


def _digest(values: Any) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(repr(value).encode())
    return digest.hexdigest()[:_CHARACTERS]


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables of the environment within the block."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def differing(rows: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Returns the cells with another digest than the row "folder"."""
    wanted = rows["folder"]
    return [
        f"{name}: {column} must have the digest {wanted[column]}, got {row[column]}"
        for name, row in rows.items()
        for column in COLUMNS
        if row[column] not in (wanted[column], COPIED)
    ]


def table(rows: Mapping[str, Mapping[str, str]]) -> str:
    """Returns the matrix as text."""
    lines = [f"{'store':16}" + "".join(f"{column:13}" for column in COLUMNS)]
    lines += [
        f"{name:16}" + "".join(f"{row[column]:13}" for column in COLUMNS)
        for name, row in rows.items()
    ]
    return "\n".join(lines)


def _study(options: StoresOptions) -> harness.Outcome:
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        rows = {"folder": fill(options, work, None)}
        for store_name in filter(stores.is_installed, stores.NAMES):
            folder = work / "servers" / store_name
            folder.mkdir(parents=True)
            with stores.running(store_name, folder) as store:
                rows[store_name] = fill(options, work, store)
            print(json.dumps({store_name: rows[store_name]}), flush=True)
    missing = [name for name in stores.NAMES if name not in rows]
    config = {
        "input_dir": pathlib.Path(options.input_dir).resolve().name,
        "image_size": options.image_size,
    }
    return harness.Outcome(
        figures={"config": config, "stores": rows, "not_installed": missing},
        table=table(rows),
        misses=differing(rows),
    )


def main(options: StoresOptions) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.stores", options, _study(options))


COMMANDS = (cli.Command(StoresOptions, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
