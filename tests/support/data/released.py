"""Files that released versions wrote: `python -m tests.support.data.released`.

In: the version of this checkout. Out: `released/VERSION` beside this file, if it is not
there: data sets, a subset, a state, a tuning, a disk cache and results, and what a
reader must find in them. A release adds a folder; no folder is written again.
"""

import json
import os
import pathlib
import shutil

import tfpipe
from converters import stream
from tests.support.data import sample_results
from tests.support.data.trees import convert, make_jpeg
from tfpipe.shards import index, subset

RELEASED = pathlib.Path(__file__).with_name("released")


def pipeline_over(folder: pathlib.Path, **options: object) -> tfpipe.Pipeline:
    """Returns a pipeline over the data set in the folder of a release."""
    return tfpipe.imagenet_train(
        folder / "set",
        batch_size=2,
        image_size=4,
        seed=3,
        with_record_id=True,
        crop_op="stock",
        **options,
    )


def found(folder: pathlib.Path) -> dict[str, object]:
    """Returns what a reader finds in the folder of a release."""
    known = index.load(folder / "set")
    batches = pipeline_over(folder).build().as_numpy_iterator()
    ids = [batch["record_id"].tolist() for batch in batches]
    grown = tfpipe.TFRecordSource(folder / "grown", "train", generation="latest")
    chosen = subset.read(folder / "subset.parquet")
    return {
        "records": known.num_records("train"),
        "classes": [list(pair) for pair in known.classes],
        "order": ids,
        "generation": grown.index.num_records("train"),
        "subset": [chosen.num_records, chosen.query],
        "change": index.change(folder / "set"),
    }


def write(folder: pathlib.Path) -> None:
    """Writes the files of this version."""
    os.chdir(folder)  # no file holds a path of this machine
    for number in range(6):
        path = pathlib.Path(
            "raw/train", ("n01440764", "n01443537")[number % 2], f"{number}.JPEG"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(number, height=16, width=16))
    convert(pathlib.Path("raw"), pathlib.Path("set"), num_train_shards=2)
    options = stream.StreamOptions(
        source="raw/train",
        output_dir="grown",
        worker="w",
        until_idle=0.1,
        num_workers=1,
        fsync=False,
    )
    stream.run(options)
    known = index.load("set")
    made = tfpipe.Subset.of_records(known, "train", [0, 3], weights=[1.0, 2.0])
    subset.write(made, "subset.parquet")
    state = tfpipe.State(epoch=1, step=2, num_ranks=2, batch_size=4, digest="ab")
    pathlib.Path("state.json").write_text(state.to_json())
    tfpipe.Tuning(num_parallel_reads=3).save("tuning.json", made_for={})
    cached = pipeline_over(folder, cache=tfpipe.Cache("disk", "cache"))
    list(cached.build())
    pathlib.Path("results").mkdir()
    result = sample_results.train(num_ranks=2)
    pathlib.Path("results/train.json").write_text(json.dumps(result))
    shutil.rmtree("raw")
    pathlib.Path("expected.json").write_text(json.dumps(found(folder)))


if __name__ == "__main__":
    target = RELEASED / tfpipe.__version__
    target.mkdir(parents=True)
    write(target)
