"""A data set with all that can travel with a record: labels, columns, odd names."""

import pathlib
import shlex
from typing import Any

from converters import export
from converters.exports.plan import Format
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.trees import make_jpeg
from tfpipe.shards import index

# Columns beside the usual ones, of each kind that records can hold.
COLUMNS = "score, n, cap, tags"
CLASSES = ("cat", "a b", "#dog", "é'%", "empty")


def make_table(root: pathlib.Path, **options: Any) -> pathlib.Path:
    """Converts a table, and returns the folder of the data set.

    Twelve images of three splits and four of CLASSES, the last of which has no image;
    a third of them has two classes.
    """
    with index.catalog_connection() as connection:
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE carried (img BLOB, label VARCHAR[], name "
            "VARCHAR, split VARCHAR, score DOUBLE, n BIGINT, cap VARCHAR, "
            "tags INTEGER[])"
        )
        for n in range(12):
            labels = [CLASSES[n % 4], *(["cat"] if n % 3 == 1 and n % 4 else [])]
            split = ("train", "validation", "test")[n % 3] if n > 5 else "train"
            name = f"d{n % 2}/im #{n} é%20.jpg"
            extra = [None if n == k else v for k, v in enumerate((n / 3, n, f"é {n}"))]
            row = [make_jpeg(n), labels, name, split, *extra, [n, 7][: n % 3]]
            connection.execute(
                f"INSERT INTO carried VALUES ({', '.join('?' * len(row))})", row
            )
        connection.execute(f"COPY carried TO '{root}/t.parquet' (FORMAT parquet)")
    label_base = options.pop("label_base", 1)
    lines = (f"{n} {name}\n" for n, name in enumerate(CLASSES, label_base))
    (root / "map.txt").write_text("".join(lines))
    values: dict[str, Any] = {
        "image_column": "img",
        "label_column": "label",
        "name_column": "name",
        "split_column": "split",
        "extra_columns": COLUMNS.split(", "),
        "label_map": str(root / "map.txt"),
        "num_train_shards": 2,
        "num_workers": 1,
        "fsync": False,
    }
    config = conversion(
        "table",
        input=str(root / "t.parquet"),
        output_dir=str(root / "set"),
        **values | options,
    )
    conversions.convert(config)
    return root / "set"


def exported(source: pathlib.Path, out: pathlib.Path, kind: Format) -> dict[str, Any]:
    """Exports a data set, and returns what the command prints."""
    options = {"format": kind, "num_workers": 1, "fsync": False}
    return export.export(
        export.ExportOptions(data_dir=str(source), output_dir=str(out), **options)
    )


def converted_back(
    done: dict[str, Any], out: pathlib.Path, **more: Any
) -> pathlib.Path:
    """Runs the printed command in this process, with no flag but the places."""
    _, _, module, *words = shlex.split(done["convert_again"])
    flags = dict(word.removeprefix("--").split("=", 1) for word in words)
    command = module.rpartition(".")[2]
    place = flags.get("input_dir") or flags["input"]
    places: dict[str, Any] = {"input_dir": place, "input": place}
    if command == "webdataset":
        places["input"] = [place]
    del places["input" if "input_dir" in flags else "input_dir"]
    options = {"output_dir": str(out), "num_workers": 1, "fsync": False, **more}
    conversion(command, **places, **options).convert()
    return out
