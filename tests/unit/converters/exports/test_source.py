"""The data set that a question, an export or a copy is made of."""

import pathlib

import pytest

from converters.exports.source import open_source
from tfpipe import errors
from tfpipe.location.location import Location
from tfpipe.shards import index


def test_a_catalog_that_is_not_that_of_the_index_is_no_source(
    copy_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    catalog = copy_dir / index.CATALOG_NAME
    sound = catalog.read_bytes()
    location = Location(str(copy_dir))
    for content in (
        b"",
        sound[: len(sound) // 2],
        b"no parquet",
        sound[:20] + bytes(60) + sound[80:],
        sound + sound,
    ):
        catalog.write_bytes(content)
        with pytest.raises(errors.BadIndexError, match=r"as index\.json says, got"):
            open_source(location, tmp_path, ())
    catalog.unlink()
    with pytest.raises(errors.BadIndexError, match="No such file"):
        open_source(location, tmp_path, ())

    catalog.write_bytes(sound)
    assert open_source(location, tmp_path, ()).num_records
