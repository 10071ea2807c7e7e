"""Finds the images of a data set in the input of its conversion.

In: the words of an index about a conversion, and the places of the input. Out: the
places of the images, by their names in the catalog.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from converters.inputs.archives.example_images import TfrecordReader
from converters.inputs.archives.samples import TarReader
from converters.inputs.image import Image, catalog_name
from converters.inputs.listed import Listed
from converters.inputs.meaning import TEXT, Meaning
from converters.inputs.merged.reader import MergeReader
from converters.inputs.reader import Reader, Workspace
from converters.inputs.tables import columns
from converters.inputs.tables.reader import TableReader

_READERS: Mapping[str, Any] = {
    "converters.table": TableReader,
    "converters.webdataset": TarReader,
    "converters.tfrecord": TfrecordReader,
    "converters.merge": MergeReader,
}


@dataclasses.dataclass(frozen=True)
class Again:
    """The images of an input that was listed again.

    Attributes:
        listed: The input.
        images: The images, by their names in the catalog.
    """

    listed: Listed
    images: Mapping[str, Image]

    def find(self, name: str) -> Image:
        """Returns the image with a name in the catalog.

        Raises:
            ValueError: If the input has no such image.
        """
        if (image := self.images.get(name)) is None:
            raise ValueError(
                f"--input must hold the image {name}, got no such image. Give the "
                "input that the data set was made from."
            )
        return image


def list_again(
    made_by: Mapping[str, Any],
    places: Sequence[str],
    roots: Sequence[str],
    workspace: Workspace,
) -> Again:
    """Lists an input by the reader of a conversion, with the same options.

    Args:
        made_by: Member of the index about the conversion.
        places: Values of --input, as for the conversion; NAME=PLACE for a merge.
        roots: Values of --root; NAME=VALUE for a merge.
        workspace: Folder for copies of images.

    Raises:
        ValueError: If no reader made the data set of such places, or the input is
            another one.
    """
    options = made_by.get("options", {})
    reader = _reader_of(str(made_by.get("command")), options, places, roots)
    meaning = Meaning(
        split=options.get("split"),
        split_names=not options.get("no_split_names"),
        label_type=TEXT,  # any labels will do
    )
    listed = reader.list_images(meaning, workspace)
    return Again(listed, {catalog_name(each.name): each for each in listed.images()})


def _reader_of(
    command: str,
    options: Mapping[str, Any],
    places: Sequence[str],
    roots: Sequence[str],
) -> Reader:
    if command not in _READERS:
        raise ValueError(
            f"--input is for data sets of {', '.join(_READERS)}, got one of {command}. "
            "Images of converters.imagenet and converters.folder are found in "
            "--input_dir; copies and chosen records have no input."
        )
    kind = _READERS[command]
    fields = {field.name for field in dataclasses.fields(kind)}
    values = {name: options[name] for name in fields & options.keys()}
    values["on_null"] = columns.SKIP
    if kind is MergeReader:
        values |= _of_merge(options, places, roots)
    elif kind is TableReader:
        values |= {"input": places[0], "root": roots[0] if roots else None}
    else:
        values["input"] = list(places)
    reader: Reader = kind(**{name: values[name] for name in fields & values.keys()})
    return reader


def _of_merge(
    options: Mapping[str, Any], places: Sequence[str], roots: Sequence[str]
) -> dict[str, Any]:
    """Returns the fields of the reader of a merge."""
    sources, root_of = (
        dict(word.partition("=")[::2] for word in words) for words in (places, roots)
    )
    if wrong := sources.keys() ^ options["sources"].keys():
        raise ValueError(
            "--input must be given as NAME=PLACE for each source of the merge, "
            f"{', '.join(options['sources'])}; got other names such as {min(wrong)!r}."
        )
    how: dict[str, dict[str, str]] = {"root": root_of} if root_of else {}
    for name, given in options.get("how", {}).items():
        for flag, value in given.items():
            if flag != "kind":
                how.setdefault(flag, {})[name] = value
    # Classes that a class map left out have no record.
    return {"sources": sources, "how": how}
