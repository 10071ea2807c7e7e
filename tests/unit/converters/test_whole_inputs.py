"""No part of an input is lost in silence: the same rule, run on each reader."""

import gzip
import io
import os
import pathlib
import shutil
import tarfile
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from converters.inputs.listed import Listed
from converters.inputs.reader import Reader
from converters.inputs.tables import scan
from converters.jobs import run, write_shard
from converters.jobs.job import Job
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.inputs import KINDS, Images, convert_input
from tests.support.data.trees import make_jpeg, make_tree
from tests.unit.converters.inputs.test_tars import pack_train

Make = Callable[..., Job]


def _merged(root: pathlib.Path, place: str, **options: Any) -> Job:
    return conversions.make_job(
        conversion(
            "merge", sources={"a": place}, output_dir=str(root / "out"), **options
        )
    )


def _make(kind: str, root: pathlib.Path, images: Images, **options: Any) -> Job:
    return convert_input(kind, root, images, **options).make_job()


# The ending of the files of a form.
FORMS = {"tfrecord": ".tfrecord", "webdataset": ".tar", "table": ".csv"}


def _how(root: pathlib.Path, form: str) -> dict[str, Any]:
    columns = {"root": str(root)}
    is_table = form == "table"
    return {"how": {k: {"a": v} for k, v in columns.items()}} if is_table else {}


every_form = pytest.mark.parametrize("form", FORMS)
WHOLE = ["train-00000-of-00002", "train-00001-of-00002"]


def _shards(root: pathlib.Path, form: str, names: Sequence[str]) -> pathlib.Path:
    """A folder with shards of these names, each with an image of its own."""
    ending = FORMS[form]
    shards = root / "shards"
    shards.mkdir(parents=True)
    for number, name in enumerate(names):
        part = root / f"part{number}"
        _make(form, part, [("train", f"c{each}") for each in range(number + 1)])
        (file,) = part.glob(f"*{ending}")
        shutil.copy(file, shards / f"{name}{ending}")
        if (part / "img").exists():
            shutil.copytree(part / "img", root / "img", dirs_exist_ok=True)
    return shards


@pytest.mark.parametrize("form", ["tfrecord", "webdataset"])
@pytest.mark.parametrize("is_merge", [False, True])
def test_endings_may_have_any_case_and_packed_files_are_not_passed_over(
    tmp_path: pathlib.Path, form: str, is_merge: bool
) -> None:
    shards = _shards(tmp_path, form, ["train", "test"])
    (file,) = shards.glob("test*")
    file = file.rename(file.with_suffix(file.suffix.upper()))

    def make() -> Job:
        if is_merge:
            return _merged(tmp_path, str(shards))
        options = {"input": [str(shards)], "output_dir": str(tmp_path / "out")}
        return conversion(form, **options).make_job()

    counts = {plan.split: plan.num_images for plan in make().plans}
    assert counts == {"train": 1, "test": 2}
    file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    with pytest.raises(ValueError, match=r"(is|must not be) compressed"):
        make()


@every_form
@pytest.mark.parametrize("pattern", ["", "/*"])
@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (["train-00000-of-00004", "train-00002-of-00004"], "see number 1"),
        ([*WHOLE, "val-00001-of-00002"], "see number 0"),
        (["train-00000-of-00002-0a1b"], "see number 1"),
        (["train-00000-of-00001-0a", "train-00000-of-00001-1b"], "see number 0"),
        (["train-00002-of-00002", *WHOLE], "see number 2"),
        (["train-000", "train-002"], "without .*train-001"),
        (["a_0009", "a_0007", "b_0001"], "without .*a_0008"),
    ],
)
def test_a_set_of_shards_that_lacks_a_number_is_refused(
    form: str, tmp_path: pathlib.Path, pattern: str, names: Sequence[str], wrong: str
) -> None:
    ending, options = FORMS[form], _how(tmp_path, form)
    folder = _shards(tmp_path, form, names)
    place = f"{folder}{pattern}{ending if pattern else ''}"

    with pytest.raises(ValueError, match=f"whole sets of shards.*{wrong}"):
        _merged(tmp_path, place, **options)


@every_form
def test_a_whole_set_and_a_named_part_of_a_set_are_taken(
    form: str, tmp_path: pathlib.Path
) -> None:
    ending, options = FORMS[form], _how(tmp_path, form)
    folder = _shards(tmp_path, form, WHOLE[:1])

    job = _merged(tmp_path, str(folder / f"{WHOLE[0]}{ending}"), **options)

    assert sum(plan.num_images for plan in job.plans) == 1


