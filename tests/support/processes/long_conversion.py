"""A conversion in a process of its own that takes long enough to be killed."""

import pathlib
import subprocess
import sys
from collections.abc import Sequence

from converters.jobs import work_dir
from tests.support.data.trees import digests, make_tree

# Folder of the images, and digests of the files of a conversion without a kill.
Uninterrupted = tuple[pathlib.Path, dict[str, str]]


def command(
    raw_dir: pathlib.Path,
    output_dir: pathlib.Path,
    *more: str,
    python: Sequence[str] = (sys.executable,),
) -> list[str]:
    """Returns the command line of a conversion to 43 shards.

    Args:
        raw_dir: The images.
        output_dir: Folder for the shards.
        more: Further flags.
        python: What starts Python, or a `WarmPython.command`.
    """
    return [
        *python,
        *("-m", "converters.imagenet"),
        f"--input_dir={raw_dir}",
        f"--output_dir={output_dir}",
        "--num_train_shards=40",
        "--num_validation_shards=3",
        "--num_workers=2",
        *more,
    ]


def make_input(folder: pathlib.Path) -> None:
    """Makes 1230 images and converts them."""
    raw_dir = make_tree(folder / "raw", num_images=1200, num_validation_images=30)
    subprocess.run(command(raw_dir, folder / "out"), check=True, capture_output=True)


def input_of(folder: pathlib.Path) -> Uninterrupted:
    """Returns what `make_input` made in a folder."""
    return folder / "raw", digests(folder / "out")


def num_complete(output_dir: pathlib.Path) -> int:
    """Returns the number of complete shards in the working folder."""
    return len(list((output_dir / work_dir.WORK_DIR_NAME).glob("*/*.done")))
