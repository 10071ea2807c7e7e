"""converters.jobs.side_files: side files, and how other readers understand them.

Readers that cannot be installed beside the reference stack are here by their exact
globs and parse specs; those that can are run in test_readers.py.
"""

import fnmatch
import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from converters.inputs import classes
from converters.inputs.classes import Class
from converters.jobs import side_files
from tests.support.data.trees import SYNSETS
from tfpipe.shards import image_record, index, records

READER_GLOBS = ("train*", "valid*", "validation-*", "train-*-of-*")


def make_index(
    names: Mapping[str, list[str]], *, name: str = "photos", label_base: int = 1
) -> index.Index:
    """Returns an index of shards with these names, each of 2 records of 50 bytes."""
    return index.Index(
        name=name,
        label_base=label_base,
        classes=(("n1", "crane"), ("n2", "tench"), ("n3", "crane")),
        splits={
            split: tuple(
                index.Shard(name=shard, num_records=2, num_bytes=100, digest="")
                for shard in shards
            )
            for split, shards in names.items()
        },
        made_by={},
    )


def make_places(data: index.Index) -> dict[str, list[tuple[int, int]]]:
    """Returns the places of the records of `make_index`."""
    shards = [shard for shards in data.splits.values() for shard in shards]
    return {shard.name: [(0, 40), (40, 60)] for shard in shards}


def names_of(layout: str, name: str = "photos") -> dict[str, list[str]]:
    """Names of 3 train and 2 validation shards."""
    return {
        split: [
            side_files.shard_name(layout, name, split=split, number=n, num_shards=count)
            for n in range(count)
        ]
        for split, count in (("train", 3), ("validation", 2))
    }


def test_labels_are_in_the_form_that_slim_reads() -> None:
    """Labels are read as slim's read_label_file does: split at the first colon."""
    text = side_files.labels_text(classes.imagenet_classes())
    fields = [line.partition(":") for line in text.split("\n") if line]

    names = {int(label): name for label, _, name in fields}

    assert sorted(names) == list(range(1001))
    assert (names[0], names[1], names[1000]) == ("background", "tench", "toilet tissue")
    assert names[135] == names[518] == "crane"


@pytest.mark.parametrize(
    ("layout", "num_shards", "name"),
    [
        ("inception", 128, "train-00003-of-00128"),
        ("tfds", 128, "imagenet2012-train.tfrecord-00003-of-00128"),
        # TFDS pads both numbers to the same width.
        ("inception", 100000, "train-000003-of-100000"),
    ],
)
def test_shard_names_follow_the_layout(layout: str, num_shards: int, name: str) -> None:
    made = side_files.shard_name(
        layout, "imagenet2012", split="train", number=3, num_shards=num_shards
    )

    assert made == name


def test_shard_names_that_no_reader_knows_are_refused() -> None:
    with pytest.raises(ValueError, match="choose one of inception, tfds"):
        side_files.shard_name("flat", "a", split="train", number=0, num_shards=1)
    with pytest.raises(ValueError, match=r"letters, digits and underscores.*'my-set'"):
        side_files.shard_name("tfds", "my-set", split="train", number=0, num_shards=1)
    for name in ("", "Photos", "2012", "_set", "été", "set\n"):
        with pytest.raises(ValueError, match="start with a letter, got"):
            side_files.require_name(name)
    side_files.require_name("imagenet_2012")


@pytest.mark.parametrize("layout", side_files.LAYOUTS)
def test_no_side_file_is_taken_for_a_shard(layout: str) -> None:
    data = make_index(names_of(layout))
    paths = [
        pathlib.PurePath(p)
        for p in side_files.side_files(data, make_places(data).items())
    ]

    beside = {path.name for path in paths if len(path.parts) == 1}

    assert {path.parts[0] for path in paths} == side_files.SIDE_NAMES
    for name in beside | side_files.SIDE_NAMES:
        for pattern in READER_GLOBS:
            assert not fnmatch.fnmatch(name, pattern)


