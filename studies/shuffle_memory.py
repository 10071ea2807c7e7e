"""How much memory does shuffling by windows take?

  python -m studies.shuffle_memory --data_dir=DIR

Question: does shuffling hold at most two windows of encoded records in memory, whatever
the size of the data set? For each window size a process of its own reads the encoded
records of the train split of DIR and reports its peak memory. The study takes the
growth over a window of one block and divides it by the size of a window. It does so
twice: with glibc's default, and with one arena (MALLOC_ARENA_MAX=1), because glibc
keeps some freed memory when it has several arenas.

Read `windows`, the growth in windows. The last line on stdout is one JSON object. Exit
code 2 if windows of 1024 records take more than two windows with one arena.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

from absl import flags as absl_flags

import tfpipe
from benchmarks.options import command, train_flags
from benchmarks.reporting import output

absl_flags.declare_key_flag("data_dir")  # for --help
_RESULT = absl_flags.DEFINE_string(
    "memory_result", None, "File to write the JSON object to as well."
)

_BLOCK, _SIZES = 32, (32, 512, 1024, 2048)
_MAX_WINDOWS = 2
_ALLOCATORS = {"as it is": {}, "one arena": {"MALLOC_ARENA_MAX": "1"}}


def peak_bytes(data_dir: str, window_size: int, variables: dict[str, str]) -> int:
    """Returns the peak memory, in bytes, of a process that shuffles by such windows.

    Args:
        data_dir: Folder of the data set.
        window_size: Records in a window.
        variables: Environment variables to add, for the allocator.

    Raises:
        OSError: If the process fails; the message holds what it printed.
    """
    code = (
        "import sys; from studies import shuffle_memory; "
        "print(shuffle_memory.read(sys.argv[1], int(sys.argv[2])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, data_dir, str(window_size)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | variables,
    )
    if done.returncode:
        raise OSError(f"Reading ended with {done.returncode}: {done.stderr}")
    return int(done.stdout.split()[-1])


def read(data_dir: str, window_size: int) -> int:
    """Reads three epochs; returns the peak memory of this process, in bytes."""
    source = tfpipe.TFRecordSource(
        data_dir, "train", batch_size=32, block_length=_BLOCK, window_size=window_size
    )
    pipeline = tfpipe.Pipeline(
        source,
        [tfpipe.Interleave(), tfpipe.Batch(32), tfpipe.Prefetch(buffer_size=1)],
        tuning=tfpipe.Tuning(num_parallel_reads=1, private_threadpool_size=1),
    )
    for _ in pipeline.build(num_epochs=3):
        pass
    with open("/proc/self/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmHWM"].split()[0]) * 1024


def measure(data_dir: str) -> dict[str, Any]:
    """Measures all window sizes; returns one row for each size and allocator."""
    index = tfpipe.TFRecordSource(data_dir, "train").index
    num_bytes = sum(shard.num_bytes for shard in index.splits["train"])
    each = num_bytes / index.num_records("train")
    rows = []
    for allocator, variables in _ALLOCATORS.items():
        peaks = {size: peak_bytes(data_dir, size, variables) for size in _SIZES}
        for size in _SIZES[1:]:
            more = peaks[size] - peaks[_BLOCK]
            rows.append(
                {
                    "allocator": allocator,
                    "window_size": size,
                    "window_bytes": round(size * each),
                    "peak_bytes": peaks[size],
                    "more_bytes": more,
                    "windows": more / (size * each),
                }
            )
    return {"sizes": rows}


def table(sizes: list[dict[str, Any]]) -> str:
    """Returns a table with a line for each allocator and window size."""
    return "\n".join(
        f"{row['allocator']:10} {row['window_size']:5} records of "
        f"{row['window_bytes'] / 1e6:6.1f} MB: "
        f"{row['more_bytes'] / 1e6:7.1f} MB, {row['windows']:.2f} windows"
        for row in sizes
    )


def main(argv: list[str]) -> int:
    """Prints the memory of each window size over --data_dir."""
    command.refuse_arguments(argv)
    config = train_flags.config_from_flags()
    try:
        measured = measure(str(config.data_dir))
    except (OSError, ValueError, tfpipe.TfpipeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    from benchmarks.reporting import environment

    report = {
        "command": "studies.shuffle_memory",
        "schema_version": 1,
        "config": {"data_dir": pathlib.Path(str(config.data_dir)).resolve().name},
        **measured,
        "environment": environment.describe(),
    }
    output.finish(report, table(measured["sizes"]), path=_RESULT.value)
    windows = {
        row["window_size"]: row["windows"]
        for row in measured["sizes"]
        if row["allocator"] == "one arena"
    }
    return 0 if windows[1024] <= _MAX_WINDOWS else 2


if __name__ == "__main__":
    command.run(main, {})
