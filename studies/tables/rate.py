"""How fast is converters.table from Parquet with bytes, beside converters.folder?

  python -m studies.tables.rate --photos_dir=RAW/train --table_turns=5

Question: what does it cost that the images are in a table? The photographs of RAW/train
are repeated up to --num_photos images, each with a comment of its own, and written
three times: as a tree of classes, and as two Parquet files with bytes, names and
classes. One file is uncompressed, as Hugging Face's datasets writes images: its images
are read in place. The other one is compressed with Snappy, the default of most writers:
its images are copied once before they are converted. The commands convert these, in
turns, with the same number of processes, from the page cache. The rate of a run is the
number of images over the seconds that its JSON line gives: listing or reading,
planning, writing, catalog, index. Python's own start, which all have, is not in it.
Figures are medians over the turns; a ratio is taken within a turn. All data sets must
have equal shards.

The goal is a ratio of 0.80. The last line on stdout is one JSON object. Exit code: 0
done, 1 an error, 2 if a median ratio is below the goal.
"""

import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags

from benchmarks.options import command
from benchmarks.reporting import output

GOAL = 0.80
_ROWS_IN_GROUP = 512
_COMPRESSIONS = ("uncompressed", "snappy")

_PHOTOS_DIR = flags.DEFINE_string(
    "photos_dir", None, "A class-per-directory tree of JPEG files.", required=True
)
_NUM_PHOTOS = flags.DEFINE_integer(
    "num_photos", 12_000, "Images to convert; files are repeated.", lower_bound=1
)
_TABLE_PROCESSES = flags.DEFINE_integer(
    "table_processes", 2, "Processes of each conversion.", lower_bound=1
)
_TABLE_TURNS = flags.DEFINE_integer(
    "table_turns", 5, "Turns; each figure is the median over them.", lower_bound=1
)
_TABLES_RESULT = flags.DEFINE_string(
    "tables_result", None, "File to write the JSON object to as well."
)


def photographs(folder: pathlib.Path, number: int) -> Iterator[tuple[str, str, bytes]]:
    """Yields the class, the name and the bytes of images, each with its own comment.

    Raises:
        OSError: If the folder holds no JPEG file in a folder of a class.
    """
    paths = sorted(folder.glob("*/*.[jJ]*"))
    if not paths:
        raise OSError(f"{folder} must hold folders with JPEG files, got none.")
    for place in range(number):
        path = paths[place % len(paths)]
        data = path.read_bytes()
        comment = b"%08d" % place
        # Behind the first marker: comment, length with itself, content.
        data = data[:2] + b"\xff\xfe\x00\x0a" + comment + data[2:]
        yield path.parent.name, f"{place:08d}.jpg", data


def write_inputs(photos_dir: pathlib.Path, folder: pathlib.Path, number: int) -> None:
    """Writes the images as `folder`/tree and as a Parquet file a compression."""
    import duckdb

    for label, name, data in photographs(photos_dir, number):
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
    photos_dir: pathlib.Path, number: int, processes: int, turns: int
) -> dict[str, Any]:
    """Converts all inputs in turns; returns rates and ratios.

    Args:
        photos_dir: Tree of JPEG files.
        number: Images to convert.
        processes: Worker processes.
        turns: Runs of each command.

    Raises:
        OSError: If a command fails; the message holds what it printed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_inputs(photos_dir, folder, number)
        columns = ["image_column=image", "label_column=label", "name_column=name"]
        variants = {
            "folder": ["converters.folder", f"--input_dir={folder / 'tree'}"],
        }
        for compression in _COMPRESSIONS:
            variants[compression] = [
                "converters.table",
                f"--input={folder / compression}.parquet",
                *(f"--{column}" for column in columns),
            ]
        rates: dict[str, list[float]] = {variant: [] for variant in variants}
        shards = set()
        for _ in range(turns):
            for variant, words in variants.items():
                out = folder / "out"
                done = _run(
                    [*words, f"--output_dir={out}", f"--num_workers={processes}"]
                )
                rates[variant].append(done["num_records"] / done["seconds"])
                known = json.loads((out / "index.json").read_text())
                shards.add(json.dumps(known["splits"]))
                shutil.rmtree(out)
    if len(shards) > 1:
        raise OSError("The commands must write equal shards, got others.")
    ratios = {
        compression: [
            table / tree
            for tree, table in zip(rates["folder"], rates[compression], strict=True)
        ]
        for compression in _COMPRESSIONS
    }
    return {
        "images_per_second": {name: _spread(found) for name, found in rates.items()},
        "ratio": {name: _spread(found) for name, found in ratios.items()},
        "goal": GOAL,
    }


def _run(words: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"{words} ended with {done.returncode}: {done.stderr}")
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


def main(argv: Sequence[str]) -> int:
    """Prints the comparison that the flags describe."""
    command.refuse_arguments(argv)
    number, processes = _NUM_PHOTOS.value, _TABLE_PROCESSES.value
    turns = _TABLE_TURNS.value
    try:
        figures = compare(pathlib.Path(_PHOTOS_DIR.value), number, processes, turns)
    except OSError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    from benchmarks.reporting import environment

    result = {
        "command": "studies.tables.rate",
        "schema_version": 1,
        "config": {"num_photos": number, "processes": processes, "turns": turns},
        **figures,
        "environment": environment.describe(),
    }
    ratios = {name: found["median"] for name, found in figures["ratio"].items()}
    lines = [
        f"{variant:<13} {rate['median']:9,.0f} images/s"
        + (f", {ratios[variant]:.2f} of folder" if variant in ratios else "")
        for variant, rate in figures["images_per_second"].items()
    ]
    output.finish(result, "\n".join(lines), path=_TABLES_RESULT.value)
    return 0 if min(ratios.values()) >= GOAL else 2


if __name__ == "__main__":
    command.run(main, {})
