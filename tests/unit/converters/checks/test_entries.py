"""converters.checks.entries and --entry_points: the side file of entry points."""

import dataclasses
import functools
import os
import pathlib
import shutil

import numpy as np
import pytest

import tfpipe
from converters import verify
from converters.checks import entries
from converters.images import policy as image_policy
from converters.jobs import write_shard
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.trees import convert, digests, forget_digests, make_tree
from tests.support.faults.damage import flip
from tests.unit.tfpipe.native.test_native import photograph
from tfpipe.location.files import Files
from tfpipe.native import entry_file, entry_points
from tfpipe.shards import index, records, subset
from tfpipe.shards.example import decode_example

pytestmark = needs_native

NAMES = ["entry_points-train", "entry_points-validation"]
POLICY = image_policy.Policy(entry_points=True)


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    make_tree(folder, num_images=7, num_validation_images=2)
    path, *_ = sorted((folder / "train").rglob("*.JPEG"))
    path.write_bytes(photograph(progressive=True))
    return folder


@pytest.fixture(scope="module")
def converted(raw, tmp_path_factory, native_op):  # noqa: F811
    """A data set without entry points, and the same one with them."""
    folder = tmp_path_factory.mktemp("converted")
    for name, policy in (("plain", image_policy.Policy()), ("entered", POLICY)):
        convert(raw, folder / name, policy=policy, num_train_shards=3)
    return folder


@pytest.fixture
def plain(converted, tmp_path):
    return pathlib.Path(shutil.copytree(converted / "plain", tmp_path / "data"))


def check(folder, **options):
    config = verify.VerifyOptions(data_dir=str(folder), num_workers=1, **options)
    return verify.verify(config)


def images(folder, split):
    return [
        decode_example(record.data)["image/encoded"].values[0]
        for path in sorted(folder.glob(f"{split}-*-of-*"))
        for record in records.read(path)
    ]


def test_a_conversion_writes_the_table_of_each_record(converted):
    entered = converted / "entered"
    for name in NAMES:
        split = name.removeprefix(entry_file.PREFIX)
        tables = entry_file.decode((entered / name).read_bytes())
        expected = [entry_points.find(jpeg).table for jpeg in images(entered, split)]
        assert tables == expected
        assert (
            index.load(entered).files[name].num_bytes == (entered / name).stat().st_size
        )
    assert [bool(table) for table in expected] == [True, True]
    assert check(entered, level="crc").num_faults == 0
    # Nothing else differs but the index.
    one, other = digests(entered), digests(converted / "plain")
    assert {name for name, value in one.items() if other.get(name) != value} == {
        *NAMES,
        index.INDEX_NAME,
    }


def test_verify_writes_the_same_files(converted, plain):
    result = check(plain, write_entry_points=True)

    assert result.num_faults == 0
    assert result.details["entry_points"] == {"made": 8, "not_baseline": 1}
    assert result.details["written"] == [*NAMES, index.INDEX_NAME]
    for name in NAMES:
        assert (plain / name).read_bytes() == (
            converted / "entered" / name
        ).read_bytes()
    assert check(plain).num_faults == 0
    assert not list(plain.glob(".*"))


def test_verify_writes_them_for_shards_of_another_tool(converted, tmp_path):
    for path in (converted / "plain").glob("*-of-*"):
        shutil.copy(path, tmp_path)

    with pytest.raises(ValueError, match=r"has none\. Add --write_index"):
        check(tmp_path, write_entry_points=True)
    check(tmp_path, write_index=True, write_entry_points=True)
    for name in NAMES:
        expected = converted / "entered" / name
        assert (tmp_path / name).read_bytes() == expected.read_bytes()


def test_verify_writes_them_beside_an_older_index(plain):
    forget_digests(plain)

    with pytest.raises(ValueError, match=r"older version\. Add --write_index"):
        check(plain, write_entry_points=True)
    check(plain, write_index=True, write_entry_points=True)
    assert check(plain).num_faults == 0
    assert (plain / NAMES[0]).exists()


