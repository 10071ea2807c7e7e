"""The catalog has the bytes that the index states."""

import dataclasses
import pathlib

import pytest

from tfpipe import errors
from tfpipe.shards import catalog, index

CONTENT = b"PAR1 of ten"
WHOLE = index.Index(
    name="x",
    label_base=0,
    classes=(),
    splits={},
    made_by={},
    files={index.CATALOG_NAME: index.describe(CONTENT)},
)


@pytest.mark.parametrize(
    ("is_opening", "most", "content", "said"),
    [
        (False, 99, CONTENT, ""),
        (True, 99, CONTENT, ""),
        (
            False,
            99,
            CONTENT[::-1],
            "its 11 bytes must have the digest .*, got 11",
        ),
        (True, 99, CONTENT[::-1], "its 11 bytes must have the digest .*, got 11"),
        (True, 11, CONTENT[::-1], "its 11 bytes must have the digest"),
        (True, 10, CONTENT[::-1], ""),  # large: read later
        (False, 10, CONTENT[::-1], "its 11 bytes must have the digest"),
        (True, 10, CONTENT[1:], "must have the digest .*, got 10 bytes"),
        (True, 10, None, "No such file .*Convert the data set again"),
        (False, 99, None, "No such file .*Convert the data set again"),
    ],
)
def test_a_catalog_of_other_bytes_is_refused(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    is_opening: bool,
    most: int,
    content: bytes | None,
    said: str,
) -> None:
    monkeypatch.setattr(catalog, "_MOST_AT_OPENING", most)
    if content is not None:
        (tmp_path / index.CATALOG_NAME).write_bytes(content)

    def check() -> None:
        catalog.check_catalog(WHOLE, tmp_path, is_opening=is_opening)

    if said:
        with pytest.raises(errors.BadIndexError, match=f"{tmp_path}.*{said}"):
            check()
    else:
        check()


@pytest.mark.parametrize("files", [None, {}])
def test_a_catalog_that_the_index_does_not_state_is_not_read(
    tmp_path: pathlib.Path, files: dict[str, index.File] | None
) -> None:
    catalog.check_catalog(dataclasses.replace(WHOLE, files=files), tmp_path)


def test_a_lost_index_is_told_by_its_catalog(tmp_path: pathlib.Path) -> None:
    assert not catalog.has_lost_index(tmp_path)
    (tmp_path / index.CATALOG_NAME).touch()
    assert catalog.has_lost_index(tmp_path)
    (tmp_path / index.INDEX_NAME).touch()
    assert not catalog.has_lost_index(tmp_path)