@pytest.mark.parametrize("layout", side_files.LAYOUTS)
def test_dataset_info_says_what_the_shards_hold(layout: str) -> None:
    document = side_files.dataset_info(make_index(names_of(layout)))

    assert document["name"] == "photos"
    assert document["version"] == "1.0.0"
    assert document["splits"] == [
        {
            "name": split,
            "filepathTemplate": side_files.LAYOUTS[layout],
            "shardLengths": ["2"] * count,
            "numBytes": str(count * (100 - 2 * 16)),
        }
        for split, count in (("train", 3), ("validation", 2))
    ]
    keys = document["supervisedKeys"]["tuple"]["items"]
    assert [key["featureKey"] for key in keys] == ["image/encoded", "image/class/label"]


def test_json_files_are_written_as_index_json_is() -> None:
    data = make_index(names_of("tfds"))

    files = side_files.side_files(data, make_places(data).items())

    for name in (side_files.DATASET_INFO_NAME, side_files.FEATURES_NAME):
        document = json.loads(files[name])
        assert files[name].decode() == json.dumps(document, indent=1) + "\n"


def test_features_are_those_of_the_records(data_dir: pathlib.Path) -> None:
    """Each key of features.json is a key of the records, and the labels are counted."""
    shard = data_dir / index.load(data_dir).splits["train"][0].name
    offset, num_bytes, _ = next(records.scan(shard))
    record = shard.read_bytes()[offset : offset + num_bytes]

    listed = side_files.features(1001)["featuresDict"]["features"]
    few = side_files.features(5, keys=["image/encoded", "image/width", "other"])

    assert {key for key in listed if key.encode() not in record} == set()
    assert len(listed) == 12
    assert listed["image/class/label"]["classLabel"] == {"numClasses": "1001"}
    assert list(few["featuresDict"]["features"]) == ["image/encoded", "image/width"]


def test_label_names_of_imagenet_are_unique() -> None:
    names = side_files.label_names(classes.imagenet_classes())

    assert len(set(names)) == 1001
    assert names[:2] == ["background", "tench"]
    assert [name for name in names if "crane" in name or "maillot" in name] == [
        "crane (n02012849)",
        "crane (n03126707)",
        "maillot (n03710637)",
        "maillot (n03710721)",
    ]


@pytest.mark.parametrize(
    ("base", "names"),
    [
        (0, ["crane (n1)", "tench", "crane (n3)"]),
        (1, ["background", "crane (n1)", "tench", "crane (n3)"]),
    ],
)
def test_label_names_begin_with_label_0(base: int, names: list[str]) -> None:
    data = make_index(names_of("inception"), label_base=base)

    files = side_files.side_files(data, make_places(data).items())

    lines = files["image.class.label.labels.txt"].decode().splitlines()
    assert lines == names
    features = json.loads(files["features.json"])["featuresDict"]["features"]
    assert features["image/class/label"]["classLabel"]["numClasses"] == str(len(names))
    slim = files["labels.txt"].decode().splitlines()
    assert [line.partition(":")[0] for line in slim] == [
        str(n) for n in range(len(names))
    ]


@pytest.mark.parametrize("base", [0, 1])
def test_the_table_of_classes_counts_as_tfpipe_does(base: int) -> None:
    data = make_index(names_of("inception"), label_base=base)

    files = side_files.side_files(data, make_places(data).items())

    header, *rows = (
        line.split("\t") for line in files["classes.tsv"].decode().splitlines()
    )
    assert header == ["label_in_tfpipe", "label_in_records", "folder", "name"]
    assert [(int(row[0]), int(row[1])) for row in rows] == [
        (number, number + base) for number in range(len(data.classes))
    ]
    assert [tuple(row[2:]) for row in rows] == list(data.classes)


@pytest.mark.parametrize(
    ("made", "names"),
    [
        ([Class(1, "s", "background")], ["background", "background (s)"]),
        (
            [Class(0, "s", "a"), Class(1, "t", "a"), Class(2, "u", "a (s)")],
            ["a (s) 0", "a (t)", "a (s)"],
        ),
        ([Class(0, "s", "a"), Class(1, "s ", "a")], ["a (s)", "a (s) 1"]),
        ([Class(0, "s", "")], ["s"]),
    ],
)
def test_label_names_do_not_meet(made: list[Class], names: list[str]) -> None:
    assert side_files.label_names(made) == names


