"""Side files for other readers, and shard names that these readers know.

In: the index of a data set, and the place of each record in its shard. Out: the content
of files by name: TFDS's metadata, DALI's index files, slim's label map, and a table of
the classes for people. The functions are pure; their caller writes the files. Readers
find shards by globs such as `train*` and take every match for a TFRecord file, so that
no side file beside the shards may match such a glob. DALI's index files have the names
of the shards, and are therefore in a folder of their own.
"""

import collections
import functools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from converters.inputs.classes import Class, classes_of
from tfpipe.shards import image_record, index, records

LABELS_NAME = "labels.txt"
CLASSES_NAME = "classes.tsv"
DATASET_INFO_NAME = "dataset_info.json"
FEATURES_NAME = "features.json"
# TFDS looks for `<feature>.labels.txt` with the slashes of the feature turned to dots.
LABEL_NAMES_NAME = image_record.LABEL.replace("/", ".") + ".labels.txt"
DALI_DIR_NAME = index.DALI_DIR_NAME

# Everything that `side_files` may put beside the shards; the last one is a folder.
SIDE_NAMES = frozenset(
    {
        *(LABELS_NAME, CLASSES_NAME, DATASET_INFO_NAME, FEATURES_NAME),
        *(LABEL_NAMES_NAME, DALI_DIR_NAME),
    }
)

# Shard names of every layout, in TFDS's language of templates.
LAYOUTS: Mapping[str, str] = {
    "inception": "{SPLIT}-{SHARD_X_OF_Y}",
    "tfds": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
}

_BACKGROUND = "background"
_FILE_FORMAT = "tfrecord"
_MIN_DIGITS = 5

# Names that TFDS gives itself: it can find the end of such a name in a shard's name.
_TFDS_NAME = re.compile(r"[a-z][a-z0-9_]*")

_Feature = dict[str, Any]


def shard_name(
    layout: str, dataset_name: str, *, split: str, number: int, num_shards: int
) -> str:
    """Returns the file name of a shard, as the readers of a layout expect it.

    Args:
        layout: A key of `LAYOUTS`.
        dataset_name: Name of the data set, which only the layout tfds uses.
        split: Split of the shard.
        number: Number of the shard, from 0.
        num_shards: Number of shards of the split.

    Returns:
        `train-00003-of-00128` or `imagenet-train.tfrecord-00003-of-00128`.

    Raises:
        ValueError: If the layout is unknown, or TFDS could not read the name.
    """
    if layout not in LAYOUTS:
        raise ValueError(
            f"Unknown layout {layout!r}: choose one of {', '.join(LAYOUTS)}."
        )
    if layout == "tfds":
        require_name(dataset_name)
    return _expand(LAYOUTS[layout], dataset_name, split, number, num_shards)


def shard_names(
    layout: str, dataset_name: str, split: str, num_shards: int
) -> list[str]:
    """Returns the file names of all shards of a split, see `shard_name`."""
    name = functools.partial(
        shard_name, layout, dataset_name, split=split, num_shards=num_shards
    )
    return [name(number=number) for number in range(num_shards)]


def require_name(dataset_name: str) -> None:
    """Checks that TFDS accepts a name of a data set.

    Raises:
        ValueError: If TFDS does not accept the name.
    """
    if not _TFDS_NAME.fullmatch(dataset_name):
        raise ValueError(
            "The name of a data set must be lower-case letters, digits and underscores "
            f"and start with a letter, got {dataset_name!r}. Choose another one."
        )


def side_files(
    index: index.Index,
    record_places: Iterable[tuple[str, Sequence[tuple[int, int]]]],
    *,
    keys: Collection[str] | None = None,
) -> dict[str, bytes]:
    """Returns the content of every side file, by its path in the data set.

    TFDS's files are left out if TFDS cannot read the data set: see `tfds_obstacle`.

    Args:
        index: The index of the data set.
        record_places: The name of every shard, and for its records in order the byte
            offset and the number of bytes, header and footer included. Places are taken
            one shard at a time.
        keys: Keys that every record has, for a data set of another tool; None stands
            for the keys that the converters write.

    Raises:
        ValueError: If the places contradict the index, or the label base is not 0 or 1.
    """
    classes = classes_of(index)
    names = label_names(classes)
    files = {
        LABELS_NAME: labels_text(classes).encode(),
        CLASSES_NAME: as_lines(classes_table(classes)),
    }
    if tfds_obstacle(index) is None:
        files[DATASET_INFO_NAME] = as_json(dataset_info(index))
        files[FEATURES_NAME] = as_json(features(len(names), keys=keys))
        files[LABEL_NAMES_NAME] = as_lines(names)
    known = {shard.name: shard for shards in index.splits.values() for shard in shards}
    for name, places in record_places:
        files[f"{DALI_DIR_NAME}/{name}"] = dali_index(known[name], places)
    return files


