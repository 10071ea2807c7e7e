"""Inputs in an object store: a real S3 server, read by worker processes."""

import json
import pathlib
import re
import shutil
import tarfile

import pytest

from converters import verify
from converters.inputs import ilsvrc
from converters.jobs import run
from tests.support.data import conversions
from tests.support.data.conversions import Conversion, conversion
from tests.support.data.inputs import KINDS
from tests.support.data.trees import JOB_X, SYNSETS, convert, digests, make_tree, upload
from tests.support.faults.bad_proxy import BadProxy, Fault
from tests.support.processes import commands
from tfpipe import errors
from tfpipe.location.files import Files


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A tree with files that are left out, and names that a URL must encode."""
    root = make_tree(
        tmp_path_factory.mktemp("raw"), num_images=24, num_validation_images=6
    )
    first = root / "train" / SYNSETS[0]
    shutil.copy(first / f"{SYNSETS[0]}_0.JPEG", first / "a b%20ü+#.JPEG")
    (first / "notes.txt").write_text("no image")
    (first / "empty.JPEG").write_bytes(b"")
    (first / "below").mkdir()
    shutil.copy(first / f"{SYNSETS[0]}_0.JPEG", first / "below" / "deep.JPEG")
    return root


def _folder_config(input_dir: object, output_dir: pathlib.Path) -> Conversion:
    return conversion(
        "folder",
        input_dir=str(input_dir),
        output_dir=str(output_dir),
        fsync=False,
        split_fractions={"train": 0.5, "validation": 0.5},
        drop_duplicates="all",
        num_workers=1,
    )


def test_a_tree_at_a_url_gives_the_bytes_of_a_tree_on_a_disk(
    tree: pathlib.Path, s3_folder: str, tmp_path: pathlib.Path
) -> None:
    url = f"{s3_folder}/raw"
    upload(tree, url)
    packed = shutil.copytree(tree, tmp_path / "packed")
    with tarfile.open(packed / ilsvrc.VALIDATION_TAR, "w") as tar:
        tar.add(packed / "val", "val")
    shutil.rmtree(packed / "val")
    upload(packed, f"{s3_folder}/packed")

    convert(tree, tmp_path / "near", **JOB_X)
    convert(f"{s3_folder}/packed", tmp_path / "tars", **JOB_X)  # type: ignore[arg-type]
    words = [f"--input_dir={url}", "--engine=processes", "--num_workers=2"]
    words += [f"--output_dir={tmp_path / 'far'}", "--num_train_shards=6", "--seed=1"]
    words += ["--num_validation_shards=1", "--nofsync"]
    done = commands.run("converters.imagenet", *words)
    assert (done.returncode, done.stderr) == (0, "")
    checked = verify.verify(
        verify.VerifyOptions(
            data_dir=str(tmp_path / "far"), level="source", num_workers=1, input_dir=url
        )
    )

    assert json.loads(done.stdout.splitlines()[-1])["num_records"] == 31
    assert digests(tmp_path / "far") == digests(tmp_path / "near")
    assert digests(tmp_path / "tars") == digests(tmp_path / "near")
    assert (checked.faults, checked.num_faults) == ([], 0)


def test_classes_at_a_url_and_a_repair_from_there(
    tree: pathlib.Path, s3_folder: str, tmp_path: pathlib.Path
) -> None:
    url = f"{s3_folder}/photos"
    upload(tree / "train", url)

    conversions.convert(_folder_config(tree / "train", tmp_path / "near"))
    conversions.convert(_folder_config(url, tmp_path / "far"))
    expected = digests(tmp_path / "near")
    found = digests(tmp_path / "far")
    shard = next(name for name in sorted(found) if name.startswith("train-"))
    (tmp_path / "far" / shard).write_bytes(b"damaged")
    repaired = verify.verify(
        verify.VerifyOptions(
            data_dir=str(tmp_path / "far"),
            level="crc",
            repair=True,
            num_workers=1,
            input_dir=url,
        )
    )

    assert found == expected
    assert repaired.num_faults == 0
    assert digests(tmp_path / "far") == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ILSVRC2012_img_train.tar", "ILSVRC2012_img_train.tar or train/ but not both"),
        (
            "train/n01494475.tar",
            "train/n01494475.tar is cut short: it ends at byte 0",
        ),
        ("bbox/n01440764/x.xml", "bbox holds bounding boxes as XML files, .* Pack the"),
        ("synsets.txt", "/raw/synsets.txt must list at least one synset a line"),
    ],
)
def test_what_cannot_be_read_by_url_is_named(
    tree: pathlib.Path, s3_folder: str, tmp_path: pathlib.Path, name: str, said: str
) -> None:
    url = f"{s3_folder}/raw"
    upload(tree, url)
    Files(url).write(name, b"")

    with pytest.raises(ValueError, match=said) as caught:
        convert(url, tmp_path / "out")  # type: ignore[arg-type]
    assert url in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_wrong_places_and_failing_stores_are_named(
    tree: pathlib.Path, s3_folder: str, bad_proxy: BadProxy, tmp_path: pathlib.Path
) -> None:
    url, image = f"{s3_folder}/raw", f"train/{SYNSETS[0]}/{SYNSETS[0]}_0.JPEG"
    upload(tree, url)
    config = conversion(
        "imagenet",
        input_dir=url,
        output_dir=str(tmp_path / "out"),
        fsync=False,
        num_workers=1,
    )

    with pytest.raises(ValueError, match=f"got {url}x: no such file below this URL"):
        convert(f"{url}x", tmp_path / "none")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"must not be in {url}/train"):
        convert(url, f"{url}/train/x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="without a password"):
        convert("s3://key:secret@b/raw", tmp_path / "out")  # type: ignore[arg-type]
    bad_proxy.faults = [
        Fault(kind="status", status=503, names="*_4.JPEG", times=2),
        Fault(kind="truncate", after=100, names="*_8.JPEG", times=1),
    ]
    job = conversions.make_job(config)
    content = Files(url).read(image)
    Files(url).delete(image)
    with pytest.raises(errors.MissingFileError, match=re.escape(f"{url}/{image} fail")):
        run.run(job)
    Files(url).write(image, content[:-1])
    with pytest.raises(errors.RemoteError, match=f"{image}.*too short"):
        run.run(job)
    Files(url).write(image, content)
    run.run(job)

    convert(tree, tmp_path / "near")
    assert digests(tmp_path / "out") == digests(tmp_path / "near")


def _parts(folder: pathlib.Path, kind: str) -> tuple[str, list[str]]:
    """Writes an input of three files; returns its command and the files by number."""
    _, write = KINDS[kind]
    files = []
    for number in (1, 2, 10):
        part = folder.with_name(f"{folder.name}-{number}")
        write(part, [("train", label) for label in "abc"[: number % 3 + 1]])
        ending = {"parquet": "parquet", "webdataset": "tar"}.get(kind, "tfrecord")
        (file,) = part.glob(f"*.{ending}")
        files.append(f"part-{number}.{ending}")
        folder.mkdir(exist_ok=True)
        shutil.copy(file, folder / files[-1])
    return "table" if kind == "parquet" else kind, files


@pytest.mark.parametrize("kind", ["parquet", "webdataset", "tfrecord"])
def test_a_folder_a_pattern_and_braces_name_files_on_a_disk_and_by_url(
    kind: str, s3_folder: str, tmp_path: pathlib.Path
) -> None:
    command, files = _parts(tmp_path / "in", kind)
    upload(tmp_path / "in", f"{s3_folder}/in")
    ending = files[0].rpartition(".")[2]
    found = []
    for above in (f"{tmp_path}/in", f"{s3_folder}/in"):
        for name in ("", "/", f"/part-*.{ending}", f"/part-{{1,2,10}}.{ending}"):
            place = f"{above}{name}"
            fields = {"input": place if command == "table" else [place]}
            if kind == "webdataset":  # images have names of their own in a tar alone
                fields["file_in_names"] = True
            out = tmp_path / f"out{len(found)}"
            options = {"output_dir": str(out), "num_workers": 1, "fsync": False}
            conversions.convert(conversion(command, **fields, **options))
            made = digests(out)
            found.append({name: made[name] for name in made if "train-" in name})

    assert found == [found[0]] * len(found)
    wrong = f"{s3_folder}/in/nothing-*.{ending}"
    fields = {"input": wrong if command == "table" else [wrong]}
    with pytest.raises(ValueError, match=r"--input must (be|name) .*nothing-\*"):
        conversions.convert(
            conversion(command, **fields, output_dir=str(tmp_path / "none"))
        )
