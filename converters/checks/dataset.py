"""Checks a data set that has an index, and repairs it.

In: a folder with index.json, and the input folder where it is needed. Out: a `Result`.
A repair builds the faulty shards again from the source images.
"""

import functools
from collections.abc import Collection, Iterator, Mapping

from converters.checks import adopt, catalog, files
from converters.checks.files import DataSetFiles, can_list, remote_sizes
from converters.checks.shard import (
    CheckTask,
    Fault,
    Request,
    Result,
    Settings,
    check_shard,
)
from converters.images import policy
from converters.inputs.image import Image
from converters.jobs import rebuild
from tfpipe import errors
from tfpipe.native import libraries
from tfpipe.shards import index
from tfpipe.shards.records import Ints
from tfpipe.shards.sql import PARQUET

_REPLICATE = "converters.replicate"
_OLD_INDEX = (
    f"{index.INDEX_NAME} is of an older version and has no digests of itself, of "
    f"{index.CATALOG_NAME} and of the side files, so that not every change in them "
    "can be found; --write_index adds the digests"
)


_NO_LISTING = (
    "a web server does not list its files, so that files that are not in the index "
    "cannot be found"
)
_NO_LIBRARY = "damaged codes of a JPEG that decode to wrong pixels are not looked for"


def check_data_set(request: Request, known: index.Index) -> Result:
    """Checks index, catalog and shards up to the level of the request.

    Raises:
        OSError: If a file cannot be read.
    """
    return _check(request, known, None)


def _check(
    request: Request, known: index.Index, names: Collection[str] | None
) -> Result:
    """Checks the files of a data set and the records of its shards.

    Args:
        request: What to check, and how.
        known: The index.
        names: Shards whose records are checked; None for those of all shards.
    """
    listed = [shard for shards in known.splits.values() for shard in shards]
    result = Result(
        num_records=sum(shard.num_records for shard in listed),
        num_shards=len(listed),
        num_bytes=sum(shard.num_bytes for shard in listed),
    )
    result.details["remarks"] += _remarks(request, known)
    contents = _contents(request, known)
    byte_offsets, faults = _check_files(request, known, contents)
    result.add(faults)
    if request.level == "quick":
        return result
    settings = _settings(request, known)
    tasks = [
        task
        for task in _tasks(request, known, byte_offsets)
        if contents.size(task.shard.name) is not None
        and (names is None or task.shard.name in names)
    ]
    findings = request.run(
        functools.partial(check_shard, settings),
        tasks,
        num_records=sum(task.shard.num_records for task in tasks),
    )
    for found in findings:
        result.add_findings(found)
    if request.level == "source":
        count = sum(found.num_not_comparable for found in findings)
        result.details["num_not_comparable"] = count
    return result


def _remarks(request: Request, known: index.Index) -> list[str]:
    """Says what cannot be found in this data set."""
    remarks = [_OLD_INDEX] if known.files is None else []
    if request.files is not None and not can_list(request.files):
        remarks.append(_NO_LISTING)
    if request.level in ("decode", "source") and not libraries.is_built():
        remarks.append(f"{_NO_LIBRARY}. {libraries.remedy()}")
    return remarks


def _contents(request: Request, known: index.Index) -> DataSetFiles:
    if request.files is None:
        return DataSetFiles(data_dir=request.data_dir)
    shards = [shard.name for shards in known.splits.values() for shard in shards]
    names = {*shards, *(known.files or ())}
    return DataSetFiles(
        data_dir=request.data_dir,
        files=request.files,
        sizes=remote_sizes(request.files, names),
    )


def _check_files(
    request: Request, known: index.Index, contents: DataSetFiles
) -> tuple[Mapping[str, Ints], list[Fault]]:
    """Checks index, shard files, side files and catalog, but no record.

    Returns:
        byte_offsets: int64 [num_records] by the name of the shard, from the catalog;
            empty if the catalog has a fault.
        faults: The faults.
    """
    data_dir = request.data_dir
    faults = [
        *files.index_faults(known, data_dir),
        *files.shard_faults(known, contents),
        *files.stray_faults(known, contents),
        *files.file_faults(known, contents, read=request.level != "quick"),
    ]
    if any(fault.shard == index.CATALOG_NAME for fault in faults):
        return {}, faults
    byte_offsets, catalog_faults = catalog.load_byte_offsets(known, data_dir)
    return byte_offsets, [*faults, *catalog_faults]


def _settings(request: Request, known: index.Index) -> Settings:
    return Settings(
        data_dir=request.data_dir,
        files=request.files,
        level=request.level,
        features=_adopted_features(known) if _has_other_keys(known) else None,
        classes=known.classes,
        label_base=known.label_base,
        input_dir=request.again.folder if request.again else None,
        multi_label=known.made_by.get("multi_label") is True,
    )


