"""Checks that the input is all of a data set whose counts are known (--expect).

In: the listed images, their classes and boxes. Out: nothing, or an error that lists
everything that is missing or too much. Only names and counts are compared; no file is
opened.
"""

import collections
from collections.abc import Iterator, Sequence

from converters.inputs.boxes import Boxes
from converters.inputs.classes import Class
from converters.inputs.ilsvrc import Image, Tree
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


def check_expected(
    expected: str, tree: Tree, classes: Sequence[Class], boxes: Boxes
) -> None:
    """Checks the input against the known counts of a data set.

    Args:
        expected: One of EXPECTATIONS; "none" checks nothing.
        tree: The images.
        classes: All classes, in label order.
        boxes: The bounding boxes.

    Raises:
        ValueError: If something is missing or too much; the message lists all of it.
    """
    if expected == NONE:
        return
    if expected != ILSVRC2012:
        raise ValueError(
            f"--expect must be one of {', '.join(EXPECTATIONS)}, got {expected!r}."
        )
    faults = list(_faults(tree, [item.synset for item in classes], boxes))
    if faults:
        listed = "".join(f"\n  {fault}" for fault in faults)
        raise ValueError(
            f"The input must be all of ILSVRC-2012 (--expect={ILSVRC2012}), but:"
            f"{listed}\nFetch what is missing again, or leave out --expect."
        )


def _faults(tree: Tree, synsets: Sequence[str], boxes: Boxes) -> Iterator[str]:
    if len(synsets) != _NUM_CLASSES:
        yield f"the class list has {len(synsets):,} classes instead of {_NUM_CLASSES:,}"
    train = tree.splits["train"]
    yield from _number_fault("train", len(train), _NUM_TRAIN)
    yield from _class_faults("train", train, synsets, _FEWEST, _MOST)
    validation = tree.splits.get("validation", ())
    yield from _number_fault("validation", len(validation), _NUM_VALIDATION)
    if validation:
        each = _VALIDATION_PER_CLASS
        yield from _class_faults("validation", validation, synsets, each, each)
        yield from _validation_faults(validation)
    for split, images in tree.splits.items():
        empty = [image.name for image in images if image.num_bytes == 0]
        if empty:
            counted = count_of(len(empty), "image")
            yield f"{split}: {counted} without bytes: {_some(empty)}"
    if boxes.num_boxes != _NUM_BOXES:
        yield f"boxes: {boxes.num_boxes:,} instead of {_NUM_BOXES:,}"


def _number_fault(split: str, number: int, expected: int) -> Iterator[str]:
    if number != expected:
        yield f"{split}: {number:,} images instead of {expected:,}"


def _class_faults(
    split: str, images: Sequence[Image], synsets: Sequence[str], fewest: int, most: int
) -> Iterator[str]:
    """Yields classes without images, and classes with too few or too many."""
    counts = collections.Counter(image.class_index for image in images)
    missing = [synset for n, synset in enumerate(synsets) if not counts[n]]
    if missing:
        counted = count_of(len(missing), "class")
        yield f"{split}: {counted} without an image: {_some(missing)}"
    wrong = [
        f"{synset} ({counts[number]:,})"
        for number, synset in enumerate(synsets)
        if counts[number] and not fewest <= counts[number] <= most
    ]
    if wrong:
        bounds = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        counted = f"{count_of(len(wrong), 'class')} without {bounds} images each"
        yield f"{split}: {counted}: {_some(wrong)}"


def _validation_faults(images: Sequence[Image]) -> Iterator[str]:
    """Yields the names from 00000001 to 00050000 that no image has."""
    stems = {image.name.rpartition("/")[2].partition(".")[0] for image in images}
    names = (f"ILSVRC2012_val_{n:08d}" for n in range(1, _NUM_VALIDATION + 1))
    missing = [name for name in names if name not in stems]
    if missing:
        yield f"validation: {count_of(len(missing), 'missing name')}: {_some(missing)}"


def _some(names: Sequence[str]) -> str:
    """Returns the first names, separated by commas."""
    more = ", …" if len(names) > _NUM_NAMED else ""
    return ", ".join(names[:_NUM_NAMED]) + more