def test_label_names_need_a_base_of_0_or_1() -> None:
    with pytest.raises(ValueError, match="0 or 1, got 2"):
        side_files.label_names([Class(2, "n1", "tench")])
    with pytest.raises(ValueError, match="0 or 1, got None"):
        side_files.label_names([])


@given(
    base=st.sampled_from([0, 1]),
    texts=st.lists(
        st.text("a \n\x85\u2028\ud800?:", max_size=3)
        | st.sampled_from(["background", "a", "a (s0)", "a (s1)"]),
        min_size=1,
        max_size=6,
    ),
)
def test_label_names_are_unique_lines_whatever_the_classes_are_called(
    base: int, texts: list[str]
) -> None:
    made = [Class(base + n, f"s{n}", text) for n, text in enumerate(texts)]

    names = side_files.label_names(made)
    slim = side_files.labels_text(made).encode().decode().split("\n")

    assert len(names) == len(set(names)) == base + len(texts)
    # TFDS strips the lines, and leaves blank lines out.
    lines = "\n".join(names).encode().decode().split("\n")
    assert [line.strip() for line in lines if line.strip()] == names
    assert len(slim) == base + len(texts) + 1


def test_dali_index_is_a_line_a_record() -> None:
    data = make_index(names_of("inception"))

    files = side_files.side_files(data, make_places(data).items())

    dali = {path: text for path, text in files.items() if path.startswith("dali_idx/")}
    assert len(dali) == 5
    assert set(dali.values()) == {b"0 40\n40 60\n"}
    assert "dali_idx/train-00002-of-00003" in dali


@pytest.mark.parametrize("bad", ["missing", "short", "gap", "extra"])
def test_dali_index_must_agree_with_the_index(bad: str) -> None:
    places = {
        "missing": [(0, 40)],
        "short": [(0, 40), (40, 50)],
        "gap": [(0, 40), (41, 60)],
        "extra": [(0, 40), (40, 60), (100, 0)],
    }[bad]
    shard = index.Shard(name="train-0", num_records=2, num_bytes=100, digest="")

    with pytest.raises(ValueError, match="train-0 must have 2 records end to"):
        side_files.dali_index(shard, places)


@pytest.mark.parametrize(
    ("names", "template"),
    [
        (["a-00000-of-00002.rec", "a-00001-of-00002.rec"], "a-{SHARD_X_OF_Y}.rec"),
        (["train-00000-of-00003", "train-00002-of-00003"], None),
        (["train-00000-of-00002", "train-00001-of-00003"], None),
        (["train-00001-of-00002", "train-00000-of-00002"], None),
        (["{a}-00000-of-00002", "{a}-00001-of-00002"], None),
        (["one.tfrecord", "two.tfrecord"], None),
    ],
)
def test_shards_of_other_tools_are_described_or_left_out_with_a_reason(
    names: list[str], template: str | None
) -> None:
    data = make_index({"train": names})

    obstacle = side_files.tfds_obstacle(data)
    files = side_files.side_files(data, make_places(data).items())

    assert ("dataset_info.json" in files) == ("features.json" in files)
    assert {"labels.txt", *(f"dali_idx/{name}" for name in names)} <= set(files)
    if template is None:
        assert obstacle is not None
        assert "-of-00002' in it for the 2 shards of split 'train'" in obstacle
        assert "dataset_info.json" not in files
    else:
        assert obstacle is None
        info = json.loads(files["dataset_info.json"])
        assert info["splits"][0]["filepathTemplate"] == template


# Feature types by the name of their class in tf.io and its arguments; types by name.
Spec = Mapping[str, tuple[Any, ...]]

_ENCODED: Spec = {"image/encoded": ("FixedLenFeature", (), "string", "")}
_BOXES: Spec = {
    f"image/object/bbox/{side}": ("VarLenFeature", "float32")
    for side in ("xmin", "ymin", "xmax", "ymax")
}
_SLIM: Spec = {
    **_ENCODED,
    "image/format": ("FixedLenFeature", (), "string", "jpeg"),
    "image/class/label": ("FixedLenFeature", [], "int64", -1),
    "image/class/text": ("FixedLenFeature", [], "string", ""),
    **_BOXES,
    "image/object/class/label": ("VarLenFeature", "int64"),
}


