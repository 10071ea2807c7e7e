"""Sources merged in this process: classes, names, kinds, copies, refusals."""

import csv
import io
import json
import pathlib
import shutil
import sqlite3
import tarfile
from typing import Any

import pytest

from converters import merge
from converters.inputs import merged as sources
from converters.options.shared import by_name
from tests.support.data import conversions
from tests.support.data.carried import COLUMNS, exported, make_table
from tests.support.data.conversions import conversion
from tests.support.data.trees import digests, make_jpeg
from tfpipe import errors
from tfpipe.shards import example, index, records


def _write(root: pathlib.Path, images: dict[str, int]) -> str:
    """Writes a picture under each name, drawn from its seed."""
    for name, seed in images.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(seed))
    return str(root)


@pytest.fixture
def trees(tmp_path: pathlib.Path) -> dict[str, str]:
    """Two trees with one equal image; the second has splits and other names."""
    first = {"cat/1.jpg": 1, "dog/2.jpg": 2, "dog/3.jpg": 3}
    second = {
        "train/Hund/2.jpg": 2,
        "train/cat/5.jpg": 5,
        "train/junk/6.jpg": 6,
        "val/Hund/7.jpg": 7,
    }
    return {
        "own": _write(tmp_path / "a", first),
        "web.v2": _write(tmp_path / "b" / "c", second),
    }


def _merge(out: pathlib.Path, trees: dict[str, str], **options: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"num_workers": 1, "fsync": False, **options}
    return conversions.convert(
        conversion("merge", sources=trees, output_dir=str(out), **values)
    )


def _rows(folder: pathlib.Path) -> list[tuple[Any, ...]]:
    query = "SELECT split, filename, synset, label FROM read_parquet(?)"
    return sorted(index.query_catalog(folder, query, []))


def test_classes_and_splits_are_joined(
    tmp_path: pathlib.Path, trees: dict[str, str]
) -> None:
    mapping = tmp_path / "map.tsv"
    mapping.write_text("Hund\tdog\n\njunk\t\n")

    done = _merge(tmp_path / "out", trees, class_map={"web.v2": str(mapping)})

    assert _rows(tmp_path / "out") == [
        ("train", "own/cat/1.jpg", "cat", 1),
        ("train", "own/dog/2.jpg", "dog", 2),
        ("train", "own/dog/3.jpg", "dog", 2),
        ("train", "web.v2/train/Hund/2.jpg", "dog", 2),
        ("train", "web.v2/train/cat/5.jpg", "cat", 1),
        ("validation", "web.v2/val/Hund/7.jpg", "dog", 2),
    ]
    lines = (tmp_path / "out/duplicates.jsonl").read_text().splitlines()
    names = [json.loads(line)["names"] for line in lines]
    assert [sorted(group) for group in names] == [
        ["own/dog/2.jpg", "web.v2/train/Hund/2.jpg"]
    ]
    assert done["decisions"]["ignored_class_not_mapped"] == 1
    rejects = (tmp_path / "out/rejects.jsonl").read_text()
    assert "web.v2/train/junk/6.jpg" in rejects

    # The order of the sources has no effect, and copies can be left out.
    turned = dict(reversed(trees.items()))
    _merge(tmp_path / "turned", turned, class_map={"web.v2": str(mapping)})
    assert digests(tmp_path / "turned") == digests(tmp_path / "out")
    fewer = _merge(tmp_path / "fewer", trees, drop_duplicates="all")
    assert fewer["num_records"] == 6
    assert len({label for *_, label in _rows(tmp_path / "fewer")}) == 4


def _features(folder: pathlib.Path) -> dict[bytes, list[Any]]:
    """Returns score, labels and tags of the records with each image."""
    found: dict[bytes, list[Any]] = {}
    for path in folder.glob("*-of-*"):
        for record in records.read(path):
            features = example.decode_example(record.data)
            keys = ("extra/score", "image/class/labels", "extra/tags")
            values = [[*features[key].values] for key in keys]
            found.setdefault(features["image/encoded"].values[0], []).append(values)
    return found


