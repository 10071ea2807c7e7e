"""converters.inputs.tables.spool: a removal that is cut off leaves no half a table."""

import os
import pathlib

import pytest

from converters.inputs.tables import spool

NAMES = (spool.IMAGES_NAME, spool.ROWS_NAME, "table.lock")


@pytest.mark.parametrize("last", range(len(NAMES) + 1))
def test_rows_go_before_their_images(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    folder = tmp_path / f"{spool.PREFIX}key"
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_bytes(b"content")
    left, unlink = iter(range(last)), os.unlink

    def killed(*arguments, **options):
        if next(left, None) is None:
            raise KeyboardInterrupt
        unlink(*arguments, **options)

    monkeypatch.setattr(os, "unlink", killed)
    try:
        spool.remove(tmp_path)
    except KeyboardInterrupt:
        pass
    else:
        assert last == len(NAMES)

    if last:
        assert not (folder / spool.ROWS_NAME).exists()
    assert folder.exists() == (last < len(NAMES))
