"""A bare loop over TFRecordWriter, the base of `studies.conversion`.

  python -m studies.bare_loop RAW OUT NUM_SHARDS NUM_PROCESSES

In: an ImageNet-style tree. Out: the images of RAW/train as shards in OUT, and a line of
JSON with the time from the first shard to the end of the last one, and its CPU time.
"""

import glob
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier


def write(path: str, images: Sequence[str]) -> tuple[float, float, float]:
    """Writes a shard; returns when it began and ended, and its CPU-seconds."""
    import tensorflow as tf

    start, cpu = time.perf_counter(), time.process_time()

    def integer(value: int) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    def text(value: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    with tf.io.TFRecordWriter(path) as writer:
        for image in images:
            with open(image, "rb") as file:
                features = {
                    "image/encoded": text(file.read()),
                    "image/class/label": integer(1),
                    "image/filename": text(os.path.basename(image).encode()),
                }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return start, time.perf_counter(), time.process_time() - cpu


def wait_for_all(barrier: Barrier) -> None:
    """Imports TensorFlow in a process, and waits until all processes have done so."""
    import tensorflow as tf

    tf.train.Example().SerializeToString()
    barrier.wait()


def main(argv: Sequence[str]) -> None:
    """Writes the shards of the command line."""
    images = sorted(glob.glob(argv[1] + "/train/*/*"))
    shards, processes = int(argv[3]), int(argv[4])
    tasks = [
        (f"{argv[2]}/train-{shard:05d}-of-{shards:05d}", images[shard::shards])
        for shard in range(shards)
    ]
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    with context.Pool(processes, wait_for_all, (barrier,)) as pool:
        spans = pool.starmap(write, tasks, chunksize=1)
    seconds = max(end for _, end, _ in spans) - min(start for start, _, _ in spans)
    cpu_seconds = sum(cpu for _, _, cpu in spans)
    print(json.dumps({"write_seconds": seconds, "write_cpu_seconds": cpu_seconds}))


if __name__ == "__main__":
    main(sys.argv)
