"""Checks a data set: the index against the shards, and every record in them.

  python -m converters.verify DIR --level=crc

DIR is a data set that a converter wrote: a folder, or a URL such as s3://bucket/folder,
whose shards are read in pieces and not stored here. Each level includes the levels
before it:

  quick    index.json and catalog.parquet against the files: names, sizes, strays
  crc      both CRCs and the offset of every record, and the digest of every file: any
           changed byte of any file of the data set is found
  schema   features and their types, labels, classes, catalog, sizes in JPEG headers
  decode   every image decodes as a whole to the stored height and width, and the
           codes of a JPEG are not damaged; docs/concepts/inputs.md says which
           damage is found
  source   every image equals the one in the input that was converted, byte for byte,
           or pixel for pixel where --restart_rows rewrote it; images that were stored
           in another form are only counted. --input_dir names a folder, --input what
           converters.table, webdataset, tfrecord or merge (NAME=PLACE) have read

Every fault is reported with its shard, record, byte offset and source file. The records
after a damaged record are still checked. --repair writes the faulty shards again from
the input, byte for byte as they were, and the side files for other readers, and then
checks again.

DIR may also hold shards of another tool, without index.json, named
<split>-SSSSS-of-NNNNN or <name>-<split>.tfrecord-SSSSS-of-NNNNN. Then missing numbers,
cut tails, empty and uneven shards, the features and the label base are reported, and
--write_index makes index.json, catalog.parquet and labels.txt for tfpipe without a
change to the shards. An index of an older version has no digests of itself and of the
files beside the shards; --write_index adds them.

--write_entry_points writes the file entry_points-<split> for each split: where in its
codes a decoder may begin, for each baseline JPEG. With it tfpipe's native op decodes
less of each image. The shards stay as they are; the file takes about 2.6 % of their
bytes. A file that is missing or damaged is made again, also by --repair.

The last line on stdout is one JSON object. Exit code: 0 no fault, 1 faults or an error.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from converters.checks import adopt, dataset, entries, shard
from converters.checks.shard import Result
from converters.conversion import answers
from converters.inputs import servers
from converters.inputs.reader import Workspace
from converters.jobs import at_url, work_dir
from converters.options import shared
from tfpipe import cli, errors, host
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shard_cache import generation_view
from tfpipe.shards import generations, index

_SCHEMA_VERSION = 1
_GROUPS = _CHECK, _INPUT = "What to check and to write", "The input, to compare"


@cli.options
class VerifyOptions(cli.StoreOptions):
    """Options of one check.

    Raises:
        ValueError: If the options do not fit together.
    """

    data_dir: str = cli.argument(
        "Folder with shards, or URL of a data set.", shown="DIR", url=True
    )
    level: str = cli.flag(
        "crc",
        "How much to check: quick, crc, schema, decode or source. --helpfull says what "
        "each level finds.",
        group=_CHECK,
        choices=shard.LEVELS,
    )
    write_index: bool = cli.flag(
        False,
        "Make index.json, catalog.parquet and labels.txt for shards that have no "
        "index, or complete an index of an older version, if they have no fault.",
        group=_CHECK,
    )
    write_entry_points: bool = cli.flag(
        False,
        "Make the files entry_points-<split> of a data set without faults, with which "
        "tfpipe decodes less of each image. Needs the library that `python -m "
        "tfpipe.native` builds.",
        group=_CHECK,
    )
    repair: bool = cli.flag(
        False,
        "Write the faulty shards again from the input.",
        group=_INPUT,
    )
    input_dir: str | None = cli.flag(
        None,
        "Folder that was converted, or its URL, such as s3://bucket/raw.",
        group=_INPUT,
        url=True,
    )
    input: tuple[str, ...] = cli.flag(
        (),
        "What was converted, if it is no folder: as --input and NAME=PLACE of the "
        "commands. It may come several times.",
        group=_INPUT,
        shown="FILES",
        repeated=True,
        url=True,
    )
    root: tuple[str, ...] = shared.root((), repeated=True, group=_INPUT)
    generation: int | None = shared.generation(group=_CHECK)
    num_workers: int | None = shared.num_workers()

    def __post_init__(self) -> None:
        for flag, needed in (
            ("--repair", self.repair),
            ("--level=source", self.level == "source"),
        ):
            if needed and (self.input_dir is None) == (not self.input):
                raise ValueError(
                    f"{flag} needs the input that was converted, as --input_dir for a "
                    "folder or as --input for tables, tars, TFRecords and merges, and "
                    "not both."
                )
        if self.write_index and self.level == "quick":
            raise ValueError(
                "--write_index reads every record, so --level must be crc, schema or "
                "decode, got quick."
            )
        if self.write_entry_points:
            entries.require()
        if (self.repair or self.write_index) and not self.location.is_local:
            raise ValueError(
                "--repair and --write_index change a folder, and DIR is the URL "
                f"{self.location.shown}. Convert the data set again with --overwrite, "
                "or copy it to a folder."
            )
        if self.write_entry_points and self.location.is_web_server:
            raise ValueError(
                "--write_entry_points needs a folder or an object store, and DIR is "
                f"the web server {self.location.shown}, which is only read. Write to "
                "the place from which it is served."
            )

    @functools.cached_property
    def location(self) -> Location:
        """The data set."""
        return shared.location_of("DIR", self.data_dir)

    @property
    def changes(self) -> bool:
        """Whether files of the data set are written."""
        return self.repair or self.write_index or self.write_entry_points


def verify(config: VerifyOptions) -> Result:
    """Checks a folder with or without an index.

    Raises:
        ValueError: If the folder or the source is not as it must be.
        TfpipeError: If index or catalog cannot be read, or a URL cannot be reached.
        OSError: If a file cannot be read or written.
    """
    files = Files(config.location)
    if not config.location.is_web_server and generations.is_growing(files):
        return _verify_growing(config, files)
    if not config.location.is_local:
        return _verify_url(config, Files(config.location))
    if config.generation is not None:
        raise ValueError(
            "--generation needs a growing data set, and DIR is none: "
            f"{config.location.shown}."
        )
    data_dir = config.location.path
    if not data_dir.is_dir():
        raise ValueError(f"DIR must be a folder with shards, got {data_dir}.")
    if config.changes and not os.access(data_dir, os.W_OK | os.X_OK):
        raise ValueError(
            "--repair, --write_index and --write_entry_points write into DIR, but "
            f"{data_dir} must not be written. Change its rights, or check a copy."
        )
    with contextlib.ExitStack() as stack:
        return _verify_folder(config, data_dir, stack)


def _verify_growing(config: VerifyOptions, files: Files) -> Result:
    """Checks each folder of a generation as a data set of its own."""
    log = generations.read_log(files)
    opened = config.generation or len(log)
    total = Result(num_records=0, num_shards=0, num_bytes=0)
    if config.level != "quick":
        total.add(
            shard.Fault(shard=file, fault=f"{message}. Copy it again.")
            for file, message in generations.damaged_entries(files, log[:opened])
        )
    for name in (each.name for each in generations.folders(log, opened)):
        data_dir = (config.location / name).text
        part = verify(dataclasses.replace(config, data_dir=data_dir, generation=None))
        total.num_records += part.num_records
        total.num_shards += part.num_shards
        total.num_bytes += part.num_bytes
        total.num_faults += part.num_faults - len(part.faults)
        total.add(
            dataclasses.replace(fault, shard=f"{name}/{fault.shard}")
            for fault in part.faults
        )
        remarks = [f"{name}: {text}" for text in part.details["remarks"]]
        total.details = part.details | {"remarks": total.details["remarks"] + remarks}
    if not total.num_faults:  # folders that contradict are an error
        with tempfile.TemporaryDirectory() as views:
            generation_view.check(files, pathlib.Path(views), opened)
    return total


def _verify_folder(
    config: VerifyOptions, data_dir: pathlib.Path, stack: contextlib.ExitStack
) -> Result:
    request = _request(config, data_dir)
    if not (data_dir / index.INDEX_NAME).exists():
        work_dir.require_whole(data_dir)
        if config.write_entry_points and not config.write_index:
            raise ValueError(
                f"--write_entry_points needs {index.INDEX_NAME}, and {data_dir} has "
                "none. Add --write_index."
            )
        return _with_entry_points(
            config, request, adopt.check_foreign(request, write=config.write_index)
        )
    known = index.load(data_dir)
    if config.write_entry_points and not config.write_index:
        _require_listed(known, data_dir)
    if config.write_index and known.files is not None:
        raise ValueError(
            "--write_index is for shards without an index, or with one of an older "
            f"version, but {data_dir} has {index.INDEX_NAME} with all digests. "
            "Remove it first to make it again."
        )
    request = _with_input(config, request, known, stack)
    result = _checked(request, known)
    if config.write_index:
        result = dataset.complete_index(request, known, result)
    elif config.repair:
        result = dataset.repair(request, known, result)
    return _with_entry_points(config, request, result)


def _checked(request: shard.Request, known: index.Index) -> Result:
    """Checks a data set, and names the command that made it."""
    result = dataset.check_data_set(request, known)
    result.details["made_by"] = str(known.made_by.get("command"))
    return result


def _with_entry_points(
    config: VerifyOptions, request: shard.Request, result: Result
) -> Result:
    """Writes the entry points if they must be; adds to the result."""
    mends = config.repair and entries.has_faults(result)
    if mends:
        entries.require()
    if mends or config.write_entry_points:
        entries.write(request, result)
    return result


def _request(
    config: VerifyOptions, data_dir: pathlib.Path, files: Files | None = None
) -> shard.Request:
    return shard.Request(
        data_dir=data_dir,
        files=files,
        level=config.level,
        num_workers=config.num_workers or host.num_cores(),
    )


def _with_input(
    config: VerifyOptions,
    request: shard.Request,
    known: index.Index,
    stack: contextlib.ExitStack,
) -> shard.Request:
    """Lists the input again, if images are compared with it."""
    if not (config.repair or config.level == "source"):
        return request
    # Readers of archives need NumPy.
    from converters.jobs import again

    folder = stack.enter_context(tempfile.TemporaryDirectory())
    workspace = Workspace(
        folder=pathlib.Path(folder), stack=stack, num_workers=request.num_workers
    )
    listed = again.list_again(
        known.made_by, config.input_dir, config.input, config.root, workspace
    )
    return dataclasses.replace(request, again=listed)


def _verify_url(config: VerifyOptions, files: Files) -> Result:
    """Checks a data set at a URL. Its shards are read in pieces and stay there."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        request = _request(config, folder, files)
        known = at_url.fetch_index(files, folder)
        with contextlib.suppress(errors.MissingFileError):  # the checks name it
            at_url.fetch(files, index.CATALOG_NAME, folder)
        if config.write_entry_points:
            _require_listed(known, config.data_dir)
        request = _with_input(config, request, known, stack)
        return _with_entry_points(config, request, _checked(request, known))


