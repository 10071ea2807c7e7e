"""Copies of a data set's images, byte for byte, in the forms of other loaders.

In: the train shards of DIR. Out: COPY/jpeg with a folder for a label, COPY/tar with a
tar for a shard, or COPY/beton/train.beton for FFCV with the same JPEG bytes. Existing
copies are kept. `studies.loaders` makes a copy in a process of its own.
"""

import io
import json
import pathlib
import shutil
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import PIL.Image

from studies.loaders.images import Job


def shards(data_dir: str) -> list[str]:
    """Returns the paths of the train shards, in the order of index.json.

    Raises:
        OSError: If there is no index.json.
    """
    folder = pathlib.Path(data_dir)
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    return [str(folder / shard["name"]) for shard in index["splits"]["train"]]


def dali_indexes(data_dir: str) -> list[str]:
    """Returns the paths of DALI's indexes, which the converters write.

    Raises:
        OSError: If index.json or an index for DALI is missing.
    """
    paths = [pathlib.Path(shard) for shard in shards(data_dir)]
    indexes = [path.parent / "dali_idx" / path.name for path in paths]
    for path in indexes:
        if not path.is_file():
            raise FileNotFoundError(
                f"DALI reads a shard by its index, but {path} is missing: convert "
                "again, or leave dali out of --peers."
            )
    return [str(path) for path in indexes]


def files(peer_dir: str) -> list[tuple[str, int]]:
    """Returns the JPEG files of the copy in the order of their paths, with labels."""
    paths = sorted((pathlib.Path(peer_dir) / "jpeg").glob("*/*.jpg"))
    return [(str(path), int(path.parent.name)) for path in paths]


def make(kind: str, job: Job) -> pathlib.Path:
    """Writes a missing copy, and returns the folder of the copy.

    Args:
        kind: "jpeg", "tar" or "beton".
        job: Names the data set and the folder of copies.

    Raises:
        OSError: If the copy cannot be written.
        ValueError: If `job.peer_dir` is "", or the folder holds copies of other data.
    """
    if not job.peer_dir:
        raise ValueError("--peer_dir must name a folder for copies of the images.")
    folder = pathlib.Path(job.peer_dir)
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder, job)
    ready, partial = folder / kind, folder / f"{kind}.partial"
    if not ready.exists():
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        _WRITERS[kind](partial, job)
        partial.rename(ready)
    return ready


def _claim(folder: pathlib.Path, job: Job) -> None:
    """Records the job's data set in the folder of copies, or compares both.

    A data set is known by the names and sizes of its shards.
    """
    record = folder / "source.json"
    paths = map(pathlib.Path, shards(job.data_dir))
    source = {path.name: path.stat().st_size for path in paths}
    if not record.exists():
        record.write_text(json.dumps(source), encoding="utf-8")
    elif json.loads(record.read_text(encoding="utf-8")) != source:
        raise ValueError(
            f"{folder} must be empty or hold copies of {job.data_dir}, but it holds "
            "those of other shards: name another --peer_dir."
        )


def _records(path: str) -> Iterator[tuple[bytes, int]]:
    """Yields JPEG bytes and label of the records of a shard."""
    import tensorflow as tf

    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    for record in tf.data.TFRecordDataset(path):
        parsed = tf.io.parse_single_example(record, features)
        yield parsed["image/encoded"].numpy(), int(parsed["image/class/label"])


def _write_files(folder: pathlib.Path, job: Job) -> None:
    count = 0
    for shard in shards(job.data_dir):
        for encoded, label in _records(shard):
            path = folder / f"{label:05d}" / f"{count:08d}.jpg"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(encoded)
            count += 1


def _write_tars(folder: pathlib.Path, job: Job) -> None:
    for index, shard in enumerate(shards(job.data_dir)):
        with tarfile.open(folder / f"train-{index:05d}.tar", "w") as tar:
            for record, (encoded, label) in enumerate(_records(shard)):
                key = f"{index:05d}{record:08d}"
                _add(tar, f"{key}.jpg", encoded)
                _add(tar, f"{key}.cls", str(label).encode())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


class _Stored:
    """The files in the form of FFCV's writer: index -> (JPEG bytes, label)."""

    def __init__(self, items: list[tuple[str, int]]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        path, label = self.items[index]
        return pathlib.Path(path).read_bytes(), label


def _write_beton(folder: pathlib.Path, job: Job) -> None:
    from ffcv.fields import IntField
    from ffcv.writer import DatasetWriter

    make("jpeg", job)
    writer = DatasetWriter(
        str(folder / "train.beton"),
        {"image": stored_jpeg_field()(write_mode="jpg"), "label": IntField()},
        num_workers=job.num_workers,
    )
    writer.from_indexed_dataset(_Stored(files(job.peer_dir)))


def stored_jpeg_field() -> Any:
    """Returns the class of an FFCV field for unchanged JPEG bytes.

    FFCV's own field takes pixels and would encode them again.
    """
    import numpy as np
    from ffcv.fields import RGBImageField
    from ffcv.fields.rgb_image import IMAGE_MODES

    class StoredJpeg(RGBImageField):
        def encode(self, destination: Any, image: bytes, malloc: Any) -> None:
            with PIL.Image.open(io.BytesIO(image)) as header:
                destination["width"], destination["height"] = header.size
            destination["mode"] = IMAGE_MODES["jpg"]
            destination["data_ptr"], storage = malloc(len(image))
            storage[:] = np.frombuffer(image, np.uint8)

    return StoredJpeg


_WRITERS: dict[str, Callable[[pathlib.Path, Job], None]] = {
    "jpeg": _write_files,
    "tar": _write_tars,
    "beton": _write_beton,
}


def measure(kind: str, job: Job) -> dict[str, float]:
    """Makes a copy; returns its number of files."""
    files_and_folders = make(kind, job).rglob("*")
    return {"num_files": sum(path.is_file() for path in files_and_folders)}
