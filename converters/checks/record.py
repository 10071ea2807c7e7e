"""Checks the content of a record: features, label, size, pixels, source bytes.

In: the data of one record, its catalog row and what the index says. Out: one text for
each fault, with the actual and the expected value. No shard is read here.
"""

import contextlib
import io
import itertools
import json
import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from converters.images import jpeg_header, soundness
from converters.inputs.image import catalog_name
from converters.jobs.more_columns import is_key
from tfpipe import errors
from tfpipe.pictures import formats
from tfpipe.shards import image_record
from tfpipe.shards.example import Feature, Kind, decode_example

if TYPE_CHECKING:
    import PIL.Image

Example = Mapping[str, Feature]

# Keys of a feature, first as the Inception scripts write it, then as TFDS does.
ENCODED_KEYS = (image_record.ENCODED, "image")
LABEL_KEYS = (image_record.LABEL, "label")
FILENAME_KEYS = ("image/filename", "file_name")
SYNSET_KEYS = ("image/class/synset",)
TEXT_KEYS = ("image/class/text",)
HEIGHT_KEYS = (image_record.HEIGHT,)
WIDTH_KEYS = (image_record.WIDTH,)

SCALARS: Mapping[str, Kind] = {
    image_record.ENCODED: "bytes",
    "image/format": "bytes",
    image_record.HEIGHT: "int64",
    image_record.WIDTH: "int64",
    "image/channels": "int64",
    "image/colorspace": "bytes",
    "image/filename": "bytes",
    image_record.LABEL: "int64",
    "image/class/synset": "bytes",
    "image/class/text": "bytes",
}
_SIDES = tuple(f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax"))
_BOX_LABELS = ("image/object/bbox/label", "image/object/class/label")
# The features of a record that the converters write; such a record has no other.
FEATURES: Mapping[str, Kind] = {
    **SCALARS,
    **dict.fromkeys(_SIDES, "float"),
    **dict.fromkeys(_BOX_LABELS, "int64"),
}
_CONSTANTS = {"image/format": b"JPEG", "image/channels": 3, "image/colorspace": b"RGB"}


class CatalogRow(NamedTuple):
    """The row of a record in the catalog, without split and shard; see `index`."""

    record: int
    byte_offset: int
    num_bytes: int
    label: int
    synset: str
    height: int
    width: int
    filename: str
    decision: str
    digest: str

    def to_json(self) -> str:
        """Returns the members of a JSON object, without the location in the shard."""
        values = self._asdict()
        for name in ("record", "byte_offset", "num_bytes"):
            del values[name]
        return json.dumps(values)[1:-1]


def int_of(example: Example, keys: Sequence[str]) -> int | None:
    """Returns the integer of the first named feature with a single integer."""
    return next(_scalars(example, keys, "int64"), None)


def bytes_of(example: Example, keys: Sequence[str]) -> bytes | None:
    """Returns the bytes of the first named feature with a single value."""
    return next(_scalars(example, keys, "bytes"), None)


def _scalars(example: Example, keys: Sequence[str], kind: Kind) -> Iterator[Any]:
    for key in keys:
        feature = example.get(key)
        if feature is not None and feature.kind == kind and len(feature.values) == 1:
            yield feature.values[0]


def text_of(example: Example, keys: Sequence[str]) -> str:
    """Returns the text of the first of these features that has one value; else ""."""
    return _decode_text(bytes_of(example, keys) or b"")


def _decode_text(value: bytes) -> str:
    """Decodes UTF-8; other bytes become U+FFFD, because JSON cannot hold them."""
    return value.decode(errors="replace")


def filename_of(example: Example) -> str:
    """Returns the file name in a record as the catalog spells it; "" if it has none."""
    name = bytes_of(example, FILENAME_KEYS) or b""
    return catalog_name(name.decode(errors="surrogateescape"))


def schema_faults(
    data: bytes,
    row: CatalogRow,
    *,
    features: Mapping[str, str] | None,
    classes: Sequence[tuple[str, str]],
    label_base: int,
    multi_label: bool = False,
) -> Iterator[str]:
    """Compares the features of a record with the index and the catalog.

    Args:
        data: The serialized example.
        row: Its row of the catalog.
        features: Kind of each feature that the record must have. None: the record has
            the features that the converters write, and no other.
        classes: (synset, text) of each class, in label order.
        label_base: Label of the first class.
        multi_label: Whether a record may have any number of labels.

    Yields:
        A text for each fault.
    """
    try:
        example = decode_example(data)
    except errors.BadRecordError as error:
        yield str(error)
        return
    scalars = SCALARS.keys() - (LABEL_KEYS if multi_label else ())
    kinds = FEATURES if features is None else features
    wrong = list(_feature_faults(example, kinds, scalars))
    if features is None:
        others = example.keys() - FEATURES.keys()
        for key in sorted(itertools.filterfalse(is_key, others)):
            wrong.append(f"feature {key} is not one of those that the converters write")
    yield from wrong
    if wrong:
        return  # the values can be compared only if types and lengths are right
    if features is None:
        yield from _converter_faults(example)
    yield from _class_faults(example, classes, label_base)
    yield from _row_faults(example, row)
    yield from size_faults(example)


def _feature_faults(
    example: Example, features: Mapping[str, str], scalars: Collection[str]
) -> Iterator[str]:
    """Yields features that are missing, of another type, or not of one value."""
    for key, kind in features.items():
        feature = example.get(key)
        if feature is None:
            yield f"feature {key} is missing"
        elif feature.kind != kind and not (
            feature.kind == "empty" and key not in scalars
        ):
            yield f"feature {key} must be of type {kind}, got {feature.kind}"
        elif key in scalars and len(feature.values) != 1:
            yield f"feature {key} must have one value, got {len(feature.values)}"


def _converter_faults(example: Example) -> Iterator[str]:
    """Yields faults of constants and boxes in a record that a converter wrote."""
    for key, expected in _CONSTANTS.items():
        if (got := example[key].values[0]) != expected:
            yield f"{key} must be {expected!r}, got {got!r}"
    counts = {key: len(example[key].values) for key in (*_SIDES, *_BOX_LABELS)}
    if len(set(counts.values())) > 1:
        yield f"the features of the boxes must have one length, got {counts}"
    for key in _SIDES:
        if not all(0 <= side <= 1 for side in example[key].values):
            yield f"{key} must be 0 to 1, got {example[key].values}"
    labels = example[image_record.LABEL].values
    for key in _BOX_LABELS:
        if set(example[key].values) - {*labels}:
            shown = ", ".join(map(str, labels))
            yield f"{key} must repeat the label {shown}, got {example[key].values}"


def _class_faults(
    example: Example, classes: Sequence[tuple[str, str]], label_base: int
) -> Iterator[str]:
    last = label_base + len(classes) - 1
    found = (example[key] for key in LABEL_KEYS if key in example)
    labels = next((each.values for each in found if each.kind == "int64"), [])
    if wrong := [label for label in labels if not label_base <= label <= last]:
        yield f"the label must be {label_base} to {last}, got {wrong[0]}"
        return
    label = int_of(example, LABEL_KEYS)
    if label is None:
        return
    names = zip((SYNSET_KEYS, TEXT_KEYS), classes[label - label_base], strict=True)
    for keys, expected in names:
        if bytes_of(example, keys) is None:
            continue  # records of another tool may have no names
        if (got := text_of(example, keys)) != expected:
            yield f"{keys[0]} of label {label} must be {expected!r}, got {got!r}"


def _row_faults(example: Example, row: CatalogRow) -> Iterator[str]:
    """Yields values that differ from the catalog; missing features are passed over."""
    filename = bytes_of(example, FILENAME_KEYS)
    encoded = bytes_of(example, ENCODED_KEYS)
    synset = bytes_of(example, SYNSET_KEYS)
    pairs = {
        "the label": (int_of(example, LABEL_KEYS), row.label),
        "the synset": (None if synset is None else _decode_text(synset), row.synset),
        "the height": (int_of(example, HEIGHT_KEYS), row.height),
        "the width": (int_of(example, WIDTH_KEYS), row.width),
        "the file name": (
            None if filename is None else os.path.basename(filename_of(example)),
            os.path.basename(row.filename),
        ),
        "the digest of the image": (
            None if encoded is None else xxhash.xxh3_128_hexdigest(encoded),
            row.digest,
        ),
    }
    for name, (got, expected) in pairs.items():
        if got is not None and got != expected:
            yield f"{name} must be {expected!r} as the catalog says, got {got!r}"


def size_faults(example: Example) -> Iterator[str]:
    """Compares height and width of the record with those in the image's header."""
    encoded = bytes_of(example, ENCODED_KEYS)
    if encoded is None:
        return
    try:
        size = image_size(encoded)
    except ValueError as error:
        yield f"the image has no readable header: {error}"
        return
    yield from _size_faults(example, size, "the image's header says")


def image_size(encoded: bytes) -> tuple[int, int]:
    """Reads the height and width in pixels from the header of an image.

    Raises:
        ValueError: If the bytes have no header of a known format.
    """
    try:
        if encoded.startswith(jpeg_header.MAGIC):
            header = jpeg_header.read_header(encoded)
            return header.height, header.width
        kind = formats.sniff(encoded)
        if kind is None:
            raise ValueError(f"not an image: it begins with {encoded[:12]!r}")
        from converters.images import pillow

        size, _ = pillow.read_size(encoded, kind)
    except jpeg_header.BadImageError as error:
        raise ValueError(error.detail) from error
    return size


def _size_faults(example: Example, size: tuple[int, int], says: str) -> Iterator[str]:
    """Yields a fault if the record has another (height, width) than `size`."""
    stored = (int_of(example, HEIGHT_KEYS), int_of(example, WIDTH_KEYS))
    if None not in stored and stored != size:
        yield (
            f"{says} height {size[0]} and width {size[1]}, "
            f"the record says {stored[0]} and {stored[1]}"
        )


# Decisions after which a record holds damage that its owner wants to keep.
_KEPT_DAMAGE = ("kept_corrupt", "completed_truncated")


def decode_faults(example: Example, *, decision: str = "") -> Iterator[str]:
    """Checks that the image decodes, to the height and width stored, without damage.

    A fault is what TensorFlow refuses, a JPEG without an end marker, and damage that
    `soundness.check_jpeg` finds.

    Args:
        example: The features of a record.
        decision: What its catalog says about the image.
    """
    encoded = bytes_of(example, ENCODED_KEYS)
    if encoded is None:
        return
    damage = not any(kept in decision for kept in _KEPT_DAMAGE)
    try:
        height, width = _decoded_size(encoded, damage=damage)
    except jpeg_header.BadImageError as why:
        is_damaged = why.reason == "corrupt"
        text = "is damaged" if is_damaged else "does not decode"
        yield f"the image {text}: {why}"
    except _UNDECODABLE as why:
        yield f"the image does not decode: {why}"
    else:
        yield from _size_faults(example, (height, width), "the decoded image has")


def _decoded_size(encoded: bytes, *, damage: bool) -> tuple[int, int]:
    """Decodes an image, and returns its height and width in pixels.

    Args:
        encoded: The image.
        damage: Whether damage of a JPEG is a fault.

    Raises:
        ValueError, OSError, SyntaxError, BadImageError: If it does not decode.
    """
    _require_tensorflow(encoded)
    if encoded.startswith(jpeg_header.MAGIC):
        soundness.check_jpeg(encoded, damage=damage)
        return image_size(encoded)
    image = _decode(encoded)
    return image.height, image.width


def _require_tensorflow(encoded: bytes) -> None:
    """Refuses images that TensorFlow's decoder refuses, but Pillow's decodes.

    TensorFlow decodes a few of the JPEGs without an end marker and refuses most,
    depending on the bits of the last block. All of them are refused here.

    Raises:
        ValueError: If TensorFlow would refuse the image.
        BadImageError: If the image is a JPEG without a header.
    """
    if not encoded.startswith(jpeg_header.MAGIC):
        _require_png(encoded)
        return
    header = jpeg_header.read_header(encoded)
    num_values = header.height * header.width * header.num_components
    if num_values >= _MAX_VALUES:
        raise ValueError(
            f"TensorFlow decodes images of less than {_MAX_VALUES} values, got "
            f"{header.width}x{header.height} pixels of {header.num_components}"
        )
    if not jpeg_header.has_end(encoded, header.scan):
        raise ValueError(
            "a JPEG must end in an EOI marker, and no marker before it may lead past "
            f"it, got none in {len(encoded)} bytes: {_CUT}"
        )


def _require_png(encoded: bytes) -> None:
    """Refuses other formats than PNG, and a PNG with a wrong checksum or no end.

    Raises:
        ValueError: If TensorFlow would refuse the image.
    """
    kind = formats.sniff(encoded)
    if kind != "PNG":
        raise ValueError(
            "tf.io.decode_jpeg takes JPEG and PNG, got "
            f"{kind or f'data that begins with {encoded[:12]!r}'}"
        )
    if _PNG_END not in encoded:
        raise ValueError(f"a PNG must have an IEND chunk, got none: {_CUT}")
    with _opened(encoded, ["PNG"]) as image:
        image.verify()  # checks the checksums; decoding ignores them


# TensorFlow refuses images of 2 ** 29 values or more.
_MAX_VALUES = 1 << 29
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
_CUT = "it is cut short or damaged"
_UNDECODABLE = (OSError, SyntaxError, ValueError, jpeg_header.BadImageError)


def _decode(encoded: bytes) -> "PIL.Image.Image":
    """Decodes an image with Pillow, or raises one of `_UNDECODABLE`."""
    kind = "JPEG" if encoded.startswith(jpeg_header.MAGIC) else formats.sniff(encoded)
    # Pillow may try no other format: for some formats it runs other programs.
    kinds = [] if kind is None or formats.remedy(kind) else [kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about odd but readable files
        with _opened(encoded, kinds) as image:
            image.load()
            return image


@contextlib.contextmanager
def _opened(encoded: bytes, kinds: list[str]) -> "Iterator[PIL.Image.Image]":
    """Opens an image with Pillow, which is imported only to decode.

    Raises:
        ValueError: If the image has more pixels than Pillow allows.
    """
    import PIL.Image

    from tfpipe.pictures import pixels

    limits = pixels.limits(PIL.Image.MAX_IMAGE_PIXELS)
    try:
        with limits, PIL.Image.open(io.BytesIO(encoded), formats=kinds) as image:
            yield image
    except PIL.Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error


def source_faults(example: Example, source: bytes) -> Iterator[str]:
    """Checks that the stored image is the source file, byte for byte."""
    encoded = bytes_of(example, ENCODED_KEYS) or b""
    if encoded == source:
        return
    differ = (
        i for i, (a, b) in enumerate(zip(encoded, source, strict=False)) if a != b
    )
    first = next(differ, min(len(encoded), len(source)))
    yield (
        f"the image must be the {len(source)} bytes of the source, got "
        f"{len(encoded)} bytes; they differ from byte {first} of the file on"
    )


def pixel_faults(example: Example, source: bytes) -> Iterator[str]:
    """Checks that the stored image decodes to the pixels of the source file."""
    encoded = bytes_of(example, ENCODED_KEYS) or b""
    try:
        stored, original = _decode(encoded), _decode(source)
    except _UNDECODABLE as why:
        yield f"image and source must decode, to be compared: {why}"
        return
    if (stored.mode, stored.size) != (original.mode, original.size):
        yield (
            f"the image must be {original.mode} of {original.size} as the source, got "
            f"{stored.mode} of {stored.size}"
        )
    elif stored.tobytes() != original.tobytes():
        import PIL.ImageChops

        different = PIL.ImageChops.difference(stored, original).getbbox()
        yield (
            "the image must have the pixels of the source, got others within "
            f"(left, top, right, bottom) {different}"
        )
