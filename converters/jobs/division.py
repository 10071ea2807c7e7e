"""The images of each split that a job stores: chosen classes, divided by fractions.

In: images whose classes have labels, the fractions of the splits, a seed. Out: the
images of each split. The choice depends only on the names of the images and the seed.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import xxhash

from converters.inputs.image import Image
from converters.inputs.labels import Labelled
from converters.inputs.listing import LeftOut, Reason
from tfpipe import errors
from tfpipe.shards.split_names import SPLITS, TRAIN

_SUM_TOLERANCE = 1e-6


class Divided(NamedTuple):
    """Images of each split with the number of their class, and names left out."""

    splits: Mapping[str, Sequence[Image]]
    left_out: Sequence[LeftOut]


def divide(
    labelled: Labelled,
    chosen: Sequence[str],
    split_fractions: Mapping[str, float],
    seed: int,
) -> Divided:
    """Returns the images of each split with the number of their class.

    All classes are taken if none is chosen. Without `split_fractions`, see `held_out`,
    the splits stay as they are.

    Raises:
        ValueError: If a class has no label, a chosen class does not exist, or a split
            has no image.
    """
    _require_labels(labelled, chosen)
    left_out: list[LeftOut] = []
    numbers = {name: index for index, name in enumerate(labelled.labels)}
    both = dict.fromkeys([*labelled.listed.splits, *split_fractions])
    splits: dict[str, list[Image]] = {split: [] for split in both}
    for split, classes in labelled.listed.splits.items():
        divided = split_fractions if split == TRAIN else {}
        for name, images in classes.items():
            names = [image.name for image in images] if divided or chosen else []
            if chosen and name not in chosen:
                left_out += (LeftOut(each, Reason.OTHER_CLASS) for each in names)
                continue
            split_of = held_out(names, divided, seed)
            for image in images:
                image = Image(image.name, numbers[name], *image[2:])
                splits[split_of.get(image.name, split)].append(image)
    for split, images in splits.items():
        if not images:
            raise ValueError(
                f"Split {split} must have at least one image, got none. Take more "
                "--classes, or classes with more images, or move the folder of the "
                "split away."
            )
    return Divided(splits, left_out)


def _require_labels(labelled: Labelled, chosen: Sequence[str]) -> None:
    labels = labelled.labels
    missing = [name for name in chosen if name not in labels]
    if missing:
        raise ValueError(
            f"--classes must name classes of the input, got {missing[0]!r}. There "
            f"are {len(labels)}, the first is {next(iter(labels))!r}."
        )
    taken = set(labelled.listed.class_names())
    if chosen and not labelled.listed.several:
        taken.intersection_update(chosen)
    if unknown := sorted(taken - labels.keys()):
        raise ValueError(
            "--label_map must name every class of the input, but lacks "
            f"{len(unknown)}, the first is {unknown[0]!r}. Add them, or choose "
            "others with --classes."
        )


def parse(words: Sequence[str]) -> dict[str, float]:
    """Reads words of the form `<split>=<fraction>`."""
    fractions: dict[str, float] = {}
    for word in words:
        split, _, text = word.partition("=")
        try:
            fraction = float(text)
        except ValueError:
            raise ValueError(
                "--split_fractions must be words such as train=0.8 with commas between "
                f"them, got {word!r}."
            ) from None
        if split in fractions:
            raise ValueError(f"--split_fractions must give {split} once, got it twice.")
        fractions[split] = fraction
    check(fractions)
    return fractions


def check(fractions: Mapping[str, float]) -> None:
    """Checks the fractions of the splits; none at all are right too."""
    if not fractions:
        return
    for split, fraction in fractions.items():
        if split not in SPLITS:
            raise ValueError(
                f"--split_fractions must be of {', '.join(SPLITS)}, got {split!r}."
                f"{errors.did_you_mean(split, SPLITS)}"
            )
        if not 0 < fraction < 1:
            raise ValueError(
                "--split_fractions must be above 0 and below 1 each, got "
                f"{split}={fraction:g}. Leave out a split that is to have no image."
            )
    if TRAIN not in fractions:
        raise ValueError(
            f"--split_fractions must give {TRAIN}, got {_text(fractions)}."
        )
    total = math.fsum(fractions.values())
    if abs(total - 1) > _SUM_TOLERANCE:
        raise ValueError(
            "--split_fractions must add up to 1, so that each image is in one split; "
            f"got {_text(fractions)}, which add up to {total:g}."
        )


def _text(fractions: Mapping[str, float]) -> str:
    return ",".join(f"{split}={fraction:g}" for split, fraction in fractions.items())


def held_out(
    names: Sequence[str], fractions: Mapping[str, float], seed: int
) -> dict[str, str]:
    """Returns the splits of the images of a class outside of the train split.

    A split gets its fraction, rounded to a number of images. If the class has enough
    images, every split gets at least an image, train included. A class with fewer
    images gives an image to train, and then an image to the next splits. Without
    fractions no image is taken.
    """

    def key(name: str) -> tuple[int, str]:
        text = f"validation/{seed}/{name}".encode(errors="surrogateescape")
        return xxhash.xxh3_64_intdigest(text), name

    if not fractions:
        return {}
    counts = _counts(len(names), fractions)
    splits = [split for split, count in counts.items() for _ in range(count)]
    return dict(zip(sorted(names, key=key), splits, strict=False))


def _counts(num_images: int, fractions: Mapping[str, float]) -> dict[str, int]:
    """Returns the number of images by split, without train."""
    others = [split for split in SPLITS[1:] if split in fractions]
    if num_images <= len(others):
        return dict.fromkeys(others[: max(num_images - 1, 0)], 1)
    counts = {
        split: max(int(num_images * fractions[split] + 0.5), 1) for split in others
    }
    while sum(counts.values()) >= num_images:
        counts[max(counts, key=lambda split: counts[split])] -= 1
    return counts
