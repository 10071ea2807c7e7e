"""A data set with a catalog like that of ILSVRC-2012, and with no picture.

In: a folder and a number of records. Out: index.json, catalog.parquet and shards that
take no room on the disk: a query reads none of them. The same arguments make the same
catalog. All values follow from the number of the record by DuckDB's functions.
"""

import json
import pathlib

NUM_CLASSES = 1000
# Train and validation images of ILSVRC-2012.
NUM_RECORDS = 1_281_167 + 50_000
# Records in a shard, as 1024 shards of all train images have.
_RECORDS_IN_SHARD = 1251
# Numbers in the names of classes, which look like WordNet ids.
_FIRST_CLASS, _CLASS_STEP = 1_440_764, 13_331
_VALIDATION_SHARE = 50_000 / NUM_RECORDS

# Height, width and how many of 100 images have this size, as in a sample of 300 images
# of ILSVRC-2012. The others have any height and width of 100 to 899 pixels.
_SIZES = (
    *((375, 500, 20), (333, 500, 9), (500, 375, 6), (500, 333, 5)),
    *((332, 500, 3), (334, 500, 2), (500, 500, 2), (500, 334, 1)),
)

_ROWS = """
SELECT split, (place // {per_shard})::INTEGER AS shard,
  (place % {per_shard})::INTEGER AS record,
  (sum(num_bytes) OVER shard - num_bytes)::BIGINT AS byte_offset, num_bytes,
  label, synset, height, width, filename, decision, digest
FROM (
  SELECT *, CASE WHEN split = 'train' THEN concat('train/', synset, '/', synset, '_',
    number, '.JPEG') ELSE concat('val/ILSVRC2012_val_', lpad(place::VARCHAR, 8, '0'),
    '.JPEG') END AS filename
  FROM (
    SELECT number, {split} AS split,
      CASE WHEN {is_train} THEN number ELSE number - {num_train} END AS place,
      (20000 + 270000 * {share})::BIGINT AS num_bytes,
      (1 + hash(number, 'label') % {num_classes})::INTEGER AS label,
      concat('n', lpad(({first_class} + {class_step} * label)::VARCHAR, 8, '0'))
        AS synset,
      {height} AS height, {width} AS width,
      CASE hash(number, 'decision') % 50000 WHEN 0 THEN 'converted_cmyk' ELSE 'kept'
        END AS decision,
      md5(number::VARCHAR) AS digest
    FROM range({num_records}) AS numbers(number)
  )
)
WINDOW shard AS (PARTITION BY split, place // {per_shard} ORDER BY place)
ORDER BY split, place
"""
# A share of 0 to 1 that is small for most images, as their sizes in bytes are.
_SHARE = "pow((hash(number, 'bytes') % 1000000) / 1e6, 2)"


def make(folder: pathlib.Path, num_records: int) -> None:
    """Writes the data set into an empty folder.

    Args:
        folder: The folder.
        num_records: Records of both splits, >= 1000.

    Raises:
        OSError: If a file cannot be written.
        ValueError: If there are too few records.
    """
    import duckdb

    if num_records < NUM_CLASSES:
        raise ValueError(f"--num_rows must be >= {NUM_CLASSES}, got {num_records}.")
    path = folder / "catalog.parquet"
    with duckdb.connect(config={"threads": 1}) as connection:
        place = str(path).replace("'", "''")
        connection.execute(
            f"COPY ({_query(num_records)}) TO '{place}' "
            "(FORMAT parquet, COMPRESSION zstd)"
        )
        shards = connection.execute(
            "SELECT split, shard, count(*), sum(num_bytes)::BIGINT FROM "
            f"'{place}' GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    _write_index(folder, shards)


def _query(num_records: int) -> str:
    num_train = num_records - round(num_records * _VALIDATION_SHARE)
    is_train = f"number < {num_train}"
    return _ROWS.format(
        per_shard=_RECORDS_IN_SHARD,
        num_train=num_train,
        is_train=is_train,
        split=f"CASE WHEN {is_train} THEN 'train' ELSE 'validation' END",
        share=_SHARE,
        num_classes=NUM_CLASSES,
        first_class=_FIRST_CLASS,
        class_step=_CLASS_STEP,
        height=_side(0),
        width=_side(1),
        num_records=num_records,
    )


def _side(which: int) -> str:
    """Returns the expression of a side, 0 for the height and 1 for the width."""
    cases, upto = "", 0
    for size in _SIZES:
        upto += size[2]
        cases += f" WHEN hash(number, 'size') % 100 < {upto} THEN {size[which]}"
    return f"(CASE{cases} ELSE 100 + hash(number, 'side', {which}) % 800 END)::INTEGER"


def _synset(label: int) -> str:
    """Returns the name of a class, as the rows have it."""
    return f"n{_FIRST_CLASS + _CLASS_STEP * label:08d}"


def _write_index(folder: pathlib.Path, shards: list[tuple[str, int, int, int]]) -> None:
    """Writes index.json and a file for each shard, which has a size and no content."""
    splits: dict[str, list[dict[str, object]]] = {}
    for split, number, num_records, num_bytes in shards:
        count = sum(one[0] == split for one in shards)
        name = f"{split}-{number:05d}-of-{count:05d}"
        with open(folder / name, "wb") as file:
            file.truncate(num_bytes)
        splits.setdefault(split, []).append(
            {
                "name": name,
                "num_records": num_records,
                "num_bytes": num_bytes,
                "digest": "",
            }
        )
    document = {
        "format_version": 1,
        "name": "synthetic_catalog",
        "label_base": 1,
        "digest_algorithm": "xxh3_128",
        "splits": splits,
        "made_by": {"command": "studies.query"},
        "classes": [
            {"synset": _synset(label), "text": f"class {label}"}
            for label in range(1, NUM_CLASSES + 1)
        ],
    }
    text = json.dumps(document, indent=1)
    (folder / "index.json").write_text(text + "\n", encoding="utf-8")
