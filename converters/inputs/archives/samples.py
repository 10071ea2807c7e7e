"""Samples of a WebDataset: members of a tar whose names differ after the first dot.

In: a tar. `a/b.jpg`, `a/b.cls` and `a/b.json` are parts of the sample with the key
`a/b`. Out: the image of each sample, as an offset in the tar, with its class: from the
part `.cls` or `.json`, or from the key. Only headers and the parts with classes are
read. Nothing in these parts is executed or trusted.
"""

import dataclasses
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from converters.inputs import listing, patterns, tars
from converters.inputs.archives.readers import (
    ArchiveReader,
    Found,
    FoundImage,
    NoClassError,
    class_of,
)
from converters.inputs.image import NO_CLASS, Image
from converters.inputs.listing import LeftOut, Reason
from converters.inputs.patterns import Archive
from converters.inputs.tables import columns
from tfpipe import errors
from tfpipe.errors import count_of
from tfpipe.location import parts
from tfpipe.location.location import Location

LabelPart = Literal["cls", "json", "key"]
FROM_CLS: LabelPart = "cls"
FROM_JSON: LabelPart = "json"
FROM_KEY: LabelPart = "key"

# A class is a word or a number; a JSON part may describe an image at length.
_MAX_BYTES: Mapping[str, int] = {FROM_CLS: 4096, FROM_JSON: 1 << 20}


def _in_json(content: bytes, names: Sequence[str]) -> tuple[str, str | None]:
    """Returns the class below the names of nested objects, and the split at the top."""
    try:
        top: Any = errors.from_json(content.decode("utf-8-sig"))
    except ValueError:
        raise NoClassError(Reason.BAD_LABEL) from None
    split, value = top.get("split") if isinstance(top, dict) else None, top
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return class_of(value), split if isinstance(split, str) else None


@dataclasses.dataclass
class _Sample:
    """The parts of a sample so far."""

    images: dict[str, tars.Member] = dataclasses.field(default_factory=dict)
    label: bytes | None = None
    parts: set[str] = dataclasses.field(default_factory=set)


# A packed tar is an error of the reader: no file of a folder is lost in silence.
_ENDINGS = (".tar", ".tgz", *(f".tar.{end}" for end in ("gz", "bz2", "xz", "zst")))
TARS = patterns.Kind(
    "files that end in .tar", lambda name: name.lower().endswith(_ENDINGS)
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TarReader(ArchiveReader):
    """Reads the tars of a WebDataset; flags of the same names describe the fields."""

    label_from: LabelPart | None = None
    image_part: str | None = None
    on_null: str = columns.FAIL

    kind = TARS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_from is None:
            usual = FROM_CLS if self.label_key is None else FROM_JSON
            object.__setattr__(self, "label_from", usual)
        if self.label_from not in (choices := get_args(LabelPart)):
            raise ValueError(
                f"--label_from must be one of {', '.join(choices)}, got "
                f"{self.label_from!r}."
            )
        if self.label_key is not None and self.label_from != FROM_JSON:
            raise ValueError(
                f"--label_key={self.label_key} needs --label_from=json, got "
                f"{self.label_from}."
            )

    @property
    def says_splits(self) -> bool:
        return self.label_from == FROM_JSON

    def read_archive(self, folder: Location, archive: Archive) -> Iterator[Found]:
        """Lists the samples of a tar."""
        where = folder.resolve(archive.file).shown
        samples: dict[str, _Sample] = {}
        with parts.opened(folder, archive.file, archive.num_bytes) as pread:
            tar = tars.Tar(pread, where, 0, archive.num_bytes)
            for member in tars.members(tar):
                if reason := _fault(member):
                    yield LeftOut(member.name, reason)
                else:
                    self._add(tar, member, samples)
        if self.on_null == columns.FAIL:
            self._require_partners(where, samples)
        for key, sample in samples.items():
            try:
                yield self._found(key, sample, archive.file)
            except NoClassError as error:
                yield LeftOut(key, error.reason)

    def _add(
        self, tar: tars.Tar, member: tars.Member, samples: dict[str, _Sample]
    ) -> None:
        folder, base = posixpath.split(posixpath.normpath(member.name))
        stem, _, part = base.partition(".")
        part = part.lower()  # as WebDataset reads it
        key = posixpath.join(folder, stem)
        sample = samples.setdefault(key, _Sample())
        if part in sample.parts:
            raise ValueError(
                f"{tar.where} must hold each part of a sample once, got {key}.{part} "
                "twice, so that it is unknown which one is meant. Make the tar again."
            )
        sample.parts.add(part)
        if part == self.label_from != FROM_KEY:
            # Of a larger part, one byte too many tells its size.
            count = min(member.num_bytes, _MAX_BYTES[part] + 1)
            sample.label = tar.take(member.offset, count)
        elif (
            part == self.image_part.lower()
            if self.image_part
            else listing.has_suffix(f"x.{part}", listing.IMAGE_SUFFIXES)
        ):
            sample.images[part] = member

    def _require_partners(self, where: str, samples: Mapping[str, _Sample]) -> None:
        part = self.label_from
        alone = [k for k, s in samples.items() if s.images and part not in s.parts]
        if alone and part != FROM_KEY:
            raise ValueError(
                f"{where} must hold the class of each image as {alone[0]}.{part}, "
                f"got {count_of(len(alone), 'image')} of {len(samples):,} samples "
                "without such a part. Say with --label_from where the class is, make "
                "the tar again, or leave such images out with --on_null=skip."
            )

    def _found(self, key: str, sample: _Sample, file: str) -> Found:
        """Returns class and image of a sample; NoClassError if one is missing."""
        if len(sample.images) != 1:
            several = Reason.SEVERAL_IMAGES
            raise NoClassError(several if sample.images else Reason.NO_IMAGE)
        (member,), split = sample.images.values(), None
        if self.label_from == FROM_KEY:
            prefix, underscore, _ = key.partition("_")
            name = class_of(key.rpartition("/")[0] or (prefix if underscore else ""))
        elif sample.label is None:
            raise NoClassError(Reason.NO_LABEL)
        elif len(sample.label) > _MAX_BYTES[str(self.label_from)]:
            raise NoClassError(Reason.BAD_LABEL)
        elif self.label_from == FROM_JSON:
            names = (self.label_key or "label").split(".")
            name, split = _in_json(sample.label, names)
        else:
            name = class_of(sample.label)
        span = (file, member.offset, member.num_bytes)
        image = Image(posixpath.normpath(member.name), NO_CLASS, *span)
        return FoundImage(name, image, split)


def _fault(member: tars.Member) -> Reason | None:
    """Returns why a member is no part of a sample; None if it is one."""
    *above, base = member.name.removeprefix("./").split("/")
    if {"", ".."} & {*above, base} or "\0" in member.name:
        return Reason.UNSAFE_NAME
    if not member.is_file:
        return Reason.NOT_A_FILE
    is_part = "." in base and not base.startswith(".")
    return None if is_part else Reason.OTHER_NAME
