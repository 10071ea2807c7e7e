"""Merges images from several sources into one data set of TFRecord shards.

  python -m converters.merge NAME=PLACE [NAME=PLACE ...] --output_dir=DIR
  python -m converters.merge own=photos web=crawl.parquet old=/data/old_records \\
      --image_column=web=img --label_column=web=breed --output_dir=DIR

A PLACE is a path, a pattern or a URL of one of these:
  a folder for each class, with or without train/, val/ and test/ above, as
      converters.folder reads it
  a table as converters.table reads it: CSV, TSV, JSON lines, Parquet, SQLite (behind it
      may be #table), postgresql://user@host/database#table, mysql://...
      Its columns are image and label, unless flags name others
  tars of a WebDataset, as converters.webdataset reads them
  TFRecord files of other tools, as converters.tfrecord reads them
  a data set of these converters: a folder with index.json; its classes keep their names
Before tars and TFRecord files may be their split: NAME=validation=PATTERN.

Classes of equal names become one class, splits of equal names one split. The name of an
image in the catalog begins with NAME/. Classes that are numbers need names, unless all
sources have numbers: --class_map or --label_map gives them.

  --class_map=NAME=FILE   other names for classes of a source: lines of a class, a tab
                          and its new class; an empty new class leaves the class out

The flags of the other commands say how a source is read, as NAME=VALUE, once for each
source: --image_column --label_column --name_column --split_column --root --query for a
table, --label_from --label_key --image_part for tars, --image_key --label_key
--name_key for TFRecord files.

Equal images, also of different sources, are listed in duplicates.jsonl, and left out
with --drop_duplicates=same_class or all. --near_duplicates=4 lists images that look
alike in near_duplicates.jsonl, and leaves none out; it needs
pip install 'tfpipe[near_duplicates]'.

All other flags are those of converters.folder, and DIR gets the same files. The same
input, options and seed give the same bytes, in whatever order the sources are named.
The last line on stdout is one JSON object. Exit code: 0 done, 1 an error.
"""

import dataclasses
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from absl import app, flags

from converters.catalog import near_duplicates
from converters.inputs import classtree, reading
from converters.inputs.labels import Listed
from converters.inputs.merged import joined, listed, sources
from converters.inputs.merged.sources import MergeSource
from converters.inputs.tables import table_sources
from converters.jobs import work_dir
from converters.jobs.job import Job
from converters.options import (
    command,
    labelled,
    merge,
    policy,
    shared,
    spooled,
    start,
    summary,
)
from converters.options.merge import MergeOptions, config_from_flags
from tfpipe import errors, host
from tfpipe.location import urls

_COMMAND = "converters.merge"
_Result = TypeVar("_Result")

flags.adopt_module_key_flags(merge)


def convert(config: MergeOptions) -> dict[str, Any]:
    """Merges, and returns the summary that the command prints as JSON.

    Raises:
        ValueError: If an input or the output folder is not as it must be.
        BadIndexError: If a source is a data set that is damaged.
        OSError: If a file cannot be read or written.
        RemoteError: If a URL cannot be read or written.
    """
    with tempfile.TemporaryDirectory() as name:
        links = pathlib.Path(name)
        done = spooled.convert(
            config,
            lambda: command.convert(_COMMAND, config, lambda: make_job(config, links)),
        )
    if config.near_duplicates is None or not done["finished"]:
        return done
    return done | near_duplicates.write(
        shared.path_of("--output_dir", config.output_dir),
        distance=config.near_duplicates,
        num_workers=config.num_workers or host.num_cores(),
    )


def make_job(config: MergeOptions, links: pathlib.Path) -> Job:
    """Lists the sources and plans the shards.

    Args:
        config: The options.
        links: Empty folder, which gets a link to each source that is here.

    Raises:
        ValueError: If a source is not as it must be.
        BadIndexError: If a source is a data set that is damaged.
        OSError: If something cannot be looked at.
        RemoteError: If a URL cannot be read.
    """
    names = _names_of_numbers(config)
    checked = [_named(name, _source, config, name) for name in config.sources]
    joined.require_trees_apart(checked)
    recorded = _recorded(config, checked)
    places = [each.place for each in checked if each.kind == sources.TABLE]
    if places:
        tables = [table_sources.find("Its place", place) for place in places]
        spooled.require_free(config, {"command": _COMMAND, **recorded}, tables)
    found = [(each, _named(each.name, _listed, config, each)) for each in checked]
    for source, item in found:
        if not urls.is_url(item.folder):
            (links / source.name).symlink_to(item.folder, target_is_directory=True)
    merged = joined.join(found, links, names, config.label_type)
    return labelled.make_job(
        config,
        labelled.give_labels(config, merged),
        command_name=_COMMAND,
        own_options=recorded,
        is_apart=True,
    )