def labels_text(classes: Sequence[Class]) -> str:
    """Returns a label map for slim's dataset_utils: a line `<label>:<name>` a class."""
    background = [Class(0, "", _BACKGROUND)] if classes[0].label == 1 else []
    return "".join(f"{c.label}:{_one_line(c.text)}\n" for c in [*background, *classes])


def classes_table(classes: Sequence[Class]) -> list[str]:
    """Returns a table of the classes, a header and a line a class, for people.

    The readers of the other two lists take every line for a label, so that those lists
    cannot say that tfpipe counts labels from 0. This table can: its columns are the
    label as tfpipe delivers it, the label in the records, the folder or synset, and the
    name, with tabs between them.
    """
    header = "label_in_tfpipe\tlabel_in_records\tfolder\tname"
    return [header] + [
        f"{number}\t{c.label}\t{_one_line(c.synset)}\t{_one_line(c.text)}"
        for number, c in enumerate(classes)
    ]


def label_names(classes: Sequence[Class]) -> list[str]:
    """Returns the name of every label from 0 on, as TFDS wants them.

    Names are unique, and each is one line. Label 0 is `background` where the first
    class has label 1. Classes with the same name get their synset behind the name:
    ImageNet has two cranes and two maillots.

    Raises:
        ValueError: If the first label is not 0 or 1.
    """
    base = classes[0].label if classes else None
    if base not in (0, 1):
        raise ValueError(f"The label of the first class must be 0 or 1, got {base}.")
    names = [_BACKGROUND] * base + [_one_line(c.text or c.synset) for c in classes]
    counts = collections.Counter(names)
    taken = {name for name, count in counts.items() if count == 1}
    for label, name in enumerate(names):
        # The background, before `base`, is no class and keeps its name.
        if counts[name] > 1 and label >= base:
            names[label] = _free_name(name, classes[label - base], taken)
        taken.add(names[label])
    return names


def _free_name(name: str, owner: Class, taken: Collection[str]) -> str:
    name = f"{name} ({_one_line(owner.synset)})"
    while name in taken:  # for example, two synsets differ only in white space
        name += f" {owner.label}"
    return name


def _one_line(text: str) -> str:
    """Returns a name as one line that is not blank and can be encoded as UTF-8."""
    printable = text.encode(errors="replace").decode()
    return " ".join(printable.split()) or "?"


def tfds_obstacle(index: index.Index) -> str | None:
    """Returns the reason why TFDS cannot read the shards; None if it can read them.

    TFDS can read all shards that a converter writes. Names of other tools' shards must
    contain `SSSSS-of-NNNNN`, and must be equal otherwise within a split.
    """
    for split, shards in index.splits.items():
        if shards and _filepath_template(index.name, split, shards) is None:
            return (
                f"TFDS needs shard names of one form with {_place(0, len(shards))!r} "
                f"in it for the {len(shards)} shards of split {split!r}, got "
                f"{shards[0].name!r} to {shards[-1].name!r}. Rename the shards."
            )
    return None


def dataset_info(index: index.Index) -> dict[str, Any]:
    """Returns TFDS's dataset_info.json of a data set without a `tfds_obstacle`."""
    splits = [
        {
            "name": split,
            "filepathTemplate": _filepath_template(index.name, split, shards),
            # In the JSON form of a protobuf an int64 is a string.
            "shardLengths": [str(shard.num_records) for shard in shards],
            "numBytes": str(sum(map(_num_payload_bytes, shards))),
        }
        for split, shards in index.splits.items()
        if shards
    ]
    return {
        "name": index.name,
        "version": "1.0.0",
        "description": "Images as tf.train.Example, keys as the Inception scripts.",
        "fileFormat": _FILE_FORMAT,
        "splits": splits,
        "supervisedKeys": {
            "tuple": {
                "items": [
                    {"featureKey": image_record.ENCODED},
                    {"featureKey": image_record.LABEL},
                ]
            }
        },
    }


def _num_payload_bytes(shard: index.Shard) -> int:
    """Returns the bytes of a shard as TFDS counts them: without the records' frames."""
    frame = records.HEADER_BYTES + records.FOOTER_BYTES
    return shard.num_bytes - frame * shard.num_records


