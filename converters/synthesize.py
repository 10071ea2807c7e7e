"""Makes an ImageNet-like tree of photo-like JPEGs, without a download.

  python -m converters.synthesize RAW --num_images=2000 --num_classes=10

The images are drawn, but reading and decoding them takes as long as for ImageNet's
photographs: sizes, bytes per pixel, JPEG quality and chroma subsampling follow
ILSVRC-2012. Each class shows an object of its own outline, hue and pattern in front of
clutter, so that a model can learn the classes, and a broken crop shows in the accuracy.
Use the tree for tests, demonstrations and benchmarks where ImageNet is not available.

The tree is ready for converters.imagenet. It holds train/<synset>/*.JPEG, evenly over
the classes; val/*.JPEG, shuffled; synset_labels.txt, whose line i is the class of the
i-th validation image; and .synthesized.json with the options, which --overwrite looks
for.

Classes are the first of ImageNet, with the real synset names; more than 1000 classes,
or --made_up_synsets, get made-up ones, listed in synsets.txt (in label order) and
synset_words.txt. Every image is a pure function of the seed, its split, its number
and its class: the number of worker processes changes nothing.

Progress goes to stderr. The last line on stdout is one JSON object.
"""

import dataclasses
import functools
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from converters.engines import processes
from converters.images import jpeg_header
from converters.inputs import classes
from converters.jobs.job import differences
from converters.options import shared
from converters.synthetic import camera, noise, objects, scenes, whole_tree
from tfpipe import cli, errors, host
from tfpipe.cli import output
from tfpipe.errors import count_of

_SCHEMA_VERSION = 1
# Random streams of the splits.
_TRAIN, _VALIDATION = 1, 2
_ORDER = 3
_LIST_NAMES = ("synset_labels.txt", "synsets.txt", "synset_words.txt")
# Enough tasks for every worker to even out the costs, few enough for rare messages.
_IMAGES_A_TASK = 8


@cli.options
class SynthesizeOptions:
    """Options of a tree.

    Raises:
        ValueError: If the numbers do not fit together.
    """

    output_dir: str = shared.output_dir(shown="RAW")
    num_images: int = cli.required(
        "Number of training images, spread evenly over the classes.", least=1
    )
    num_classes: int = cli.required(
        "Number of classes.", least=1, most=objects.NUM_LOOKS
    )
    num_validation_images: int = cli.flag(
        0,
        "Number of validation images; classes get equal numbers, to within one image.",
        least=0,
    )
    seed: int = shared.seed(group="")
    size_scale: float = cli.flag(
        1.0,
        "Multiplies width and height of every image; 0.1 makes tiny images for tests.",
        least=0.02,
        most=4,
    )
    bytes_per_pixel: float | None = cli.flag(
        None,
        "Mean bytes of a JPEG per pixel. Default: ImageNet's mean, about "
        f"{camera.MEAN_BYTES_PER_PIXEL}. Other values scale ImageNet's distribution.",
        least=0.02,
        most=2,
    )
    made_up_synsets: bool = cli.flag(
        False,
        "Name the classes n90000000, n90000001 and so on instead of using ImageNet's.",
    )
    num_workers: int | None = shared.num_workers(group="")
    overwrite: bool = shared.overwrite(group="")

    def __post_init__(self) -> None:
        if self.num_images < self.num_classes:
            raise ValueError(
                f"--num_images must be at least --num_classes, so that every class "
                f"has an image, got {self.num_images} images for {self.num_classes} "
                "classes. Ask for more images or for fewer classes."
            )

    @property
    def folder(self) -> pathlib.Path:
        """The output folder."""
        return shared.path_of("--output_dir", self.output_dir)

    def to_json(self) -> dict[str, object]:
        """Returns the options as JSON values."""
        num_workers = self.num_workers or host.num_cores()
        return dataclasses.asdict(self) | {
            "output_dir": str(self.folder),
            "num_workers": num_workers,
        }

    def to_mark(self) -> str:
        """Returns the options with an effect on the output, as JSON."""
        fields = self.to_json()
        for name in ("output_dir", "num_workers", "overwrite"):
            del fields[name]
        return json.dumps(fields) + "\n"


