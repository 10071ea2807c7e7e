"""Conversions of every kind of input in this process, as a command would run them."""

import contextlib
import dataclasses
import pathlib
from typing import Any, NamedTuple

from converters.conversion import steps
from converters.inputs import labels, listing
from converters.inputs.archives.data_set import DataSetReader
from converters.inputs.archives.example_images import TfrecordReader
from converters.inputs.archives.samples import TarReader
from converters.inputs.classtree import TreeReader
from converters.inputs.ilsvrc import IlsvrcReader
from converters.inputs.image import Image
from converters.inputs.listed import Listed
from converters.inputs.listing import LeftOut
from converters.inputs.meaning import USUAL, Meaning
from converters.inputs.merged import MergeReader
from converters.inputs.reader import Reader, Workspace
from converters.inputs.tables.reader import TableReader
from converters.jobs import division
from converters.jobs.job import Job
from converters.options import job
from converters.options.job import ConvertOptions

READERS: dict[str, Any] = {
    "folder": TreeReader,
    "imagenet": IlsvrcReader,
    "table": TableReader,
    "webdataset": TarReader,
    "tfrecord": TfrecordReader,
    "data_set": DataSetReader,
    "merge": MergeReader,
}


class Conversion(NamedTuple):
    """A conversion by one of the commands."""

    command: str
    options: ConvertOptions
    reader: Reader

    def make_job(self) -> Job:
        return steps.make_job(*self)

    def convert(self) -> dict[str, Any]:
        return steps.convert(*self)


def conversion(command_name: str, /, **values: Any) -> Conversion:
    """Returns a conversion by the last word of its command, with values of flags."""
    kind = READERS[command_name]
    fields = {field.name for field in dataclasses.fields(kind)}
    reader = kind(**{key: values[key] for key in values if key in fields})
    if command_name == "imagenet":
        values = {"policy": job.decided(), **values}
    shared = {field.name for field in dataclasses.fields(ConvertOptions)}
    options = {key: values[key] for key in values if key in shared or key not in fields}
    options = {"name": command_name} | options
    return Conversion(f"converters.{command_name}", ConvertOptions(**options), reader)


def make_job(made: Conversion) -> Job:
    """Lists the input and plans the shards."""
    return made.make_job()


def convert(made: Conversion) -> dict[str, Any]:
    """Converts, and returns the summary."""
    return made.convert()


class Tree(NamedTuple):
    """The images of each split with the number of their class."""

    splits: dict[str, list[Image]]
    left_out: list[LeftOut]
    listed: Listed

    @property
    def ignored(self) -> dict[str, int]:
        return listing.count(self.left_out)


def read_listed(reader: Reader, meaning: Meaning = USUAL) -> Listed:
    """Lists an input that needs no working folder."""
    with contextlib.ExitStack() as stack:
        workspace = Workspace(folder=pathlib.Path("none"), stack=stack)
        return reader.list_images(meaning, workspace)


def read_ilsvrc(root: pathlib.Path) -> Tree:
    """Lists ILSVRC-2012, or a part of it."""
    listed = read_listed(IlsvrcReader(input_dir=str(root)))
    labelled = labels.give_labels(listed, USUAL)
    found = division.divide(labelled, chosen=(), split_fractions={}, seed=0)
    splits = {split: sorted(images) for split, images in found.splits.items()}
    return Tree(splits, [*listed.left_out, *found.left_out], listed)
