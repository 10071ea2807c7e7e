"""verify --level=source of tables: files that have the names, or a plain refusal."""

import json
import pathlib
from typing import Any

import pytest

from converters import verify
from converters.checks.shard import Result
from tests.support.data import conversions
from tests.support.data.tables import config, make_rows, write_tables
from tests.support.faults.damage import flip
from tfpipe.shards import index


def _verify(data_dir: pathlib.Path, raw: pathlib.Path, **options: Any) -> Result:
    values = {"level": "source", "num_workers": 1} | options
    config = verify.VerifyOptions(data_dir=str(data_dir), input_dir=str(raw), **values)
    return verify.verify(config)


def test_images_of_a_table_are_compared_with_files_or_refused(
    tmp_path: pathlib.Path,
) -> None:
    raw, other = tmp_path / "raw", tmp_path / "other"
    other.mkdir()
    forms = write_tables(raw, make_rows(raw))
    made = {}
    for name in ("parquet paths", "parquet bytes"):
        made[name] = tmp_path / name
        conversions.convert(config(made[name], root=str(raw), **forms[name]))
    nameless = tmp_path / "nameless"
    conversions.convert(
        config(nameless, input=forms["parquet bytes"]["input"], image_column="img")
    )

    # Bytes that have the names of files are compared, too, and only one must be there.
    for data_dir in made.values():
        assert _verify(data_dir, raw).faults == []
    (raw / "dog/1.jpg").write_bytes(b"")
    for name in ("cat/0.jpg", "cat/3.jpg"):
        (raw / name).unlink()
    assert _verify(made["parquet bytes"], raw).num_faults == 3
    (shard, *_) = index.load(nameless).splits["train"]
    flip(nameless / shard.name, 99)
    for data_dir, folder, shown, options in (
        (nameless, raw, "row-00000000", {}),
        (nameless, raw, "row-00000000", {"level": "crc", "repair": True}),
        (made["parquet bytes"], other, "", {}),
    ):
        with pytest.raises(ValueError, match=f"must hold the image '{shown}.*--input"):
            _verify(data_dir, folder, **options)


def test_a_damaged_catalog_is_reported_all_the_same(tmp_path: pathlib.Path) -> None:
    raw = tmp_path / "raw"
    forms = write_tables(raw, make_rows(raw, num_images=3))
    conversions.convert(
        config(tmp_path / "set", root=str(raw), **forms["parquet bytes"])
    )
    flip(tmp_path / "set" / index.CATALOG_NAME, 2)

    result = _verify(tmp_path / "set", raw)

    assert any(fault.shard == index.CATALOG_NAME for fault in result.faults)
    json.dumps(result.details)
