"""Queries in this process: subsets, sheets, pages and data sets of chosen records."""

import io
import json
import pathlib
import re
import shutil
from typing import Any

import PIL.Image
import pytest

from converters import query, verify
from converters.catalog import samples
from converters.exports.source import open_source
from converters.images.policy import Policy
from converters.options.query import QueryOptions
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.trees import convert, make_jpeg, make_tree
from tests.support.processes import commands
from tfpipe import errors
from tfpipe.location.location import Location
from tfpipe.shards import generations, index, records, subset

HOSTILE = ('<script>alert("1")<_script>', "</title><img src=x>", "عربي & 'x'")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("source")
    raw = make_tree(folder / "raw", num_images=18, num_validation_images=4)
    copy = raw / "train" / "n01443537" / "copy.JPEG"
    shutil.copy(raw / "train" / "n01440764" / "n01440764_0.JPEG", copy)
    (raw / "train" / "n01440764" / "empty<b>.JPEG").write_bytes(b"")
    convert(raw, folder / "set", num_train_shards=3, num_validation_shards=1)
    return folder / "set"


def _ask(data_dir: pathlib.Path, clause: str, **options: Any) -> dict[str, Any]:
    values = {"num_workers": 1, "fsync": False} | options
    return query.ask(QueryOptions(data_dir=str(data_dir), clause=clause, **values))


def _fields(folder: pathlib.Path, names: str, where: str) -> list[tuple[Any, ...]]:
    text = f"SELECT {names} FROM read_parquet(?) WHERE {where} ORDER BY split, filename"
    return index.query_catalog(folder, text, [])


