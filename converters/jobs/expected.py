"""Checks the input for all of a data set with known counts (--expect).

In: the images of any reader, with their classes. Out: nothing, or an error with all
images, classes and boxes that are missing or too much. Only names and counts are
compared; no file is opened.
"""

import itertools
from collections.abc import Iterator, Sequence

from converters.inputs.labels import Labelled
from converters.inputs.listed import Listed
from tfpipe.errors import count_of
from tfpipe.shards.split_names import TRAIN, VALIDATION

NONE = "none"
ILSVRC2012 = "ilsvrc2012"
EXPECTATIONS = (NONE, ILSVRC2012)

_NUM_CLASSES = 1000
# Images of a split, of its smallest and of its largest class.
_COUNTS = {TRAIN: (1_281_167, 732, 1300), VALIDATION: (50_000, 50, 50)}
_NUM_BOXES = 615_299
# Names that an error shows of a longer list.
_NUM_NAMED = 5


def check_expected(expected: str, labelled: Labelled) -> None:
    """Checks the input against the known counts of a data set; "none" checks nothing.

    Boxes are counted if the input has a place for boxes.
    """
    if expected == NONE:
        return
    if expected != ILSVRC2012:
        raise ValueError(
            f"--expect must be one of {', '.join(EXPECTATIONS)}, got {expected!r}."
        )
    if faults := list(_faults(labelled.listed, list(labelled.labels))):
        listed = "".join(f"\n  {fault}" for fault in faults)
        raise ValueError(
            f"The input must be all of ILSVRC-2012 (--expect={ILSVRC2012}), but:"
            f"{listed}\nFetch what is missing again, or leave out --expect."
        )


def _faults(listed: Listed, names: Sequence[str]) -> Iterator[str]:
    if len(names) != _NUM_CLASSES:
        yield f"the class list has {len(names):,} classes instead of {_NUM_CLASSES:,}"
    for split, (number, fewest, most) in _COUNTS.items():
        classes = listed.splits.get(split, {})
        counts = {name: len(classes.get(name, ())) for name in names}
        images = [*itertools.chain.from_iterable(classes.values())]
        if len(images) != number:
            yield f"{split}: {len(images):,} images instead of {number:,}"
        missing = [name for name in counts if classes and not counts[name]]
        yield from _fault(split, "class", missing, " without an image")
        wrong = [
            f"{n} ({c:,})" for n, c in counts.items() if c and not fewest <= c <= most
        ]
        bounds = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        yield from _fault(split, "class", wrong, f" without {bounds} images each")
        if images and split == VALIDATION:
            # Images of tables and tars may have other names.
            stems = {i.name.rpartition("/")[2].partition(".")[0] for i in images}
            usual = (f"ILSVRC2012_val_{n:08d}" for n in range(1, number + 1))
            names_lost = [name for name in usual if name not in stems]
            if listed.boxes is not None or len(names_lost) < number:
                yield from _fault(split, "missing name", names_lost)
    for split, classes in listed.splits.items():
        every = itertools.chain.from_iterable(classes.values())
        empty = [image.name for image in every if image.num_bytes == 0]
        yield from _fault(split, "image", empty, " without bytes")
    if listed.boxes is not None and listed.boxes.num_boxes != _NUM_BOXES:
        yield f"boxes: {listed.boxes.num_boxes:,} instead of {_NUM_BOXES:,}"


def _fault(
    split: str, noun: str, names: Sequence[str], fault: str = ""
) -> Iterator[str]:
    if names:
        first = ", ".join(names[:_NUM_NAMED]) + ", …" * (len(names) > _NUM_NAMED)
        yield f"{split}: {count_of(len(names), noun)}{fault}: {first}"
