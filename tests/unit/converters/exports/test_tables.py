"""Entry points of copies, of chosen records and of merged data sets."""

import dataclasses
import pathlib
import shutil
from typing import Any

import pytest

from converters import query, replicate, verify
from converters.images.policy import Policy
from converters.options import query as query_options
from converters.options.replicate import ReplicateOptions
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.entered import require_right
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.trees import convert, make_tree
from tests.support.faults.damage import flip
from tfpipe.shards import index

pytestmark = needs_native


@pytest.fixture(scope="module")
def source(
    tmp_path_factory: pytest.TempPathFactory,
    native_op: None,  # noqa: F811
) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("source")
    raw = make_tree(folder / "raw", num_images=7, num_validation_images=2)
    policy = Policy(entry_points=True)
    convert(raw, folder / "set", policy=policy, num_train_shards=3)
    return folder / "set"


@pytest.fixture
def copied(source: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(source, tmp_path / "copied"))


def _copy(source: pathlib.Path, output: pathlib.Path, **options: Any) -> None:
    values = {"copies": 2, "num_workers": 1, "fsync": False} | options
    replicate.make_copies(
        ReplicateOptions(data_dir=str(source), output_dir=str(output), **values)
    )


def _choose(source: pathlib.Path, clause: str, output: pathlib.Path) -> None:
    values = {"num_workers": 1, "fsync": False, "materialize": str(output)}
    query.ask(query_options.QueryOptions(data_dir=str(source), clause=clause, **values))


def _num_faults(folder: pathlib.Path) -> int:
    return verify.verify(
        verify.VerifyOptions(data_dir=str(folder), num_workers=1)
    ).num_faults


def test_copies_have_the_tables_of_their_own_bytes(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "identical": {"identical": True},
        "distinct": {"entry_points": True, "mirror": True},
        "none": {},
    }
    for name, options in kinds.items():
        _copy(source, tmp_path / name, **options)
        require_right(tmp_path / name, *(["train", "validation"] if options else []))
        assert _num_faults(tmp_path / name) == 0
    with pytest.raises(ValueError, match="--identical copies the entry points"):
        _copy(source, tmp_path / "out", identical=True, entry_points=True)


def test_chosen_records_keep_their_tables(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for name, clause, splits in (
        ("some", "record = 1 OR split = 'validation'", ["train", "validation"]),
        ("apart", "split = 'train' AND shard <> 1", ["train"]),
    ):
        _choose(source, clause, tmp_path / name)
        require_right(tmp_path / name, *splits)
        assert _num_faults(tmp_path / name) == 0


def test_a_file_that_is_not_the_one_in_the_index_is_left_out(
    copied: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(copied / "entry_points-train", 200, mask=1)
    _copy(copied, tmp_path / "out", identical=True)

    require_right(tmp_path / "out", "validation")
    said = capsys.readouterr().err
    assert "entry_points-train must be the file that index.json lists" in said
    assert "--write_entry_points" in said
    known = index.load(copied)
    files = {name: file for name, file in (known.files or {}).items() if "-v" in name}
    index.write(dataclasses.replace(known, files=files), copied)
    _choose(copied, "true", tmp_path / "chosen")
    require_right(tmp_path / "chosen", "validation")


def test_a_merge_makes_them(
    source: pathlib.Path, copied: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    conversions.convert(
        conversion(
            "merge",
            sources={"one": str(source), "two": str(copied)},
            output_dir=str(tmp_path / "out"),
            policy=Policy(entry_points=True),
            num_workers=1,
            fsync=False,
        )
    )
    require_right(tmp_path / "out", "train", "validation")