def test_further_columns_and_all_labels_come_along(tmp_path: pathlib.Path) -> None:
    """Also those of a data set, and of an export; a tree has none."""
    data_set = make_table(tmp_path)
    exported(data_set, tmp_path / "tree", "tree")
    _write(tmp_path / "plain", {"cat/1.jpg": 99})
    places = {
        "table": str(tmp_path / "t.parquet"),
        "set": str(data_set),
        "tree": str(tmp_path / "tree"),
        "plain": str(tmp_path / "plain"),
    }
    flags = {"image": "img", "label": "label", "name": "name", "split": "split"}
    how = {f"{flag}_column": {"table": name} for flag, name in flags.items()}
    how["extra_columns"] = {"table": COLUMNS.replace(" ", "")}

    _merge(tmp_path / "out", places, how=how, extra_in_records=True)

    query = (
        f"SELECT split, digest, labels, {COLUMNS} FROM read_parquet(?) "
        "WHERE starts_with(filename, '{}/') ORDER BY ALL"
    )
    rows = {
        name: index.query_catalog(tmp_path / "out", query.replace("{}", name), [])
        for name in places
    }
    assert rows["table"] == rows["set"] == rows["tree"]
    assert sorted(len(row[2]) for row in rows["table"]) == [1] * 9 + [2] * 3
    assert [row[3:] for row in rows["plain"]] == [(None,) * 4]
    features = _features(tmp_path / "out")
    ((score, (_label,), tags),) = features.pop(make_jpeg(99))
    assert score == tags == []
    assert [len(each) for each in features.values()] == [3] * 12
    assert all(each == [each[0]] * 3 for each in features.values())

    places["plain"] = places.pop("table")
    how = {f"{flag}_column": {"plain": name} for flag, name in flags.items()}
    how["query"] = {"plain": "SELECT * EXCLUDE score, cap AS Score FROM input"}
    how["extra_columns"] = {"plain": "Score"}
    wrong = "got score of type VARCHAR in 'plain' and of type DOUBLE in 'set'"
    with pytest.raises(ValueError, match=wrong):
        _merge(tmp_path / "wrong", places, how=how)
    how["extra_columns"] |= {"set": "", "tree": ""}
    with pytest.raises(ValueError, match="--extra_columns must be of a source that is"):
        _merge(tmp_path / "wrong", places, how=how)


@pytest.mark.parametrize(
    ("has_digest", "message"),
    [(True, "catalog"), (False, "must have a row for each of the 4 records of train-")],
)
def test_a_data_set_with_the_catalog_of_another_is_refused(
    has_digest: bool, message: str, tmp_path: pathlib.Path
) -> None:
    """Its names, labels and columns would go to wrong images."""
    data_set = make_table(tmp_path)
    with index.catalog_connection() as connection:
        connection.execute(
            f"COPY (FROM '{data_set}/catalog.parquet' WHERE shard > 0) TO "
            f"'{data_set}/fewer' (FORMAT parquet)"
        )
    (data_set / "fewer").replace(data_set / "catalog.parquet")
    if not has_digest:
        document = json.loads((data_set / "index.json").read_text())
        del document["files"]
        (data_set / "index.json").write_text(json.dumps(document))

    with pytest.raises(errors.BadIndexError, match=f"Source set: .*{message}"):
        _merge(tmp_path / "out", {"set": str(data_set)})