def test_damage_of_the_files_is_found_and_mended(plain):
    check(plain, write_entry_points=True)
    flip(plain / NAMES[0], 200, mask=1)
    (plain / NAMES[1]).unlink()

    found = check(plain)
    assert [fault.shard for fault in found.faults] == NAMES
    assert all(entry_file.REMEDY in fault.fault for fault in found.faults)
    mended = check(plain, write_entry_points=True)
    assert mended.num_faults == 0
    assert [NAMES[n] in mended.details["remarks"][n] for n in (0, 1)] == [True, True]
    assert check(plain).num_faults == 0


def test_a_store_gets_them_unless_it_was_replaced_meanwhile(
    plain, tmp_path, monkeypatch
):
    local, store = (shutil.copytree(plain, tmp_path / n) for n in ("local", "store"))
    requests, in_folder = [], entries._in_folder
    monkeypatch.setattr(
        entries, "_in_folder", lambda r: requests.append(r) or in_folder(r)
    )
    check(plain, write_entry_points=True)
    request = dataclasses.replace(
        requests[0], data_dir=pathlib.Path(local), files=Files(str(store))
    )

    assert {*entries._at_url(request).names} == {*NAMES, "index.json"}
    assert digests(pathlib.Path(store)) == digests(plain)
    with pytest.raises(OSError, match="was replaced just now"):
        entries._at_url(request)


def test_a_repair_makes_them_again(raw, converted, tmp_path):
    """With a shard that is damaged as well, and with nothing else."""
    folder = pathlib.Path(shutil.copytree(converted / "entered", tmp_path / "data"))
    for shards in (["train-00001-of-00003"], []):
        for name in (*NAMES[:1], *shards):
            flip(folder / name, 200, mask=1)
        assert check(folder).bad_names == {*NAMES[:1], *shards}
        result = check(folder, repair=True, input_dir=str(raw))
        assert (result.num_faults, result.bad_names) == (0, set())
        assert digests(folder) == digests(converted / "entered")


def test_a_call_that_is_cut_off_leaves_a_whole_data_set(converted, plain, monkeypatch):
    (plain / ".entry_points-killed").mkdir()
    (plain / ".entry_points-killed" / "train-00000-of-00003.part").touch()
    replace, before = os.replace, None
    for number in range(3):
        moved = []

        def cut_off(source, target, number=number, moved=moved):
            if pathlib.Path(target).parent == plain:
                moved.append(target)
                if len(moved) > number:
                    raise OSError("cut off")
            replace(source, target)

        monkeypatch.setattr(os, "replace", cut_off)
        with pytest.raises(OSError, match="cut off"):
            check(plain, write_entry_points=True)
        monkeypatch.undo()
        # The index does not list the files that are there already.
        assert before in (None, index.load(plain))
        before = index.load(plain)
        assert check(plain).bad_names == {
            path.name for path in map(pathlib.Path, moved[:-1])
        }
        assert not list(plain.glob(".*"))
    assert check(plain, write_entry_points=True).num_faults == 0
    for name in NAMES:
        assert (plain / name).read_bytes() == (
            converted / "entered" / name
        ).read_bytes()
    assert check(plain).num_faults == 0


def test_a_folder_that_must_not_be_written_is_refused_first(plain, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ValueError, match=r"must not be written\. Change its rights"):
        check(plain, write_entry_points=True)


def test_nothing_is_written_if_a_shard_has_a_fault(plain):
    flip(plain / "train-00001-of-00003", 40, mask=1)

    result = check(plain, write_entry_points=True)
    assert "because there are faults" in result.details["remarks"][-1]
    assert not (plain / NAMES[0]).exists()


def test_a_new_data_set_replaces_the_files_of_the_old_one(raw, plain):
    check(plain, write_entry_points=True)
    convert(raw, plain, overwrite=True, num_train_shards=2)

    assert not list(plain.glob("entry_points*"))
    assert check(plain).num_faults == 0


def test_a_conversion_that_was_cut_off_ends_with_the_same_files(
    raw, converted, tmp_path, monkeypatch
):
    monkeypatch.setattr(write_shard.Written, "to_json", _cut_off_at(2))
    with pytest.raises(OSError, match="cut off"):
        convert(raw, tmp_path / "out", policy=POLICY, num_train_shards=3)
    monkeypatch.undo()
    convert(raw, tmp_path / "out", policy=POLICY, num_train_shards=3)

    assert digests(tmp_path / "out") == digests(converted / "entered")


