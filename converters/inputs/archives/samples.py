"""Samples of a WebDataset: members of a tar whose names differ after the first dot.

In: a tar. `a/b.jpg`, `a/b.cls` and `a/b.json` are parts of the sample with the key
`a/b`. Out: the image of each sample, as a place in the tar, with its class. Only
headers and the parts with classes are read.
"""

import posixpath
from collections.abc import Iterator

from converters.inputs import listing, tars
from converters.inputs.archives.contents import Contents, Item
from converters.inputs.archives.sample_class import ClassRule, NoClassError
from converters.inputs.listing import LeftOut


class _Sample:
    """The parts of a sample that are known so far."""

    def __init__(self) -> None:
        self.images: dict[str, tars.Member] = {}
        self.label: bytes | None = None
        self.label_too_large = False
        self.parts: set[str] = set()


def read_samples(tar: tars.Tar, rule: ClassRule, *, image_part: str | None) -> Contents:
    """Lists the samples of a tar.

    Args:
        tar: The tar.
        rule: Where the class of a sample is.
        image_part: Name of the part with the image, such as `jpg` or `left.png`; None
            takes the one whose name ends as that of an image.

    Raises:
        ValueError: If the tar is damaged, compressed or cut short, or holds a part of a
            sample twice.
        OSError: If it cannot be read.
        RemoteError: If it cannot be read by URL.
    """
    samples: dict[str, _Sample] = {}
    left_out: list[LeftOut] = []
    for member in tars.members(tar):
        if reason := _fault(member):
            left_out.append(LeftOut(member.name, reason))
            continue
        key, part = _split(member.name)
        sample = samples.setdefault(key, _Sample())
        if part in sample.parts:
            raise ValueError(
                f"{tar.where} must hold each part of a sample once, got {member.name} "
                "twice, so that it is unknown which one is meant. Make the tar again."
            )
        sample.parts.add(part)
        if part == rule.part:
            sample.label_too_large = member.num_bytes > rule.max_bytes()
            if not sample.label_too_large:
                sample.label = tar.take(member.offset, member.num_bytes)
        elif part == image_part or (image_part is None and _is_image(part)):
            sample.images[part] = member
    items = list(_items(samples, rule, left_out))
    return Contents(items, left_out)


def _items(
    samples: dict[str, _Sample], rule: ClassRule, left_out: list[LeftOut]
) -> Iterator[Item]:
    for key, sample in samples.items():
        if len(sample.images) != 1:
            reason = listing.SEVERAL_IMAGES if sample.images else listing.NO_IMAGE
            left_out.append(LeftOut(key, reason))
            continue
        ((part, member),) = sample.images.items()
        try:
            if sample.label_too_large:
                raise NoClassError(listing.BAD_LABEL)
            name = rule.class_of(key, sample.label)
        except NoClassError as error:
            left_out.append(LeftOut(key, str(error)))
            continue
        yield Item(f"{key}.{part}", name, member.offset, member.num_bytes)


def _fault(member: tars.Member) -> str:
    """Returns why a member is no part of a sample; an empty text if it is one."""
    name = member.name.removeprefix("./")
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "" in parts or "\0" in name:
        return listing.UNSAFE_NAME
    if not member.is_file:
        return listing.NOT_A_FILE
    base = parts[-1]
    if base.startswith(".") or "." not in base:
        return listing.OTHER_NAME
    return ""


def _split(name: str) -> tuple[str, str]:
    """Returns the key and the part that a name stands for."""
    folder, base = posixpath.split(posixpath.normpath(name))
    stem, _, part = base.partition(".")
    return posixpath.join(folder, stem), part


def _is_image(part: str) -> bool:
    return listing.has_suffix(f"x.{part}", listing.IMAGE_SUFFIXES)
