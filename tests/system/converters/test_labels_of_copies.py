"""The presets read copies with several labels an image as rows, without an option."""

import pathlib

import pytest

import tfpipe
from converters import query, replicate
from converters.options.query import QueryOptions
from converters.options.replicate import ReplicateOptions
from tests.support.data.carried import CLASSES, make_table
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tfpipe.shards import index

pytestmark = needs_native


@pytest.mark.parametrize("copied", ["not", "distinct", "identical", "chosen"])
def test_a_preset_delivers_rows_of_all_labels(
    copied: str, tmp_path: pathlib.Path
) -> None:
    data_dir = make_table(tmp_path)
    out = tmp_path / "out"
    options = {"data_dir": str(data_dir), "num_workers": 1, "fsync": False}
    if copied == "chosen":
        query.ask(QueryOptions(materialize=str(out), clause="score < 3", **options))
    elif copied != "not":
        same = copied == "identical"
        config = ReplicateOptions(
            output_dir=str(out), copies=1, identical=same, **options
        )
        replicate.make_copies(config)
    data_dir = data_dir if copied == "not" else out
    text = "SELECT labels FROM read_parquet(?) WHERE split = 'train' ORDER BY ALL"
    labels = [row for (row,) in index.query_catalog(data_dir, text, [])]

    source = tfpipe.TFRecordSource(data_dir, "train", batch_size=1, shuffle="none")
    built = tfpipe.imagenet_train(source, image_size=32).build()
    batches = [batch["label"].numpy()[0] for batch in built.take(len(labels))]

    assert any(len(each) > 1 for each in labels)
    wanted = [[float(n + 1 in each) for n in range(len(CLASSES))] for each in labels]
    assert sorted(map(list, batches)) == sorted(wanted)
