"""The command with its worker processes, and the libraries that read its files."""

import hashlib
import json
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import get_args

import pytest

from converters import export
from converters.exports import plan
from converters.jobs import work_dir
from tests.support.data.trees import convert, digests, make_tree
from tfpipe.shards import index


def _command(source: pathlib.Path, out: pathlib.Path, kind: str) -> list[str]:
    return [
        *(sys.executable, "-m", "converters.export", str(source), f"--format={kind}"),
        *(f"--output_dir={out}", "--num_workers=2", "--nofsync"),
    ]


def _export(source: pathlib.Path, out: pathlib.Path, kind: plan.Format) -> None:
    """Exports in this process, with one worker."""
    export.export(
        export.ExportOptions(
            data_dir=str(source),
            output_dir=str(out),
            format=kind,
            num_workers=1,
            fsync=False,
        )
    )


@pytest.mark.parametrize("kind", get_args(plan.Format))
def test_a_full_disk_is_one_line_for_every_format(
    kind: str, tmp_path: pathlib.Path
) -> None:
    """A limit on the size of a file stands for a full disk."""
    if kind == "arrayrecord":
        pytest.importorskip("array_record")
    convert(make_tree(tmp_path / "raw", num_images=6), tmp_path / "set")
    command = _command(tmp_path / "set", tmp_path / "out", kind)

    done = subprocess.run(
        [*("bash", "-c", 'trap "" XFSZ; ulimit -f 1; exec "$@"', "bash"), *command],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    assert re.fullmatch("(Error|Interrupted).*File too large.*\n", done.stderr)
    assert not list((tmp_path / "out").glob("*.*"))


def test_processes_export_and_other_libraries_read(tmp_path: pathlib.Path) -> None:
    raw = make_tree(tmp_path / "raw", num_images=30)
    source = tmp_path / "set"
    convert(raw, source, num_train_shards=10)
    images = {
        hashlib.sha256(path.read_bytes()).hexdigest() for path in raw.rglob("*.JPEG")
    }

    # A command that was killed goes on, and ends with the same files.
    out = tmp_path / "tars"
    process = subprocess.Popen(
        _command(source, out, "webdataset"), stdout=subprocess.DEVNULL
    )
    while process.poll() is None:
        if list(out.glob(f"{work_dir.WORK_DIR_NAME}/job-*/*.done")):
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    process.wait()
    if process.returncode:
        assert [path.name for path in out.iterdir()] == [work_dir.WORK_DIR_NAME]
        subprocess.run(
            _command(source, out, "webdataset"), check=True, stdout=subprocess.DEVNULL
        )
    _export(source, tmp_path / "whole", "webdataset")
    assert digests(out) == digests(tmp_path / "whole")

    _read_with_webdataset(out, images)
    _read_with_tfds(source, tmp_path / "arrays", images)


def _read_with_webdataset(out: pathlib.Path, images: set[str]) -> None:
    try:
        import webdataset
    except ImportError:
        return  # of the extra peers
    tars = sorted(map(str, out.glob("*.tar")))
    samples = list(webdataset.WebDataset(tars, shardshuffle=False))
    assert {hashlib.sha256(sample["jpg"]).hexdigest() for sample in samples} == images
    assert all(
        int(sample["cls"]) + 1 == json.loads(sample["json"])["label"]
        for sample in samples
    )


def _read_with_tfds(source: pathlib.Path, out: pathlib.Path, images: set[str]) -> None:
    pytest.importorskip("array_record")
    tfds = pytest.importorskip("tensorflow_datasets")
    _export(source, out, "arrayrecord")
    decoders = {"image/encoded": tfds.decode.SkipDecoding()}
    found = tfds.builder_from_directory(str(out)).as_data_source(
        split="train", decoders=decoders
    )
    assert len(found) == index.load(source).num_records("train")
    assert {
        hashlib.sha256(record["image/encoded"]).hexdigest() for record in found
    } == images
