"""The report of images that look alike, beside the data set.

In: the folder of a data set. Out: near_duplicates.jsonl in it, and the counts. A report
without a line is not written.
"""

import json
import pathlib
import tempfile
from typing import Any

from converters.exports import plan as plans
from converters.exports.source import open_source
from converters.near import hashes, pairs
from tfpipe.shards import atomic


def write(data_dir: pathlib.Path, *, distance: int, num_workers: int) -> dict[str, Any]:
    """Finds the images that look alike, and writes their report.

    Args:
        data_dir: Folder of the data set.
        distance: Most bits that two hashes differ in.
        num_workers: Number of processes that decode, >= 1.

    Returns:
        The counts under `near_duplicates`: groups, images that were not decoded.

    Raises:
        ValueError: If the distance is out of range, or there is no data set.
        BadRecordError: If a record is damaged.
        OSError: If a file cannot be read or written.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        source = open_source(str(data_dir), data_dir, None, path, ())
        plan = plans.make_plan(
            source, kind="webdataset", paths="auto", subset=None, folder=path
        )
        hashed = hashes.hash_images(plan, num_workers=num_workers)
    lines = pairs.find(hashed, distance)
    if lines:
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        atomic.write(data_dir / pairs.NAME, text.encode())
    splits = sum(len(line["splits"]) > 1 for line in lines)
    return {
        "near_duplicates": {
            "num_groups": len(lines),
            "num_groups_across_splits": splits,
            "num_not_decoded": sum(item.hash is None for item in hashed),
        }
    }