def features(num_labels: int, *, keys: Collection[str] | None = None) -> dict[str, Any]:
    """Returns TFDS's features.json: the keys of a record and how TFDS decodes them.

    Args:
        num_labels: Number of labels, the background included if there is one.
        keys: Keys that every record has; other keys are left out. None stands for all
            keys that the converters write.
    """
    text = _feature("text_feature.Text", text={})
    pixels = _tensor("int64")
    floats, int64s = _sequence(_tensor("float32")), _sequence(_tensor("int64"))
    known = {
        image_record.ENCODED: _feature(
            "image_feature.Image",
            image={
                "shape": {"dimensions": ["-1", "-1", "3"]},
                "dtype": "uint8",
                "encodingFormat": "jpeg",
            },
        ),
        image_record.HEIGHT: pixels,
        image_record.WIDTH: pixels,
        image_record.LABEL: _feature(
            "class_label_feature.ClassLabel", classLabel={"numClasses": str(num_labels)}
        ),
        "image/class/synset": text,
        "image/class/text": text,
        "image/filename": text,
        **{f"image/object/bbox/{s}": floats for s in ("xmin", "ymin", "xmax", "ymax")},
        "image/object/bbox/label": int64s,
    }
    used = {key: known[key] for key in known if keys is None or key in keys}
    return _feature("features_dict.FeaturesDict", featuresDict={"features": used})


def _feature(class_name: str, **content: Any) -> _Feature:
    return {"pythonClassName": f"tensorflow_datasets.core.features.{class_name}"} | (
        content
    )


def _tensor(dtype: str) -> _Feature:
    tensor = {"shape": {}, "dtype": dtype, "encoding": "none"}
    return _feature("tensor_feature.Tensor", tensor=tensor)


def _sequence(feature: _Feature) -> _Feature:
    sequence = {"feature": feature, "length": "-1"}
    return _feature("sequence_feature.Sequence", sequence=sequence)


def dali_index(shard: index.Shard, places: Sequence[tuple[int, int]]) -> bytes:
    """Returns DALI's index file of a shard: a line `<byte offset> <bytes>` a record.

    Raises:
        ValueError: If the places do not cover the shard without a gap. DALI itself does
            not check them, and would decode any bytes that it finds.
    """
    end = 0
    for offset, num_bytes in places:
        if offset != end:
            break
        end += num_bytes
    if (len(places), end) != (shard.num_records, shard.num_bytes):
        raise ValueError(
            f"{shard.name} must have {shard.num_records} records end to end in "
            f"{shard.num_bytes} bytes as the index says, got {len(places)}, of which "
            f"the first {end} bytes are without a gap. Make the catalog again."
        )
    return as_lines([f"{offset} {num_bytes}" for offset, num_bytes in places])


def _filepath_template(
    dataset_name: str, split: str, shards: Sequence[index.Shard]
) -> str | None:
    """Returns the template from which TFDS makes these names; None if there is none."""
    names = [shard.name for shard in shards]
    count = len(names)
    literal = names[0].replace(_place(0, count), "{SHARD_X_OF_Y}")
    for template in (*LAYOUTS.values(), literal):
        if _SAFE_TEMPLATE.fullmatch(template) and names == [
            _expand(template, dataset_name, split, number, count)
            for number in range(count)
        ]:
            return template
    return None


# A template with one place for the shard's number, and no other brace or slash.
_SAFE_TEMPLATE = re.compile(
    r"([^{}/]|\{(DATASET|SPLIT|FILEFORMAT)\})*\{SHARD_X_OF_Y\}[^{}/]*"
)


def _expand(
    template: str, dataset_name: str, split: str, number: int, num_shards: int
) -> str:
    return template.format(
        DATASET=dataset_name,
        SPLIT=split,
        FILEFORMAT=_FILE_FORMAT,
        SHARD_X_OF_Y=_place(number, num_shards),
    )


def _place(number: int, num_shards: int) -> str:
    """Returns `SSSSS-of-NNNNN`, with more than five digits where they are needed."""
    digits = max(_MIN_DIGITS, len(str(num_shards)))
    return f"{number:0{digits}d}-of-{num_shards:0{digits}d}"


def as_json(document: Mapping[str, Any]) -> bytes:
    """Returns the content of a JSON file."""
    return (json.dumps(document, indent=1) + "\n").encode()


def as_lines(lines: Iterable[str]) -> bytes:
    """Returns the content of a file of these lines."""
    return "".join(f"{line}\n" for line in lines).encode()
