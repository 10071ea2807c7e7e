"""Names of files and folders are themselves, for every command and the library.

No name is a pattern, a flag, a variable, a split or a column. A name that a command
cannot take is refused in one line.
"""

import csv
import io
import json
import os
import pathlib
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import xxhash

import tfpipe
from converters import export, query, replicate, synthesize, verify
from converters.exports.plan import FORMATS
from converters.options.query import QueryOptions
from converters.options.replicate import ReplicateOptions
from tests.support.data.conversions import conversion
from tests.support.data.trees import SYNSETS, make_jpeg
from tfpipe.errors import printable
from tfpipe.shards import index
from tfpipe.shards.example import bytes_feature, encode_example
from tfpipe.shards.records import frame

NAMES = (
    *(
        "a[1]",
        "#",
        "%41",
        "?",
        "*",
        "{a,b}",
        "line\nbreak",
        "-x",
        "--seed=3",
        "~x",
        "~",
    ),
    *("label=zebra", "split=validation", " two  words ", "it's", 'say "so"', "tab\t"),
    *("$HOME", "${HOME}", ";", "a;b", "&", "|", "x.tar", "x.csv", "x.parquet", "train"),
    *("s3:", "file:", "caf\u00e9", "cafe\u0301", "\U0001f408", "n" * 250, "a.", "%"),
    *(
        "@x",
        "a,b",
        "a=b",
        "NULL",
        "nan",
        "0.5",
        "01",
        "!x",
        "(x)",
        "`ls`",
        "\x7f",
        "b\\c",
    ),
)
# Files that a pattern, a shell or a decoder would take instead.
TRAPS = ("a1", "A", "x", "ab", "zebra", "bc")
# DuckDB has no pattern for a backslash beside a bracket, and SQLite takes paths of up
# to 512 bytes.
DEEP = pathlib.Path(*(name for name in NAMES if "\\" not in name and len(name) < 200))
NOT_UTF8 = os.fsdecode(b"caf\xe9")

Images = list[tuple[str, str, bytes]]


def _images(names: Sequence[str] = NAMES) -> Images:
    """Class, name of the file and content of an image for each name."""
    return [
        (name, f"{name[:240]}.jpg", make_jpeg(number))
        for number, name in enumerate((*names, *TRAPS))
    ]


def _tree(root: pathlib.Path, images: Images) -> None:
    for label, name, data in images:
        (root / label).mkdir(parents=True)
        (root / label / name).write_bytes(data)


def _rows(root: pathlib.Path, images: Images) -> list[list[str]]:
    (root / "images").mkdir(parents=True)
    for _, name, data in images:
        (root / "images" / name).write_bytes(data)
    return [[f"images/{name}", label] for label, name, _ in images]


def _from_folder(root: pathlib.Path, images: Images, **options: Any) -> None:
    _tree(root, images)
    conversion("folder", input_dir=str(root), **options).convert()


def _from_table(place: str, **options: Any) -> None:
    options |= {"image_column": "path", "label_column": "label"}
    conversion("table", input=place, **options).convert()


def _from_csv(root: pathlib.Path, images: Images, **options: Any) -> None:
    rows = _rows(root, images)
    path = root / "rows [1] #%41.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *rows])
    _from_table(str(path), **options)


def _from_json(root: pathlib.Path, images: Images, **options: Any) -> None:
    rows = _rows(root, images)
    lines = [json.dumps({"path": path, "label": label}) for path, label in rows]
    (root / "rows?.jsonl").write_text("\n".join(lines) + "\n")
    _from_table(str(root / "rows?.jsonl"), **options)


