"""Images in TFRecords of other tools, as places in the files.

In: an uncompressed file of `tf.train.Example` records, and the keys of their
features. Out: the image of each record, with its class. All bytes are read once, and
checked; the encoded image is found in the record as it is. Imports no TensorFlow.
"""

import dataclasses
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from converters.inputs.archives.readers import (
    ArchiveReader,
    Found,
    FoundImage,
    NoClassError,
    class_of,
)
from converters.inputs.image import NO_CLASS, Image
from converters.inputs.listing import LeftOut, Reason
from converters.inputs.patterns import Archive, Kind
from tfpipe import errors
from tfpipe.location import parts
from tfpipe.location.location import Location
from tfpipe.shards import image_record, missing_index, records
from tfpipe.shards.example import Feature, decode_example

# The keys of the Inception scripts, then those of TFDS.
IMAGE_KEYS = (image_record.ENCODED, "image")
LABEL_KEYS = (image_record.LABEL, "label")
NAME_KEYS = ("image/filename", "file_name", "filename")

# `train-00000-of-00008`, or the names of TFDS: `NAME-train.tfrecord-00000-of-00008`.
_SHARD_NAME = re.compile(
    r"(?:.+-)?\w+(?:\.tfrecord)?-\d{5}-of-\d{5}(?:\.tfrecord)?|.*\.(tfrecords?|tfrec)",
    re.DOTALL,
)
_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_ENDINGS = {b"\x89PNG": "png", b"GIF8": "gif", b"RIFF": "webp", b"BM": "bmp"}


TFRECORDS = Kind(
    "files such as train-00000-of-00008 or *.tfrecord",
    # A packed file is an error of the reader.
    is_one=lambda name: bool(_SHARD_NAME.fullmatch(name.lower().removesuffix(".gz"))),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfrecordReader(ArchiveReader):
    """Reads TFRecord files of other tools.

    A key that is None takes the first usual key of a record. The label is an int64, a
    text, or a row of 0 and 1. An empty `name_key` numbers the records.
    """

    image_key: str | None = None
    name_key: str | None = None

    kind = TFRECORDS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_key is not None and not self.image_key:
            raise ValueError("--image_key must be a key, got nothing.")
        if self.image_key is not None and self.image_key == self.label_key:
            raise ValueError(
                "--image_key and --label_key must be two keys, got "
                f"{self.image_key!r} for both."
            )

    @property
    def label_keys(self) -> Sequence[str]:
        return LABEL_KEYS if self.label_key is None else (self.label_key,)

    @property
    def _image_keys(self) -> Sequence[str]:
        return IMAGE_KEYS if self.image_key is None else (self.image_key,)

    def read_archive(self, folder: Location, archive: Archive) -> Iterator[Found]:
        """Lists the images of a file."""
        where = folder.resolve(archive.file).shown
        with parts.opened(folder, archive.file, archive.num_bytes) as read:
            each_record = records.read_from(
                lambda num_bytes, offset: read(offset, num_bytes), archive.num_bytes
            )
            for number, record in enumerate(each_record):
                name, is_first = f"{number:06d}", not number
                if record.fault and is_first:
                    _refuse_other_files(where, read(0, 2), record.fault)
                try:
                    features = {} if record.fault else decode_example(record.data)
                    if is_first:
                        self._require_keys(where, features)
                    yield self._found(archive, record, name, features)
                except errors.BadRecordError:
                    yield LeftOut(name, Reason.BAD_RECORD)
                except NoClassError as error:
                    reason = Reason.BAD_RECORD if record.fault else error.reason
                    yield LeftOut(name, reason)

    def _require_keys(self, where: str, features: Mapping[str, Feature]) -> None:
        wanted = {"--image_key": self._image_keys, "--label_key": self.label_keys}
        wanted |= {"--name_key": (self.name_key,)} if self.name_key else {}
        for flag, keys in wanted.items():
            if not features.keys() & {*keys}:
                raise ValueError(
                    f"{flag} must name a feature of the records, got "
                    f"{' and '.join(keys)}; the first record of {where} has "
                    f"{', '.join(sorted(features)) or 'no feature'}."
                )

    def _found(
        self,
        archive: Archive,
        record: records.Record,
        name: str,
        features: Mapping[str, Feature],
    ) -> Found:
        """Returns class and image of a record; NoClassError if one is missing."""
        encoded = _only(features, self._image_keys)
        if not isinstance(encoded, bytes) or not encoded:
            raise NoClassError(Reason.NO_IMAGE)
        class_name = class_of(_values(features, self.label_keys) or None)
        # Equal bytes further ahead in the record are the same image.
        start = record.data.index(encoded)
        offset = record.byte_offset + records.HEADER_BYTES + start
        name_keys = NAME_KEYS if self.name_key is None else (self.name_key,)
        name = _name(archive, name, encoded, _only(features, name_keys))
        image = Image(name, NO_CLASS, archive.file, offset, len(encoded))
        return FoundImage(class_name, image)


def _refuse_other_files(where: str, head: bytes, fault: str) -> None:
    if head in _COMPRESSED:
        raise ValueError(
            f"{where} must not be compressed: an image in it would have no place of "
            "its own. Unpack it first, for example with gzip -dc OLD > NEW."
        )
    raise ValueError(
        f"{where} must be a TFRecord file, but in its first record {fault}."
        + missing_index.other_converter(where, "converters.tfrecord")
    )


def _only(
    features: Mapping[str, Feature], keys: Sequence[str]
) -> bytes | int | float | None:
    """Returns the only value of a feature; None for no value or several."""
    values = _values(features, keys)
    return values[0] if len(values) == 1 else None


def _values(
    features: Mapping[str, Feature], keys: Sequence[str]
) -> Sequence[bytes | int | float]:
    return next((features[key].values for key in keys if key in features), ())


def _name(
    archive: Archive, number: str, encoded: bytes, stored: bytes | int | float | None
) -> str:
    """Returns the name in the record if the name is a relative path, or a number."""
    name = stored.decode(errors="replace") if isinstance(stored, bytes) else ""
    parts = name.split("/")
    if name and name.isprintable() and not {"", ".", ".."} & set(parts):
        return name
    base = posixpath.basename(archive.file)
    ending = next((e for m, e in _ENDINGS.items() if encoded.startswith(m)), "jpg")
    return f"{base}/{number}.{ending}"
