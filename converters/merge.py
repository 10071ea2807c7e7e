"""Merges class-per-directory trees into one data set of TFRecord shards.

  python -m converters.merge NAME=FOLDER [NAME=FOLDER ...] --output_dir=DIR

Each FOLDER is a tree as converters.folder reads it: a folder for each class, with or
without train/, val/ and test/ above. Classes of equal names become one class, splits of
equal names one split. The name of an image in the catalog begins with NAME/.

  --class_map=NAME=FILE   other names for classes of a source: lines of a class, a tab
                          and its new class; an empty new class leaves the class out

Equal images, also of different sources, are listed in duplicates.jsonl, and left out
with --drop_duplicates=same_class or all. --near_duplicates=4 lists images that look
alike in near_duplicates.jsonl, and leaves none out; it needs
pip install 'tfpipe[near_duplicates]'.

All other flags are those of converters.folder, and DIR gets the same files. The same
input, options and seed give the same bytes, in whatever order the sources are named.
The last line on stdout is one JSON object. Exit code: 0 done, 1 an error.
"""

import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import app, flags

from converters.inputs.merged import sources
from converters.inputs.merged.sources import Source
from converters.jobs.job import Job
from converters.near import hashes, pairs, report
from converters.options import (
    command,
    exit_code,
    labelled,
    orientation,
    policy,
    shared,
    start,
    summary,
)
from tfpipe import host
from tfpipe.remote import urls

_COMMAND = "converters.merge"

flags.adopt_module_key_flags(labelled)

_CLASS_MAP = flags.DEFINE_multi_string(
    "class_map",
    [],
    "NAME=FILE: other names for classes of the source NAME, as lines of a class, a tab "
    "and its new class. A class without a line keeps its name; a class with an empty "
    "new class is left out. May be given once for each source.",
)
_NEAR_DUPLICATES = flags.DEFINE_integer(
    "near_duplicates",
    None,
    "Decode all images at the end, and list those whose 64-bit hashes of pixels differ "
    "in at most this many bits in near_duplicates.jsonl. 0 finds copies that were "
    "scaled or encoded again; 4 finds small changes too, and some chance pairs. "
    "Default: no such list.",
    lower_bound=0,
    upper_bound=pairs.MAX_DISTANCE,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(labelled.LabelledOptions):
    """Options of one merge; the flags of the same names describe them.

    Attributes:
        sources: Folder of each source, by name.
        class_map: File with the new classes of a source, by its name.
        near_duplicates: Most bits by which hashes of images that look alike differ;
            None looks for none.

    Raises:
        ValueError: If values do not fit together.
    """

    sources: Mapping[str, str]
    class_map: Mapping[str, str] = dataclasses.field(default_factory=dict)
    near_duplicates: int | None = None
    name: str = "merge"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sources:
            raise ValueError("Sources must be given as NAME=FOLDER, got none.")
        if self.near_duplicates is not None:
            hashes.require()
            if urls.is_url(self.output_dir):
                raise ValueError(
                    "--near_duplicates needs an --output_dir that is a folder. Merge "
                    "into a folder, and copy that to the store."
                )
        if self.engine == shared.RAY:
            raise ValueError(
                "--engine=ray is not for merges: its nodes do not see the sources "
                "under one folder. Share the work with --num_tasks."
            )
        for name in self.class_map:
            if name not in self.sources:
                raise ValueError(
                    f"--class_map must be of one of the sources "
                    f"{', '.join(self.sources)}, got {name!r}."
                )

    def to_json(self) -> dict[str, Any]:
        """Returns the options as JSON values."""
        maps = {"sources": dict(self.sources), "class_map": dict(self.class_map)}
        return super().to_json() | maps


def config_from_flags(arguments: Sequence[str]) -> Config:
    """Returns the options that the arguments and flags describe.

    Raises:
        ValueError: If values do not fit together.
    """
    return labelled.options_from_flags(
        Config,
        sources=_pairs("Sources", arguments),
        class_map=_pairs("--class_map", _CLASS_MAP.value),
        near_duplicates=_NEAR_DUPLICATES.value,
    )


def _pairs(what: str, words: Sequence[str]) -> dict[str, str]:
    """Returns the values of words like NAME=VALUE by their names."""
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise ValueError(f"{what} must be given as NAME=PATH, got {word!r}.")
        if name in pairs:
            raise ValueError(f"{what} must have different names, got {name!r} twice.")
        pairs[name] = value
    return pairs


def convert(config: Config) -> dict[str, Any]:
    """Merges, and returns the summary that the command prints as JSON.

    Raises:
        ValueError: If an input or the output folder is not as it must be.
        OSError: If a file cannot be read or written.
    """
    found = [_source(config, name) for name in config.sources]
    with _links(found) as folder:
        done = command.convert(
            _COMMAND, config, lambda: make_job(config, found, folder)
        )
    if config.near_duplicates is None or not done["finished"]:
        return done
    return done | report.write(
        shared.path_of("--output_dir", config.output_dir),
        distance=config.near_duplicates,
        num_workers=config.num_workers or host.num_cores(),
    )


def _source(config: Config, name: str) -> Source:
    folder = shared.path_of(f"Source {name}", config.sources[name]).absolute()
    if not folder.is_dir():
        raise ValueError(f"Source {name} must be a folder, got {folder}.")
    if not urls.is_url(config.output_dir):
        output_dir = shared.path_of("--output_dir", config.output_dir)
        if pathlib.Path(os.path.realpath(output_dir)).is_relative_to(folder.resolve()):
            raise ValueError(
                f"--output_dir must not be in source {name}, {folder}, got "
                f"{output_dir}. Choose a folder beside it."
            )
    class_map = {}
    if name in config.class_map:
        path = shared.path_of(f"--class_map={name}", config.class_map[name])
        class_map = sources.read_class_map(path)
    return Source(name=name, folder=folder, class_map=class_map)


@contextlib.contextmanager
def _links(found: Sequence[Source]) -> Iterator[pathlib.Path]:
    """Yields a folder with a link to each source, under its name."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for source in found:
            (folder / source.name).symlink_to(source.folder, target_is_directory=True)
        yield folder


def make_job(config: Config, found: Sequence[Source], folder: pathlib.Path) -> Job:
    """Lists the sources and plans the shards.

    Args:
        config: The options.
        found: The sources.
        folder: Folder with a link to each source.

    Raises:
        ValueError: If a source is not as it must be.
        OSError: If something cannot be looked at.
    """
    maps = {source.name: dict(source.class_map) for source in found}
    return labelled.make_job(
        config,
        command_name=_COMMAND,
        input_dir=folder,
        found=sources.read_sources(found),
        own_options={"sources": {name: maps[name] for name in sorted(maps)}},
    )


def main(argv: Sequence[str]) -> int:
    if len(argv) < 2:
        raise app.UsageError("Expected sources as NAME=FOLDER, got none.")

    def work() -> int:
        done = convert(config_from_flags(argv[1:]))
        for line in orientation.warnings(done):
            print(line, file=sys.stderr)
        summary.print_summary(done)
        return 0

    return exit_code.of(work)


if __name__ == "__main__":
    policy.set_default("exif_orientation", labelled.EXIF_ORIENTATION)
    start.run(main)
