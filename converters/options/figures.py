"""Figures for the summary that need another look at the data.

In: a job that is done, and its index. Out: the number of images of each class, and the
time that `--decode=full` would take. A figure that cannot be had is left out: it is no
reason to fail after the data set is complete.
"""

import contextlib
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from converters.images import jpeg_header, prepare
from converters.inputs import ilsvrc
from converters.jobs.job import Job
from tfpipe import errors
from tfpipe.shards import index

# Images that are decoded to estimate the time of all.
_NUM_TIMED = 8
# Classes without images that are named.
_NUM_NAMED = 3
_COUNTS = "SELECT split, label, count(*) FROM read_parquet(?) GROUP BY ALL"


def class_counts(data_dir: pathlib.Path, known: index.Index) -> dict[str, Any]:
    """Returns how the images of each split are spread over the classes.

    Returns:
        By split: num_classes with images; the name and num_images of the smallest of
        these and of the largest; num_without_images, the number of other classes, and
        the names of the first ones. Empty if the catalog cannot be read.
    """
    counts: dict[str, dict[int, int]] = {split: {} for split in known.splits}
    with contextlib.suppress(errors.BadIndexError):
        for split, label, number in index.query_catalog(data_dir, _COUNTS, []):
            counts[split][label - known.label_base] = number
    names = [text for _, text in known.classes]
    return {split: _spread(found, names) for split, found in counts.items() if found}


def _spread(counts: Mapping[int, int], names: list[str]) -> dict[str, Any]:
    """Returns the figures of one split from the number of images of each class."""
    ordered = sorted(counts, key=lambda number: (counts[number], number))
    small, large = ordered[0], ordered[-1]
    missing = [name for number, name in enumerate(names) if number not in counts]
    return {
        "num_classes": len(counts),
        "smallest": {"class": names[small], "num_images": counts[small]},
        "largest": {"class": names[large], "num_images": counts[large]},
        "num_without_images": len(missing),
        "first_without_images": missing[:_NUM_NAMED],
    }


def full_decode(
    job: Job,
    decisions: Mapping[str, int],
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any] | None:
    """Returns how many images were not decoded, and how long decoding them would take.

    A few of the images are decoded here, as `--decode=full` decodes them.

    Args:
        job: The job, whose images are still there.
        decisions: Number of images by decision, as in the index.
        clock: Returns a time in seconds.

    Returns:
        num_images, and seconds with the workers of the job; None if every image was
        decoded, or none of the few can be read.
    """
    policy = job.policy
    kept = sum(n for decision, n in decisions.items() if decision.startswith("kept"))
    if not kept or policy.decode == "full" or policy.squeezes:
        return None
    from converters.images import pillow

    seconds = []
    for plan in job.plans[:: max(len(job.plans) // _NUM_TIMED, 1)]:
        for image in list(plan.images)[: max(_NUM_TIMED // len(job.plans), 1)]:
            with contextlib.suppress(OSError, jpeg_header.BadImageError):
                if data := _kept(job, image):
                    start = clock()
                    pillow.check_jpeg(data)
                    seconds.append(clock() - start)
    if not seconds:
        return None
    mean = sum(seconds) / len(seconds)
    return {"num_images": kept, "seconds": round(kept * mean / job.num_workers, 3)}


def _kept(job: Job, image: ilsvrc.Image) -> bytes:
    """Returns the JPEG of an image that is stored as it came; otherwise nothing.

    An image over a limit of the policy is not read, or not decoded.

    Raises:
        OSError: If the image cannot be read.
    """
    if prepare.check_bytes(image.num_bytes, job.policy) is not None:
        return b""
    prepared = prepare.prepare(ilsvrc.read_image(job.input_dir, image), job.policy)
    if isinstance(prepared, prepare.Rejected) or prepare.is_changed(prepared.decision):
        return b""
    return prepared.encoded
