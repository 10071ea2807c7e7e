"""The images of an input by split and class, and all other words of the reader.

In: the findings of a reader. Out: `Listed`, the same for all inputs.
Never here: labels (see `labels`), the bytes of an image.
"""

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from converters.inputs.classes import NO_LIST, ClassList
from converters.inputs.image import Image
from converters.inputs.listing import LeftOut
from converters.inputs.meaning import (
    NUMBER,
    LabelType,
    Meaning,
    label_type,
    whole_number,
)
from tfpipe.location.location import Location
from tfpipe.shards.split_names import SPLITS, TRAIN, natural

if TYPE_CHECKING:
    from converters.inputs.boxes import Boxes

# Images by split and class.
Splits = Mapping[str, Mapping[str, Sequence[Image]]]


class ImageRows(NamedTuple):
    """Rows of a Parquet file with further columns of images.

    Attributes:
        path: The file.
        row_of: Row of each image, by its name.
        columns: Column of the file, by its name in the catalog.
        in_records: Whether records get these columns too.
        key: Column of the file with the number of its row.
        source: Name of the source in a merge.
    """

    path: pathlib.Path
    row_of: Mapping[str, int]
    columns: Mapping[str, str] = {}
    in_records: bool = False
    key: str = "file_row_number"
    source: str = ""


class Listed(NamedTuple):
    """Images of an input.

    Attributes:
        folder: The folder above the files of the images.
        splits: The images by split and class, as the input calls the classes.
        left_out: Names without an image, with reasons.
        classes: The list of classes that comes with the input, if any.
        several: All classes of an image with several classes, by the name of the
            image; the first is its class in `splits`.
        states: States of the files of many images, before the files were read.
        num_rows: Number of rows, records or samples of the input, counted as they are
            read; of a tree, of files and of left-out folders.
        boxes: Bounding boxes, if the input has a place for them.
        rows: Rows with further columns of the images; at most a row an image.
        warnings: Lines about the meaning of the input.
        apart: Folders in which no output may lie; empty takes the first
            folder of each image below `folder`.
    """

    folder: Location
    splits: Splits
    left_out: Sequence[LeftOut] = ()
    classes: ClassList = NO_LIST
    several: Mapping[str, Sequence[str]] = {}
    states: Mapping[str, str] = {}
    num_rows: int | None = None
    boxes: "Boxes | None" = None
    rows: Sequence[ImageRows] = ()
    apart: Sequence[Location] = ()
    warnings: Sequence[str] = ()

    def folders_of_images(self) -> list[Location]:
        """Returns the folders in which the next run would read an output."""
        if self.apart:
            return list(self.apart)
        tops = {image.file.partition("/")[0]: image.file for image in self.images()}
        # Paths of a table may begin with "..".
        return [
            self.folder.resolve(top)
            for top, file in sorted(tops.items())
            if "://" not in file
        ]

    def images(self) -> Iterator[Image]:
        """Yields the images of all splits."""
        for classes in self.splits.values():
            for images in classes.values():
                yield from images

    def class_names(self) -> list[str]:
        """Returns all classes, sorted by name, also further classes of an image."""
        more = {name for names in self.several.values() for name in names}
        return sorted(more.union(*self.splits.values()))

    def in_splits(self, meaning: Meaning) -> "Listed":
        """Returns the same images in the split that a user says, if the user does."""
        if meaning.split is None and meaning.split_names:
            return self
        return self.renamed({}, meaning.split or TRAIN)

    def in_folders(self, tops: Iterable[Location], meaning: Meaning) -> "Listed":
        """Returns the same images, with warnings about the names of folders."""
        lines = meaning.unread_names(tops, self.splits)
        return self._replace(warnings=[*self.warnings, *lines])

    def with_list(self, classes: ClassList) -> "Listed":
        """Returns the same images with the names of a list of classes."""
        return self._replace(classes=classes) if classes.origin else self

    def renamed(self, names: Mapping[str, str], split: str | None = None) -> "Listed":
        """Returns the same images with other names of classes, or in another split."""
        splits: dict[str, dict[str, list[Image]]] = {}
        for own_split, classes in self.splits.items():
            moved = splits.setdefault(split or own_split, {})
            for old in sorted(classes, key=natural):
                moved.setdefault(names.get(old, old), []).extend(classes[old])
        several = {
            image: [names.get(each, each) for each in classes]
            for image, classes in self.several.items()
        }
        return self._replace(splits=ordered(splits), several=several)

    def of_type(self, chosen: LabelType | None) -> "Listed":
        """Returns the same images; where labels are numbers, `3.0` becomes `3`."""
        if chosen != NUMBER:
            return self
        return self.renamed({name: whole_number(name) for name in self.class_names()})

    def named(
        self, names: Mapping[int, str] | None = None, *, names_from: str = ""
    ) -> "Listed":
        """Returns the same images with the names of the numbers.

        Without `names`, which come from `names_from`, the input has the names.
        """
        numbers = self.class_names()
        origin = names_from or self.classes.origin
        names = self.classes.names if names is None else names
        if not names or label_type(numbers, None) != NUMBER:
            return self
        unknown = [number for number in map(int, numbers) if number not in names]
        if unknown:
            raise ValueError(
                f"{origin} must name the class of each number in the input, got no "
                f"name for {unknown[0]}. It has {len(names)} names, the first is for "
                f"{min(names, default=0)}."
            )
        return self.renamed({number: names[int(number)] for number in numbers})


def ordered(splits: Splits) -> Splits:
    """Returns the splits in their usual order, with their classes sorted by name."""
    return {
        split: {name: splits[split][name] for name in sorted(splits[split])}
        for split in SPLITS
        if split in splits
    }