def test_a_saved_subset(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "s.parquet"

    done = _ask(source, "height > 32", save=str(path), weight="height")

    chosen = subset.read(path)
    places = "split, shard, record, height"
    rows = index.query_catalog(
        source,
        f"SELECT {places} FROM read_parquet(?) WHERE height > 32 ORDER BY 1, 2, 3",
        [],
    )
    assert chosen.query == "height > 32"
    assert chosen.index_digest == generations.identity(index.load(source))
    assert [
        (split, *row)
        for split, part in sorted(chosen.splits.items())
        for row in zip(part.shard, part.record, part.weight, strict=True)
    ] == rows
    assert done["num_chosen"] == len(rows) == chosen.num_records
    with pytest.raises(errors.BadSubsetError, match="at least one record"):
        _ask(source, "false", save=str(path))
    assert subset.read(path).digest == chosen.digest  # it was not touched


def test_a_data_set_of_chosen_records(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    where = "label < 3 AND split = 'train'"
    output = tmp_path / "out"

    _ask(source, where, materialize=str(output))

    kept = "split, label, synset, height, width, filename, decision, digest, num_bytes"
    rows = _fields(output, kept, "true")
    known = index.load(output)
    checked = verify.verify(
        verify.VerifyOptions(data_dir=str(output), level="decode", num_workers=1)
    )
    assert checked.faults == []
    assert rows == _fields(source, kept, where)
    assert known.num_records("train") == len(rows) == 11
    assert len(known.splits["train"]) == 2  # as the mean size of a shard asks for
    assert known.classes == index.load(source).classes
    assert known.made_by["options"]["clause"] == where
    before = [r.data for n in range(3) for r in _records(source, "train", n)]
    copied = [r.data for n in range(2) for r in _records(output, "train", n)]
    assert [data for data in before if data in copied] == copied

    with pytest.raises(ValueError, match="already holds a data set that differs"):
        _ask(source, "true", materialize=str(output))
    _ask(source, "split = 'validation'", materialize=str(output), overwrite=True)
    assert list(index.load(output).splits) == ["validation"]
    with pytest.raises(ValueError, match="nothing to write"):
        _ask(source, "false", materialize=str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()
    for inside in (source / "x", source, source.parent):
        with pytest.raises(ValueError, match="folders beside each other"):
            _ask(source, "true", materialize=str(inside))


def test_chosen_records_keep_the_columns_that_were_added(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Columns of a file reach the catalog, and those of the catalog the next one."""
    scores = tmp_path / "scores.jsonl"
    rows = _fields(source, "split, filename", "true")
    lines = [
        {"split": split, "filename": name, "weight": n / 4, "tags": ["é'", str(n)]}
        | ({"text": None} if n % 3 else {"spot": f"at {n}"})
        for n, (split, name) in enumerate(rows)
    ]
    scores.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    taken = tmp_path / "taken.csv"
    for name in ("place", "labels"):
        taken.write_text(f"filename,{name}\n{rows[0][1]},1\n")
        with pytest.raises(ValueError, match=f"a column {name}, which catalogs have"):
            _ask(source, "true", add_column=(str(taken),))
    added = (f"weight,tags,spot={scores}",)
    wanted = {(line["split"], line["filename"]): line for line in lines}
    first, second = tmp_path / "first", tmp_path / "second"

    _ask(source, "weight > 1", add_column=added, materialize=str(first))
    _ask(first, "label < 3", weight="weight", save=str(tmp_path / "s.parquet"))
    _ask(first, "weight < 5 OR split = 'validation'", materialize=str(second))

    for folder in (first, second):
        found = _fields(folder, "split, filename, weight, tags, spot", "true")
        lines = [wanted[row[:2]] for row in found]
        assert len(found) == index.load(folder).num_records("train") + 4
        assert found == [
            (*row[:2], line["weight"], line["tags"], line.get("spot"))
            for row, line in zip(found, lines, strict=True)
        ]
    assert len(_fields(second, "1", "weight >= 5 AND split = 'train'")) == 0
    checked = verify.verify(
        verify.VerifyOptions(data_dir=str(second), level="crc", num_workers=1)
    )
    assert checked.faults == []


def _records(folder: pathlib.Path, split: str, number: int) -> list[records.Record]:
    shard = index.load(folder).splits[split][number]
    return list(records.read(folder / shard.name))


def _damage(folder: pathlib.Path) -> str:
    """Changes a byte of the first training image, and returns its file name."""
    row = index.query_catalog(
        folder,
        "SELECT byte_offset, filename FROM read_parquet(?) WHERE split = 'train' AND "
        "shard = 0 AND record = 1",
        [],
    )[0]
    path = folder / index.load(folder).splits["train"][0].name
    content = bytearray(path.read_bytes())
    content[row[0] + 200] ^= 255
    path.write_bytes(content)
    return str(row[1])


def test_a_damaged_record(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "set"
    shutil.copytree(source, folder)
    name = _damage(folder)
    where = "split = 'train' AND shard = 0 AND record = 1"

    done = _ask(folder, where, sheet=str(tmp_path / "s.png"))

    assert done["sample_faults"] == [
        f"{name}: {done['sample_faults'][0][len(name) + 2 :]}"
    ]
    assert "the CRC of the data is wrong" in done["sample_faults"][0]
    with pytest.raises(errors.BadRecordError, match=re.escape(f"NOT ({where})")):
        _ask(folder, "true", materialize=str(tmp_path / "out"))
    _ask(folder, f"NOT ({where})", materialize=str(tmp_path / "other"))
    assert name not in [r[0] for r in _fields(tmp_path / "other", "filename", "true")]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Foreign images as the converter keeps them: on their side, gray, wide, CMYK."""
    folder = tmp_path_factory.mktemp("odd")
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    with PIL.Image.open(io.BytesIO(make_jpeg(1, height=20, width=60))) as image:
        for name in HOSTILE:
            (folder / "raw" / name).mkdir(parents=True)
            image.save(folder / "raw" / name / "turned.jpg", exif=exif)
        place = folder / "raw" / HOSTILE[0]
        image.convert("L").save(place / "gray.jpg")
        image.convert("CMYK").save(place / "cmyk.jpg")
        image.convert("RGBA").save(place / "alpha.png")
        image.resize((900, 10)).save(place / "wide.jpg", subsampling=2)
    conversions.convert(
        conversion(
            "folder",
            input_dir=str(folder / "raw"),
            output_dir=str(folder / "set"),
            policy=Policy(exif_orientation="keep"),
            num_workers=1,
            fsync=False,
        )
    )
    return folder / "set"


def test_pictures_are_upright_and_small(odd: pathlib.Path) -> None:
    source = open_source(Location(str(odd)), odd, ())
    rows = index.query_catalog(
        odd,
        "SELECT split, shard, byte_offset, num_bytes, height, width, filename, label "
        "FROM read_parquet(?) ORDER BY filename",
        [],
    )

    drawn = samples.read(
        source, [samples.SampleRow(*row, "x") for row in rows], side=48
    )

    found = {}
    for item in drawn:
        assert item.picture is not None
        name = item.row.filename.rpartition("/")[2]
        found[name] = (item.picture.mode, item.picture.size, item.subsampling)
    assert found == {
        "alpha.png": ("RGB", (48, 16), "4:4:4"),
        "cmyk.jpg": ("RGB", (48, 16), "4:4:4"),
        "gray.jpg": ("RGB", (48, 16), "grayscale"),
        "turned.jpg": ("RGB", (16, 48), "4:2:0"),
        "wide.jpg": ("RGB", (48, 1), "4:2:0"),
    }
    picture = samples.draw_sheet(drawn)
    assert picture.width == 3 * (samples.TILE + 10) + 10
    assert len(set(picture.getcolors(1 << 24) or ())) > 100


def test_the_page_escapes_every_text(odd: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "page.html"

    _ask(odd, "width > 3 -- <b>", report=str(path))

    text = path.read_text()
    assert text.count("data:image/jpeg;base64,") == 7
    assert "width &gt; 3 -- &lt;b&gt;" in text
    assert "&lt;script&gt;alert(&#34;1&#34;)&lt;_script&gt;" in text
    for markup in ("<script", "<img src=x", "http://", "https://", "url("):
        assert markup not in text
    assert "rotated" not in text
    assert "kept_exif" in text


def test_the_page_tells_what_was_changed_and_left_out(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "page.html"

    _ask(source, "true", report=str(path), sample=3)

    text = path.read_text()
    assert text.count("data:image/jpeg;base64,") == 3
    assert re.search("1 . <bdi>zero_byte</bdi>", text)
    assert "empty&lt;b&gt;.JPEG" in text
    assert "2 times: <bdi>train/n01440764/n01440764_0.JPEG</bdi>" in text
    assert "The largest class has" in text
    _ask(source, "false", report=str(path))
    assert "No record is chosen." in path.read_text()


def test_a_condition_may_be_a_whole_clause(source: pathlib.Path) -> None:
    plain = "height > 32 AND filename != ' where '"

    whole, part = (_ask(source, text) for text in (f" where {plain}", plain))

    assert whole["config"]["clause"] == part["config"]["clause"] == plain
    assert 0 < whole["num_chosen"] == part["num_chosen"] < whole["num_records"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"clause": "  "}, "must be an expression"),
        ({"weight": "1"}, "--weight needs --save. Add it"),
        ({"overwrite": True}, "--overwrite needs --materialize"),
        ({"sheet": "x.gif"}, "must end in one of .png"),
        ({"save": "nowhere/x.parquet"}, "a folder that exists"),
        ({"save": "."}, "must be a file"),
        ({"report": "s3://bucket/x.html"}, "must be a path on this machine"),
        ({"save": "{source}/index.json"}, "must not be in the folder of the data set"),
        ({"order_by": "width"}, "Add --limit"),
    ],
)
def test_refused_options(
    source: pathlib.Path, options: dict[str, Any], says: str
) -> None:
    values = {"clause": "true", "data_dir": str(source)} | options
    values = {
        key: value.format(source=source) if key == "save" else value
        for key, value in values.items()
    }

    with pytest.raises(ValueError, match=re.escape(says)):
        QueryOptions(**values).question  # noqa: B018


def test_the_command_prints_one_line_of_json_or_one_error(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    done = commands.answer(query.COMMANDS, source, "label = 1", "--sample=2")
    assert done.returncode == 0
    assert done.lines[0].startswith("6 of 23 records (26.09%)")
    assert done.result["num_chosen"] == 6
    assert len(done.result["sample"]) == 2

    wrong = commands.answer(query.COMMANDS, source, "lable = 1")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith("Error: The clause 'lable = 1' cannot be computed")
    assert len(wrong.stderr.splitlines()) == 1
    missing = commands.answer(query.COMMANDS, tmp_path)
    assert missing.returncode == 1
    assert "index.json is missing" in missing.stderr
    (tmp_path / "taken").write_text("")
    words = (source, f"--materialize={tmp_path / 'taken'}")
    taken = commands.answer(query.COMMANDS, *words)
    assert taken.stderr.startswith("Error: --materialize must be a folder, got the")
