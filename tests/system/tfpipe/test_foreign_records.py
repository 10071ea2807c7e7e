"""TFRecords of other tools, as they are: a preset reads them and a model learns them.

Images of class 1 are bright, the others dark, so that a model of one number learns the
classes in a few steps.
"""

import io
import pathlib
import runpy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.foreign import write_shard

SIZE = 16
ROOT = pathlib.Path(__file__).parents[3]


def make_image(number: int, kind: str, level: int | None = None) -> bytes:
    """A dark or a bright image, by default in turns, of a size of its own."""
    level = 40 + 170 * (number % 2) if level is None else level
    random = np.random.default_rng(number)
    noise = random.integers(0, 40, (20 + number, 30, 3), np.uint8)
    out = io.BytesIO()
    PIL.Image.fromarray(noise + np.uint8(level)).save(out, kind)
    return out.getvalue()


def pairs(pipeline: tfpipe.Pipeline) -> tf.data.Dataset:
    """Normalized images and labels, without end."""
    dataset = pipeline.build(num_epochs=None).map(pipeline.on_device)
    return dataset.map(lambda batch: (batch["image"], batch["label"]))


def train(pipeline: tfpipe.Pipeline, num_outputs: int, **compiled: Any) -> float:
    """Returns the accuracy on batches that were not trained on."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input([SIZE, SIZE, 3]),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(num_outputs),
        ]
    )
    optimizer = keras.optimizers.Adam(0.1)
    model.compile(optimizer=optimizer, jit_compile=False, **compiled)
    model.fit(pairs(pipeline), steps_per_epoch=40, verbose=0)
    return float(model.evaluate(pairs(pipeline), steps=8, verbose=0)[1])


def accuracy(pipeline: tfpipe.Pipeline, num_classes: int = 2) -> float:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return train(pipeline, num_classes, loss=loss, metrics=["accuracy"])


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A data set that TFDS has made, in two shards, of PNG images."""
    tfds = pytest.importorskip(
        "tensorflow_datasets", reason="TFDS comes with the extra 'tfds'"
    )

    class Photos(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
        VERSION = tfds.core.Version("1.0.0")
        url_infos: Mapping[str, Any] = {}  # nothing is downloaded

        def _info(self) -> Any:
            features = {
                "image": tfds.features.Image(shape=(None, None, 3)),
                "file_name": tfds.features.Text(),
                "label": tfds.features.ClassLabel(names=["dark", "bright"]),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager: Any) -> Mapping[str, Any]:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
            for number in range(24):
                yield (
                    number,
                    {
                        "image": io.BytesIO(make_image(number, "JPEG")),
                        "file_name": f"photo-{number % 2}.jpg",
                        "label": number % 2,
                    },
                )

    builder = Photos(data_dir=tmp_path_factory.mktemp("tfds"))
    config = tfds.download.DownloadConfig(num_shards=2)
    builder.download_and_prepare(download_config=config)
    return pathlib.Path(builder.data_dir)


def test_shards_that_tfds_made_train_in_five_lines(tfds_dir: pathlib.Path) -> None:
    names = {path.name for path in tfds_dir.glob("*tfrecord*")}
    assert "photos-train.tfrecord-00000-of-00002" in names

    parse = tfpipe.Parse(
        image_key="image",
        label_key="label",
        label_base=0,
        extra={"file_name": tf.string},
    )
    pipeline = tfpipe.imagenet_train(
        tfds_dir, parse=parse, image_size=SIZE, batch_size=8
    )

    assert accuracy(pipeline) > 0.9
    for batch in pipeline.build().as_numpy_iterator():
        wanted = [f"photo-{label}.jpg".encode() for label in batch["label"]]
        assert batch["file_name"].tolist() == wanted


def test_shards_of_the_model_garden_train_in_five_lines(tmp_path: pathlib.Path) -> None:
    for shard in range(4):
        records = (
            {
                "image/encoded": make_image(number, "JPEG"),
                "image/class/label": 1 + number % 2,
                "image/format": b"JPEG",
            }
            for number in range(shard, 24, 4)
        )
        write_shard(tmp_path / f"train-{shard:05}-of-00004", records)

    parse = tfpipe.Parse(label_base=1)
    pipeline = tfpipe.imagenet_train(
        tmp_path, parse=parse, image_size=SIZE, batch_size=8
    )

    assert accuracy(pipeline) > 0.9


def own_records(kind: str) -> Iterable[Mapping[str, Any]]:
    return (
        {"img": make_image(n, kind), "y": n % 2, "name": b"%d" % n} for n in range(24)
    )


def write_own(folder: pathlib.Path) -> None:
    write_shard(folder / "part-3.tfrecord", own_records("PNG"))
    write_shard(folder / "part-10.tfrecord", own_records("JPEG"))


@pytest.mark.parametrize("crop_op", ["auto", "stock"])
def test_shards_with_own_keys_names_and_png_train_in_five_lines(
    tmp_path: pathlib.Path, crop_op: str
) -> None:
    write_own(tmp_path)

    source = tfpipe.TFRecordSource(tmp_path, files="part-*.tfrecord", batch_size=8)
    parse = tfpipe.Parse(image_key="img", label_key="y", label_base=0)
    pipeline = tfpipe.imagenet_train(
        source, parse=parse, image_size=SIZE, crop_op=crop_op
    )

    assert accuracy(pipeline) > 0.9


def test_several_labels_a_record_train_with_a_sigmoid(tmp_path: pathlib.Path) -> None:
    """Label 0: is it bright? Label 1: is it dark? Label 2: is it there at all?"""
    records = (
        {"img": make_image(n, "PNG"), "y": [5 + (n + 1) % 2, 7]} for n in range(24)
    )
    write_shard(tmp_path / "all.tfrec", records)

    source = tfpipe.TFRecordSource(tmp_path, files="*.tfrec", batch_size=8)
    parse = tfpipe.Parse(
        image_key="img", label_key="y", label_base=5, multi_label=True, num_classes=3
    )
    pipeline = tfpipe.imagenet_train(source, parse=parse, image_size=SIZE)

    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    metric = keras.metrics.BinaryAccuracy(threshold=0)
    assert train(pipeline, 3, loss=loss, metrics=[metric]) > 0.9


def test_example_of_own_tfrecords_trains(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_own(tmp_path)
    example = runpy.run_path(str(ROOT / "examples" / "own_tfrecords.py"))

    history = example["main"](tmp_path, 1)

    assert "Parse(image_key='img'" in capsys.readouterr().out
    assert np.isfinite(history.history["loss"][0])
