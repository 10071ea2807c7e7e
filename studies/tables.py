"""How fast is converters.table from Parquet with bytes, beside converters.folder?

  python -m studies.tables --photos_dir=RAW/train --num_rounds=5

Question: how much do images in a table cost? The photographs of RAW/train
are repeated up to --num_photos images, each with a comment of its own, and written
three times: as a tree of classes, and as two Parquet files with bytes, names and
classes. One file is uncompressed, as Hugging Face's datasets writes images: DuckDB
reads the images, and they stay in place. The other one is compressed with Snappy, the
default of most writers: its images are copied to the disk before they are converted.
The
commands convert these, in turns, with the same number of processes, from the page
cache. The rate of a run is the number of images over the CPU seconds of all its
processes, which other work on the host changes less than the time.
Figures are medians over the rounds; a ratio is taken within a round. All data sets must
have equal shards.

The goal is a ratio of 0.75 for the uncompressed file. The last line on stdout is a JSON
object. Exit code: 0 done, 1 an error, 2 if the median ratio is below the goal.
"""

import functools
import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from studies import harness
from studies.figures import Run, rate, ratios, summary
from tfpipe import cli

GOAL = 0.75  # of the uncompressed file
_ROWS_IN_GROUP = 512
_COMPRESSIONS = ("uncompressed", "snappy")


@cli.options
class Options(harness.ConversionOptions):
    """Options of the study."""

    photos_dir: str = cli.required("A class-per-directory tree of JPEG files.")
    num_photos: int = cli.flag(
        12_000, "Images to convert; files are repeated.", least=1
    )


def photographs(folder: pathlib.Path, count: int) -> Iterator[tuple[str, str, bytes]]:
    """Yields class, name and bytes of images, which differ by a comment.

    Raises:
        OSError: If the folder holds no JPEG file in a folder of a class.
    """
    paths = sorted(folder.glob("*/*.[jJ]*"))
    if not paths:
        raise OSError(f"{folder} must hold folders with JPEG files, got none.")
    for index in range(count):
        path = paths[index % len(paths)]
        data = path.read_bytes()
        comment = b"%08d" % index
        # Behind the first marker: comment, length with itself, content.
        data = data[:2] + b"\xff\xfe\x00\x0a" + comment + data[2:]
        yield path.parent.name, f"{index:08d}.jpg", data


def write_inputs(photos_dir: pathlib.Path, folder: pathlib.Path, count: int) -> None:
    """Writes the images as `folder`/tree and as a Parquet file a compression."""
    import duckdb

    for label, name, data in photographs(photos_dir, count):
        path = folder / "tree" / label / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    with duckdb.connect(config={"threads": 1}) as connection:
        for compression in _COMPRESSIONS:
            connection.execute(
                "COPY (SELECT content AS image, parse_path(filename)[-2] AS label, "
                "parse_path(filename)[-2] || '/' || parse_filename(filename) AS name "
                f"FROM read_blob('{folder}/tree/*/*')) "
                f"TO '{folder}/{compression}.parquet' "
                f"(ROW_GROUP_SIZE {_ROWS_IN_GROUP}, COMPRESSION {compression})"
            )


def compare(
    photos_dir: pathlib.Path, count: int, processes: int, rounds: int
) -> dict[str, Any]:
    """Converts all inputs in turns; returns rates and ratios.

    Args:
        photos_dir: Tree of JPEG files.
        count: Images to convert.
        processes: Worker processes.
        rounds: Runs of a command.

    Raises:
        OSError: If a command fails, or the commands write different shards.
    """
    shards: set[str] = set()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_inputs(photos_dir, folder, count)
        measure = functools.partial(_run, folder, processes, shards)
        runs = harness.turns(["folder", *_COMPRESSIONS], measure, rounds)
    if len(shards) > 1:
        raise OSError("The commands must write equal shards, got others.")
    tree = runs["folder"]
    return {
        "images_per_cpu_second": {
            n: summary(map(rate, own)) for n, own in runs.items()
        },
        "ratio": {n: summary(ratios(runs[n], tree, rate)) for n in _COMPRESSIONS},
        "goal": GOAL,
    }


def _run(
    folder: pathlib.Path, processes: int, shards: set[str], name: str, _: int
) -> Run:
    """Converts an input; adds the index's shards to `shards`, as JSON."""
    if name == "folder":
        words = ["converters.folder", f"--input_dir={folder / 'tree'}"]
    else:
        words = ["converters.table", f"--input={folder / name}.parquet"]
        words += [f"--{key}_column={key}" for key in ("image", "label", "name")]
    out = folder / "out"
    words += [f"--output_dir={out}", f"--num_workers={processes}"]
    line, used = harness.run_command("-m", *words)
    index = json.loads((out / "index.json").read_text())
    shards.add(json.dumps(index["splits"]))
    shutil.rmtree(out)
    return {"num_images": line["num_records"], "seconds": used["cpu_seconds"]}


def _study(options: Options) -> harness.Outcome:
    count, processes = options.num_photos, options.num_processes
    rounds = options.num_rounds
    rows = compare(pathlib.Path(options.photos_dir), count, processes, rounds)
    medians = {name: ratio["median"] for name, ratio in rows["ratio"].items()}
    lines = [
        f"{name:<13} {speed['median']:9,.0f} images/CPU-s"
        + (f", {medians[name]:.2f} of folder" if name in medians else "")
        for name, speed in rows["images_per_cpu_second"].items()
    ]
    config = {"num_photos": count, "processes": processes, "turns": rounds}
    return harness.Outcome(
        figures={"config": config, **rows},
        table="\n".join(lines),
        misses=[f"The ratio of uncompressed is {reached:.3f}, must be >= {GOAL}."]
        if (reached := medians["uncompressed"]) < GOAL
        else [],
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.tables", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
