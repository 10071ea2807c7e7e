"""Every store takes and gives what a folder does: a row of digests for each.

In `make test` SeaweedFS and fake-gcs-server, in `make torture` all that are installed.
"""

import pathlib
from typing import Any

import pytest

from studies import stores as study
from tests.support.faults.torture import IS_LONG
from tests.support.servers import stores

ALWAYS = ("seaweedfs", "fake-gcs-server")

Rows = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def options(raw_dir: pathlib.Path) -> Any:
    return study.StoresOptions(input_dir=str(raw_dir), image_size=16, tune_seconds=0.5)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def rows(options: Any, work: pathlib.Path) -> Rows:
    """The rows so far; that of the folder is there."""
    return {"folder": study.fill(options, work, None)}


@pytest.mark.parametrize("name", stores.NAMES if IS_LONG else ALWAYS)
def test_a_store_gives_what_a_folder_gives(
    name: str, options: Any, work: pathlib.Path, rows: Rows
) -> None:
    if not stores.is_installed(name):
        pytest.skip(f"{name} is not installed")
    folder = work / "servers" / name
    folder.mkdir(parents=True)
    with stores.running(name, folder) as store:
        rows[name] = study.fill(options, work, store)

    assert study.differing(rows) == []
    assert (rows[name]["convert"] == study.COPIED) == (store.copy is not None)


def test_a_cell_that_differs_is_named(rows: Rows) -> None:
    other = rows["folder"] | {"deliver": "0"}

    assert study.differing({"folder": rows["folder"], "x": other}) == [
        f"x: deliver must have the digest {rows['folder']['deliver']}, got 0"
    ]
    assert len(set(rows["folder"].values())) == len(study.COLUMNS)