class Reader(NamedTuple):
    """How a reader finds shards and parses a record; its label for `tench`."""

    globs: Mapping[str, str]
    spec: Spec
    first_label: int


READERS = {
    "tf_cnn_benchmarks": Reader(
        {"train": "train-*-of-*", "validation": "validation-*-of-*"},
        {
            **_ENCODED,
            "image/class/label": ("FixedLenFeature", [1], "int64", -1),
            "image/class/text": ("FixedLenFeature", [], "string", ""),
            **_BOXES,
        },
        1,
    ),
    "model_garden": Reader(
        {"train": "train*", "validation": "valid*"},
        {**_ENCODED, "image/class/label": ("FixedLenFeature", (), "int64", -1)},
        1,
    ),
    "model_garden_multilabel": Reader(
        {"train": "train*", "validation": "valid*"},
        {**_ENCODED, "image/class/label": ("VarLenFeature", "int64")},
        1,
    ),
    "model_garden_legacy": Reader(
        {"train": "train*", "validation": "validation*"}, _SLIM, 0
    ),
    "slim": Reader({"train": "train-*", "validation": "validation-*"}, _SLIM, 1),
}


@pytest.fixture(scope="module")
def readable_dir(
    data_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """Links to the files of `data_dir`, with side files of `side_files` alone."""
    folder = tmp_path_factory.mktemp("compat")
    data = index.load(data_dir)
    places = {}
    for shard in (shard for shards in data.splits.values() for shard in shards):
        (folder / shard.name).symlink_to(data_dir / shard.name)
        found = records.scan(folder / shard.name)
        places[shard.name] = [(place.byte_offset, place.num_bytes) for place in found]
    for name, content in side_files.side_files(data, places.items()).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def parse(paths: list[pathlib.Path], spec: Spec) -> list[dict[str, Any]]:
    """Parses every record of the files with a reader's spec, by TensorFlow."""
    import tensorflow as tf

    features = {key: getattr(tf.io, kind)(*rest) for key, (kind, *rest) in spec.items()}
    dataset = tf.data.TFRecordDataset([str(path) for path in paths])
    return list(dataset.map(lambda r: tf.io.parse_single_example(r, features)))


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("name", READERS)
def test_readers_find_and_parse_every_record(
    readable_dir: pathlib.Path, data_dir: pathlib.Path, name: str, split: str
) -> None:
    """Each reader uses its own glob and spec, in the folder with all side files."""
    import tensorflow as tf

    reader = READERS[name]
    catalog = index.load_catalog(data_dir, split, ["synset", "height", "width"])

    examples = parse(sorted(readable_dir.glob(reader.globs[split])), reader.spec)

    synsets, heights, widths = catalog.values()
    assert len(examples) == len(synsets)
    for number, example in enumerate(examples):
        label = example["image/class/label"]
        values = label.values if isinstance(label, tf.SparseTensor) else label
        # The legacy reader subtracts 1; all other readers count the background.
        used = int(tf.reshape(values, [])) - (1 - reader.first_label)
        assert used == SYNSETS.index(synsets[number]) + reader.first_label
        shape = tf.image.extract_jpeg_shape(example["image/encoded"])
        assert shape.numpy().tolist() == [heights[number], widths[number], 3]


def test_readers_find_box_labels_under_both_keys(tmp_path: pathlib.Path) -> None:
    """Box labels have the key of the Inception scripts and the key of slim."""
    boxes = ((0.1, 0.2, 0.5, 0.75), (0.0, 0.0, 1.0, 1.0))
    image = image_record.ImageRecord(b"jpeg", 1, 1, 7, "n1", "cock", "a.JPEG", boxes)
    path = tmp_path / "train-00000-of-00001"
    path.write_bytes(b"".join(records.frame(image_record.encode_image(image))))
    spec = {**_SLIM, "image/object/bbox/label": ("VarLenFeature", "int64")}

    (example,) = parse([path], spec)

    for key in ("image/object/class/label", "image/object/bbox/label"):
        assert example[key].values.numpy().tolist() == [7, 7]
    assert example["image/object/bbox/ymax"].values.numpy().tolist() == [0.75, 1.0]
    assert example["image/format"].numpy() == b"JPEG"
