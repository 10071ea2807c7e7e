"""Epochs without end over a small data set, and what the process holds meanwhile.

`python -m tests.support.processes.many_epochs DATA_DIR CACHE_DIR EPOCHS` prints a line
of JSON after each tenth of the epochs: epochs, examples, memory, threads, open files,
files of the cache, seconds. CACHE_DIR "-" reads without a cache.
"""

import json
import os
import pathlib
import sys
import time

import psutil

import tfpipe

BATCH_SIZE = 32


def main(data_dir: str, cache_dir: str, num_epochs: int) -> None:
    """Reads the epochs."""
    cache = None if cache_dir == "-" else tfpipe.Cache("disk", cache_dir)
    pipeline = tfpipe.imagenet_train(
        data_dir, batch_size=BATCH_SIZE, image_size=8, cache=cache
    )
    process, start = psutil.Process(), time.monotonic()
    per_epoch = pipeline.source.steps_per_epoch
    dataset = pipeline.build(num_epochs=num_epochs)
    for step, _ in enumerate(dataset, 1):
        is_last = step == per_epoch * num_epochs
        if is_last or step % (per_epoch * max(1, num_epochs // 10)) == 0:
            row = {
                "epochs": step // per_epoch,
                "examples": step * BATCH_SIZE,
                "mb": round(process.memory_info().rss / 1e6, 1),
                "threads": process.num_threads(),
                "open_files": len(os.listdir("/proc/self/fd")),
                "cache_files": _num_files(cache_dir),
                "seconds": round(time.monotonic() - start, 1),
            }
            print(json.dumps(row), flush=True)


def _num_files(folder: str) -> int:
    return sum(path.is_file() for path in pathlib.Path(folder).rglob("*"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
