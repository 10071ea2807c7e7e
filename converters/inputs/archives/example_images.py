"""Images in TFRecords of other tools, as places in the files.

In: an uncompressed file of `tf.train.Example` records, and the keys of their
features. Out: the image of each record, with its class. All bytes are read once, and
checked; the encoded image is found in the record as it is. Imports no TensorFlow.
"""

import dataclasses
import pathlib
import posixpath
import re
from collections.abc import Mapping, Sequence

from converters.inputs import listing, reading
from converters.inputs.archives import readers, samples
from converters.inputs.archives.patterns import Archive, Kind
from converters.inputs.archives.readers import ArchiveContents, ArchivedImage, Reader
from converters.inputs.listing import LeftOut
from converters.inputs.reading import ReadAt
from tfpipe import errors
from tfpipe.shards import image_record, records
from tfpipe.shards.example import Feature, decode_example

# The keys of the Inception scripts, then those of TFDS.
IMAGE_KEYS = (image_record.ENCODED, "image")
LABEL_KEYS = (image_record.LABEL, "label")
NAME_KEYS = ("image/filename", "file_name", "filename")

# `train-00000-of-00008`, or the names of TFDS: `NAME-train.tfrecord-00000-of-00008`.
_SHARD_NAME = re.compile(r"(?:.+-)?\w+(?:\.tfrecord)?-\d{5}-of-\d{5}(?:\.tfrecord)?")
_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_ENDINGS = {b"\x89PNG": "png", b"GIF8": "gif", b"RIFF": "webp", b"BM": "bmp"}


