"""Data sets exported in this process: what the files hold, and what is refused."""

import errno
import json
import os
import pathlib
import shlex
import tarfile
from typing import Any

import pytest
import xxhash

from converters import export
from converters.exports import run
from converters.exports.plan import Format
from tests.support.data import conversions
from tests.support.data.carried import exported
from tests.support.data.conversions import conversion
from tests.support.data.trees import SYNSETS, convert, digests, make_jpeg, make_tree
from tfpipe import errors
from tfpipe.shards import index, subset
from tfpipe.shards.example import decode_example

FILES = {
    "webdataset": ["train-000000.tar", "train-000001.tar", "validation-000000.tar"],
    "parquet": [
        *("train-00000-of-00002.parquet", "train-00001-of-00002.parquet"),
        "validation-00000-of-00001.parquet",
    ],
    "arrayrecord": [
        "imagenet-train.array_record-00000-of-00002",
        "imagenet-train.array_record-00001-of-00002",
        "imagenet-validation.array_record-00000-of-00001",
    ],
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Data set of 9 and 3 images of 4 classes, two boxes on one image."""
    root = tmp_path_factory.mktemp("source")
    raw = make_tree(root / "raw", num_images=9, num_validation_images=3)
    (raw / "synsets.txt").write_text("".join(f"{name}\n" for name in SYNSETS))
    (raw / "synset_words.txt").write_text(f"{SYNSETS[0]}\ttench, Tinca tinca\n")
    path = raw / "bbox" / SYNSETS[1] / f"{SYNSETS[1]}_1.xml"
    path.parent.mkdir(parents=True)
    box = "<xmin>{}</xmin><ymin>4</ymin><xmax>33</xmax><ymax>30.5</ymax>"
    objects = "".join(
        f"<object><name>{SYNSETS[1]}</name><bndbox>{box.format(left)}</bndbox></object>"
        for left in (3, 7)
    )
    size = "<size><width>41</width><height>31</height></size>"
    path.write_text(f"<annotation>{size}{objects}</annotation>")
    convert(raw, root / "set", num_train_shards=2, num_validation_shards=1, seed=5)
    return root / "set"


def _export(source: pathlib.Path, out: pathlib.Path, **options: Any) -> dict[str, Any]:
    values = {"format": "tree", "num_workers": 1, "fsync": False} | options
    config = export.ExportOptions(data_dir=str(source), output_dir=str(out), **values)
    return export.export(config)


def _shards(data_dir: pathlib.Path) -> dict[str, str]:
    known = index.load(data_dir)
    return {s.name: s.digest for shards in known.splits.values() for s in shards}


def _convert_again(done: dict[str, Any], out: pathlib.Path) -> dict[str, str]:
    """Runs the printed command in this process, and returns digests of its shards."""
    _, _, module, *words = shlex.split(done["convert_again"])
    flags = dict(word.removeprefix("--").split("=", 1) for word in words)
    orientation = flags.pop("exif_orientation")
    given: dict[str, Any] = {
        name: int(value) if value.isdigit() else value for name, value in flags.items()
    }
    given |= {"output_dir": str(out), "num_workers": 1, "fsync": False}
    config = conversion(module.rpartition(".")[2], **given)
    stored = config.options.policy.exif_orientation
    assert orientation == stored or module.endswith("folder")
    config.convert()
    return _shards(out)


def _expected(source: pathlib.Path) -> list[tuple[str, str, int]]:
    """Returns digest, class and number of boxes of each record, in their order."""
    query = "SELECT digest, synset, filename FROM read_parquet(?)"
    rows = index.query_catalog(source, query, [])
    return [(d, s, 2 * name.endswith(f"{SYNSETS[1]}_1.JPEG")) for d, s, name in rows]


def _digest(encoded: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(encoded)


def _read(kind: str, out: pathlib.Path) -> list[tuple[str, str, int]]:
    """Returns the same of an export; labels count from 0."""
    found = []
    for name in FILES[kind]:
        if kind == "webdataset":
            with tarfile.open(out / name) as tar:
                content = {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
            assert all(m.rpartition("/")[2].count(".") == 1 for m in content)
            for key in [m[:-4] for m in content if m.endswith(".jpg")]:
                facts = json.loads(content[f"{key}.json"])
                assert SYNSETS[int(content[f"{key}.cls"])] == facts["class"]
                boxes = len(facts.get("boxes", ()))
                row = (_digest(content[f"{key}.jpg"]), facts["class"], boxes)
                found.append(row)
        elif kind == "parquet":
            query = "SELECT image.bytes, label, boxes FROM read_parquet(?)"
            with index.catalog_connection() as connection:
                rows = connection.execute(query, [str(out / name)]).fetchall()
            found += [(_digest(b), SYNSETS[label], len(x)) for b, label, x in rows]
        else:
            found += [_of_record(data) for data in _array_records(out / name)]
    return found


def _of_record(data: bytes) -> tuple[str, str, int]:
    features = decode_example(data)
    (encoded,), (synset,) = (
        features[key].values for key in ("image/encoded", "image/class/synset")
    )
    boxes = features["image/object/bbox/xmin"].values
    return _digest(encoded), synset.decode(), len(boxes)


def _array_records(path: pathlib.Path) -> list[bytes]:
    module = pytest.importorskip("array_record.python.array_record_module")
    reader = module.ArrayRecordReader(str(path))
    return [reader.read([n])[0] for n in range(reader.num_records())]


def test_a_tree_converts_to_the_same_shards(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    done = _export(source, tmp_path / "out")

    assert done["same_shards"]
    assert _convert_again(done, tmp_path / "again") == _shards(source)
    raw = digests(source.parent / "raw")
    images = {n: d for n, d in digests(tmp_path / "out").items() if n.endswith("JPEG")}
    assert images == {name: d for name, d in raw.items() if name.endswith("JPEG")}
    assert done["splits"] == {"train": 9, "validation": 3}


@pytest.mark.parametrize("top", ["", "train/"])
def test_a_tree_of_folders_converts_to_the_same_shards(
    tmp_path: pathlib.Path, top: str
) -> None:
    for number, name in enumerate(["b", "a/x", "a/y z", "a/x"]):
        path = tmp_path / "raw" / f"{top}{name}" / f"{number}.é.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(number))
    if top:
        path = tmp_path / "raw/valid/b/0.jpg"
        path.parent.mkdir(parents=True)
        path.write_bytes(make_jpeg(9))
    values: dict[str, Any] = {"num_workers": 1, "fsync": False, "label_base": 0}
    raw, first = str(tmp_path / "raw"), str(tmp_path / "set")
    conversions.convert(
        conversion("folder", input_dir=raw, output_dir=first, seed=1, **values)
    )

    done = _export(tmp_path / "set", tmp_path / "out")

    assert done["same_shards"]
    assert _convert_again(done, tmp_path / "again") == _shards(tmp_path / "set")
    other = _export(tmp_path / "set", tmp_path / "split", paths="split")
    assert not other["same_shards"]
    assert (tmp_path / "split/train/a/y z/2.é.png").exists()
    assert len(_convert_again(other, tmp_path / "other")) == len(
        _shards(tmp_path / "set")
    )


@pytest.mark.parametrize("kind", FILES)
def test_a_format_holds_the_same_records_and_is_the_same_again(
    source: pathlib.Path, tmp_path: pathlib.Path, kind: str
) -> None:
    if kind == "arrayrecord":
        pytest.importorskip("array_record")
    done = _export(source, tmp_path / "out", format=kind)
    _export(source, tmp_path / "again", format=kind)

    assert _read(kind, tmp_path / "out") == _expected(source)
    assert digests(tmp_path / "out") == digests(tmp_path / "again")
    document = json.loads((tmp_path / "out" / run.EXPORT_NAME).read_text())
    for file in document["files"]:
        entry = index.describe_file(tmp_path / "out" / file["name"])
        assert (entry.num_bytes, entry.digest) == (file["num_bytes"], file["digest"])
    assert [file["name"] for file in document["files"]] == FILES[kind]
    assert done["num_bytes"] == sum(file["num_bytes"] for file in document["files"])
    assert [done["num_records"], done["num_shards"]] == [12, 3]
    for path in (tmp_path / "out").glob("dataset_info.json"):
        text = path.read_text()
        assert text == json.dumps(json.loads(text), indent=1) + "\n"


def test_a_subset_and_splits(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    known = index.load(source)
    query = "SELECT split, shard, record FROM read_parquet(?) WHERE label = 2"
    with index.catalog_connection() as connection:
        path = str(source / index.CATALOG_NAME)
        rows = connection.execute(query, [path]).fetchnumpy()
    chosen = tmp_path / "subset.parquet"
    subset.write(subset.choose(rows, known, query="label = 2"), chosen)
    both = {"subset": str(chosen), "splits": ["train"]}

    done = [
        _export(source, tmp_path / f"{n}", **options)
        for n, options in enumerate(({"subset": str(chosen)}, both))
    ]

    assert [d["splits"] for d in done] == [{"train": 2, "validation": 1}, {"train": 2}]
    images = [sorted(p.name for p in (tmp_path / n).rglob("*.JPEG")) for n in "01"]
    train = [f"{SYNSETS[1]}_{n}.JPEG" for n in (1, 5)]
    assert images == [["ILSVRC2012_val_00000002.JPEG", *train], train]
    assert (tmp_path / "0/synset_labels.txt").read_text() == f"{SYNSETS[1]}\n"
    assert not any(d["same_shards"] for d in done)
    # The subset has no record of the first shard of train.
    assert sorted(_convert_again(done[0], tmp_path / "again")) == [
        *("train-00000-of-00001", "validation-00000-of-00001"),
    ]


def test_damage_is_named_and_the_same_command_goes_on(
    source: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _export(source, tmp_path / "whole", format="webdataset")
    shard = source / "train-00001-of-00002"
    content = shard.read_bytes()
    shard.write_bytes(content[:900] + b"?" + content[901:])
    try:
        with pytest.raises(
            errors.BadRecordError, match=r"train-00001.*record 0 at byte"
        ):
            _export(source, tmp_path / "out", format="webdataset")
    finally:
        shard.write_bytes(content)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".converting"]

    # The first part is not written again, and the end of publishing is cut off.
    parts: list[str] = []
    write, move = run._write, os.replace
    monkeypatch.setattr(
        run, "_write", lambda *given: (parts.append(given[-1].name), write(*given))[1]
    )

    def cut_off(old: Any, new: Any) -> None:
        if os.path.basename(new) == "validation-000000.tar" and ".conv" not in str(new):
            raise OSError("cut off")
        move(old, new)

    monkeypatch.setattr(os, "replace", cut_off)
    with pytest.raises(OSError, match="cut off"):
        _export(source, tmp_path / "out", format="webdataset")
    monkeypatch.setattr(os, "replace", move)
    assert parts == ["train-000001.tar", "validation-000000.tar"]
    assert not (tmp_path / "out" / run.EXPORT_NAME).exists()

    _export(source, tmp_path / "out", format="webdataset")

    assert parts == ["train-000001.tar", "validation-000000.tar"]
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_what_cannot_be_exported_is_refused(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("")
    _export(source, tmp_path / "done")
    refused: list[tuple[pathlib.Path, pathlib.Path, dict[str, Any], str]] = [
        (source, source / "out", {}, "beside each other"),
        (source, tmp_path / "full", {}, "must be empty"),
        (source, tmp_path / "done", {"paths": "split"}, "paths was 'source', is 'sp"),
        (
            source,
            tmp_path / "out",
            {"paths": "split", "format": "parquet"},
            "needs --f",
        ),
        (source, tmp_path / "out", {"splits": ["trian"]}, "Unknown split 'trian'"),
        (source, tmp_path / "out", {"subset": "none.parquet"}, "does not exist"),
        (tmp_path / "none", tmp_path / "out", {}, "must be a folder"),
        (tmp_path / "full", tmp_path / "out", {}, "No data set in"),
    ]
    for data_dir, out, options, message in refused:
        with pytest.raises((ValueError, errors.TfpipeError), match=message):
            _export(data_dir, out, **options)
    with pytest.raises(ValueError, match="must be a path on this machine"):
        export.ExportOptions(data_dir="x", output_dir="s3://bucket/x", format="tree")
    dry = _export(source, tmp_path / "out", dry_run=True)
    num_bytes = sum(path.stat().st_size for path in source.glob("*-*-of-*"))
    assert (dry["num_records"], dry["num_bytes"]) == (12, num_bytes)
    assert not (tmp_path / "out").exists()
    assert digests(tmp_path / "full") == {
        "mine.txt": digests(tmp_path / "full")["mine.txt"]
    }


@pytest.mark.parametrize("kind", ["tree", "webdataset", "parquet"])
def test_a_shard_that_cannot_be_read_is_named_and_not_the_output(
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    kind: Format,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system knows a descriptor of a failing read, and no path."""

    def fail(*_: object) -> bytes:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "pread", fail)

    with pytest.raises(OSError, match="Stale file handle") as raised:
        exported(data_dir, tmp_path / "out", kind)

    assert pathlib.Path(str(raised.value.filename)).parent == data_dir
