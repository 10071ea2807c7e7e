"""The images of a data set in the forms that other loaders read, byte for byte.

  python -m benchmarks.studies.loaders.data KIND '{"data_dir": "DIR", "peer_dir": "COPY", ...}'

In: the train shards of DIR. Out: COPY/jpeg with a folder for each label, COPY/tar with
a tar for each shard, or COPY/beton/train.beton for FFCV, in which the JPEG bytes are
stored as they are. What is there is kept. `benchmarks.studies.loaders` calls this.
"""

import io
import json
import pathlib
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import PIL.Image

from benchmarks.studies.loaders.images import Job


def shards(data_dir: str) -> list[str]:
    """Paths of the train shards in their order, by the names in index.json.

    Raises:
        OSError: If there is no index.
    """
    folder = pathlib.Path(data_dir)
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    return [str(folder / shard["name"]) for shard in index["splits"]["train"]]


def dali_indexes(data_dir: str) -> list[str]:
    """Paths of DALI's index of each train shard, which the converters write.

    Raises:
        OSError: If there is no index, or none for DALI.
    """
    paths = [pathlib.Path(shard) for shard in shards(data_dir)]
    found = [path.parent / "dali_idx" / path.name for path in paths]
    for path in found:
        if not path.is_file():
            raise FileNotFoundError(
                f"DALI reads a shard by its index, but {path} is missing: convert "
                "again, or leave dali out of --peers."
            )
    return [str(path) for path in found]


def files(peer_dir: str) -> list[tuple[str, int]]:
    """The JPEG files of the copy in their order, each with its label."""
    paths = sorted((pathlib.Path(peer_dir) / "jpeg").glob("*/*.jpg"))
    return [(str(path), int(path.parent.name)) for path in paths]


def make(kind: str, job: Job) -> pathlib.Path:
    """Writes the copy of that kind unless it is there, and returns its folder.

    Raises:
        OSError: If it cannot be written.
        ValueError: If `job.peer_dir` holds copies of other data.
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
    """Writes down whose copies the folder holds, or compares that with the job's."""
    found = folder / "source.json"
    paths = map(pathlib.Path, shards(job.data_dir))
    source = {path.name: path.stat().st_size for path in paths}
    if not found.exists():
        found.write_text(json.dumps(source), encoding="utf-8")
    elif json.loads(found.read_text(encoding="utf-8")) != source:
        raise ValueError(
            f"{folder} must be empty or hold copies of {job.data_dir}, but it holds "
            "those of other shards: name another --peer_dir."
        )


def _records(path: str) -> Iterator[tuple[bytes, int]]:
    """JPEG bytes and label of each record of a shard."""
    import tensorflow as tf

    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    for record in tf.data.TFRecordDataset(path):
        parsed = tf.io.parse_single_example(record, features)
        yield parsed["image/encoded"].numpy(), int(parsed["image/class/label"])


def _write_files(folder: pathlib.Path, job: Job) -> None:
    number = 0
    for shard in shards(job.data_dir):
        for encoded, label in _records(shard):
            path = folder / f"{label:05d}" / f"{number:08d}.jpg"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(encoded)
            number += 1


def _write_tars(folder: pathlib.Path, job: Job) -> None:
    for number, shard in enumerate(shards(job.data_dir)):
        with tarfile.open(folder / f"train-{number:05d}.tar", "w") as tar:
            for place, (encoded, label) in enumerate(_records(shard)):
                key = f"{number:05d}{place:08d}"
                _add(tar, f"{key}.jpg", encoded)
                _add(tar, f"{key}.cls", str(label).encode())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


class _Stored:
    """The files as FFCV's writer takes them: by number, bytes and label."""

    def __init__(self, items: list[tuple[str, int]]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        path, label = self.items[number]
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
    """The class of an FFCV field whose images are JPEG bytes, stored as they are.

    FFCV's own field takes pixels, which it would have to encode again.
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


def main(argv: list[str]) -> None:
    """Makes one copy."""
    folder = make(argv[1], Job(**json.loads(argv[2])))
    print(json.dumps({"num_files": sum(path.is_file() for path in folder.rglob("*"))}))


if __name__ == "__main__":
    main(sys.argv)
