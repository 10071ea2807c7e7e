"""converters.exports.plan: a record whose image is not that of the catalog is none."""

import pathlib
import types
from typing import Any

import pytest

from converters.exports import plan
from tfpipe import errors
from tfpipe.shards import records


def test_any_other_digest_of_the_image_is_named(data_dir: pathlib.Path) -> None:
    first, *_ = records.read(data_dir / "train-00000-of-00003")
    framed = b"".join(records.frame([first.data]))

    for digest in ("0" * 32, "f" * 32):
        row: Any = types.SimpleNamespace(digest=digest)
        with pytest.raises(
            errors.BadRecordError, match=f"must have the digest {digest}"
        ):
            plan._item(row, "a.jpg", {}, framed)
    without: Any = types.SimpleNamespace(digest="")
    assert plan._item(without, "a.jpg", {}, framed).data == first.data