TFRECORDS = Kind(
    "files such as train-00000-of-00008 or *.tfrecord",
    is_one=lambda name: (
        bool(_SHARD_NAME.fullmatch(name))
        or name.endswith((".tfrecord", ".tfrecords", ".tfrec"))
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keys:
    """Keys of the features of a record; None takes the first usual key of the record.

    Attributes:
        image: Key of the encoded image, a byte string.
        label: Key of the class: an int64, a text, or a row of 0 and 1.
        name: Key of the name of the image; empty numbers the records.
    """

    image: str | None = None
    label: str | None = None
    name: str | None = None


def read_images(
    read: ReadAt, archive: Archive, where: str, keys: Keys
) -> ArchiveContents:
    """Lists the images of a file.

    Args:
        read: Reads bytes of the file, see `reading.opened`.
        archive: The file.
        where: Its path or URL, for errors.
        keys: Keys of the features.

    Raises:
        ValueError: If the file is compressed, or a record lacks a named key.
        OSError: If the file cannot be read.
        RemoteError: If the file cannot be read by URL.
    """
    items: list[ArchivedImage] = []
    left_out: list[LeftOut] = []
    num_records = 0

    def pread(num_bytes: int, offset: int) -> bytes:
        return read(offset, num_bytes)

    for number, record in enumerate(records.read_from(pread, archive.num_bytes)):
        if record.fault and number == 0:
            _refuse_other_files(where, read(0, 2), record.fault)
        place = f"{number:06d}"
        num_records += 1
        features = _features(record)
        if features is None:
            left_out.append(LeftOut(place, listing.BAD_RECORD))
            continue
        if number == 0:
            _require_keys(where, features, keys)
        found = _item(archive, record, place, features, keys)
        if isinstance(found, ArchivedImage):
            items.append(found)
        else:
            left_out.append(found)
    return ArchiveContents(items, left_out, num_records)


def _features(record: records.Record) -> Mapping[str, Feature] | None:
    if record.fault:
        return None
    try:
        return decode_example(record.data)
    except errors.BadRecordError:
        return None


def _refuse_other_files(where: str, head: bytes, fault: str) -> None:
    if head in _COMPRESSED:
        raise ValueError(
            f"{where} must not be compressed: an image in it would have no place of "
            "its own. Unpack it first, for example with gzip -dc OLD > NEW."
        )
    raise ValueError(
        f"{where} must be a TFRecord file, but in its first record {fault}."
    )


def _require_keys(where: str, features: Mapping[str, Feature], keys: Keys) -> None:
    """Checks the first record for the named or usual features."""
    for flag, key, usual in (
        ("--image_key", keys.image, IMAGE_KEYS),
        ("--label_key", keys.label, LABEL_KEYS),
        ("--name_key", keys.name, NAME_KEYS),
    ):
        wanted = usual if key is None else (key,)
        is_needed = flag != "--name_key" or bool(key)
        if is_needed and not any(name in features for name in wanted):
            raise ValueError(
                f"{flag} must name a feature of the records, got "
                f"{' and '.join(wanted)}; the first record of {where} has "
                f"{', '.join(sorted(features)) or 'no feature'}."
            )


def _item(
    archive: Archive,
    record: records.Record,
    place: str,
    features: Mapping[str, Feature],
    keys: Keys,
) -> ArchivedImage | LeftOut:
    encoded = _only(features, keys.image, IMAGE_KEYS)
    if not isinstance(encoded, bytes) or not encoded:
        return LeftOut(place, listing.NO_IMAGE)
    label = _values(features, keys.label, LABEL_KEYS)
    try:
        class_name = _class_name(label)
    except samples.NoClassError as error:
        return LeftOut(place, str(error))
    # Equal bytes further ahead in the record are the same image.
    start = record.data.index(encoded)
    offset = record.byte_offset + records.HEADER_BYTES + start
    name = _name(archive, place, encoded, _only(features, keys.name, NAME_KEYS))
    return ArchivedImage(name, class_name, offset, len(encoded))


def _only(
    features: Mapping[str, Feature], key: str | None, usual: Sequence[str]
) -> bytes | int | float | None:
    """Returns the only value of a feature; None for no value or several."""
    values = _values(features, key, usual)
    return values[0] if len(values) == 1 else None


def _values(
    features: Mapping[str, Feature], key: str | None, usual: Sequence[str]
) -> Sequence[bytes | int | float]:
    names = usual if key is None else (key,)
    return next((features[name].values for name in names if name in features), ())


def _class_name(values: Sequence[bytes | int | float]) -> str:
    """Returns the class; several numbers as the text of a row, see `readers`."""
    if not values:
        raise samples.NoClassError(listing.NO_LABEL)
    if len(values) > 1:
        if all(value in (0, 1) for value in values):
            return readers.ROW + "".join(str(int(value)) for value in values)
        raise samples.NoClassError(listing.SEVERAL_LABELS)
    label = values[0]
    if isinstance(label, float):
        raise samples.NoClassError(listing.FLOAT_LABEL)
    if isinstance(label, bytes):
        return samples.ClassRule().class_of("", label)
    if label < 0:  # TFDS gives -1 to images of a test split
        raise samples.NoClassError(listing.NO_LABEL)
    return str(label)


def _name(
    archive: Archive, place: str, encoded: bytes, given: bytes | int | float | None
) -> str:
    """Returns the name in the record if the name is a relative path, or a number."""
    name = given.decode(errors="replace") if isinstance(given, bytes) else ""
    parts = name.split("/")
    if name and name.isprintable() and not {"", ".", ".."} & set(parts):
        return name
    base = posixpath.basename(archive.file)
    ending = next((e for m, e in _ENDINGS.items() if encoded.startswith(m)), "jpg")
    return f"{base}/{place}.{ending}"


def reader(keys: Keys) -> Reader:
    """Returns the reader of TFRecord files, see `read_images`."""

    def read(folder: pathlib.Path, archive: Archive) -> ArchiveContents:
        where = reading.shown_file(folder, archive.file)
        with reading.opened(folder, archive.file, archive.num_bytes) as pread:
            return read_images(pread, archive, where, keys)

    label_keys = LABEL_KEYS if keys.label is None else (keys.label,)
    return Reader(TFRECORDS, read, label_keys)
