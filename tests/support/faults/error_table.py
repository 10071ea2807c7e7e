"""Each way of reading under each errno: `python -m tests.support.faults.error_table`.

In: a data set with entry points, an empty folder, `on_error`, and the number of errnos
that a way meets. Out: a line of JSON for each way, moment, call and errno with what the
pipeline did. Files of one kind fail to open or to
be read, all others work. The process runs with `failing_files.environment`.

    new     the files fail while the pipeline is made and read, without caches
    filled  the same, with caches that were filled before
"""

import errno
import functools
import gc
import itertools
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tfpipe
from tests.support.faults.failing_files import failing

_OPEN = ("EMFILE", "ENFILE", "ENOMEM", "EIO", "ESTALE", "EACCES", "ENOENT")
_READ = ("EIO", "ENOMEM", "ESTALE")
CALLS = [*(("open", name) for name in _OPEN), *(("read", name) for name in _READ)]
SHARD = "train-00001"

Make = Callable[[], tfpipe.Pipeline]


def _pipeline(
    folder: pathlib.Path, on_error: str, *, base: int | None = None, **options: Any
) -> tfpipe.Pipeline:
    of_source = {k: options.pop(k) for k in ("reading", "shard_cache") if k in options}
    source = tfpipe.TFRecordSource(
        *(folder, "train"),
        batch_size=8,
        on_error=on_error,
        max_faults=1000,
        **of_source,
    )
    if base is not None:
        options["parse"] = tfpipe.Parse(label_base=base)
    return tfpipe.imagenet_train(source, image_size=8, with_record_id=True, **options)


def ways(work: pathlib.Path, on_error: str) -> dict[str, tuple[Make, str]]:
    """Returns the ways to read: how to make the pipeline, and the files that fail."""
    data = functools.partial(_pipeline, work / "data", on_error)
    caches = work / "caches"
    remote = functools.partial(data, shard_cache=tfpipe.ShardCache(caches / "shards"))
    disk = functools.partial(data, cache=tfpipe.Cache("disk", caches / "disk"))
    scan = functools.partial(_pipeline, work / "foreign", on_error, base=1)
    return {
        "native": (functools.partial(data, reading="native"), f"data/{SHARD}"),
        "tensorflow": (functools.partial(data, reading="tensorflow"), f"data/{SHARD}"),
        "examples": (functools.partial(data, whole_batches=False), f"data/{SHARD}"),
        "stock": (functools.partial(data, crop_op="stock"), f"data/{SHARD}"),
        "ram": (functools.partial(data, cache=tfpipe.Cache("ram")), f"data/{SHARD}"),
        "entry points": (data, "data/entry_points-train"),
        "index": (data, "data/index.json"),
        "catalog": (data, "data/catalog.parquet"),
        "shard cache": (remote, f"data/{SHARD}"),
        "pieces": (remote, "caches/shards"),
        "disk": (disk, "caches/disk"),
        "scan": (scan, f"foreign/{SHARD}"),
        "kept scan": (scan, "foreign/.tfpipe"),
    }


def _batches(pipeline: tfpipe.Pipeline) -> list[tuple[list[int], bytes]]:
    batches = pipeline.build().as_numpy_iterator()
    return [
        (batch["record_id"].tolist(), batch["image"].tobytes()) for batch in batches
    ]


def _try(make: Make, part: str, call: str, error: str) -> tuple[str, list[str], Any]:
    """Returns the error of a run with failing files or "", its faults, its batches."""
    gc.collect()  # the caches in memory of the runs before
    pipeline, result, batches = None, "", None
    try:
        with failing(part, getattr(errno, error), at=call):
            pipeline = make()
            batches = _batches(pipeline)
    except Exception as raised:
        result = str(raised)
    faults = [] if pipeline is None else [*map(str, pipeline.faults.faults)]
    return result, faults, batches


def _table(work: pathlib.Path, on_error: str, count: int) -> Iterator[Any]:
    calls = itertools.cycle(CALLS)
    for name, (make, part) in ways(work, on_error).items():
        expected = _batches(make())
        keeps = name in ("shard cache", "pieces", "disk", "kept scan")
        for moment in ("new", "filled") if keeps else ("new",):
            for call, error in itertools.islice(calls, count):
                if moment == "new":
                    shutil.rmtree(work / "caches", ignore_errors=True)
                    shutil.rmtree(work / "foreign/.tfpipe", ignore_errors=True)
                _replace(work, part)
                result, faults, batches = _try(make, part, call, error)
                row = {"way": name, "moment": moment, "call": call, "errno": error}
                is_same = batches == expected
                yield row | {"error": result, "faults": faults, "is_same": is_same}
            yield {"way": name, "moment": moment} | {
                "later": _batches(make()) == expected
            }


def _replace(work: pathlib.Path, part: str) -> None:
    """Puts copies in the places of shards: the native op keeps shards open."""
    for shard in (work / part).parent.glob(f"{SHARD}*"):
        shutil.copy2(shard, work / "copy")
        os.replace(work / "copy", shard)


def main(data_dir: str, work_dir: str, on_error: str, count: str) -> None:
    """Prints the table."""
    work = pathlib.Path(work_dir)
    shutil.copytree(data_dir, work / "data")
    (work / "foreign").mkdir()
    for shard in (work / "data").glob("train-*"):
        shutil.copy(shard, work / "foreign")
    for row in _table(work, on_error, int(count)):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