def _names_of_numbers(config: MergeOptions) -> Mapping[int, str]:
    """Returns the names that --label_map has for classes that are numbers."""
    if config.label_map is None:
        return {}
    path = shared.path_of("--label_map", config.label_map)
    labels = classtree.read_label_map(path, config.label_base)
    return {label: name for name, label in labels.items()}


def _named(name: str, work: Callable[..., _Result], *arguments: Any) -> _Result:
    """Calls a function about a source; its errors name the source."""
    try:
        return work(*arguments)
    except (ValueError, errors.BadIndexError, errors.RemoteError) as error:
        kind, cause = type(error), error
    except OSError as error:
        # An error with a number shows no other text.
        raise OSError(f"Source {name}: {error}") from error
    # The readers know the place by the flags of their own commands.
    text = re.sub(r"--input(_dir)?\b", "its place", str(cause))
    raise (ValueError if isinstance(cause, ValueError) else kind)(
        f"Source {name}: {text}"
    ) from cause


def _source(config: MergeOptions, name: str) -> MergeSource:
    """Looks at the place of a source."""
    class_map = {}
    if name in config.class_map:
        path = shared.path_of(f"--class_map={name}", config.class_map[name])
        class_map = sources.read_class_map(path)
    place = config.sources[name]
    source = MergeSource(
        name=name,
        place=place,
        kind=sources.kind_of(place),
        class_map=class_map,
        options=config.options_of(name),
    )
    if source.kind in (sources.TREE, sources.DATA_SET):
        _require_apart(config, source)
    return source


def _require_apart(config: MergeOptions, source: MergeSource) -> None:
    """Refuses an output folder in a source that is a folder, and an unfinished one."""
    folder, output = listed.local_or_url(source.place), config.output_dir
    if urls.is_url(folder):
        is_in = f"{output.rstrip('/')}/".startswith(f"{reading.shown(folder)}/")
    else:
        if source.kind == sources.DATA_SET:
            work_dir.require_whole(folder)
        local = config.local_dir
        is_in = pathlib.Path(os.path.realpath(local)).is_relative_to(folder.resolve())
    if is_in:
        raise ValueError(
            f"--output_dir must not be in {reading.shown(folder)}, got {output}. "
            "Choose a folder beside it."
        )


def _listed(config: MergeOptions, source: MergeSource) -> Listed:
    """Lists the images of a source."""
    if source.kind != sources.TABLE:
        found = listed.read(
            source,
            config.meaning,
            file_in_names=config.file_in_names,
            on_null=config.on_null,
        )
    else:
        table = table_sources.find("Its place", source.place)
        root = spooled.root_of("--root", source.options.get("root"), table)
        wanted = dataclasses.asdict(listed.columns_of(source))
        state = [table.state(), root.place, wanted, source.options.get("query")]
        with spooled.folder_of(config, state) as folder:
            found = listed.read_table(
                source, table, root, folder, config.meaning, on_null=config.on_null
            )
    files = (
        place.file
        for classes in found.tree.splits.values()
        for items in classes.values()
        for place in items
    )
    command.require_apart(config, found.folder, files)
    return found


def _recorded(config: MergeOptions, checked: Sequence[MergeSource]) -> dict[str, Any]:
    """Returns the options of a merge that decide the bytes; JSON values."""
    recorded: dict[str, Any] = {"sources": {}}
    for source in sorted(checked, key=lambda source: source.name):
        recorded["sources"][source.name] = dict(source.class_map)
        if source.kind != sources.TREE:
            how = {
                flag: text for flag, text in source.options.items() if flag != "root"
            }
            how |= {"kind": source.kind}
            recorded.setdefault("how", {})[source.name] = how
    if "how" in recorded:
        recorded |= {"on_null": config.on_null, "file_in_names": config.file_in_names}
    return recorded


def main(argv: Sequence[str]) -> int:
    if len(argv) < 2:
        raise app.UsageError("Expected sources as NAME=PLACE, got none.")

    def work() -> int:
        done = convert(config_from_flags(argv[1:]))
        for line in summary.orientation_warnings(done):
            print(line, file=sys.stderr)
        summary.print_summary(done)
        return 0

    return start.exit_code(work)


if __name__ == "__main__":
    policy.set_default("exif_orientation", labelled.EXIF_ORIENTATION)
    start.run(main)
