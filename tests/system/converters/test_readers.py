"""Other readers, installed here, on the converter's shards and side files.

TFDS and DALI come with the extras `tfds` and `dali`; without them these tests are
skipped.
"""

import dataclasses
import importlib
import io
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image
import pytest

from converters.inputs import classes
from converters.jobs import side_files
from tests.support.data.trees import SYNSETS, make_jpeg
from tfpipe.shards import image_record, index, records

# An image as a reader returns it: file name, label, pixels.
Image = tuple[str, int, npt.NDArray[np.uint8]]


def add_side_files(data_dir: pathlib.Path, data: index.Index) -> None:
    """Writes the side files, with the places of records scanned from the shards."""
    places = {
        shard.name: [place[:2] for place in records.scan(data_dir / shard.name)]
        for shards in data.splits.values()
        for shard in shards
    }
    for name, content in side_files.side_files(data, places.items()).items():
        path = data_dir / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def renamed(data: index.Index, name: Callable[[str, int, int], str]) -> index.Index:
    """Returns the index with shard names from split, number and number of shards."""
    splits = {
        split: tuple(
            dataclasses.replace(shard, name=name(split, number, len(shards)))
            for number, shard in enumerate(shards)
        )
        for split, shards in data.splits.items()
    }
    return dataclasses.replace(data, splits=splits)


def copy_as(
    data_dir: pathlib.Path, folder: pathlib.Path, data: index.Index
) -> pathlib.Path:
    """Copies the shards under the names of another index, with its side files."""
    for split, shards in index.load(data_dir).splits.items():
        for old, new in zip(shards, data.splits[split], strict=True):
            shutil.copy(data_dir / old.name, folder / new.name)
    add_side_files(folder, data)
    return folder


