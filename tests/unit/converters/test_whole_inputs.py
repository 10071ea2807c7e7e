"""No part of an input is lost in silence: the same rule, run on each reader."""

import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from converters import merge
from converters.jobs.job import Job
from tests.unit.converters import test_meaning_of_readers as readers

Make = Callable[..., Job]


def _merged(root: pathlib.Path, place: str, **options: Any) -> Job:
    links = root / "links"
    links.mkdir(exist_ok=True)
    return merge.make_job(
        merge.MergeOptions(
            sources={"a": place}, output_dir=str(root / "out"), **options
        ),
        links,
    )


# The form of a reader, and the ending of its files.
FORMS: dict[str, tuple[Make, str]] = {
    "tfrecord": (readers._tfrecord, ".tfrecord"),
    "webdataset": (readers._webdataset, ".tar"),
    "table": (readers._table, ".csv"),
}


def _how(root: pathlib.Path, form: str) -> dict[str, Any]:
    columns = {"image_column": "path", "label_column": "label", "root": str(root)}
    is_table = form == "table"
    return {"how": {k: {"a": v} for k, v in columns.items()}} if is_table else {}


every_form = pytest.mark.parametrize("form", FORMS)
WHOLE = ["train-00000-of-00002", "train-00001-of-00002"]


def _shards(root: pathlib.Path, form: str, names: Sequence[str]) -> pathlib.Path:
    """A folder with shards of these names, each with an image of its own."""
    make, ending = FORMS[form]
    shards = root / "shards"
    shards.mkdir(parents=True)
    for number, name in enumerate(names):
        part = root / f"part{number}"
        make(part, [("train", f"c{each}") for each in range(number + 1)])
        (file,) = part.glob(f"*{ending}")
        shutil.copy(file, shards / f"{name}{ending}")
        if (part / "img").exists():
            shutil.copytree(part / "img", root / "img", dirs_exist_ok=True)
    return shards


@every_form
@pytest.mark.parametrize("pattern", ["", "/*"])
@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (["train-00000-of-00004", "train-00002-of-00004"], 1),
        ([*WHOLE, "val-00001-of-00002"], 0),
        (["train-00000-of-00002-0a1b"], 1),
        (["train-00000-of-00001-0a", "train-00000-of-00001-1b"], 0),
        (["train-00002-of-00002", *WHOLE], 2),
    ],
)
def test_a_set_of_shards_that_lacks_a_number_is_refused(
    form: str, tmp_path: pathlib.Path, pattern: str, names: Sequence[str], wrong: int
) -> None:
    ending, options = FORMS[form][1], _how(tmp_path, form)
    folder = _shards(tmp_path, form, names)
    place = f"{folder}{pattern}{ending if pattern else ''}"

    with pytest.raises(ValueError, match=f"whole sets of shards.*see number {wrong}"):
        _merged(tmp_path, place, **options)


@every_form
def test_a_whole_set_and_a_named_part_of_a_set_are_taken(
    form: str, tmp_path: pathlib.Path
) -> None:
    ending, options = FORMS[form][1], _how(tmp_path, form)
    folder = _shards(tmp_path, form, WHOLE[:1])

    job = _merged(tmp_path, str(folder / f"{WHOLE[0]}{ending}"), **options)

    assert sum(plan.num_images for plan in job.plans) == 1
