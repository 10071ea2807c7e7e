"""Files that released versions wrote: `python tests/support/data/released.py NAME`.

In: a checkout of a release, whose packages are the first on PYTHONPATH. Out:
`released/NAME` beside this file, if it is not there: a data set, a subset, a state, a
tuning, caches and results, and what the release read in them. NAME is the version, or
the date of a state between two versions. Only commands and public names are used, which
each version has. No folder is written again.

0.1.0 is commit a7224790, whose changelog has the entry of 0.1.0.
"""

import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image

import converters
import tfpipe

RELEASED = pathlib.Path(__file__).with_name("released")


def source_over(folder: pathlib.Path, **options: object) -> tfpipe.TFRecordSource:
    """Returns the training records in the folder of a release."""
    options = {"batch_size": 2, "seed": 3} | options
    return tfpipe.TFRecordSource(folder / "set", "train", **options)


def read(
    source: tfpipe.TFRecordSource, state: tfpipe.State | None = None, **options: object
) -> list[list[int]]:
    """Returns the records of the batches of an epoch."""
    pipeline = tfpipe.imagenet_train(
        source, image_size=4, with_record_id=True, crop_op="stock", **options
    )
    batches = pipeline.build(state=state).as_numpy_iterator()
    return [batch["record_id"].tolist() for batch in batches]


def _run(module: str, *words: str) -> None:
    subprocess.run([sys.executable, "-m", module, *words], check=True)


def _make_images(folder: pathlib.Path) -> None:
    dice = np.random.default_rng(0)
    for number in range(6):
        path = folder / "train" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = dice.integers(0, 255, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(path, quality=50)


def write() -> None:
    """Writes the files of a version, and `raw`, in the working folder."""
    here = pathlib.Path()
    _make_images(here / "raw")
    common = ("--num_workers=1", "--num_train_shards=2")
    _run("converters.folder", "--input_dir=raw", "--output_dir=set", *common)
    _run("converters.query", "set", "class = 'b'", "--save=subset.parquet")
    source = source_over(here)
    state = source.advance(tfpipe.State(), 4)
    pathlib.Path("state.json").write_text(state.to_json())
    tfpipe.Tuning(num_parallel_reads=3).save("tuning.json", made_for={})
    order = read(source, cache=tfpipe.Cache("disk", "cache"))
    cache = tfpipe.ShardCache("shard_cache")
    assert read(source_over(here, shard_cache=cache)) == order
    run = (
        "--data_dir=set",
        "--image_size=32",
        "--batch_size=2",
        "--report_dir=results",
    )
    _run("benchmarks.train", "--model=tiny", "--num_steps=4", *run)
    _run("benchmarks.input", "--do=throughput", "--seconds=0.1", *run)
    grown = 0
    if pathlib.Path(converters.__file__).with_name("stream.py").exists():
        words = ("raw/train", "grown", "--worker=w", "--until_idle=0.1")
        _run("converters.stream", *words, "--num_workers=1")
        grown = 6
    chosen = read(source_over(here, subset="subset.parquet"))
    expected = {
        "order": order,
        "rest": read(source, state),
        "subset": sorted(itertools.chain(*chosen)),
        "grown": grown,
    }
    pathlib.Path("expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)  # no file holds a path of this machine
        write()
        skipped = shutil.ignore_patterns("raw", "*.png")
        shutil.copytree(work, RELEASED / sys.argv[1], ignore=skipped)
