r"""How much do the pixels of the fast decoding path differ from the exact ones?

  python -m studies.parity --data_dir=DIR [--image_size=224] \
      [--checkpoint_dir=MODEL]

The study crops each image of both splits in both qualities: the central crop of
evaluation, and one random crop. An image that is not scaled down while it is decoded is
equal in both qualities, so the figures are given for all images and for the scaled
images alone. The choices that were not made are compared with the exact path too: the
other inverse DCT (`fast_dct`), plain upsampling of the chroma (`plain`), and both.

PSNR is 10 log10(255^2 / mean squared difference) over an image, in dB; equal images
count as 100. The first and last columns also get figures of their own, because
libjpeg's smooth upsampling reads pixels beyond the edge of a crop box.

With --checkpoint_dir, a model that `benchmarks.train` saved (--model names it) labels
both crops: `label_agreement` is the part of the images that get the same label. It
shows how sensitive that model is to the pixels; it is not an accuracy. The last line on
stdout is one JSON object.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import lazy_loader
import numpy as np
import numpy.typing as npt
from absl import flags as absl_flags

import tfpipe
from benchmarks.models import catalog
from benchmarks.options import command, train_flags
from benchmarks.options.config import Config
from benchmarks.reporting import output

# TensorFlow takes seconds to import: it is imported when it is first used.
tf = lazy_loader.load("tensorflow")

# Flags of the training command that this study reads, for --help.
for _name in ("data_dir", "image_size", "model", "checkpoint_dir", "seed"):
    absl_flags.declare_key_flag(_name)
_PARITY_RESULT = absl_flags.DEFINE_string(
    "parity_result", None, "File to write the JSON object to as well."
)

if TYPE_CHECKING:
    Example = dict[str, tf.Tensor]
    Crop = tfpipe.CenterCrop | tfpipe.RandomCrop
    Classify = Callable[[tf.Tensor], tf.Tensor]

_EQUAL_PSNR = 100.0
_SPLITS = ("train", "validation")

# Choice -> dct_method and fancy_upscaling.
_CHOICES = {
    "fast_dct": ("INTEGER_FAST", True),
    "plain": ("INTEGER_ACCURATE", False),
    "fast_dct_plain": ("INTEGER_FAST", False),
}


@dataclasses.dataclass(frozen=True)
class _Compare:
    """Adds the crop's image of each path, and whether it can be scaled down.

    Element: example -> example.
        in   features of `tfpipe.Parse`
        out  fast, exact and each name of `_CHOICES`: uint8 [image_size, image_size, 3];
             scaled: bool []; mask: as it was
    """

    crop: Crop

    def __call__(self, example: Example) -> Example:
        crop_box = self.crop.window(example)
        size = self.crop.image_size
        images = {
            quality: dataclasses.replace(self.crop, quality=quality)(example)["image"]
            for quality in ("fast", "exact")
        }
        for name, (dct_method, fancy) in _CHOICES.items():
            pixels = tf.io.decode_and_crop_jpeg(
                example["encoded"],
                crop_box,
                channels=3,
                dct_method=dct_method,
                fancy_upscaling=fancy,
            )
            resized = tf.round(tf.image.resize(pixels, [size, size]))
            images[name] = tf.cast(resized, tf.uint8)
        # libjpeg can halve the sides if the crop box is twice the output or more.
        scaled = tf.minimum(crop_box[2], crop_box[3]) >= 2 * size
        return images | {"scaled": scaled, "mask": example["mask"]}


def compare(config: Config, image_size: int) -> dict[str, Any]:
    """Returns the figures of a data set: name of the crop -> figures of each path.

    Args:
        config: Data set, and model if it has a checkpoint_dir.
        image_size: Side of the crops, in pixels.

    Raises:
        TfpipeError: If the data set is not complete.
        ValueError: If `config.checkpoint_dir` holds no checkpoint.
    """
    classify = _classifier(config, image_size) if config.checkpoint_dir else None
    crops: dict[str, Crop] = {
        "center": tfpipe.CenterCrop(image_size=image_size),
        "random": tfpipe.RandomCrop(image_size=image_size),
    }
    return {
        name: _summary(list(_rows(config, crop, classify)))
        for name, crop in crops.items()
    }


def _rows(
    config: Config, crop: Crop, classify: Classify | None
) -> Iterator[dict[str, float]]:
    """Yields the figures of each image."""
    for split in _SPLITS:
        pipeline = tfpipe.imagenet_eval(
            config.data_dir or "",
            split=split,
            image_size=crop.image_size,
            batch_size=1,
            seed=config.seed,
            whole_batches=False,
        )
        stages = [
            tfpipe.Map(stage.ops[0], _Compare(crop))
            if isinstance(stage, tfpipe.Map)
            else stage
            for stage in pipeline.stages
        ]
        for batch in dataclasses.replace(pipeline, stages=stages).build():
            if batch["mask"][0]:
                yield _row(batch, classify)


def _row(batch: Example, classify: Classify | None) -> dict[str, float]:
    exact = batch["exact"][0].numpy().astype(float)
    row = {"scaled": float(batch["scaled"][0])}
    for name in ("fast", *_CHOICES):
        difference = np.abs(batch[name][0].numpy() - exact)
        row[f"{name}_psnr"] = _psnr(difference)
        row[f"{name}_inner_psnr"] = _psnr(difference[:, 1:-1])
        row[f"{name}_max"] = difference.max()
        row[f"{name}_edge_max"] = difference[:, [0, -1]].max()
    if classify is not None:
        labels = classify(batch["exact"]), classify(batch["fast"])
        row["agrees"] = float(labels[0] == labels[1])
    return row


def _psnr(difference: npt.NDArray[np.float64]) -> float:
    error = float(np.mean(difference**2))
    return float(10 * np.log10(255**2 / error)) if error else _EQUAL_PSNR


def _summary(rows: list[dict[str, float]]) -> dict[str, Any]:
    scaled = [row for row in rows if row["scaled"]]
    summary: dict[str, Any] = {
        "num_images": len(rows),
        "num_scaled": len(scaled),
        "fast": _figures(rows, "fast"),
    }
    if scaled:
        summary["fast_where_scaled"] = _figures(scaled, "fast")
    summary |= {f"choice_{name}": _figures(rows, name) for name in _CHOICES}
    if "agrees" in rows[0]:
        summary["label_agreement"] = float(np.mean([row["agrees"] for row in rows]))
        if scaled:
            agreed = [row["agrees"] for row in scaled]
            summary["label_agreement_where_scaled"] = float(np.mean(agreed))
    return summary


def _figures(rows: list[dict[str, float]], name: str) -> dict[str, float]:
    psnr = np.array([row[f"{name}_psnr"] for row in rows])
    return {
        "psnr_db_mean": float(psnr.mean()),
        "psnr_db_p1": float(np.quantile(psnr, 0.01)),
        "psnr_db_min": float(psnr.min()),
        "psnr_db_mean_without_edge_columns": float(
            np.mean([row[f"{name}_inner_psnr"] for row in rows])
        ),
        "max_abs_difference": max(row[f"{name}_max"] for row in rows),
        "max_abs_difference_of_edge_columns": max(
            row[f"{name}_edge_max"] for row in rows
        ),
        "share_equal": float(np.mean(psnr == _EQUAL_PSNR)),
    }


def _classifier(config: Config, image_size: int) -> Classify:
    """Loads the newest checkpoint as uint8 [1, size, size, 3] -> int64 label []."""
    path = tf.train.latest_checkpoint(config.checkpoint_dir)
    if path is None:
        raise ValueError(
            f"--checkpoint_dir {config.checkpoint_dir} must hold a checkpoint, got "
            "none. Train with it first, or leave the flag out."
        )
    from benchmarks.training.setting import recipe_of

    pipeline = tfpipe.imagenet_eval(
        config.data_dir or "", recipe=recipe_of(config.model), image_size=image_size
    )
    num_classes = config.num_classes or len(pipeline.source.index.classes)
    model = catalog.MODELS[config.model].build(image_size, num_classes)
    tf.train.Checkpoint(model=model).restore(path).expect_partial()

    @tf.function
    def classify(image: tf.Tensor) -> tf.Tensor:
        logits = model(pipeline.on_device({"image": image})["image"], training=False)
        return tf.argmax(logits[0])

    return classify


def table(report: dict[str, Any]) -> str:
    """Returns a table with a line for each crop and path."""
    lines = [f"{'':36}{'PSNR mean':>10}{'p1':>8}{'min':>8}{'max |d|':>9}{'equal':>8}"]
    for crop, summary in report.items():
        for name, row in summary.items():
            if not isinstance(row, dict):
                lines.append(f"{crop + ' ' + name:36}{row:10.4g}")
                continue
            psnr = "".join(f"{row[f'psnr_db_{key}']:8.1f}" for key in ("p1", "min"))
            lines.append(
                f"{crop + ' ' + name:36}{row['psnr_db_mean']:10.1f}{psnr}"
                f"{row['max_abs_difference']:9.0f}{row['share_equal']:8.1%}"
            )
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Prints the comparison that the flags describe."""
    command.refuse_arguments(argv)
    try:
        config = train_flags.config_from_flags()
        image_size = config.image_size or 224
        crops = compare(config, image_size)
    except (OSError, ValueError, tfpipe.TfpipeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    from benchmarks.reporting import environment

    report = {
        "command": "studies.parity",
        "schema_version": 1,
        "config": {
            # The folder by name: its path differs between machines.
            "data_dir": pathlib.Path(config.data_dir or "").resolve().name,
            "image_size": image_size,
            "model": config.model if config.checkpoint_dir else None,
            "seed": config.seed,
        },
        "crops": crops,
        "environment": environment.describe(),
    }
    output.finish(report, table(crops), path=_PARITY_RESULT.value)
    return 0


if __name__ == "__main__":
    command.run(main, {})
