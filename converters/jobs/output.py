"""What an output folder must be before a conversion to it begins.

In: the folder and the shards that are to come. Out: nothing, or an error that says what
is in the way.
"""

import pathlib
import shutil
from collections.abc import Sequence

from converters.inputs import listing
from converters.jobs import replace
from converters.jobs.plan import ShardPlan
from tfpipe.shards import index

WORK_DIR_NAME = ".converting"
_OTHER_SUFFIXES = tuple({*listing.IMAGE_SUFFIXES} - {*listing.JPEG_SUFFIXES})


def require_free(
    output_dir: pathlib.Path, names: Sequence[str], *, overwrite: bool
) -> None:
    """Refuses an output folder whose content a conversion would mix with or lose.

    Args:
        output_dir: Where the data set goes.
        names: Shards that are to come.
        overwrite: Whether a data set that is there may be replaced.

    Raises:
        ValueError: If there is a data set and `overwrite` is not set, or there are
            files that no converter wrote.
        OSError: If files of other origin are in the way of new ones.
        BadIndexError: If the index does not say which files are the data set's.
    """
    if (output_dir / index.INDEX_NAME).exists():
        if not overwrite:
            begun = any((output_dir / WORK_DIR_NAME).glob("job-*"))
            more = " An unfinished conversion that is to replace it goes on likewise."
            raise ValueError(
                f"--output_dir {output_dir} already holds a data set. Choose another "
                f"folder, or replace it with --overwrite.{more if begun else ''}"
            )
        replace.old_files(output_dir, names)
        return
    found = {entry.name for entry in output_dir.iterdir()} - {WORK_DIR_NAME}
    if found:
        raise ValueError(
            f"--output_dir {output_dir} must be empty or hold a data set, "
            f"got other files, the first is {min(found)}. Choose another folder."
        )


def require_space(
    output_dir: pathlib.Path,
    plans: Sequence[ShardPlan],
    num_complete_bytes: int,
    *,
    shrinks: bool = False,
) -> None:
    """Checks before the start that the shards still to be written fit on the disk.

    Args:
        output_dir: Where they go.
        plans: The shards.
        num_complete_bytes: Bytes of their images that are written already.
        shrinks: Whether images are made smaller, so that only the rest of a record is
            sure to be written.

    Raises:
        OSError: If they do not.
    """
    # A record adds its other fields and frame: 1 kB is more than they take.
    needed = 1024 * sum(len(plan.images) for plan in plans)
    if not shrinks:
        needed -= num_complete_bytes
        # What is no JPEG becomes one, and that of a large bitmap is small.
        needed += sum(
            image.num_bytes
            for plan in plans
            for image in plan.images
            if not listing.has_suffix(image.name, _OTHER_SUFFIXES)
        )
    free = shutil.disk_usage(output_dir).free
    if needed > free:
        raise OSError(
            f"{output_dir} needs {needed / 1e9:.2f} GB for the shards still to be "
            f"written, got {free / 1e9:.2f} GB free. Make room or choose another disk."
        )
