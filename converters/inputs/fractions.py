"""Divides the images of a class among splits, by fractions.

In: the names of the images of a class, the fractions of the splits, a seed. Out: the
splits of images outside of the train split. The choice depends only on
the names and the seed.
"""

import math
from collections.abc import Mapping, Sequence

import xxhash

from tfpipe import errors
from tfpipe.shards.split_names import SPLITS, TRAIN

_SUM_TOLERANCE = 1e-6


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
