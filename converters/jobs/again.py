"""Finds the images of a data set in the input of its conversion.

In: the words of an index about a conversion, and the places of the input. Out: the
places of the images, by their names in the catalog.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from converters.inputs import listing
from converters.inputs.archives.example_images import TfrecordReader
from converters.inputs.archives.samples import TarReader
from converters.inputs.boxes import Boxes
from converters.inputs.ilsvrc import IlsvrcReader
from converters.inputs.image import Image, catalog_name, whole_file
from converters.inputs.meaning import TEXT, Meaning
from converters.inputs.merged import MergeReader
from converters.inputs.reader import Reader, Workspace
from converters.inputs.tables import columns
from converters.inputs.tables.reader import TableReader
from tfpipe.location.browse import Folder
from tfpipe.location.location import Location

_IMAGENET = "converters.imagenet"
_READERS: Mapping[str, Any] = {
    "converters.table": TableReader,
    "converters.webdataset": TarReader,
    "converters.tfrecord": TfrecordReader,
    "converters.merge": MergeReader,
}
# A byte of a name that is no UTF-8, as `catalog_name` writes it.
_BYTE = re.compile(r"\\u(dc[89a-f][0-9a-f])")


@dataclasses.dataclass(frozen=True)
class Again:
    """The images of an input, listed again.

    Attributes:
        folder: The folder above the files of the images.
        images: The images, by their names in the catalog; None if the names are files.
        boxes: Bounding boxes, if the input has a place for them.
    """

    folder: Location
    images: Mapping[str, Image] | None = None
    boxes: Boxes | None = None

    def find_all(self, names: Sequence[str]) -> dict[str, Image]:
        """Returns the images with these names in the catalog, if they are there."""
        if self.images is not None:
            return {n: self.images[n] for n in names if n in self.images}
        images, source = {}, Folder(self.folder)
        for name in names:
            for file in (name, _BYTE.sub(lambda match: chr(int(match[1], 16)), name)):
                if (size := source.size(file)) is not None:
                    images[name] = whole_file(file, size)
        return images

    def missing(self, name: str) -> ValueError:
        """Returns the error about an image outside of the input."""
        return ValueError(
            f"{self.folder.shown} must hold the image {name!a}, got none. Give "
            "the input that the data set was made from: its folder as --input_dir, the "
            "--root of a table of paths as --input_dir too, and all others as --input, "
            "as for the command that converted them."
        )


def list_again(
    made_by: Mapping[str, Any],
    input_dir: str | None,
    places: Sequence[str],
    roots: Sequence[str],
    workspace: Workspace,
) -> Again:
    """Lists an input by the reader of a conversion, with the same options.

    Args:
        made_by: Member of the index about the conversion.
        input_dir: Value of --input_dir, also the folder of the files of a table.
        places: Values of --input, as for the conversion, if there is no --input_dir.
        roots: Values of --root.
        workspace: Folder for copies of images.
    """
    command, options = str(made_by.get("command")), made_by.get("options", {})
    if input_dir is None:
        reader = _reader_of(command, options, places, roots)
    elif command == _IMAGENET:
        reader = IlsvrcReader(input_dir=input_dir)
    elif command in _READERS and _READERS[command] is not TableReader:
        raise ValueError(
            "--input_dir finds images by their names in a tree, but those of this data "
            "set come from other files. Name these files with --input, as for `python "
            f"-m {command}`."
        )
    else:
        return Again(listing.input_folder(input_dir).location)
    meaning = Meaning(
        split=options.get("split"),
        split_names=not options.get("no_split_names"),
        label_type=TEXT,  # any labels will do
    )
    listed = reader.list_images(meaning, workspace)
    images = {catalog_name(each.name): each for each in listed.images()}
    return Again(listed.folder, images, listed.boxes)


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
    own: dict[str, Any] = {"input": list(places)}
    if kind is MergeReader:
        own = _of_merge(options, places, roots)
    elif kind is TableReader:
        own = {"input": places[0], "root": roots[0] if roots else None}
    values = {**options, "on_null": columns.SKIP, **own}
    names = {field.name for field in dataclasses.fields(kind)} & values.keys()
    reader: Reader = kind(**{name: values[name] for name in names})
    return reader


def _of_merge(
    options: Mapping[str, Any], places: Sequence[str], roots: Sequence[str]
) -> dict[str, Any]:
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
