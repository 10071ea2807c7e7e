"""The change of one record: another image in it, all other features as they were.

In: the data of a record, and a seed. Out: the data of its copy, in pieces, and what the
catalog says of it. Nothing is read or written here, and nothing is kept between calls.
"""

import dataclasses
from typing import Any, Literal, NamedTuple

import xxhash

from converters.checks import record as keys
from converters.images import jpeg_header, lossless, replicas
from tfpipe import errors
from tfpipe.native import entry_points
from tfpipe.shards.example import (
    Buffers,
    Located,
    bytes_feature,
    float_feature,
    int64_feature,
    locate,
)

Kind = Literal["recoded", "reencoded", "enlarged"]

_FORMAT = "image/format"
_XMIN, _XMAX = "image/object/bbox/xmin", "image/object/bbox/xmax"
# Reasons of `lossless.Recoded.left` that concern mirroring alone.
_NOT_MIRRORED = ("edge", "components")


class Changed(NamedTuple):
    """A copy of a record.

    Attributes:
        data: The serialized example, in pieces.
        height: Height of the image in pixels.
        width: Width of the image in pixels.
        digest: Digest of the stored image.
        decision: How the image was changed: "recoded", "mirrored",
            "recoded_not_mirrored", "reencoded", "enlarged"; or "kept_" and the reason
            why it has the bytes of its source.
        table: Entry points of the image; empty if it has none, or none are wanted.
    """

    data: Buffers
    height: int
    width: int
    digest: str
    decision: str
    table: bytes = b""


class _Image(NamedTuple):
    encoded: bytes
    decision: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """How the images of copies differ from their source.

    Attributes:
        kind: "recoded" changes bits and no pixel; "reencoded" decodes and encodes with
            other tables; "enlarged" scales up, and encodes.
        mirror: Whether half of the images, drawn by the seed, are mirrored.
        factor: Ratio of the sides of enlarged images, above 1.
        quality: JPEG quality of images that are encoded, 1 to 100.
        entry_points: Whether the entry points of every image are made.

    Raises:
        ValueError: If a number is out of range, or the library for JPEGs is not built.
    """

    kind: Kind = "recoded"
    mirror: bool = False
    factor: float = 1.0
    quality: int | None = None
    entry_points: bool = False

    def __post_init__(self) -> None:
        if self.kind == "enlarged" and not 1 < self.factor <= 64:
            raise ValueError(
                f"--enlarge must be above 1 and at most 64, got {self.factor:g}."
            )
        if (self.quality is None) != (self.kind == "recoded"):
            raise ValueError(
                "--quality is for images that --enlarge or --reencode encode, and only "
                "for these. Leave it out, or add one of them."
            )
        if self.quality is not None and not 1 <= self.quality <= 100:
            raise ValueError(f"--quality must be 1 to 100, got {self.quality}.")
        if self.entry_points:
            entry_points.require()
        if self.kind != "recoded" and self.mirror:
            raise ValueError(
                "--mirror is for copies without loss. Leave out --enlarge and "
                "--reencode, or make the copies in two runs."
            )

    def to_json(self) -> dict[str, Any]:
        """Returns the fields that are set, as JSON values."""
        fields = dataclasses.asdict(self)
        if self.kind != "enlarged":
            del fields["factor"]
        if not self.entry_points:  # then an older job goes on
            del fields["entry_points"]
        return fields

    def __call__(self, data: bytes, size: tuple[int, int], *, seed: str) -> Changed:
        """Returns the copy of a record.

        Args:
            data: The serialized example.
            size: Height and width of its image in pixels, as the catalog says.
            seed: Text that no other record of any copy has.

        Raises:
            BadRecordError: If the data is no example with an image, or the image cannot
                be decoded though it must be.
            MemoryError: If the image does not fit into memory.
        """
        record = locate(data)
        key = next((key for key in keys.ENCODED_KEYS if key in record.entries), None)
        if key is None:
            listed = " or ".join(keys.ENCODED_KEYS)
            raise errors.BadRecordError(f"the record has no feature {listed}")
        values = record.feature(key).values
        if len(values) != 1 or not isinstance(values[0], bytes):
            raise errors.BadRecordError(f"feature {key} is not one string of bytes")
        image = self._image(values[0], seed)
        changes: dict[str, Buffers] = {key: bytes_feature(image.encoded)}
        if image.decision == "mirrored":
            changes |= _mirrored_boxes(record)
        elif image.decision == "enlarged":
            size = keys.image_size(image.encoded)
            changes |= _sizes(record, size)
        digest = xxhash.xxh3_128_hexdigest(image.encoded)
        table = entry_points.find(image.encoded).table if self.entry_points else b""
        copy = record.replaced(changes)
        return Changed(copy, *size, digest, image.decision, table)

    def _image(self, encoded: bytes, seed: str) -> _Image:
        number = _number(seed)
        try:
            if self.kind == "enlarged":
                return self._enlarged(encoded, number)
            if not encoded.startswith(jpeg_header.MAGIC):
                return _Image(encoded, "kept_not_jpeg")
            if self.kind == "reencoded":
                assert self.quality is not None
                made = replicas.reencode(encoded, quality=self.quality, seed=number)
                return _Image(made, "reencoded")
        except jpeg_header.BadImageError as error:
            raise errors.BadRecordError(f"the image: {error.detail}") from None
        return self._recoded(encoded, number, seed)

    def _enlarged(self, encoded: bytes, number: int) -> _Image:
        assert self.quality is not None
        large = replicas.enlarge(encoded, factor=self.factor, quality=self.quality)
        return _Image(_checked(replicas.vary(large, seed=number)).encoded, "enlarged")

    def _recoded(self, encoded: bytes, number: int, seed: str) -> _Image:
        # Another number than the seed of the bits, because the two must be independent.
        wanted = self.mirror and _number(f"mirror/{seed}") % 2 == 1
        made = replicas.vary(encoded, seed=number, mirror=wanted)
        decision = "mirrored" if wanted else "recoded"
        if wanted and made.left in _NOT_MIRRORED:
            made = replicas.vary(encoded, seed=number)
            decision = "recoded_not_mirrored"
        if made.left:
            return _Image(encoded, f"kept_{made.left}")
        return _Image(made.encoded, decision)


def _number(seed: str) -> int:
    """Returns a number from 0 to 2 ** 64 - 1 for a text."""
    return xxhash.xxh3_64_intdigest(seed.encode())


def _checked(made: lossless.Recoded) -> lossless.Recoded:
    """Refuses an image of our own encoder that cannot be varied."""
    if made.left:
        raise errors.BadRecordError(f"the enlarged image cannot vary: {made.left}")
    return made


def _mirrored_boxes(record: Located) -> dict[str, Buffers]:
    """Returns the features of the boxes whose left and right change places."""
    if _XMIN not in record.entries or _XMAX not in record.entries:
        return {}
    left, right = record.feature(_XMIN).values, record.feature(_XMAX).values
    return {
        _XMIN: float_feature([1 - side for side in right]),
        _XMAX: float_feature([1 - side for side in left]),
    }


def _sizes(record: Located, size: tuple[int, int]) -> dict[str, Buffers]:
    """Returns the features of a record that tell the size and format of its image."""
    height, width = size
    changed: dict[str, Buffers] = {
        **{key: int64_feature([height]) for key in keys.HEIGHT_KEYS},
        **{key: int64_feature([width]) for key in keys.WIDTH_KEYS},
        _FORMAT: bytes_feature(b"JPEG"),
    }
    return {key: feature for key, feature in changed.items() if key in record.entries}
