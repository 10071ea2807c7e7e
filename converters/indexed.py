"""Check a data set that has an index, and build its faulty shards anew.

In: a folder with index.json, and the input folder where it is needed. Out: a `Result`.
"""

import functools
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from converters import adopt, check, quick, run
from converters.check import Request, Result
from tfpipe import index


def check_data_set(request: Request, known: index.Index) -> Result:
    """Checks index, catalog and shards up to the level of the request.

    Raises:
        OSError: If a file cannot be read.
    """
    return _check(request, known, None)


def _check(
    request: Request, known: index.Index, names: Collection[str] | None
) -> Result:
    """Checks all shards, or the files of all and the records of those named."""
    listed = [shard for shards in known.splits.values() for shard in shards]
    result = Result(
        num_records=sum(shard.num_records for shard in listed),
        num_shards=len(listed),
        num_bytes=sum(shard.num_bytes for shard in listed),
    )
    result.add(quick.file_faults(known, request.data_dir))
    byte_offsets, faults = quick.load_byte_offsets(known, request.data_dir)
    result.add(faults)
    if request.level == "quick":
        return result
    settings = _settings(request, known)
    tasks = [
        task
        for task in _tasks(known, byte_offsets)
        if (request.data_dir / task.shard.name).is_file()
        and (names is None or task.shard.name in names)
    ]
    findings = request.run(
        functools.partial(check.check_shard, settings),
        tasks,
        num_records=sum(task.shard.num_records for task in tasks),
    )
    for found in findings:
        result.add_findings(found)
    if request.level == "source":
        count = sum(found.num_not_comparable for found in findings)
        result.details["num_not_comparable"] = count
    return result


def _settings(request: Request, known: index.Index) -> check.Settings:
    return check.Settings(
        data_dir=request.data_dir,
        level=request.level,
        features=known.made_by.get("features") if _is_adopted(known) else None,
        classes=known.classes,
        label_base=known.label_base,
        input_dir=request.input_dir,
    )


def _is_adopted(known: index.Index) -> bool:
    """Whether the shards were made by another tool, and only the index by this one."""
    return bool(known.made_by.get("command") == adopt.COMMAND)


def _tasks(
    known: index.Index, byte_offsets: Mapping[str, npt.NDArray[np.int64]]
) -> Iterator[check.Task]:
    for split, shards in known.splits.items():
        for number, shard in enumerate(shards):
            offsets = byte_offsets.get(shard.name)
            yield check.Task(
                split=split, number=number, shard=shard, byte_offsets=offsets
            )


def repair(request: Request, known: index.Index, before: Result) -> Result:
    """Builds the shards that have faults anew, and checks them again.

    Raises:
        ValueError: If another tool wrote the shards, or the source has changed.
        TfpipeError: If the catalog, which says what is in a shard, cannot be read.
        OSError: If a file cannot be read or written.
    """
    listed = {shard.name for shards in known.splits.values() for shard in shards}
    names = sorted(before.bad_names & listed)
    if request.input_dir is None or _is_adopted(known):
        raise ValueError(
            f"--repair needs shards that a converter of this package wrote, but those "
            f"of {request.data_dir} are another tool's. The first of their "
            f"{before.num_faults} faults is {before.faults[0]}."
        )
    if names:
        run.rewrite(request.data_dir, request.input_dir, names, request.num_workers)
    result = _check(request, known, names)
    repaired = [name for name in names if name not in result.bad_names]
    result.details["repaired"] = repaired
    result.details["num_faults_before_repair"] = before.num_faults
    return result
