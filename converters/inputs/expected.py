"""Checks the input for all of a data set with known counts (--expect).

In: the images of any reader, with their classes. Out: nothing, or an error with all
images, classes and boxes that are missing or too much. Only names and counts are
compared; no file is opened.
"""

import itertools
from collections.abc import Iterator, Sequence

from converters.inputs.image import Image
from converters.inputs.labels import Labelled
from converters.inputs.listed import Listed
from tfpipe.errors import count_of

NONE = "none"
ILSVRC2012 = "ilsvrc2012"
EXPECTATIONS = (NONE, ILSVRC2012)

_NUM_TRAIN, _NUM_VALIDATION = 1_281_167, 50_000
_NUM_CLASSES = 1000
# Training images of the smallest and of the largest class.
_FEWEST, _MOST = 732, 1300
_VALIDATION_PER_CLASS = 50
_NUM_BOXES = 615_299
# Names that an error shows of a longer list.
_NUM_NAMED = 5


def check_expected(expected: str, labelled: Labelled) -> None:
    """Checks the input against the known counts of a data set.

    Boxes are counted if the input has a place for boxes.

    Args:
        expected: One of EXPECTATIONS; "none" checks nothing.
        labelled: The images, and all classes in label order.
    """
    if expected == NONE:
        return
    if expected != ILSVRC2012:
        raise ValueError(
            f"--expect must be one of {', '.join(EXPECTATIONS)}, got {expected!r}."
        )
    faults = list(_faults(labelled.listed, list(labelled.labels)))
    if faults:
        listed = "".join(f"\n  {fault}" for fault in faults)
        raise ValueError(
            f"The input must be all of ILSVRC-2012 (--expect={ILSVRC2012}), but:"
            f"{listed}\nFetch what is missing again, or leave out --expect."
        )


def _faults(listed: Listed, names: Sequence[str]) -> Iterator[str]:
    if len(names) != _NUM_CLASSES:
        yield f"the class list has {len(names):,} classes instead of {_NUM_CLASSES:,}"
    for split, number, fewest, most in (
        ("train", _NUM_TRAIN, _FEWEST, _MOST),
        ("validation", _NUM_VALIDATION, _VALIDATION_PER_CLASS, _VALIDATION_PER_CLASS),
    ):
        classes = listed.splits.get(split, {})
        counts = {name: len(classes.get(name, ())) for name in names}
        count = sum(map(len, classes.values()))
        if count != number:
            yield f"{split}: {count:,} images instead of {number:,}"
        missing = [name for name in counts if classes and not counts[name]]
        yield from _fault(split, "class", missing, " without an image")
        wrong = [
            f"{n} ({c:,})" for n, c in counts.items() if c and not fewest <= c <= most
        ]
        bounds = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        yield from _fault(split, "class", wrong, f" without {bounds} images each")
        images = [*itertools.chain.from_iterable(classes.values())]
        if images and split == "validation":
            # Images of tables and tars may have other names.
            names_lost = _names_lost(images)
            if listed.boxes is not None or len(names_lost) < _NUM_VALIDATION:
                yield from _fault(split, "missing name", names_lost)
    for split, classes in listed.splits.items():
        every = itertools.chain.from_iterable(classes.values())
        empty = [image.name for image in every if image.num_bytes == 0]
        yield from _fault(split, "image", empty, " without bytes")
    if listed.boxes is not None and listed.boxes.num_boxes != _NUM_BOXES:
        yield f"boxes: {listed.boxes.num_boxes:,} instead of {_NUM_BOXES:,}"


def _names_lost(images: Sequence[Image]) -> list[str]:
    """Returns the names from 00000001 to 00050000 that no validation image has."""
    stems = {image.name.rpartition("/")[2].partition(".")[0] for image in images}
    names = (f"ILSVRC2012_val_{n:08d}" for n in range(1, _NUM_VALIDATION + 1))
    return [name for name in names if name not in stems]


def _fault(
    split: str, noun: str, names: Sequence[str], fault: str = ""
) -> Iterator[str]:
    """Yields a line with the number of names and the first names, if there are any."""
    if names:
        first = ", ".join(names[:_NUM_NAMED]) + ", …" * (len(names) > _NUM_NAMED)
        yield f"{split}: {count_of(len(names), noun)}{fault}: {first}"
