"""python -m converters.imagenet: the command as a user runs it."""

import hashlib
import json
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

from tests.support.data import convert, make_tree

INCEPTION_KEYS = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/format": tf.io.FixedLenFeature([], tf.string),
    "image/height": tf.io.FixedLenFeature([], tf.int64),
    "image/width": tf.io.FixedLenFeature([], tf.int64),
    "image/channels": tf.io.FixedLenFeature([], tf.int64),
    "image/colorspace": tf.io.FixedLenFeature([], tf.string),
    "image/filename": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    "image/class/synset": tf.io.FixedLenFeature([], tf.string),
    "image/class/text": tf.io.FixedLenFeature([], tf.string),
    "image/object/bbox/xmin": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/xmax": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/ymin": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/ymax": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/label": tf.io.VarLenFeature(tf.int64),
}


def _command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "converters.imagenet", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def _digests(folder: pathlib.Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_last_line_is_the_summary(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "out"

    done = _command(
        f"--input_dir={raw_dir}", f"--output_dir={out}", "--num_train_shards=3"
    )

    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout.splitlines()[-1])
    size = sum(path.stat().st_size for path in out.glob("*-of-*"))
    expected = {
        "command": "converters.imagenet",
        "schema_version": 1,
        "splits": {"train": 24, "validation": 7},
        "num_records": 31,
        "num_shards": 4,
        "num_bytes": size,
        "decisions": {"kept": 31},
    }
    assert {key: summary[key] for key in expected} == expected
    assert summary["config"]["num_train_shards"] == 3
    assert summary["seconds"] > summary["write_seconds"] > 0
    assert summary["write_cpu_seconds"] > 0


def test_same_bytes_for_any_number_of_workers(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    digests = []
    for workers in (1, 2, 5):
        out = tmp_path / str(workers)
        convert(raw_dir, out, num_train_shards=5, num_workers=workers)
        digests.append(_digests(out))

    assert digests[0] == digests[1] == digests[2]
    assert "catalog.parquet" in digests[0]


def test_other_seed_gives_another_order(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for seed in (0, 1):
        convert(raw_dir, tmp_path / str(seed), seed=seed)

    assert _digests(tmp_path / "0") != _digests(tmp_path / "1")


def test_tensorflow_reads_all_inception_keys(
    raw_dir: pathlib.Path, data_dir: pathlib.Path
) -> None:
    paths = sorted(map(str, data_dir.glob("train-*")))
    stored = {}
    for record in tf.data.TFRecordDataset(paths):
        example = tf.io.parse_single_example(record, INCEPTION_KEYS)
        stored[example["image/filename"].numpy().decode()] = example

    files = {path.name: path for path in raw_dir.glob("train/*/*.JPEG")}
    assert stored.keys() == files.keys()
    for name, example in stored.items():
        assert example["image/encoded"].numpy() == files[name].read_bytes()
        shape = tf.io.decode_jpeg(example["image/encoded"]).shape
        size = (example["image/height"], example["image/width"], 3)
        assert tuple(shape) == size


def test_subset_of_classes_keeps_its_labels(tmp_path: pathlib.Path) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=4)
    for synset in ("n01440764", "n01443537"):
        (raw_dir / "train" / synset).rename(tmp_path / synset)

    convert(raw_dir, tmp_path / "out")

    paths = sorted(map(str, (tmp_path / "out").glob("train-*")))
    labels = [
        tf.io.parse_single_example(record, INCEPTION_KEYS)["image/class/label"].numpy()
        for record in tf.data.TFRecordDataset(paths)
    ]
    assert sorted(labels) == [3, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input_dir={tmp}/nowhere"], "Error: --input_dir must be a folder"),
        (["--input_dir={tmp}"], "must hold a folder for each class"),
        (["--input_dir={raw}", "--num_train_shards=99"], "at most the 24 images"),
        (["--input_dir={raw}", "--num_workers=0"], "num_workers"),
        (
            ["--input_dir={raw}", "--task_index=2", "--num_tasks=2"],
            "--task_index must be 0 to --num_tasks - 1 = 1, got 2",
        ),
        (["--input_dir={raw}", "--cmyk=maybe"], "should be one of <convert|skip|fail>"),
        (["--input_dir={raw}", "extra"], "Unexpected argument: extra"),
        ([], "--input_dir"),
    ],
)
def test_wrong_use_is_one_clear_error_and_exit_code_1(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path, arguments: list[str], message: str
) -> None:
    filled = [text.format(raw=raw_dir, tmp=tmp_path) for text in arguments]

    done = _command(*filled, f"--output_dir={tmp_path / 'out'}")

    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_runs_without_tensorflow(raw_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """In the parent and in the workers: importing it would be an error here."""
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "tensorflow.py").write_text("raise RuntimeError('TensorFlow imported')")
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); "
        "from converters import imagenet; "
        "job = imagenet.job_flags.JobConfig(output_dir=sys.argv[2], num_workers=2); "
        "imagenet.convert(imagenet.Config(input_dir=sys.argv[1], job=job))"
    )
    script = tmp_path / "convert.py"
    script.write_text(f"if __name__ == '__main__':\n    {code}\n")

    subprocess.run(
        [sys.executable, script, blocked, raw_dir, tmp_path / "out"], check=True
    )

    assert (tmp_path / "out" / "index.json").exists()