def _is_adopted(known: index.Index) -> bool:
    """Whether another tool made the shards, and this package only their index."""
    return bool(known.made_by.get("command") == adopt.COMMAND)


def _has_other_keys(known: index.Index) -> bool:
    """Whether another tool made the records; replicas keep the keys of their source."""
    return _is_adopted(known) or "features" in known.made_by


def _adopted_features(known: index.Index) -> Mapping[str, str]:
    """Returns the kind of every feature that all records of another tool have."""
    features = known.made_by.get("features")
    if not isinstance(features, dict):
        raise errors.BadIndexError(
            f"made_by.features in {index.INDEX_NAME} must be an object, got "
            f"{features!r}. Remove the index and write it again with --write_index."
        )
    return features


def _tasks(
    request: Request, known: index.Index, byte_offsets: Mapping[str, Ints]
) -> Iterator[CheckTask]:
    for split, shards in known.splits.items():
        images = _images(request, split) if byte_offsets else {}
        for number, shard in enumerate(shards):
            yield CheckTask(
                split=split,
                number=number,
                shard=shard,
                byte_offsets=byte_offsets.get(shard.name),
                images=images.get(number, {}),
            )


def _images(request: Request, split: str) -> dict[int, dict[str, Image]]:
    """Returns the source images of every shard of a split, by name.

    Raises:
        ValueError: If the input has no image of the split.
    """
    images: dict[int, dict[str, Image]] = {}
    if request.again is None or request.level != "source":
        return images
    query = f"SELECT shard, filename FROM {PARQUET} WHERE split = ?"
    rows = index.query_catalog(request.data_dir, query, [split])
    image_of = request.again.find_all([name for _, name in rows])
    if rows and not image_of:
        raise request.again.missing(rows[0][1])
    for number, name in rows:
        if name in image_of:
            images.setdefault(number, {})[name] = image_of[name]
    return images


def _first_fault(result: Result) -> str:
    number = errors.count_of(result.num_faults, "fault")
    return f"The check found {number}, the first is {result.faults[0]}."


def repair(request: Request, known: index.Index, before: Result) -> Result:
    """Builds faulty shards and side files again, and checks the data set again.

    A sound data set stays as it is, without what a killed repair left.

    Raises:
        ValueError: If another tool wrote the shards, if the source has changed, or if
            the index or the catalog has faults: a repair relies on both.
        TfpipeError: If the catalog cannot be read.
        OSError: If a file cannot be read or written.
    """
    rebuild.clean(request.data_dir)
    if not before.num_faults:
        return before
    listed = {shard.name for shards in known.splits.values() for shard in shards}
    names = sorted(before.bad_names & listed)
    if request.again is None or _is_adopted(known):
        raise ValueError(
            f"--repair needs shards that a converter of this package wrote, but those "
            f"of {request.data_dir} are another tool's. {_first_fault(before)}"
        )
    if known.made_by.get("command") == _REPLICATE:
        raise ValueError(
            f"--repair needs shards made from images, but those of {request.data_dir} "
            f"are replicas. Make them again with `python -m {_REPLICATE}` and "
            f"--overwrite. {_first_fault(before)}"
        )
    for name in (index.INDEX_NAME, index.CATALOG_NAME):
        if name in before.bad_names:
            raise ValueError(
                f"--repair builds shards from a sound {name}, but the one in "
                f"{request.data_dir} has faults. Copy it again or convert the data set "
                f"again. {_first_fault(before)}"
            )
    if names:
        _require_policy(known)
        rebuild.rebuild(request.data_dir, request.again, names, request.num_workers)
    restored = files.restore(known, request.data_dir, before.bad_names)
    result = _check(request, known, names)
    repaired = [name for name in names if name not in result.bad_names]
    result.details["repaired"] = [*repaired, *restored]
    result.details["num_faults_before_repair"] = before.num_faults
    return result


def _require_policy(known: index.Index) -> None:
    """Checks that the index holds the policy of the conversion.

    Raises:
        BadIndexError: If there is none, or if it cannot be used.
    """
    try:
        policy.policy_of(known.made_by["options"]["policy"])
    except (KeyError, TypeError, ValueError) as error:
        raise errors.BadIndexError(
            f"made_by.options.policy in {index.INDEX_NAME} must be the policy of a "
            f"conversion, but it cannot be used: {error!r}. Convert the data set again."
        ) from error


def complete_index(request: Request, known: index.Index, result: Result) -> Result:
    """Adds digests to an index of an older version, if the data set has no fault.

    Raises:
        OSError: If a file cannot be read or written.
    """
    remarks = result.details["remarks"]
    remarks.clear()
    if result.num_faults:
        remarks.append("the index was not written, because there are faults")
        return result
    index.write(files.with_digests(known, request.data_dir), request.data_dir)
    result.details["written"] = [index.INDEX_NAME]
    return result
