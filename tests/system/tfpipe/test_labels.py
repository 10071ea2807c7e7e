"""Labels of records: outside of the classes, several a record, and stored as rows."""

import itertools

import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.foreign import write_shard
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.trees import make_jpeg
from tfpipe.ops.labels import wrong_setting
from tfpipe.shards import index

pytestmark = needs_native

OPTIONS = {"files": "*.tfrecord", "batch_size": 2, "shuffle": "none"}


def write(folder, labels):
    """Writes a shard with a record for each label, or list of labels."""
    records = [
        {"image/encoded": make_jpeg(n), "image/class/label": label}
        for n, label in enumerate(labels)
    ]
    write_shard(folder / "part-0.tfrecord", records)
    return folder


def batches(make, source, **options):
    options = {"image_size": 8} | options
    return [
        b["label"].numpy().tolist() for b in make(source, **options).build(num_epochs=1)
    ]


# The labels on disk, the settings, and what is said, or None for labels that fit.
CASES = {
    "right": ([0, 1, 2, 1], {"label_base": 0, "num_classes": 3}, None),
    "no known number": ([0, 1, 2, 1], {"label_base": 0}, None),
    "moved": ([0, 1, 2, 1], {"label_base": 0, "label_offset": 5}, None),
    "below 0 as wanted": ([0, 1], {"label_base": 0, "label_offset": -1}, None),
    "base above the labels": (
        [1, 0, 2, 1],
        {"label_base": 1},
        "record 1 .*: Parse: labels must be 0 or more, got the label 0 on disk of "
        "record 1. label_base=1 must be .*label_offset=0",
    ),
    "base above, known number": (
        [1, 2, 0, 1],
        {"label_base": 1, "num_classes": 3},
        "record 2 .*must be 0 to 2, got the label 0 on disk of record 2",
    ),
    "base below the labels": (
        [1, 2, 1, 3],
        {"label_base": 0, "num_classes": 3},
        "record 3 .*must be 0 to 2, got the label 3 on disk of record 3",
    ),
    "offset beyond": (
        [1, 0],
        {"label_base": 0, "num_classes": 2, "label_offset": 1},
        "record 0 .*must be 0 to 1, got the label 1 on disk of record 0",
    ),
    "beyond 32 bits": (
        [1, 1 << 32],
        {"label_base": 0, "num_classes": 2},
        f"record 1 .*must be 0 to 1, got the label {1 << 32} on disk",
    ),
    "one of several": (
        [[0, 1], [], [2, 3, 0], [1]],
        {"label_base": 0, "num_classes": 3, "multi_label": True},
        "record 2 .*must be 0 to 2, got the label 3 on disk of record 2",
    ),
    "no row": (
        [[0, 1, 0], [1, 0, 0], [0, 2, 0], [0, 0, 0]],
        {"num_classes": 3, "multi_label": "rows"},
        "record 2 .*must be 0 or 1 in a row, got the label 2 on disk of record 2",
    ),
}
WAYS = [
    ("native", True, "native"),
    ("tensorflow", True, "native"),
    ("tensorflow", True, "stock"),
    ("tensorflow", False, "stock"),
]


@pytest.mark.parametrize(
    ("case", "reading", "whole", "crop_op", "on_error"),
    [
        *((case, *WAYS[0], "skip") for case in CASES),
        *((case, *WAYS[-1], "skip") for case in ("base above the labels", "no row")),
        *(("base above the labels", *way, "raise") for way in WAYS[:-1]),
        ("one of several", *WAYS[1], "raise"),
    ],
)
def test_labels_that_fit_no_class_stop_the_pipeline(
    tmp_path, case, reading, whole, crop_op, on_error
):
    labels, settings, said = CASES[case]
    source = tfpipe.TFRecordSource(
        write(tmp_path, labels), **OPTIONS, reading=reading, on_error=on_error
    )
    options = {"whole_batches": whole, "crop_op": crop_op, "image_size": 8}
    pipeline = tfpipe.imagenet_train(source, parse=tfpipe.Parse(**settings), **options)

    if said is None:
        change = settings.get("label_offset", 0) - settings["label_base"]
        made = [
            batch["label"].numpy().tolist() for batch in pipeline.build(num_epochs=1)
        ]
        assert list(itertools.chain(*made)) == [label + change for label in labels]
        return
    with pytest.raises(tf.errors.OpError, match=f"(?s)part-0.tfrecord: {said}"):
        list(pipeline.build(num_epochs=1))
    assert pipeline.faults.faults == []
    assert "part-0.tfrecord: record" in str(pipeline.faults.error())
    assert "verify" not in str(pipeline.faults.error())


def test_labels_are_checked_by_the_classes_of_the_index(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=4)
    classes = source.index.num_classes

    parse = tfpipe.Parse(label_base=2).for_source(source)
    assert parse.num_classes == classes - 1
    with pytest.raises(tf.errors.OpError, match="labels must be 0 to"):
        batches(tfpipe.imagenet_train, source, parse=tfpipe.Parse(label_base=2))
    every = itertools.chain(*batches(tfpipe.imagenet_train, source))
    assert {*every} <= {*range(classes)}


def test_other_errors_are_no_wrong_setting():
    assert wrong_setting("assertion failed: [OneHot: labels must be 0 to 3] [4]") == ""


ROWS = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]