@pytest.fixture(scope="module")
def readable_dir(
    data_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """A copy of `data_dir` with the side files."""
    folder = tmp_path_factory.mktemp("readers") / "records"
    shutil.copytree(data_dir, folder)
    add_side_files(folder, index.load(folder))
    return folder


@pytest.fixture(scope="module")
def tfds() -> Any:
    """The module tensorflow_datasets."""
    return pytest.importorskip(
        "tensorflow_datasets", reason="TFDS comes with the extra 'tfds'"
    )


def expected(raw_dir: pathlib.Path, split: str) -> dict[str, Image]:
    """Returns the images of the tree by file name, decoded by Pillow."""
    labels = {c.synset: c.label for c in classes.imagenet_classes()}
    if split == "train":
        paths = sorted((raw_dir / "train").glob("*/*.JPEG"))
        synsets = [path.parent.name for path in paths]
    else:
        paths = sorted((raw_dir / "val").glob("*.JPEG"))
        synsets = (raw_dir / "synset_labels.txt").read_text().split()
    return {
        path.name: (path.name, labels[synset], np.asarray(PIL.Image.open(path)))
        for path, synset in zip(paths, synsets, strict=True)
    }


def assert_same(read: list[Image], wanted: dict[str, Image]) -> None:
    """Checks that every image is there once; decoders differ by a few of 255."""
    assert sorted(name for name, _, _ in read) == sorted(wanted)
    for name, label, pixels in read:
        assert label == wanted[name][1]
        assert pixels.shape == wanted[name][2].shape
        assert np.abs(pixels.astype(int) - wanted[name][2]).mean() < 3


def tfds_images(dataset: Any) -> list[Image]:
    return [
        (
            example["image/filename"].decode(),
            int(example["image/class/label"]),
            example["image/encoded"],
        )
        for example in dataset.as_numpy_iterator()
    ]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_tfds_reads_every_image_of_a_split(
    tfds: Any, readable_dir: pathlib.Path, raw_dir: pathlib.Path, split: str
) -> None:
    builder = tfds.builder_from_directory(str(readable_dir))
    dataset = builder.as_dataset(split=split, shuffle_files=False)

    assert dataset.cardinality() == builder.info.splits[split].num_examples
    assert_same(tfds_images(dataset), expected(raw_dir, split))


def test_tfds_reads_the_shards_in_their_order(
    tfds: Any, readable_dir: pathlib.Path
) -> None:
    """Without interleaving, the order is that of the catalog."""
    builder = tfds.builder_from_directory(str(readable_dir))
    config = tfds.ReadConfig(interleave_cycle_length=1)
    dataset = builder.as_dataset(split="train", read_config=config)
    catalog = index.load_catalog(readable_dir, "train", ["filename"])["filename"]

    names = [name for name, _, _ in tfds_images(dataset)]

    assert names == [pathlib.PurePath(name).name for name in catalog]


def test_tfds_slices_splits(tfds: Any, readable_dir: pathlib.Path) -> None:
    """Slices by fraction and by record, across shards, add up to the split."""
    builder = tfds.builder_from_directory(str(readable_dir))
    whole, *parts = (
        [name for name, _, _ in tfds_images(builder.as_dataset(split=split))]
        for split in ("train", "train[:50%]", "train[50%:75%]", "train[18:]")
    )

    assert [len(part) for part in parts] == [12, 6, 6]
    assert sorted(name for part in parts for name in part) == sorted(whole)


def test_tfds_gives_pairs_as_supervised_and_shuffles_files(
    tfds: Any, readable_dir: pathlib.Path, raw_dir: pathlib.Path
) -> None:
    builder = tfds.builder_from_directory(str(readable_dir))
    dataset = builder.as_dataset(split="train", as_supervised=True, shuffle_files=True)

    pairs = list(dataset.as_numpy_iterator())

    wanted = expected(raw_dir, "train").values()
    assert sorted((label, pixels.shape) for pixels, label in pairs) == sorted(
        (label, pixels.shape) for _, label, pixels in wanted
    )


def test_tfds_skips_decoding_and_has_the_stored_bytes(
    tfds: Any, readable_dir: pathlib.Path, raw_dir: pathlib.Path
) -> None:
    builder = tfds.builder_from_directory(str(readable_dir))
    skip = {"image/encoded": tfds.decode.SkipDecoding()}
    dataset = builder.as_dataset(split="train", decoders=skip)

    for example in dataset.as_numpy_iterator():
        name = example["image/filename"].decode()
        path = raw_dir / "train" / example["image/class/synset"].decode() / name
        image = PIL.Image.open(io.BytesIO(example["image/encoded"]))
        assert example["image/encoded"] == path.read_bytes()
        assert (example["image/width"], example["image/height"]) == image.size


def test_tfds_names_labels(tfds: Any, readable_dir: pathlib.Path) -> None:
    info = tfds.builder_from_directory(str(readable_dir)).info
    label = info.features["image/class/label"]

    assert label.num_classes == 1001
    assert label.int2str(0) == "background"
    assert label.int2str(1) == "tench"
    assert label.str2int("crane (n02012849)") == 135
    assert info.supervised_keys == ("image/encoded", "image/class/label")
    for number, synset in enumerate(SYNSETS, start=1):
        assert classes.imagenet_classes()[number - 1].synset == synset


@pytest.mark.parametrize(
    "form",
    [
        "imagenet-{split}.tfrecord-{number:05d}-of-{count:05d}",
        "my-{split}-{number:05d}-of-{count:05d}.tfrecord",
        "part-of-{split}_{number:05d}-of-{count:05d}",
    ],
)
def test_tfds_reads_other_shard_names(
    tfds: Any,
    data_dir: pathlib.Path,
    raw_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    form: str,
) -> None:
    other = renamed(
        dataclasses.replace(index.load(data_dir), name="other-data.v2"),
        lambda split, n, count: form.format(split=split, number=n, count=count),
    )
    copy_as(data_dir, tmp_path, other)

    builder = tfds.builder_from_directory(str(tmp_path))

    assert_same(
        tfds_images(builder.as_dataset(split="train")), expected(raw_dir, "train")
    )


def test_tfds_loads_the_tfds_layout_by_name(
    tfds: Any, data_dir: pathlib.Path, raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The folder is `<name>/<version>`, where `tfds.load` looks for it."""
    folder = tmp_path / "photographs" / "1.0.0"
    folder.mkdir(parents=True)
    data = dataclasses.replace(index.load(data_dir), name="photographs")
    other = renamed(
        data,
        lambda split, number, count: side_files.shard_name(
            "tfds", data.name, split=split, number=number, num_shards=count
        ),
    )
    copy_as(data_dir, folder, other)

    dataset = tfds.load(
        "photographs", split="validation", data_dir=tmp_path, download=False
    )

    assert_same(tfds_images(dataset), expected(raw_dir, "validation"))


@pytest.fixture(scope="module")
def odd_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Three shards, the middle one empty: a gray image, and one with two boxes."""
    folder = tmp_path_factory.mktemp("odd")
    boxes = ((0.25, 0.5, 0.75, 1.0), (0.0, 0.0, 1.0, 1.0))
    stored = [
        image_record.ImageRecord(
            make_jpeg(1, mode="L"), 32, 40, 1, "n1", "a", "gray.JPEG", ()
        ),
        image_record.ImageRecord(
            make_jpeg(2), 32, 40, 2, "n2", "a", "boxes.JPEG", boxes
        ),
    ]
    shards = []
    for number, images in enumerate((stored[:1], [], stored[1:])):
        data = b"".join(
            b"".join(records.frame(image_record.encode_image(image)))
            for image in images
        )
        name = f"train-{number:05d}-of-00003"
        (folder / name).write_bytes(data)
        shards.append(
            index.Shard(
                name=name, num_records=len(images), num_bytes=len(data), digest=""
            )
        )
    add_side_files(
        folder,
        index.Index(
            name="odd",
            label_base=1,
            classes=(("n1", "a"), ("n2", "a")),
            splits={"train": tuple(shards)},
            made_by={},
        ),
    )
    return folder


def test_tfds_reads_boxes_gray_images_and_empty_shards(
    tfds: Any, odd_dir: pathlib.Path
) -> None:
    builder = tfds.builder_from_directory(str(odd_dir))

    gray, boxes = builder.as_dataset(split="train").as_numpy_iterator()

    assert builder.info.features["image/class/label"].names[1:] == ["a (n1)", "a (n2)"]
    assert gray["image/encoded"].shape == boxes["image/encoded"].shape == (32, 40, 3)
    assert gray["image/object/bbox/xmin"].shape == (0,)
    assert boxes["image/object/bbox/xmin"].tolist() == [0.25, 0.0]
    assert boxes["image/object/bbox/label"].tolist() == [2, 2]


@pytest.fixture(scope="module")
def dali() -> Any:
    """The module nvidia.dali."""
    return pytest.importorskip("nvidia.dali", reason="DALI comes with the extra 'dali'")


def dali_outputs(
    dali: Any, data_dir: pathlib.Path, split: str, size: int
) -> Iterator[dict[str, Any]]:
    """Returns examples of a split as DALI reads and decodes them on the CPU."""
    types = importlib.import_module("nvidia.dali.tfrecord")
    paths = sorted(data_dir.glob(f"{split}-*"))
    index_paths = [data_dir / side_files.DALI_DIR_NAME / path.name for path in paths]
    features = {
        "image/encoded": types.FixedLenFeature((), types.string, ""),
        "image/filename": types.FixedLenFeature((), types.string, ""),
        "image/class/label": types.FixedLenFeature([1], types.int64, -1),
        "image/class/text": types.FixedLenFeature([], types.string, ""),
        **{
            f"image/object/bbox/{side}": types.VarLenFeature(types.float32, 0.0)
            for side in ("xmin", "ymin", "xmax", "ymax")
        },
    }

    def graph() -> Any:
        example = dali.fn.readers.tfrecord(
            path=list(map(str, paths)),
            index_path=list(map(str, index_paths)),
            features=features,
        )
        pixels = dali.fn.decoders.image(example.pop("image/encoded"), device="cpu")
        return (pixels, *(example[key] for key in sorted(example)))

    keys = ("pixels", *sorted(set(features) - {"image/encoded"}))
    running = dali.pipeline_def(graph, batch_size=1, num_threads=1, device_id=None)()
    running.build()
    for _ in range(size):
        outputs = [np.asarray(output.at(0)) for output in running.run()]
        yield dict(zip(keys, outputs, strict=True))


def dali_images(
    dali: Any, data_dir: pathlib.Path, split: str, size: int
) -> list[Image]:
    return [
        (
            output["image/filename"].tobytes().decode(),
            int(output["image/class/label"][0]),
            output["pixels"],
        )
        for output in dali_outputs(dali, data_dir, split, size)
    ]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_dali_reads_every_image_with_the_index(
    dali: Any, readable_dir: pathlib.Path, raw_dir: pathlib.Path, split: str
) -> None:
    """Twice the records are read: the second epoch starts after the whole split."""
    wanted = expected(raw_dir, split)

    read = dali_images(dali, readable_dir, split, 2 * len(wanted))

    assert_same(read[: len(wanted)], wanted)
    assert_same(read[len(wanted) :], wanted)


def test_dali_reads_boxes_gray_images_and_empty_shards(
    dali: Any, odd_dir: pathlib.Path
) -> None:
    gray, boxes = dali_outputs(dali, odd_dir, "train", 2)

    assert gray["pixels"].shape == boxes["pixels"].shape == (32, 40, 3)
    assert gray["image/object/bbox/xmin"].shape == (0,)
    assert boxes["image/object/bbox/xmin"].tolist() == [0.25, 0.0]
    assert boxes["image/class/text"].tobytes() == b"a"