def _cut_off_at(number):
    """Stands for `Written.to_json`; ends the conversion at this call."""
    whole, calls = write_shard.Written.to_json, []

    def to_json(written):
        calls.append(written)
        if len(calls) == number:
            raise OSError("cut off")
        return whole(written)

    return to_json


def chosen(folder):
    """A subset of three records that do not follow each other."""
    rows = {"split": ["train"] * 3, "shard": [0, 1, 2], "record": [1, 0, 1]}
    found = {name: np.array(values) for name, values in rows.items()}
    return subset.choose(found, index.load(folder))


# Read by more than one rank, as a subset, and from caches of encoded records.
READERS = {
    "alone": {},
    "whole batches": {"whole_batches": True},
    "two ranks, RAM": {"num_ranks": 2, "cache": ("ram",)},
    "subset, disk": {"subset": chosen, "cache": ("disk", "here")},
}


@pytest.mark.parametrize("how", READERS)
def test_each_way_to_read_uses_them_and_makes_the_same_batches(
    converted, tmp_path, monkeypatch, how
):
    monkeypatch.chdir(tmp_path)
    options = READERS[how]
    batches, numbers = [], set()
    for pipeline in pipelines(converted / "entered", **options):
        assert "EntryPoints(" in str(pipeline)
        # The second epoch comes from the cache.
        batches += images_of(pipeline)
        caches = [s for s in pipeline.stages if isinstance(s, tfpipe.Cache)]
        numbers |= records_with_their_tables(pipeline.source, *caches)

    # Neither a cache nor whole batches change the images.
    order = {name: options.get(name) for name in ("num_ranks", "subset")}
    assert batches == without_them(converted / "plain", **order)
    # One JPEG of the seven is progressive.
    assert len(numbers) >= (2 if order["subset"] else 5)


def pipelines(folder, *, num_ranks=None, subset=None, cache=None, whole_batches=False):
    """The pipeline of each rank."""
    numbers = {"batch_size": 3, "num_ranks": num_ranks or 1}
    for rank in range(numbers["num_ranks"]):
        view = subset and subset(folder)
        yield tfpipe.imagenet_train(
            tfpipe.TFRecordSource(folder, rank=rank, subset=view, **numbers),
            image_size=16,
            crop_op="native",
            cache=cache and tfpipe.Cache(*cache),
            whole_batches=whole_batches,
        )


def images_of(pipeline):
    """The images of two epochs."""
    dataset = pipeline.build(num_epochs=2)
    return [batch["image"].tolist() for batch in dataset.as_numpy_iterator()]


@functools.cache
def without_them(folder, **options):
    """The images of each rank, from a data set without entry points."""
    made = [*pipelines(folder, **options)]
    assert not any("EntryPoints(" in str(pipeline) for pipeline in made)
    return [image for pipeline in made for image in images_of(pipeline)]


def records_with_their_tables(source, *caches):
    """Returns the records that come with the table of their JPEG; others have none."""
    parsed = tfpipe.Map(
        tfpipe.Parse().for_source(source), tfpipe.EntryPoints.of(source)
    )
    stages = [tfpipe.Interleave(), *caches, parsed]
    found = set()
    for example in (
        tfpipe.Pipeline(source, stages=stages).build(num_epochs=2).as_numpy_iterator()
    ):
        table = entry_points.find(example["encoded"]).table
        assert example["entry_points"] == table
        found |= {int(example["record_id"])} if table else set()
    return found


def test_stock_ops_do_without_them(converted):
    pipeline = tfpipe.imagenet_train(
        converted / "entered", batch_size=3, image_size=16, crop_op="stock"
    )
    assert "EntryPoints(" not in str(pipeline)


def test_a_web_server_is_refused():
    with pytest.raises(ValueError, match="the web server http://host/folder"):
        verify.VerifyOptions(data_dir="http://host/folder", write_entry_points=True)
