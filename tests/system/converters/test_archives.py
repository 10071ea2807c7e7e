"""The same images from a tree, from WebDataset tars and from TFRecords of others."""

import dataclasses
import hashlib
import io
import json
import pathlib
import re
import tarfile
from typing import Any

import duckdb
import pytest

from converters import verify
from converters.jobs import run
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.trees import SYNSETS, convert, digests, make_tree, upload
from tests.support.processes import commands
from tests.support.servers.web_server import serve
from tfpipe.location.files import Files
from tfpipe.shards import example, index, records


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A tree with two splits; the validation split has classes too."""
    root = make_tree(tmp_path_factory.mktemp("tree"), num_images=40)
    for number, name in enumerate(SYNSETS):
        path = root / "val" / name / f"v{number}.JPEG"
        path.parent.mkdir(parents=True)
        source = root / "train" / name / f"{name}_{number}.JPEG"
        path.write_bytes(source.read_bytes() + b"\0")
    return root


def _images(tree: pathlib.Path, split: str) -> list[pathlib.Path]:
    return sorted(tree.glob(f"{split}/*/*.JPEG"))


def _make_tars(tree: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    out.mkdir()
    for split in ("train", "val"):
        for shard in range(2):
            with tarfile.open(out / f"{split}-{shard:03d}.tar", "w") as tar:
                for path in _images(tree, split)[shard::2]:
                    name = path.parent.name
                    label = {"meta": {"label": SYNSETS.index(name)}}
                    for part, content in {
                        "JPEG": path.read_bytes(),
                        "cls": name.encode(),
                        "json": json.dumps(label).encode(),
                    }.items():
                        info = tarfile.TarInfo(f"{path.stem}.{part}")
                        info.size = len(content)
                        tar.addfile(info, io.BytesIO(content))
    return out


def _make_tfds(tree: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    out.mkdir()
    (out / "label.labels.txt").write_text("".join(f"{name}\n" for name in SYNSETS))
    for split, folder_name in (("train", "train"), ("validation", "val")):
        with open(out / f"set-{split}.tfrecord-00000-of-00001", "wb") as file:
            for path in _images(tree, folder_name):
                features = {
                    "image": example.bytes_feature(path.read_bytes()),
                    "label": example.int64_feature([SYNSETS.index(path.parent.name)]),
                    "file_name": example.bytes_feature(path.name.encode()),
                }
                data = example.encode_example(features)
                file.writelines(records.frame(data))
    return out


def content(data_dir: pathlib.Path) -> str:
    """Digest over sorted (name, bytes, class, split) of all records."""
    known = index.load(data_dir)
    found = []
    for split, shards in known.splits.items():
        for shard in shards:
            for record in records.read(data_dir / shard.name):
                features = example.decode_example(record.data)
                label = features["image/class/label"].values[0]
                name = known.classes[label - known.label_base][0]
                keys = ("image/filename", "image/encoded")
                values = [features[key].values[0] for key in keys]
                found.append(repr((*values, name, split)))
    assert found
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()


def _run(command: str, output_dir: pathlib.Path, **options: Any) -> str:
    options = {"num_workers": 1, "fsync": False, **options}
    conversion(command, output_dir=str(output_dir), **options).convert()
    return content(output_dir)


def test_all_forms_give_the_same_records(
    tree: pathlib.Path, s3_folder: str, tmp_path: pathlib.Path
) -> None:
    tars, tfds = _make_tars(tree, tmp_path / "tars"), _make_tfds(tree, tmp_path / "t")
    upload(tars, f"{s3_folder}/tars")
    upload(tfds, f"{s3_folder}/tfds")
    names = tmp_path / "labels.txt"
    names.write_text("".join(f"{n} {name}\n" for n, name in enumerate(SYNSETS)))

    def both(place: object) -> list[str]:
        return [f"{place}/train-{{000..001}}.tar", f"validation={place}/val-*.tar"]

    expected = _run("folder", tmp_path / "tree", input_dir=str(tree))
    found = {
        "tars": _run("webdataset", tmp_path / "1", input=both(tars)),
        "tars by url": _run(
            "webdataset",
            tmp_path / "2",
            input=both(f"{s3_folder}/tars"),
            num_workers=2,
        ),
        "json": _run(
            "webdataset",
            tmp_path / "3",
            input=both(tars),
            label_from="json",
            label_key="meta.label",
            label_map=str(names),
        ),
        "tfds": _run("tfrecord", tmp_path / "4", input=[str(tfds)]),
        "tfds by url": _run("tfrecord", tmp_path / "5", input=[f"{s3_folder}/tfds/"]),
        "own": _run(
            "tfrecord",
            tmp_path / "6",
            input=[str(tmp_path / "tree")],
            label_key="image/class/synset",
        ),
    }

    assert found == dict.fromkeys(found, expected)


def _by_source(data_dir: pathlib.Path) -> dict[str, list[tuple[str, ...]]]:
    """Returns split, class and digest of each image, by its source."""
    query = "SELECT filename, split, synset, digest FROM read_parquet(?)"
    found: dict[str, list[tuple[str, ...]]] = {}
    for name, *values in index.query_catalog(data_dir, query, []):
        found.setdefault(name.partition("/")[0], []).append(tuple(values))
    return {name: sorted(values) for name, values in found.items()}


def test_a_merge_of_sources_by_url_that_two_tasks_share(
    tree: pathlib.Path, s3_folder: str, tmp_path: pathlib.Path
) -> None:
    _make_tars(tree, tmp_path / "tars")
    _make_tfds(tree, tmp_path / "t")
    _run("folder", tmp_path / "set", input_dir=str(tree))
    convert(make_tree(tmp_path / "raw", num_images=8), tmp_path / "texts")
    images = [
        (split, path) for split in ("train", "val") for path in _images(tree, split)
    ]
    lines = [
        {
            "image": path.relative_to(tree).as_posix(),
            "label": path.parent.name,
            "s": split,
        }
        for split, path in images
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (s VARCHAR, label VARCHAR, image BLOB)")
        rows = [(split, path.parent.name, path.read_bytes()) for split, path in images]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        connection.execute(f"COPY t TO '{tmp_path}/rows.parquet'")
    (tmp_path / "tree").symlink_to(tree)
    for name in ("tree", "tars", "t", "set"):
        upload(tmp_path / name, f"{s3_folder}/{name}")
    words = [
        *(f"tree={s3_folder}/tree", f"tfds={s3_folder}/t", f"set={s3_folder}/set"),
        *(f"a={s3_folder}/tars/train-{{000..001}}.tar", f"texts={tmp_path / 'texts'}"),
        *(f"b=validation={s3_folder}/tars/val-*.tar", f"csv={tmp_path}/rows.jsonl"),
        *(f"pq={tmp_path}/rows.parquet", f"--root=csv={s3_folder}/tree"),
        *("--split_column=csv=s", "--split_column=pq=s", "--num_train_shards=4"),
    ]

    def run(out: str, *more: str) -> commands.Ended:
        return commands.run("converters.merge", *words, *more, f"--output_dir={out}")

    out = tmp_path / "out"
    first = run(str(out), "--num_tasks=2", "--task_index=0")
    assert list(out.glob(".converting/.table-*/images")), first.stderr
    second = run(str(out), "--num_tasks=2", "--task_index=1", "--num_workers=1")
    whole = run(f"{s3_folder}/whole", "--num_workers=1")
    inside = run(f"{s3_folder}/tree/train/out")

    assert [first.stderr, second.stderr, whole.stderr] == [""] * 3
    assert json.loads(second.stdout.splitlines()[-1])["finished"] is True
    assert not list(out.glob(".*"))
    for name, data in digests(out).items():
        content = Files(f"{s3_folder}/whole").read(name)
        assert content == (out / name).read_bytes(), (name, data)
    found = _by_source(out)
    texts = found.pop("texts")
    found["a"] = sorted(found["a"] + found.pop("b"))
    assert found == dict.fromkeys(found, found["tree"])
    assert (len(found), len(found["tree"]), len(texts)) == (6, 40 + len(SYNSETS), 8)
    known = index.load(out)
    assert all(synset in SYNSETS and text != synset for synset, text in known.classes)
    checked = verify.verify(
        verify.VerifyOptions(data_dir=str(out), level="schema", num_workers=1)
    )
    assert checked.faults == []
    assert inside.returncode == 1
    assert "--output_dir must not be in s3://" in inside.stderr


def test_the_command_says_what_it_left_out_and_goes_on_when_it_was_killed(
    tree: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    tars = _make_tars(tree, tmp_path / "tars")
    link = tarfile.TarInfo("link.jpg")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tars / "train-001.tar", "a") as tar:
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("../up.jpg"))
    words = [f"--input={tars}/train-*.tar", f"--output_dir={tmp_path / 'out'}"]

    def run(*more: str) -> commands.Ended:
        return commands.run("converters.webdataset", *words, *more)

    done, again = run(), run()
    rejects = (tmp_path / "out" / "rejects.jsonl").read_text()
    wrong = run("--label_key=meta.nothing", "--overwrite")

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout.splitlines()[-1])["num_records"] == 40
    assert [
        (line["name"], line["reason"]) for line in map(json.loads, rejects.splitlines())
    ] == [
        ("train-001.tar/link.jpg", "not_a_file"),
        ("train-001.tar/../up.jpg", "unsafe_name"),
    ]
    assert (again.returncode, again.result["num_records"]) == (0, 40)
    assert "already holds this data set, complete." in again.stderr
    assert ["images/s" in each.stdout for each in (done, again)] == [True, False]
    assert wrong.returncode == 1
    assert re.fullmatch(
        r"Error: The train files of --input must hold images with a class, .*\n",
        wrong.stderr,
    )


def test_a_tar_that_changes_at_a_url_ends_the_job(
    tree: pathlib.Path, s3_folder: str, tmp_path: pathlib.Path
) -> None:
    tars = _make_tars(tree, tmp_path / "tars")
    upload(tars, s3_folder)
    files = Files(s3_folder)
    whole = files.read("train-000.tar")

    files.write("train-000.tar", whole[:5000])
    with pytest.raises(ValueError, match=rf"{s3_folder}/train-000\.tar is cut short"):
        _run("webdataset", tmp_path / "out", input=[f"{s3_folder}/train-*.tar"])
    assert not (tmp_path / "out").exists()

    # Other bytes of the same size, after the tars were listed.
    files.write("train-000.tar", whole)
    made = conversion(
        "webdataset", input=[f"{s3_folder}/train-*.tar"], output_dir=str(tmp_path / "x")
    )
    job = dataclasses.replace(made.make_job(), num_workers=1, fsync=False)
    files.write("train-000.tar", whole[:-1] + b"x")
    with pytest.raises(ValueError, match=rf"{s3_folder}/train-000\.tar must stay the"):
        run.run(job)


def test_a_tar_at_a_url_may_have_any_name(
    tree: pathlib.Path, s3_folder: str, tmp_path: pathlib.Path
) -> None:
    tars = _make_tars(tree, tmp_path / "tars")
    for number, path in enumerate(sorted(tars.iterdir())):
        path.rename(tars / f"{number}#a?x=1 %20[{number}]*~=.tar")
    upload(tars, f"{s3_folder}/odd")
    one = {"split": "train", "file_in_names": True}

    near = _run("webdataset", tmp_path / "near", input=[str(tars)], **one)
    far = _run("webdataset", tmp_path / "far", input=[f"{s3_folder}/odd/"], **one)

    assert far == near


def test_damaged_and_other_records_are_named(
    tree: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    tfds = _make_tfds(tree, tmp_path / "tfds")
    shard = tfds / "set-train.tfrecord-00000-of-00001"
    data = bytearray(shard.read_bytes())
    places = list(records.scan(shard))
    data[places[3].byte_offset + 400] ^= 1
    shard.write_bytes(data)
    (tmp_path / "gz.tfrecord").write_bytes(b"\x1f\x8b" + bytes(100))
    out = tmp_path / "out"

    _run("tfrecord", out, input=[str(tfds)])

    (line,) = map(json.loads, (out / "rejects.jsonl").read_text().splitlines())
    assert (line["name"], line["reason"]) == (f"{shard.name}/000003", "bad_record")
    assert index.load(out).num_records("train") == 39
    with pytest.raises(ValueError, match="--input_dir finds images by their names"):
        verify.verify(
            verify.VerifyOptions(data_dir=str(out), level="source", input_dir=str(tfds))
        )
    for said, options in {
        "--label_key must name a feature .* got x; .* has file_name, image, label": {
            "input": [str(tfds)],
            "label_key": "x",
        },
        "must not be compressed": {"input": [str(tmp_path / "gz.tfrecord")]},
        "--image_key and --label_key must be two keys": {
            "input": [str(tfds)],
            "image_key": "image",
            "label_key": "image",
        },
    }.items():
        with pytest.raises(ValueError, match=said):
            _run("tfrecord", tmp_path / "none", **options)


def test_what_the_webdataset_library_writes_is_read(
    tree: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    library = pytest.importorskip("webdataset", reason="pip install 'tfpipe[peers]'")
    pattern = str(tmp_path / "own-%06d.tar")
    with library.ShardWriter(pattern, maxcount=15, verbose=0) as writer:
        for path in _images(tree, "train"):
            number = SYNSETS.index(path.parent.name)
            sample = {"__key__": path.stem, "jpg": path.read_bytes(), "cls": number}
            writer.write(sample | {"json": {"label": path.parent.name}})

    numbers = conversion(
        "webdataset",
        input=[f"{tmp_path}/own-{{000000..000002}}.tar"],
        output_dir=str(tmp_path / "numbers"),
        num_workers=1,
        fsync=False,
    )
    conversions.convert(numbers)

    known = index.load(tmp_path / "numbers")
    assert (known.label_base, known.num_records("train")) == (0, 40)
    assert [name for name, _ in known.classes] == ["0", "1", "2", "3"]


def test_files_of_a_web_server_come_with_the_list_of_classes_beside_them(
    tree: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A web server lists no names: each name of a list is asked for."""
    folder, out = _make_tfds(tree, tmp_path / "web"), tmp_path / "out"
    names = sorted(path.name for path in folder.glob("set-*"))

    with serve(folder) as url:
        files = [f"{url}/{name}" for name in names]
        options = {"output_dir": str(out), "fsync": False, "num_workers": 1}
        conversions.convert(conversion("tfrecord", input=files, **options))

    known = index.load(out)
    assert [synset for synset, _ in known.classes] == [*SYNSETS]
    assert [*known.splits] == ["train", "validation"]
