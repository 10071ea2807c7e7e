"""Checks that the input is all of a data set whose counts are known (--expect).

In: the images of any reader, with their classes. Out: nothing, or an error that lists
everything that is missing or too much. Only names and counts are compared; no file is
opened.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

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

    Args:
        expected: One of EXPECTATIONS; "none" checks nothing.
        labelled: The images, and all classes in label order. Boxes are counted if the
            input has a place for boxes.

    Raises:
        ValueError: If something is missing or too much; the message lists all of it.
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
        count = sum(map(len, classes.values()))
        if count != number:
            yield f"{split}: {count:,} images instead of {number:,}"
        if classes:
            yield from _class_faults(split, classes, names, fewest, most)
        if classes and split == "validation":
            yield from _validation_faults(classes, must_be=listed.boxes is not None)
    for split, classes in listed.splits.items():
        images = itertools.chain.from_iterable(classes.values())
        empty = [image.name for image in images if image.num_bytes == 0]
        if empty:
            counted = count_of(len(empty), "image")
            yield f"{split}: {counted} without bytes: {_some(empty)}"
    if listed.boxes is not None and listed.boxes.num_boxes != _NUM_BOXES:
        yield f"boxes: {listed.boxes.num_boxes:,} instead of {_NUM_BOXES:,}"


def _class_faults(
    split: str,
    classes: Mapping[str, Sequence[Image]],
    names: Sequence[str],
    fewest: int,
    most: int,
) -> Iterator[str]:
    """Yields classes without images, and classes with too few or too many."""
    counts = {name: len(classes.get(name, ())) for name in names}
    if missing := [name for name in names if not counts[name]]:
        counted = count_of(len(missing), "class")
        yield f"{split}: {counted} without an image: {_some(missing)}"
    wrong = [
        f"{name} ({count:,})"
        for name, count in counts.items()
        if count and not fewest <= count <= most
    ]
    if wrong:
        bounds = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        counted = f"{count_of(len(wrong), 'class')} without {bounds} images each"
        yield f"{split}: {counted}: {_some(wrong)}"


def _validation_faults(
    classes: Mapping[str, Sequence[Image]], *, must_be: bool
) -> Iterator[str]:
    """Yields the names from 00000001 to 00050000 that no image has.

    Args:
        classes: The images by class.
        must_be: Whether images must have these names; tables and tars may have others.
    """
    images = itertools.chain.from_iterable(classes.values())
    stems = {image.name.rpartition("/")[2].partition(".")[0] for image in images}
    names = [f"ILSVRC2012_val_{n:08d}" for n in range(1, _NUM_VALIDATION + 1)]
    missing = [name for name in names if name not in stems]
    if missing and (must_be or len(missing) < len(names)):
        yield f"validation: {count_of(len(missing), 'missing name')}: {_some(missing)}"


def _some(names: Sequence[str]) -> str:
    """Returns the first names, separated by commas."""
    more = ", …" if len(names) > _NUM_NAMED else ""
    return ", ".join(names[:_NUM_NAMED]) + more