def test_classes_that_a_map_leaves_out_leave_the_labels_of_images(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "map").write_text("cat\t\n#dog\tdog\n")

    _merge(
        tmp_path / "out",
        {"set": str(make_table(tmp_path))},
        class_map={"set": str(tmp_path / "map")},
    )

    query = "SELECT filename, synset, len(labels) FROM read_parquet(?)"
    rows = index.query_catalog(tmp_path / "out", query, [])
    # The class of images 0, 4 and 8 is cat; images 1, 7 and 10 are cats beside.
    assert len(rows) == 9
    assert {row[1:] for row in rows} == {("a b", 1), ("dog", 1), ("é'%", 1)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Hund dog\n", r"got 'Hund dog' in line 1"),
        ("Hund\tdog\nHund\tcat\n", r"once, got 'Hund' twice"),
        ("Katze\tcat\n", r"got 'Katze'. It has 3, the first is 'Hund'"),
    ],
)
def test_a_wrong_class_map_is_refused(
    tmp_path: pathlib.Path, trees: dict[str, str], text: str, message: str
) -> None:
    (tmp_path / "map.tsv").write_text(text)
    with pytest.raises(ValueError, match=message):
        _merge(tmp_path / "out", trees, class_map={"web.v2": str(tmp_path / "map.tsv")})
    assert not (tmp_path / "out").exists()


def test_wrong_sources_are_refused(
    tmp_path: pathlib.Path, trees: dict[str, str]
) -> None:
    out, first = tmp_path / "out", trees["own"]
    refused: list[tuple[dict[str, str], dict[str, Any], str]] = [
        ({}, {}, "must be given as NAME=PLACE"),
        ({"../x": first}, {}, "letters, digits"),
        ({"a": first, "b": str(tmp_path)}, {}, "own, got .*/cat in 'a' and in 'b'"),
        ({"a": str(tmp_path / "none")}, {}, "Source a: .*no such file or folder"),
        (trees, {"validation_fraction": 0.5}, "already has a validation split"),
        (trees, {"class_map": {"wbe": "map.tsv"}}, "one of the sources own, web.v2"),
    ]
    for given, options, message in refused:
        with pytest.raises(ValueError, match=message):
            _merge(out, given, **options)
        assert not out.exists()
    with pytest.raises(ValueError, match="must not be in"):
        _merge(pathlib.Path(first) / "out", trees)
    for words, message in ((["a"], "got 'a'"), (["a=b", "a=c"], "got 'a' twice")):
        with pytest.raises(ValueError, match=message):
            by_name("Sources", words)
    assert sources.MergeReader(sources={"v1.0_x-y": trees["own"]}).checked