def _from_parquet(root: pathlib.Path, images: Images, **options: Any) -> None:
    rows = _rows(root, images)
    with index.catalog_connection() as connection:
        connection.execute("CREATE TEMP TABLE t (path VARCHAR, label VARCHAR)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
        connection.execute("COPY t TO 'rows.parquet'")
    shutil.move("rows.parquet", root / "rows*.parquet")
    _from_table(str(root / "rows*.parquet"), **options)


def _from_sqlite(root: pathlib.Path, images: Images, **options: Any) -> None:
    rows = _rows(root, images)
    with sqlite3.connect("rows.db") as database:
        database.execute("CREATE TABLE t (path TEXT, label TEXT)")
        database.executemany("INSERT INTO t VALUES (?, ?)", rows)
    database.close()
    shutil.move("rows.db", root / "rows*.db")
    _from_table(f"{root / 'rows*.db'}#t", **options)


def _from_tars(root: pathlib.Path, images: Images, **options: Any) -> None:
    root.mkdir(parents=True)
    with tarfile.open(root / "a{1}*.tar", "w") as tar:
        for number, (label, _, data) in enumerate(images):
            for part, content in (("jpg", data), ("cls", os.fsencode(label))):
                member = tarfile.TarInfo(f"{number}.{part}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    conversion("webdataset", input=[str(root / "a{1}*.tar")], **options).convert()


def _from_records(root: pathlib.Path, images: Images, **options: Any) -> None:
    root.mkdir(parents=True)
    with open(root / "a{1}*.tfrecord", "ab") as file:
        for label, name, data in images:
            features = {
                "image/encoded": bytes_feature(data),
                "image/class/label": bytes_feature(os.fsencode(label)),
                "image/filename": bytes_feature(os.fsencode(name)),
            }
            file.write(b"".join(frame(encode_example(features))))
    conversion("tfrecord", input=[str(root / "a{1}*.tfrecord")], **options).convert()


def _from_merge(root: pathlib.Path, images: Images, **options: Any) -> None:
    _tree(root, images)
    conversion("merge", sources={"a": str(root)}, **options).convert()


READERS: dict[str, Callable[..., None]] = {
    reader.__name__.removeprefix("_from_"): reader
    for reader in (
        *(_from_folder, _from_csv, _from_json, _from_parquet, _from_sqlite),
        *(_from_tars, _from_records, _from_merge),
    )
}
every_reader = pytest.mark.parametrize("reader", READERS)


def _convert(
    reader: str, root: pathlib.Path, images: Images, out: pathlib.Path
) -> None:
    READERS[reader](
        root,
        images,
        output_dir=str(out),
        num_workers=1,
        fsync=False,
        label_type="text",
    )


def _digests(data_dir: pathlib.Path) -> dict[str, str]:
    """The digest of the image of each class."""
    known = index.load(data_dir)
    names = dict(enumerate((synset for synset, _ in known.classes), known.label_base))
    found = {}
    for split in known.splits:
        assert split == "train"
        rows = index.load_catalog(data_dir, split, ["label", "digest"])
        for label, digest in zip(rows["label"], rows["digest"], strict=True):
            found[names[label]] = digest
    return found


def _expected(images: Images) -> dict[str, str]:
    return {label: xxhash.xxh3_128_hexdigest(data) for label, _, data in images}


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@every_reader
def test_names_of_classes_and_files_are_themselves(
    here: pathlib.Path, reader: str
) -> None:
    images = _images()

    _convert(reader, here / "in", images, here / "out")

    if reader not in ("folder", "merge"):  # blanks around a label are no part of it
        images = [(label.strip(), name, data) for label, name, data in images]
    if reader in ("tars", "records"):  # their labels are bytes, which must be text
        odd = [image for image in images if not image[0].isprintable()]
        images = [image for image in images if image not in odd]
        rejects = (here / "out" / "rejects.jsonl").read_text().splitlines()
        assert len(rejects) == len(odd)
    assert _digests(here / "out") == _expected(images)


@every_reader
def test_names_of_folders_are_themselves(here: pathlib.Path, reader: str) -> None:
    images = _images(("a", "b"))

    _convert(reader, here / "in" / DEEP, images, here / "out" / DEEP)

    assert _digests(here / "out" / DEEP) == _expected(images)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A data set in a folder below all names, of classes that have all names."""
    root = tmp_path_factory.mktemp("made")
    _convert("folder", root / "in" / DEEP, _images(), root / "out" / DEEP)
    return root / "out" / DEEP


def test_imagenet_reads_and_writes_in_any_folder(here: pathlib.Path) -> None:
    for number, name in enumerate(NAMES):
        path = here / DEEP / "train" / SYNSETS[0] / f"{name[:240]}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(number))
    out = here / "out" / DEEP
    conversion("imagenet", input_dir=str(here / DEEP), output_dir=str(out)).convert()

    rows = index.load_catalog(out, "train", ["filename", "digest"])
    found = dict(zip(rows["filename"], rows["digest"], strict=True))
    assert found == {
        f"train/{SYNSETS[0]}/{name[:240]}.JPEG": xxhash.xxh3_128_hexdigest(
            make_jpeg(number)
        )
        for number, name in enumerate(NAMES)
    }


def test_verify_finds_no_fault(made: pathlib.Path) -> None:
    source = made.parents[len(DEEP.parts) - 1].parent / "in" / DEEP

    result = verify.verify(
        verify.VerifyOptions(
            data_dir=str(made), level="source", input_dir=str(source), num_workers=1
        )
    )

    assert not result.faults


def test_a_query_writes_what_its_clause_says(
    made: pathlib.Path, here: pathlib.Path
) -> None:
    out = here / DEEP
    out.mkdir(parents=True)
    names = ("a[1]", "label=zebra", "split=validation")
    expected = {name: _expected(_images())[name] for name in names}
    with open(out / "scores [1]*#?.csv", "w", newline="") as file:
        rows = index.load_catalog(made, "train", ["filename"])["filename"]
        csv.writer(file).writerows([("filename", "score"), *((r, 1) for r in rows)])

    done = query.ask(
        QueryOptions(
            data_dir=str(made),
            clause="score = 1 AND split = 'train' AND synset IN ({})".format(
                ", ".join("'" + name + "'" for name in expected)
            ),
            add_column=[f"score={out / 'scores [1]*#?.csv'}"],
            save=str(out / "a[1]*#.parquet"),
            sheet=str(out / "?.png"),
            report=str(out / "%41.html"),
            materialize=str(out / "{a,b}"),
            num_workers=1,
        )
    )

    assert done["num_chosen"] == len(expected)
    assert _digests(out / "{a,b}") == expected
    assert {path.name for path in out.iterdir()} == {
        *("a[1]*#.parquet", "?.png", "%41.html", "{a,b}", "scores [1]*#?.csv")
    }
    source = tfpipe.TFRecordSource(
        str(made), "train", subset=str(out / "a[1]*#.parquet"), batch_size=1
    )
    assert source.steps_per_epoch == len(expected)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_is_read_again(
    made: pathlib.Path, here: pathlib.Path, kind: Any
) -> None:
    out = here / DEEP / "out"
    export.export(
        export.ExportOptions(
            data_dir=str(made), output_dir=str(out), format=kind, num_workers=1
        )
    )
    common: dict[str, Any] = {"output_dir": str(here / "again"), "num_workers": 1}
    if kind == "tree":
        conversion("folder", input_dir=str(out), **common).convert()
    elif kind == "webdataset":
        conversion("webdataset", input=[str(out)], **common).convert()
    elif kind == "parquet":
        common |= {"image_column": "image", "label_column": "label"}
        conversion("table", input=str(out), **common).convert()
    images = _images()
    if kind in ("webdataset", "parquet"):  # a list of classes has a class a line
        images = [(" ".join(label.split()), name, data) for label, name, data in images]
    if kind != "arrayrecord":
        assert _digests(here / "again") == _expected(images)


def test_copies_are_written_beside_any_name(
    made: pathlib.Path, here: pathlib.Path
) -> None:
    replicate.make_copies(
        ReplicateOptions(
            data_dir=str(made), output_dir=str(here / DEEP), copies=2, num_workers=1
        )
    )

    assert index.load(here / DEEP).num_records("train") == 2 * len(_images())


def test_synthetic_images_are_drawn_in_any_folder(here: pathlib.Path) -> None:
    synthesize.synthesize(
        synthesize.SynthesizeOptions(
            output_dir=here / DEEP, num_images=2, num_classes=2, size_scale=0.2
        )
    )

    assert len([*(here / DEEP).rglob("*.JPEG")]) == 2


def test_the_library_reads_the_data_set_of_its_name(
    made: pathlib.Path, here: pathlib.Path
) -> None:
    """Folders beside the data set, which a pattern would match, are not read."""
    shutil.copytree(made, here / "a[1]")
    _convert("folder", here / "other", _images(("z",)), here / "a1")
    for folder_of_set in (made, here / "a[1]"):
        source = tfpipe.TFRecordSource(
            str(folder_of_set), "train", batch_size=4, remainder="pad"
        )
        pipeline = tfpipe.imagenet_eval(source, image_size=8)
        assert set(pipeline.class_names) == {printable(n) for n, *_ in _images()}
        assert sum(pipeline.class_counts.values()) == len(_images())
        masks = [int(batch["mask"].numpy().sum()) for batch in pipeline.build()]
        assert sum(masks) == len(_images())


@pytest.mark.parametrize("suffix", ["", "/train-*"])
def test_files_of_another_tool_are_found_below_any_folder(
    here: pathlib.Path, suffix: str
) -> None:
    """`files` is a pattern below the data set; the folder of the data set is none."""
    _convert("folder", here / "in", _images(("z",)), here / DEEP)
    (here / DEEP / "index.json").unlink()

    files: dict[str, Any] = {"files": suffix.strip("/")} if suffix else {}
    source = tfpipe.TFRecordSource(str(here / DEEP), "train", batch_size=1, **files)

    assert source.steps_per_epoch == len(_images(("z",)))


def test_caches_and_tunings_are_kept_in_any_folder(
    made: pathlib.Path, here: pathlib.Path
) -> None:
    (here / DEEP).mkdir(parents=True)
    source = tfpipe.TFRecordSource(str(made), "train", batch_size=4, remainder="pad")
    cache = tfpipe.Cache("disk", here / DEEP)
    pipeline = tfpipe.Pipeline(source, [tfpipe.Interleave(), cache, tfpipe.Batch(4)])

    for _ in range(2):
        assert len([*pipeline.build()]) == source.steps_per_epoch

    assert [*(here / DEEP).iterdir()]


@pytest.mark.parametrize("reader", READERS)
def test_bytes_that_are_no_text_are_names_or_are_refused(
    here: pathlib.Path, reader: str
) -> None:
    """A folder above the input, and one above the output."""
    images = _images(("z",))
    for root, out in ((NOT_UTF8, "out"), ("in", NOT_UTF8)):
        fault = None
        try:
            _convert(reader, here / root / "a", images, here / out / "b")
        except (ValueError, OSError) as error:
            fault = str(error)
        if fault is None:
            assert _digests(here / out / "b") == _expected(images)
            options = verify.VerifyOptions(data_dir=str(here / out / "b"))
            assert not verify.verify(options).faults
        else:
            assert "no UTF-8. Rename the file, the folder" in fault
            assert "\n" not in fault


def test_names_of_bytes_are_names_of_files(here: pathlib.Path) -> None:
    _convert(
        "folder",
        here / "in",
        [(NOT_UTF8, f"{NOT_UTF8}.jpg", make_jpeg(0))],
        here / "out",
    )

    assert _digests(here / "out") == _expected([("caf\\udce9", "", make_jpeg(0))])


@pytest.mark.parametrize("name", [name for name in NAMES if name[0] != "~"])
def test_a_relative_name_is_itself(here: pathlib.Path, name: str) -> None:
    images = [("c", "0.jpg", make_jpeg(0))]
    _tree(here / name, images)
    shared: dict[str, Any] = {"num_workers": 1, "fsync": False}
    out = f"{name[:200]}.out"

    conversion("folder", input_dir=name, output_dir=out, **shared).convert()

    assert _digests(here / out) == _expected(images)
    assert not verify.verify(verify.VerifyOptions(data_dir=out)).faults
    source = tfpipe.TFRecordSource(out, "train", batch_size=1)
    assert source.steps_per_epoch == 1


def test_a_name_that_may_be_a_home_folder_is_refused(here: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"Write \./~x for a name that begins with ~"):
        conversion("folder", input_dir="in", output_dir="~x")