def _require_listed(known: index.Index, shown: object) -> None:
    """Refuses an index that cannot list the entry points."""
    if known.files is None:
        raise ValueError(
            f"--write_entry_points needs {index.INDEX_NAME} to list files, and the one "
            f"in {shown} is of an older version. Add --write_index to a folder with it."
        )


def summarize(config: VerifyOptions, result: Result, seconds: float) -> dict[str, Any]:
    """Returns the JSON document of a check."""
    return {
        "command": "converters.verify",
        "schema_version": _SCHEMA_VERSION,
        "config": {
            **dataclasses.asdict(config),
            "input": [*map(servers.shown, config.input)],
        },
        "level": config.level,
        "num_records": result.num_records,
        "num_shards": result.num_shards,
        "num_bytes": result.num_bytes,
        **result.details,
        "faults": [dataclasses.asdict(fault) for fault in result.faults],
        "num_faults": result.num_faults,
        "seconds": round(seconds, 3),
    }


def print_summary(summary: Mapping[str, Any], result: Result) -> None:
    """Prints the faults and a few lines for people, and the JSON line for scripts."""
    remarks = result.details["remarks"]
    figures = {
        name: value
        for name, value in result.details.items()
        if name not in ("remarks", "features")
    }
    more = [f"Remark: {remark}." for remark in remarks]
    more += [f"{name}: {value}" for name, value in figures.items()]
    answers.verify(summary, [str(fault) for fault in result.faults], more)


def work(options: VerifyOptions) -> int:
    """Checks, prints the summary, and returns the exit code."""
    began = time.perf_counter()
    result = verify(options)
    print_summary(summarize(options, result, time.perf_counter() - began), result)
    return 1 if result.num_faults else 0


def _hint(options: VerifyOptions, error: BaseException) -> str:
    return "The check is not complete." if isinstance(error, KeyboardInterrupt) else ""


COMMANDS = (
    cli.Command(
        VerifyOptions, work, arguments=("data_dir",), groups=_GROUPS, hint=_hint
    ),
)

if __name__ == "__main__":
    cli.run(*COMMANDS)
