"""Loads: ten thousand epochs, ten thousand shards, a million records.

What a process holds stays flat, and time grows no faster than the records. The
campaign keeps the curves.
"""

import json
import pathlib
import shutil
import sys
import time
from typing import Any

import pytest

from tests.support.data.trees import convert, make_jpeg, make_tree
from tests.support.faults.torture import RecordProperty, rounds
from tests.support.processes.commands import ROOT
from tests.system.converters.test_hostile_inputs import LAUNCHER

NUM_RECORDS = 64
NUM_EPOCHS = rounds(50, 10_000)
NUM_SHARDS = rounds(100, 10_000)
NUM_MANY = rounds(2_000, 1_000_000)
# TensorFlow's pool keeps a thread for each task that ever ran at the same time, and
# most tasks meet after thousands of epochs. A leak is a thread an epoch.
KEPT_THREADS = 4


def _measured(*words: object) -> dict[str, Any]:
    """Runs a Python; returns its lines of JSON, seconds, and peak memory."""
    import subprocess

    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-S", "-c", LAUNCHER, "7200", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    *lines, last = done.stdout.splitlines()
    code, memory = json.loads(last)
    assert code == 0, done.stderr
    seconds = round(time.monotonic() - start, 1)
    return {"lines": lines, "seconds": seconds, "mb": round(memory / 1e6)}


@pytest.mark.parametrize("cache", ["no cache", "disk"])
def test_what_a_process_holds_stays_flat_over_epochs(
    cache: str, tmp_path: pathlib.Path, record_property: RecordProperty
) -> None:
    raw = make_tree(tmp_path / "raw", num_images=NUM_RECORDS)
    convert(raw, tmp_path / "set", num_train_shards=4)
    folder = tmp_path / "cache" if cache == "disk" else "-"
    module = "tests.support.processes.many_epochs"

    measured = _measured("-m", module, tmp_path / "set", folder, NUM_EPOCHS)

    rows = [json.loads(line) for line in measured["lines"]]
    assert rows[-1]["epochs"] == NUM_EPOCHS
    early, last = rows[1], rows[-1]
    for name in ("open_files", "cache_files"):
        assert last[name] <= early[name], rows
    assert last["threads"] <= early["threads"] + KEPT_THREADS, rows
    assert last["mb"] - early["mb"] < 40, rows
    record_property("injections", NUM_EPOCHS)
    record_property("curve", f"{cache}: {json.dumps([early, last])}")


def _data_set(folder: pathlib.Path, num_images: int, num_shards: int) -> pathlib.Path:
    """Converts copies of an image, which differ in their names."""
    tree = folder / "raw" / "train" / "n01440764"
    tree.mkdir(parents=True)
    first = tree / "n01440764_0.JPEG"
    first.write_bytes(make_jpeg(0))
    for number in range(1, num_images):
        (tree / f"n01440764_{number}.JPEG").hardlink_to(first)
    convert(folder / "raw", folder / "set", num_train_shards=num_shards)
    return folder / "set"


@pytest.mark.parametrize("num_shards", [1, NUM_SHARDS])
def test_one_shard_and_many_shards_give_each_record_once(
    num_shards: int, tmp_path: pathlib.Path, record_property: RecordProperty
) -> None:
    code = (
        "import collections, sys, tfpipe\n"
        "pipeline = tfpipe.imagenet_eval(sys.argv[1], split='train', batch_size=100,"
        " image_size=8, with_record_id=True)\n"
        "seen = collections.Counter()\n"
        "for batch in pipeline.build().as_numpy_iterator():\n"
        "    seen.update(batch['record_id'][batch['mask'] == 1].tolist())\n"
        "print(len(seen), max(seen.values()))"
    )
    made = _data_set(tmp_path, NUM_SHARDS, num_shards)

    measured = _measured("-c", code, made)

    assert measured["lines"] == [f"{NUM_SHARDS} 1"]
    assert measured["mb"] < 1500
    figures = {key: measured[key] for key in ("seconds", "mb")}
    record_property("injections", num_shards)
    record_property("curve", f"{num_shards} shards: {json.dumps(figures)}")


COMMANDS = {
    "replicate": "converters.replicate {}/set --output_dir={}/out --identical "
    "--copies={count}",
    "verify": "converters.verify {}/out --level=crc",
    "query": "converters.query {}/out label>=0 --limit=3",
    "export": "converters.export {}/out --output_dir={}/tars --format=webdataset",
}


def test_time_and_memory_grow_no_faster_than_the_records(
    tmp_path: pathlib.Path, record_property: RecordProperty
) -> None:
    _data_set(tmp_path, 100, 1)
    curves: dict[str, list[tuple[int, float, float]]] = {name: [] for name in COMMANDS}
    for count in (NUM_MANY // 10, NUM_MANY):
        for name, text in COMMANDS.items():
            words = text.replace("{}", str(tmp_path)).replace(
                "{count}", str(count // 100)
            )
            measured = _measured(
                "-m", *words.split(), "--num_workers=2" if name != "query" else "--json"
            )
            curves[name].append((count, measured["seconds"], measured["mb"]))
        for folder in ("out", "tars"):
            shutil.rmtree(tmp_path / folder)

    for name, ((_, few_s, few_mb), (_, many_s, many_mb)) in curves.items():
        assert many_s < 15 * max(few_s, 2), (name, curves)
        assert many_mb < few_mb + 1000, (name, curves)
    record_property("injections", NUM_MANY)
    for name, curve in curves.items():
        record_property("curve", f"{name}: {json.dumps(curve)}")
