"""A data set with all that can travel with a record: labels, columns, odd names."""

import pathlib
from typing import Any

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