@dataclasses.dataclass(frozen=True)
class DrawnImage:
    """An image to make: its path, and the numbers for its content."""

    path: str
    split: int
    number: int
    class_index: int


class Totals(NamedTuple):
    """Sums over images: their number, bytes, and widths and heights in pixels."""

    images: int = 0
    bytes: int = 0
    width: int = 0
    height: int = 0


def synthesize(config: SynthesizeOptions) -> Totals:
    """Makes the tree. The tree appears under its name when the tree is complete.

    A tree of the same options is kept.

    Raises:
        ValueError: If the output folder holds something else and may not be replaced.
        OSError: If the output cannot be written.
    """
    output = config.folder.resolve()
    with whole_tree.claimed(output):
        if (there := _totals_of(config, output)) is not None:
            return there
        _check_output(output, config.overwrite)
        with whole_tree.filling(output, config.to_mark()) as partial:
            synsets = list_classes(config)
            images = plan(config, [one.synset for one in synsets])
            _write_lists(config, partial, synsets, images)
            return _run(config, partial, images)


def list_classes(config: SynthesizeOptions) -> list[classes.Class]:
    """Returns the classes in label order: the first of ImageNet, or made-up classes."""
    real = classes.imagenet_classes()
    if config.num_classes <= len(real) and not config.made_up_synsets:
        return real[: config.num_classes]
    return [
        classes.Class(
            label=classes.LABEL_BASE + index,
            synset=f"n9{index:07d}",
            text=objects.look_of(index).name,
        )
        for index in range(config.num_classes)
    ]


def plan(config: SynthesizeOptions, synsets: list[str]) -> list[DrawnImage]:
    """Returns every image of the tree, training images first."""
    count = len(synsets)
    train = [
        DrawnImage(
            f"train/{wnid}/{wnid}_{number // count + 1}.JPEG", _TRAIN, number, index
        )
        for number in range(config.num_images)
        for index, wnid in [(number % count, synsets[number % count])]
    ]
    rng = noise.generator(config.seed, _ORDER)
    order = rng.permutation(count)
    shuffled = rng.permutation(config.num_validation_images)
    validation = [
        DrawnImage(
            f"val/ILSVRC2012_val_{number + 1:08d}.JPEG",
            _VALIDATION,
            number,
            int(order[place % count]),
        )
        for number, place in enumerate(shuffled)
    ]
    return train + validation


def _totals_of(config: SynthesizeOptions, output: pathlib.Path) -> Totals | None:
    """Returns the sums over a whole tree of the same options; None without a tree.

    Raises:
        ValueError: If there is a tree of other options, or a part of a tree.
    """
    mark = output / whole_tree.MARK_NAME
    if config.overwrite or not mark.is_file():
        return None
    wanted, before = (
        errors.from_json(config.to_mark()),
        errors.from_json(mark.read_text("utf-8")),
    )
    difference = "; ".join(differences(before, wanted))
    totals = []
    for image in plan(config, [one.synset for one in list_classes(config)]):
        if difference:
            break
        try:
            encoded = (output / image.path).read_bytes()
            header = jpeg_header.read_header(encoded)
        except (OSError, jpeg_header.BadImageError):
            difference = f"its file {image.path} is missing or damaged"
        else:
            totals.append(Totals(1, len(encoded), header.width, header.height))
    if difference:
        raise ValueError(
            f"--output_dir {output} already holds a tree that differs from this one: "
            f"{difference}. Choose another folder, or replace it with --overwrite."
        )
    print(f"{output} already holds this tree, complete.", file=sys.stderr)
    return _sum(totals)


def _check_output(output: pathlib.Path, overwrite: bool) -> None:
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output_dir must be a folder, got the file {output}.")
    names = {path.name for path in output.iterdir()} if output.exists() else set()
    if names and not overwrite:
        raise ValueError(
            f"--output_dir must be empty or not exist, but {output} holds files. "
            "Choose another folder, or pass --overwrite to replace it."
        )
    if names:
        _require_own(output)