def _webdataset(root: pathlib.Path, place: str, **options: Any) -> Job:
    how = {key: values["a"] for key, values in options.pop("how").items()}
    return conversions.make_job(
        conversion(
            "webdataset", input=[place], output_dir=str(root / "out"), **how, **options
        )
    )


@pytest.mark.parametrize("make", [_webdataset, _merged])
@pytest.mark.parametrize("part", ["cls", "json"])
def test_an_image_without_its_partner_is_an_error_or_named(
    make: Make, tmp_path: pathlib.Path, part: str
) -> None:
    content = {"cls": b"cat", "json": b'{"label": "cat"}'}[part]
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for name, data in (
            ("a.jpg", make_jpeg(0)),
            (f"a.{part}", content),
            ("b.jpg", make_jpeg(1)),
            ("b.txt", b"a caption"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    how = {"how": {"label_from": {"a": part}}}

    with pytest.raises(ValueError, match=rf"image as b\.{part}, got 1 image of 2 sam"):
        make(tmp_path, str(path), **how)

    job = make(tmp_path, str(path), **how, on_null="skip")
    assert job.ignored == {"no_label": 1}
    assert job.left_out[0]["name"].endswith("x.tar/b")


def _official_tar(root: pathlib.Path) -> Job:
    make_tree(root, num_images=4)
    pack_train(root, nested=True)
    return conversions.make_job(
        conversion("imagenet", input_dir=str(root), output_dir=f"{root}/out")
    )


def _replaced(path: pathlib.Path) -> None:
    """Another file of the same bytes, size and time."""
    status = path.stat()
    copy = shutil.copy(path, path.with_name("copy"))
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(copy, path)


def _longer(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def _touched(path: pathlib.Path) -> None:
    os.utime(path, ns=(1, 1))


CONTAINERS = {
    "tfrecord": "train.tfrecord",
    "webdataset": "set-train-000.tar",
    "parquet": "train.parquet",
    "merged_tars": "set-train-000.tar",
    "imagenet": "ILSVRC2012_img_train.tar",
}


@pytest.mark.parametrize("change", [_replaced, _longer, _touched])
@pytest.mark.parametrize("form", CONTAINERS)
def test_a_file_of_many_images_that_changed_is_an_error_that_names_it(
    form: str, tmp_path: pathlib.Path, change: Callable[[pathlib.Path], None]
) -> None:
    name, images = CONTAINERS[form], [("train", "a"), ("train", "b")]
    if form == "imagenet":
        job = _official_tar(tmp_path / "in")
    else:
        job = _make(form, tmp_path / "in", images)
    task = write_shard.task_of(job, job.plans[0])
    write_shard.write_shard(job, tmp_path, task)

    change(tmp_path / "in" / name)

    with pytest.raises(ValueError, match=rf"{name} must stay the same until it is con"):
        write_shard.write_shard(job, tmp_path, task)


def test_a_table_that_changes_while_its_rows_are_read_is_an_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = scan._values

    def changing(*named: Any) -> Sequence[str]:
        _touched(tmp_path / "in" / "train.csv")
        return values(*named)

    monkeypatch.setattr(scan, "_values", changing)

    with pytest.raises(ValueError, match=r"train\.csv must stay the same"):
        _make("table", tmp_path / "in", [("train", "a")])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_lost", [False, True], ids=["whole", "lost"])
def test_each_row_is_a_record_or_counted_or_nothing_is_published(
    kind: str, is_lost: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader counts what it reads before it makes images of the rows."""
    images = [*(("Train", label) for label in "aab"), ("Test", "a")]
    made = convert_input(
        kind, tmp_path / "in", images, classes=["a"], num_workers=1, fsync=False
    )
    read = type(made.reader).list_images

    def losing(reader: Reader, *arguments: Any) -> Listed:
        listed = read(reader, *arguments)
        splits = {
            s: {c: [*found] for c, found in listed.splits[s].items()}
            for s in listed.splits
        }
        next(iter(splits["train"].values())).pop()
        return listed._replace(splits=splits)

    if is_lost:
        monkeypatch.setattr(type(made.reader), "list_images", losing)
    job = made.make_job()

    assert job.num_rows == len(images)
    if not is_lost:
        assert run.run(job) is not None
        return
    with pytest.raises(RuntimeError, match=r"A fault of tfpipe.*4 rows were read, but"):
        run.run(job)
    assert not (job.output_dir / "index.json").exists()