CLASSES = ("cat", "dog")


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Four images in each form of a source; numbers are those of CLASSES."""
    root = tmp_path_factory.mktemp("forms")
    images = {f"{CLASSES[n % 2]}/{n}.jpg": n for n in range(4)}
    _write(root / "tree", images)
    rows = [(f"tree/{name}", n % 2, make_jpeg(n)) for name, n in images.items()]
    with open(root / "rows.csv", "w", newline="") as file:
        lines = [(name, CLASSES[number]) for name, number, _ in rows]
        csv.writer(file).writerows([("image", "label"), *lines])
    with sqlite3.connect(root / "rows.db") as base:
        base.execute("CREATE TABLE photos (path TEXT, number INTEGER, pic BLOB)")
        base.executemany("INSERT INTO photos VALUES (?, ?, ?)", rows)
    base.close()
    (root / "parquet").mkdir()
    with index.catalog_connection() as connection:
        connection.execute(
            "CREATE TEMP TABLE t (image BLOB, label VARCHAR, part VARCHAR)"
        )
        values = [(data, CLASSES[number], "val") for _, number, data in rows]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", values)
        connection.execute(f"COPY t TO '{root}/parquet/a.parquet'")
    with tarfile.open(root / "s-0.tar", "w") as tar:
        for name, number, data in rows:
            label = json.dumps({"is": {"a": CLASSES[number]}}).encode()
            for part, content in (("jpg", data), ("json", label)):
                info = tarfile.TarInfo(f"{name.removesuffix('.jpg')}.{part}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    with open(root / "x.tfrecord", "wb") as out:
        for _, number, data in rows:
            features = {
                "image": example.bytes_feature(data),
                "label": example.int64_feature([number]),
            }
            out.writelines(records.frame(example.encode_example(features)))
    _merge(root / "set", {"old": str(root / "tree")})
    return {
        "tree": f"{root}/tree",
        "csv": f"{root}/rows.csv",
        "db": f"{root}/rows.db#photos",
        "pq": f"{root}/parquet",
        "tar": f"validation={root}/s-{{0..0}}.tar",
        "rec": f"{root}/x.tfrecord",
        "set": f"{root}/set",
    }


HOW = {
    "image_column": {"db": "pic"},
    "label_column": {"db": "number"},
    "name_column": {"db": "path"},
    "split_column": {"pq": "part"},
    "label_key": {"tar": "is.a"},
}


def test_every_kind_of_source_gives_the_same_images(
    tmp_path: pathlib.Path, forms: dict[str, str]
) -> None:
    (tmp_path / "map.tsv").write_text("0\tcat\n1\tdog\n")
    class_map = {name: str(tmp_path / "map.tsv") for name in ("db", "rec")}

    _merge(tmp_path / "out", forms, how=HOW, class_map=class_map)

    assert [sources.kind_of(forms[name]) for name in forms] == [
        *("tree", "table", "table", "table", "tars", "tfrecords", "data_set")
    ]
    found: dict[str, list[Any]] = {name: [] for name in forms}
    query = "SELECT filename, split, synset, label, digest FROM read_parquet(?)"
    for name, *values in sorted(index.query_catalog(tmp_path / "out", query, [])):
        found[name.partition("/")[0]].append((*values, name))
    tree = [values[1:4] for values in sorted(found["tree"])]
    for name, values in found.items():
        assert [each[1:4] for each in sorted(values)] == tree, name
        split = "validation" if name in ("pq", "tar") else "train"
        assert {each[0] for each in values} == {split}, name
    names = [
        sorted(values[-1] for values in found[name])[0]
        for name in ("csv", "db", "pq", "tar", "rec", "set")
    ]
    assert names == [
        *("csv/tree/cat/0.jpg", "db/tree/cat/0.jpg", "pq/row-000000001"),
        "tar/validation/tree/cat/0.jpg",
        *("rec/train/x.tfrecord/000000.jpg", "set/old/cat/0.jpg"),
    ]
    named = {
        name: sorted((digest, each) for *_, digest, each in values)
        for name, values in found.items()
    }
    assert named["set"] == [
        (digest, each.replace("tree/", "set/old/")) for digest, each in named["tree"]
    ]
    assert list((tmp_path / "out").glob(".*")) == []
    # A label map names the numbers of all sources, and the order has no effect.
    (tmp_path / "labels.txt").write_text("0 cat\n1 dog\n")
    turned = dict(reversed(forms.items()))
    maps = {"label_map": str(tmp_path / "labels.txt")}
    _merge(tmp_path / "turned", turned, how=HOW, **maps)
    assert [row[:3] for row in _rows(tmp_path / "turned")] == [
        row[:3] for row in _rows(tmp_path / "out")
    ]
    # Numbers alone are the labels.
    numbers = {name: forms[name] for name in ("db", "rec")}
    _merge(
        tmp_path / "numbers", numbers, how=HOW | {"split_column": {}, "label_key": {}}
    )
    assert {row[2:] for row in _rows(tmp_path / "numbers")} == {("0", 0), ("1", 1)}


def test_a_source_has_folders_as_columns_and_tables_to_join(
    tmp_path: pathlib.Path,
) -> None:
    for number, label in enumerate(("cat", "dog")):
        folder = tmp_path / "in" / f"label={label}"
        _write(folder, {"0.jpg": number})
        (folder / "t.csv").write_text("image\n0.jpg\n")
    (tmp_path / "names.csv").write_text("label,kind\ncat,pet\ndog,pet\n")
    query = (
        "SELECT 'label=' || label || '/' || image AS image, kind AS label "
        "FROM input JOIN names USING (label)"
    )
    how = {
        "hive_columns": {"a": "label", "b": "label"},
        "table": {"b": {"names": f"{tmp_path}/names.csv"}},
        "query": {"b": query},
    }
    # A merge has the images of no folder twice.
    shutil.copytree(tmp_path / "in/label=cat", tmp_path / "one/label=cat")
    places = {"a": f"{tmp_path}/one/label=cat/t.csv", "b": f"{tmp_path}/in/*/t.csv"}

    _merge(tmp_path / "out", places, how=how | {"root": {"b": f"{tmp_path}/in"}})

    assert [row[1:3] for row in _rows(tmp_path / "out")] == [
        ("a/0.jpg", "cat"),
        ("b/label=cat/0.jpg", "pet"),
        ("b/label=dog/0.jpg", "pet"),
    ]


def test_words_of_a_command_say_the_tables_of_sources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers: list[Any] = []
    monkeypatch.setattr(
        merge.steps, "run_command", lambda *given: readers.extend(given)
    )
    (command,) = merge.COMMANDS
    words = ["a=in.csv", "--output_dir=out", "--table=a=x=one.csv"]
    words.append("--table=a=y=mysql://u:secret@h/b")

    command.work(command.parse(words))

    assert readers[2].how["table"]["a"] == {"x": "one.csv", "y": words[-1][12:]}
    assert "secret" not in f"{readers[2].to_json()}{readers[2]}"
    for word, message in (
        ("b", "--table=b must be given as TABLE=PLACE, got ''"),
        ("a=x=two.csv", "--table=a must have different names, got 'x' twice"),
    ):
        with pytest.raises(ValueError, match=message):
            command.work(command.parse([*words, f"--table={word}"]))


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["rec", "tree"], {}, "must be numbers, got 0 of 'rec' beside 'cat'"),
        (["db"], {}, "Source db: --image_column must name one column .* got image:"),
        (
            ["tree"],
            {"how": {"root": {"tree": "x"}}},
            "--root must be .* a table, got 't",
        ),
        (
            ["tar"],
            {"how": {"label_from": {"tar": "xml"}}},
            "Source tar: --label_from must be one of",
        ),
        (
            ["tar"],
            {"how": {"label_from": {"tar": "key"}, "label_key": {"tar": "x"}}},
            "Source tar: --label_key=x needs --label_from=json, got key",
        ),
        (["csv"], {"how": {"root": {"csv": "/none"}}}, "Source csv: --root must be"),
        (
            ["csv"],
            {"how": {"root": {"tree": "x"}}},
            "--root must be of one of the sour",
        ),
        (["rec", "again"], {}, "own, got .*x.tfrecord in 'again' and in 'rec'"),
        (["split"], {}, "Source split: A place after test= must be tars"),
        (["none"], {}, "Source none: .*no-such"),
        (["store"], {}, "Source store: .*not shown here because it may hold a secret"),
        (["word"], {}, "Source word: .*not shown here because it may hold a secret"),
        (["server"], {}, "Source server: "),
    ],
)
def test_a_source_that_is_wrong_is_named_and_nothing_is_written(
    tmp_path: pathlib.Path,
    forms: dict[str, str],
    names: list[str],
    options: dict[str, Any],
    message: str,
) -> None:
    places = forms | {
        "again": forms["rec"],
        "split": f"test={forms['tree']}",
        "none": f"{tmp_path}/no-such-*",
        "store": "s3://key:secret@bucket/{a",
        "word": "web=s3://key:secret@bucket/x.csv",
        "server": "mysql://user:secret@127.0.0.1:1/base",
    }
    with pytest.raises((ValueError, OSError), match=message) as caught:
        _merge(tmp_path / "out", {name: places[name] for name in names}, **options)
    assert "secret@" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "word", ["s3://k:secret@b", "s3://k:a=secret@b", "=x://secret@"]
)
def test_a_password_is_not_shown(word: str) -> None:
    with pytest.raises(ValueError, match="got a URL") as caught:
        by_name("Sources", [word])
    assert "secret" not in str(caught.value)
    config = conversion("merge", sources={"a": "mysql://u:secret@h/b"}, output_dir="x")
    assert "secret" not in f"{config}{config.reader.to_json()}"
