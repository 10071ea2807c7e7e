"""A flipped bit in any byte of any file of a data set is found."""

import functools
import io
import os
import pathlib
from collections.abc import Callable

import numpy as np
import PIL.Image
import pytest

from converters import verify
from converters.checks import files, shard as shard_checks
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.faults.torture import RecordProperty, rounds
from tfpipe import errors
from tfpipe.shards import index

# Flips of each file that the whole command checks.
NUM_SAMPLES = rounds(few=2, many=50)
# Bytes from one flip to the next one where only a part of the command is run.
STEP = rounds(few=5, many=1)


def _encoded(seed: int, kind: str = "JPEG") -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8), dtype=np.uint8)
    PIL.Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


@pytest.fixture(scope="module")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A data set with every kind of file: copies, changed and rejected images too."""
    root = tmp_path_factory.mktemp("tiny")
    for name, content in {
        "cat/0.jpg": _encoded(0),
        "cat/1.jpg": _encoded(1),
        "cat/text.jpg": b"no image",
        "dog/2.jpg": _encoded(2),
        "dog/copy.jpg": _encoded(0),
        "dog/other.jpg": _encoded(3, "PNG"),
    }.items():
        path = root / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    out = root / "records"
    config = conversion(
        "folder",
        input_dir=str(root / "raw"),
        output_dir=str(out),
        num_workers=1,
        fsync=False,
        num_train_shards=2,
        validation_fraction=0.3,
    )
    conversions.convert(config)
    return out


def _names(data_dir: pathlib.Path) -> list[str]:
    files = (path for path in data_dir.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(data_dir)) for path in files)


def _is_found(data_dir: pathlib.Path) -> bool:
    """Checks whether the command reports a fault or an error."""
    config = verify.VerifyOptions(data_dir=str(data_dir), num_workers=1)
    try:
        return verify.verify(config).num_faults > 0
    except errors.BadIndexError:
        return True


def test_the_data_set_has_every_kind_of_file_and_no_fault(
    tiny_dir: pathlib.Path,
) -> None:
    names = _names(tiny_dir)

    assert not _is_found(tiny_dir)
    assert {name for name in names if "-of-" not in name} == {
        "catalog.parquet",
        "changes.jsonl",
        "classes.tsv",
        "dataset_info.json",
        "duplicates.jsonl",
        "features.json",
        "image.class.label.labels.txt",
        "index.json",
        "labels.txt",
        "rejects.jsonl",
    }
    assert len(names) == 10 + 3 + 3  # shards, and DALI's index of each
    assert min((tiny_dir / name).stat().st_size for name in names) > 0


def test_a_sample_of_flips_is_found_by_the_command(
    tiny_dir: pathlib.Path, record_property: RecordProperty
) -> None:
    missed, count = {}, 0
    for number, name in enumerate(_names(tiny_dir)):
        path = tiny_dir / name
        step = max(1, path.stat().st_size // NUM_SAMPLES)
        is_found = functools.partial(_is_found, tiny_dir)
        missed[name] = _missed(path, is_found, start=number % step, step=step)
        count += len(range(number % step, path.stat().st_size, step))

    record_property("injections", count)
    assert {name: found for name, found in missed.items() if found} == {}


def _missed(
    path: pathlib.Path, is_found: Callable[[], bool], *, start: int, step: int
) -> list[int]:
    """Returns the positions of bytes with one turned bit that were not found.

    The turned bit changes from byte to byte.
    """
    missed = []
    with open(path, "r+b", buffering=0) as file:
        content = file.read()
        for position in range(start, len(content), step):
            byte = content[position]
            os.pwrite(file.fileno(), bytes([byte ^ 1 << position % 8]), position)
            if not is_found():
                missed.append(position)
            os.pwrite(file.fileno(), bytes([byte]), position)
    return missed


def test_every_flip_is_found(
    tiny_dir: pathlib.Path, record_property: RecordProperty
) -> None:
    """Runs only the part of the command that reads the file, which is faster."""
    known = index.load(tiny_dir)
    shards = {
        shard.name: (split, number, shard)
        for split, shards in known.splits.items()
        for number, shard in enumerate(shards)
    }
    settings = shard_checks.Settings(
        data_dir=tiny_dir,
        level="crc",
        features=None,
        classes=known.classes,
        label_base=known.label_base,
        input_dir=None,
    )

    def is_shard_bad(name: str) -> bool:
        split, number, shard = shards[name]
        task = shard_checks.CheckTask(
            split=split, number=number, shard=shard, byte_offsets=None
        )
        return shard_checks.check_shard(settings, task).num_faults > 0

    def is_index_bad() -> bool:
        try:
            return any(files.index_faults(index.load(tiny_dir), tiny_dir))
        except errors.BadIndexError:
            return True

    missed = {}
    for name in _names(tiny_dir):
        if name == index.INDEX_NAME:
            is_bad = is_index_bad
        elif name in shards:
            is_bad = functools.partial(is_shard_bad, name)
        else:
            is_bad = functools.partial(_is_listed_bad, known, tiny_dir)
        missed[name] = _missed(tiny_dir / name, is_bad, start=0, step=STEP)

    sizes = [(tiny_dir / name).stat().st_size for name in missed]
    record_property("injections", sum(len(range(0, size, STEP)) for size in sizes))
    assert {name: found for name, found in missed.items() if found} == {}


def _is_listed_bad(known: index.Index, data_dir: pathlib.Path) -> bool:
    found = files.DataSetFiles(data_dir=data_dir)
    return any(files.file_faults(known, found, read=True))