@pytest.mark.parametrize(("reading", "whole", "crop_op"), [WAYS[0], WAYS[-1]])
def test_stored_rows_are_delivered(tmp_path, reading, whole, crop_op):
    source = tfpipe.TFRecordSource(write(tmp_path, ROWS), **OPTIONS, reading=reading)
    parse = tfpipe.Parse(multi_label="rows", num_classes=3)

    made = batches(
        tfpipe.imagenet_train, source, parse=parse, whole_batches=whole, crop_op=crop_op
    )

    assert list(itertools.chain(*made)) == ROWS


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"multi_label": True, "num_classes": 3},
        {"num_classes": 3},
        {"multi_label": True},
    ],
)
def test_stored_rows_are_no_lists_of_labels(tmp_path, settings):
    source = tfpipe.TFRecordSource(write(tmp_path, ROWS), **OPTIONS)

    with pytest.raises(ValueError, match="rows of 3 numbers, 0 or 1") as caught:
        tfpipe.imagenet_train(source, parse=tfpipe.Parse(label_base=0, **settings))
    assert 'Parse(multi_label="rows", num_classes=3)' in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "num_classes"),
    [
        ([[0, 1], [1, 0]], 3),
        ([[0, 1, 2], [1, 0, 0]], 3),
        ([[0, 1], [0], [], [1]], 2),
        ([[0], [0]], 1),
    ],
)
def test_lists_of_labels_stay_lists(tmp_path, labels, num_classes):
    source = tfpipe.TFRecordSource(write(tmp_path, labels), **OPTIONS)
    parse = tfpipe.Parse(label_base=0, multi_label=True, num_classes=num_classes)

    made = itertools.chain(*batches(tfpipe.imagenet_train, source, parse=parse))

    expected = [[float(n in row) for n in range(num_classes)] for row in labels]
    assert list(made) == expected


@pytest.mark.parametrize("setting", [{"label_base": 1}, {"label_offset": 1}])
def test_stored_rows_cannot_be_moved(setting):
    with pytest.raises(ValueError, match="must come without label_base"):
        tfpipe.Parse(multi_label="rows", **setting)


def test_rows_of_another_length_are_refused_before_training(tmp_path):
    source = tfpipe.TFRecordSource(write(tmp_path, ROWS), **OPTIONS)

    with pytest.raises(ValueError, match="must have 4 values, got 3"):
        tfpipe.imagenet_train(
            source, parse=tfpipe.Parse(multi_label="rows", num_classes=4)
        )


LABELS = "image/class/labels"


@pytest.fixture
def several(tmp_path):
    """A data set as `converters.table` writes it, of images with several classes."""
    rows = [[1, 3], [2], [3, 2, 1], [2, 3]]
    records = [
        {
            "image/encoded": make_jpeg(n),
            "image/class/label": row[0],
            LABELS: row,
            "image/height": 32,
            "image/width": 40,
        }
        for n, row in enumerate(rows)
    ]
    write_shard(tmp_path / "train-00000-of-00001", records)
    return tmp_path, [[float(n + 1 in row) for n in range(3)] for row in rows]


def add_index(folder, made_by, catalog="labels INTEGER[]"):
    """Writes an index and a catalog beside the shard."""
    scanned = tfpipe.TFRecordSource(folder, "train")
    offsets = scanned.split_index.spans.all_byte_offsets().tolist()
    with index.catalog_connection() as connection:
        connection.execute(
            "CREATE TEMP TABLE made (split VARCHAR, shard INTEGER, record INTEGER, "
            f"byte_offset BIGINT, label INTEGER, height INTEGER, width INTEGER"
            f"{', ' * bool(catalog)}{catalog})"
        )
        for n, offset in enumerate(offsets):
            row = ["train", 0, n, offset, 1, 32, 40, *([[1]] if catalog else [])]
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO made VALUES ({marks})", row)
        connection.execute(
            f"COPY made TO '{folder}/{index.CATALOG_NAME}' (FORMAT parquet)"
        )
    made = index.Index(
        name="several",
        label_base=1,
        classes=tuple((f"c{n}", f"c{n}") for n in range(3)),
        splits={"train": scanned.shards},
        made_by=made_by,
    )
    (folder / index.INDEX_NAME).write_text(index.encode(made))


TABLE = {"command": "converters.table"}


@pytest.mark.parametrize(
    "made_by",
    [
        TABLE,
        {"command": "converters.replicate", "source": TABLE},
        {"command": "converters.webdataset"},
    ],
)
def test_a_converted_set_of_several_labels_is_read_as_such(several, made_by):
    folder, rows = several
    add_index(folder, made_by)
    source = tfpipe.TFRecordSource(folder, "train", batch_size=2, shuffle="none")

    for parse in (None, tfpipe.Parse(multi_label=True)):
        made = batches(tfpipe.imagenet_train, source, parse=parse)
        assert list(itertools.chain(*made)) == rows
    first = batches(tfpipe.imagenet_train, source, parse=tfpipe.Parse())
    assert list(itertools.chain(*first)) == [0, 1, 2, 1]
    own = tfpipe.Parse(multi_label=True, label_key="other")
    with pytest.raises(ValueError, match="'other', which is missing"):
        tfpipe.imagenet_train(source, parse=own)


@pytest.mark.parametrize("catalog", ["", "labels VARCHAR[]"])
def test_a_converted_set_of_one_label_is_read_as_such(several, catalog):
    folder, _ = several
    add_index(folder, TABLE, catalog)
    source = tfpipe.TFRecordSource(folder, "train", batch_size=2, shuffle="none")

    assert source.split_index.labels_key is None
    made = batches(tfpipe.imagenet_train, source)
    assert list(itertools.chain(*made)) == [0, 1, 2, 1]