def _require_own(output: pathlib.Path) -> None:
    """Checks for a tree of the command without other files."""
    try:
        mark = errors.from_json(
            (output / whole_tree.MARK_NAME).read_text(encoding="utf-8")
        )
        made = SynthesizeOptions(output_dir=str(output), **mark)
    except (OSError, ValueError, TypeError):
        raise ValueError(
            f"--overwrite replaces only what a run like this wrote, but {output} has "
            f"no {whole_tree.MARK_NAME} that says so. Remove the folder, or choose "
            "another."
        ) from None
    images = plan(made, [one.synset for one in list_classes(made)])
    known = {whole_tree.MARK_NAME, *_LIST_NAMES, *(image.path for image in images)}
    for folder, folders, files in os.walk(output):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in sorted([*links, *files]):
            found = os.path.relpath(os.path.join(folder, name), output)
            if found not in known:
                raise ValueError(
                    "--overwrite replaces only what a run like this wrote, but "
                    f"{output} holds {found} too. Choose another folder."
                )


def _write_lists(
    config: SynthesizeOptions,
    root: pathlib.Path,
    synsets: list[classes.Class],
    images: list[DrawnImage],
) -> None:
    """Writes the text files, and makes the folders of the images."""
    for folder in sorted({os.path.dirname(image.path) for image in images}):
        (root / folder).mkdir(parents=True)
    labels = [synsets[i.class_index].synset for i in images if i.split == _VALIDATION]
    if labels:
        _write_lines(root / "synset_labels.txt", labels)
    if synsets != classes.imagenet_classes()[: len(synsets)]:
        _write_lines(root / "synsets.txt", (one.synset for one in synsets))
        words = (f"{one.synset}\t{one.text}" for one in synsets)
        _write_lines(root / "synset_words.txt", words)


def _write_lines(path: pathlib.Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _run(
    config: SynthesizeOptions, root: pathlib.Path, images: list[DrawnImage]
) -> Totals:
    tasks = [
        images[first : first + _IMAGES_A_TASK]
        for first in range(0, len(images), _IMAGES_A_TASK)
    ]
    make = functools.partial(_make_images, config, root)
    num_workers = config.num_workers or host.num_cores()
    results = processes.run(
        make, tasks, num_workers=num_workers, num_images=len(images)
    )
    return _sum(results)


def _sum(parts: Sequence[Totals]) -> Totals:
    return Totals(*map(sum, zip(*parts, strict=True)))


def _make_images(
    config: SynthesizeOptions, root: pathlib.Path, task: list[DrawnImage]
) -> Totals:
    """Makes a few images; runs in a worker process."""
    wanted = config.bytes_per_pixel or camera.MEAN_BYTES_PER_PIXEL
    parts = []
    for image in task:
        encoded, width, height = scenes.make_image(
            config.seed,
            image.split,
            image.number,
            image.class_index,
            size_scale=config.size_scale,
            bytes_scale=wanted / camera.MEAN_BYTES_PER_PIXEL,
        )
        (root / image.path).write_bytes(encoded)
        parts.append(Totals(1, len(encoded), width, height))
        processes.image_done()
    return _sum(parts)


def _print_report(config: SynthesizeOptions, totals: Totals, seconds: float) -> None:
    report = {
        "command": "converters.synthesize",
        "schema_version": _SCHEMA_VERSION,
        "config": config.to_json(),
        "num_images": config.num_images,
        "num_validation_images": config.num_validation_images,
        "num_classes": config.num_classes,
        "num_bytes": totals.bytes,
        "mean_width": round(totals.width / totals.images, 2),
        "mean_height": round(totals.height / totals.images, 2),
        "seconds": round(seconds, 3),
    }
    answer = (
        f"Wrote {count_of(totals.images, 'image')} of "
        f"{count_of(config.num_classes, 'class')} to "
        f"{config.folder}: {totals.bytes / 1e6:.1f} MB in {seconds:.1f} s."
    )
    output.show(report, [answer])


def work(options: SynthesizeOptions) -> None:
    """Makes the tree, and prints the report."""
    start = time.perf_counter()
    totals = synthesize(options)
    _print_report(options, totals, time.perf_counter() - start)


def _hint(options: SynthesizeOptions, error: BaseException) -> str:
    return "Nothing was written." if isinstance(error, KeyboardInterrupt) else ""


COMMANDS = (
    cli.Command(SynthesizeOptions, work, arguments=("output_dir",), hint=_hint),
)

if __name__ == "__main__":
    cli.run(*COMMANDS)
