import copy
import dataclasses
import json

import numpy as np
import pytest

from tfpipe import errors
from tfpipe.shards import catalog, index, records, sql

INDEX = index.Index(
    name="flowers",
    label_base=1,
    classes=(("n1", "rose"), ("n2", "crème de la crème")),
    splits={
        "train": (
            index.Shard(name="train-0", num_records=3, num_bytes=30, digest="aa"),
            index.Shard(name="train-1", num_records=2, num_bytes=20, digest="bb"),
        ),
        "validation": (),
    },
    made_by={"command": "converters.imagenet", "seed": 0},
)


def edit(folder, **changes):
    path = folder / index.INDEX_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_written_index_loads_as_the_same(tmp_path):
    odd = ((' \n"classes": []', 'é\t"\\'), ("", "\x7f\u2028"))
    for classes in ((), odd, INDEX.classes):
        written = dataclasses.replace(INDEX, classes=classes)
        index.write(written, tmp_path)
        text = (tmp_path / index.INDEX_NAME).read_text(encoding="utf-8")
        document = json.loads(text)

        assert text == json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        assert index.load(tmp_path) == written
    assert [path.name for path in tmp_path.iterdir()] == ["index.json"]


def test_index_counts_classes_and_records():
    assert INDEX.num_classes == 2
    assert INDEX.num_records("train") == 5
    assert INDEX.num_records("validation") == 0


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_index_of_another_format_is_refused(tmp_path, version):
    index.write(INDEX, tmp_path)
    edit(tmp_path, format_version=version)

    with pytest.raises(
        errors.BadIndexError,
        match=rf"index\.json must have format_version 1, got {version!r}",
    ):
        index.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "cannot be read"),
        (b'{"format_version": 1', "cannot be read"),  # cut short
        (b"\xff\xfe", "cannot be read"),  # not UTF-8
        (b"[1, 2]", "must have format_version 1, got None"),
        (b'{"format_version": 1}', "is not a tfpipe index: 'classes' is missing"),
        (
            b'{"format_version": 1, "name": "", "label_base": 1, "classes": [],'
            b' "splits": {"train": [{"nam": ""}]}, "made_by": {}}',
            "is not a tfpipe index: 'name' is missing",
        ),
        (
            b'{"format_version": 1, "name": "", "label_base": 1, "classes": [],'
            b' "splits": [], "made_by": {}}',
            "is not a tfpipe index: 'splits' must be an object, got \\[\\]",
        ),
    ],
)
def test_what_is_no_index_is_refused_by_name(tmp_path, content, fault):
    (tmp_path / "index.json").write_bytes(content)

    with pytest.raises(errors.BadIndexError, match=rf"index\.json {fault}"):
        index.load(tmp_path)


WRONG = [None, True, -1, 1.5, 10**30, "x", "", [], {}, [[]], [{}], {"x": []}]


def _places(value, place=()):
    """The place of every value in a document of JSON."""
    yield place
    if isinstance(value, dict):
        for key in value:
            yield from _places(value[key], (*place, key))
    elif isinstance(value, list) and value:
        yield from _places(value[0], (*place, 0))


def _set(document, place, value):
    for key in place[:-1]:
        document = document[key]
    document[place[-1]] = value


def _refusal(folder):
    """Why an index is refused; nothing if it is not, and then it is of use."""
    try:
        known = index.load(folder)
    except errors.BadIndexError as error:
        return str(error)
    index.encode(known)
    assert index.change(folder)
    return ""


def test_a_value_of_another_type_is_a_bad_index_or_read_and_told(tmp_path):
    """Wherever it is, it is never another exception."""
    document = json.loads(index.encode(INDEX))
    refusals = []
    for place in _places(document):
        for value in WRONG if place else ():
            changed = copy.deepcopy(document)
            _set(changed, place, value)
            (tmp_path / index.INDEX_NAME).write_text(json.dumps(changed))
            refusals.append(_refusal(tmp_path))

    assert sum(map(bool, refusals)) > 100
    assert all("\n" not in refusal and len(refusal) < 400 for refusal in refusals)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../victim", "/etc/passwd", "a/b", "x\0y", ".hidden"]
)
def test_names_that_lead_elsewhere_are_refused(tmp_path, name):
    """Files are read, replaced and removed by these names."""
    counts = {"num_records": 1, "num_bytes": 20}
    with pytest.raises(ValueError, match="must have a plain name, without a folder"):
        index.Shard(name=name, digest="", **counts)

    for changes in (
        {"splits": {"train": [{"name": name, "digest": "", **counts}]}},
        {"files": {f"../{name}": {"num_bytes": 1, "digest": ""}}},
        {"files": {f"folder/folder/{name}": {"num_bytes": 1, "digest": ""}}},
    ):
        index.write(INDEX, tmp_path)
        edit(tmp_path, **changes)
        with pytest.raises(errors.BadIndexError, match="index: a file of a data set"):
            index.load(tmp_path)


def test_an_index_that_the_system_does_not_read_is_named(tmp_path):
    path = tmp_path / index.INDEX_NAME
    path.symlink_to(path)
    with pytest.raises(
        errors.BadIndexError, match=r"Too many levels .* Run again when"
    ):
        index.load(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(errors.BadIndexError, match="it is no regular file"):
        index.load(tmp_path)


def test_endless_nesting_is_refused(tmp_path):
    (tmp_path / index.INDEX_NAME).write_text("[" * 100_000)

    with pytest.raises(errors.BadIndexError, match=r"index\.json cannot be read: Brac"):
        index.load(tmp_path)


def test_a_written_index_tells_of_every_change(tmp_path):
    index.write(INDEX, tmp_path)
    path = tmp_path / index.INDEX_NAME
    text = path.read_text()
    assert index.change(tmp_path) == ""
    for old, new, expected in [
        ('"label_base": 1', '"label_base": 0', "its digest must be '"),
        ('"label_base": 1', '"label_base":  1', "was written otherwise from character"),
        ('"digest_alg', '"digest_alG', "was written otherwise from character"),
        ("rose", "r\\u006fse", "was written otherwise from character"),
        ("}\n", "}\n\n", "was written otherwise from character"),
    ]:
        assert old in text
        path.write_text(new.join(text.rsplit(old, 1)))

        assert expected in index.change(tmp_path)


def test_an_index_of_an_older_version_is_read_and_tells_nothing(tmp_path):
    index.write(INDEX, tmp_path)
    path = tmp_path / index.INDEX_NAME
    document = json.loads(path.read_text())
    del document["digest"]
    path.write_text(json.dumps(document))

    assert index.load(tmp_path) == INDEX
    assert index.change(tmp_path) == ""


def test_files_beside_the_shards_are_in_the_index(tmp_path):
    (tmp_path / "a").write_bytes(b"abc" * 1_000_000)
    file = index.describe_file(tmp_path / "a")
    known = dataclasses.replace(INDEX, files={"dali_idx/b": file, "a": file})

    index.write(known, tmp_path)

    assert index.load(tmp_path) == known
    assert file == index.describe(b"abc" * 1_000_000)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("name", name) for name in ("../x", "/x", "a/b", "", ".", "..", ".x", "a\0")),
        ("name", None),
        ("num_records", -1),
        ("num_records", 2.0),
        ("num_bytes", "30"),
        ("num_bytes", True),
        ("digest", None),
    ],
)
def test_shard_that_no_converter_lists_is_refused(tmp_path, field, value):
    """Above all a name that leads out of the folder: files are removed by it."""
    index.write(INDEX, tmp_path)
    shard = {"name": "a", "num_records": 1, "num_bytes": 1, "digest": ""}
    edit(tmp_path, splits={"train": [shard | {field: value}]})

    with pytest.raises(errors.BadIndexError, match="is not a tfpipe index: "):
        index.load(tmp_path)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_check_passes_what_a_converter_wrote(data_dir, split):
    index.check(index.load(data_dir), data_dir, split)


def test_check_names_a_missing_shard(copy_dir):
    (copy_dir / "train-00001-of-00003").unlink()

    with pytest.raises(
        errors.BadIndexError,
        match=r"train-00001-of-00003 is listed.*cannot be read: No such file",
    ):
        index.check(index.load(copy_dir), copy_dir, "train")


@pytest.mark.parametrize("change", [-1, 1])
def test_check_names_a_shard_of_another_size(copy_dir, change):
    shard = copy_dir / "validation-00001-of-00002"
    content = shard.read_bytes()
    shard.write_bytes((content + b"\0")[: len(content) + change])

    with pytest.raises(
        errors.BadIndexError,
        match=f"{shard.name} must have {len(content)} bytes.*"
        f"got {len(content) + change}. Copy it again",
    ):
        index.check(index.load(copy_dir), copy_dir, "validation")


def test_check_looks_at_the_asked_split_only(copy_dir):
    (copy_dir / "train-00001-of-00003").unlink()

    index.check(index.load(copy_dir), copy_dir, "validation")


def test_unknown_split_lists_the_choices(data_dir):
    with pytest.raises(
        errors.BadIndexError,
        match=r"Unknown split 'test' .* choose one of train, validation",
    ):
        index.check(index.load(data_dir), data_dir, "test")


@pytest.mark.parametrize("split", ["train", "validation"])
def test_catalog_says_where_the_records_of_the_shards_are(data_dir, split):
    shards = index.load(data_dir).splits[split]
    scanned = [
        (number, record, place.byte_offset, place.num_bytes)
        for number, shard in enumerate(shards)
        for record, place in enumerate(records.scan(data_dir / shard.name))
    ]

    columns = index.load_catalog(
        data_dir, split, ["shard", "record", "byte_offset", "num_bytes"]
    )

    assert list(zip(*columns.values(), strict=True)) == scanned
    assert len(scanned) == sum(shard.num_records for shard in shards)


def test_catalog_has_the_documented_columns(data_dir):
    columns = index.load_catalog(data_dir, "train", list(index.CATALOG_COLUMNS))

    assert list(columns) == list(index.CATALOG_COLUMNS)
    assert {len(column) for column in columns.values()} == {24}
    assert {str(name).split("/")[0] for name in columns["filename"]} == {"train"}
    assert set(columns["decision"]) == {"kept"}
    assert set(columns["height"]) == {32, 33, 34}
    assert columns["byte_offset"].dtype == np.int64


def write_fragments(folder, numbers):
    """Writes a catalog from a fragment of two records for each shard number."""
    folder.mkdir()
    row = dict.fromkeys(index.CATALOG_COLUMNS)
    fragments = []
    for number in numbers:
        fragments.append(folder / f"{len(fragments)}.jsonl")
        lines = [
            row | {"split": "train", "shard": number, "record": record}
            for record in range(2)
        ]
        fragments[-1].write_text("".join(json.dumps(line) + "\n" for line in lines))
    with index.catalog_connection() as connection:
        index.write_catalog(connection, fragments, folder / index.CATALOG_NAME)


def test_catalog_joins_fragments_in_the_order_given(tmp_path):
    """The folder's name is also a pattern, which matches another folder's name."""
    write_fragments(tmp_path / "set1", [8, 9])
    write_fragments(tmp_path / "set[1]", [1, 0])

    query = "SELECT shard, record FROM read_parquet(?)"
    rows = index.query_catalog(tmp_path / "set[1]", query, [])
    columns = index.load_catalog(tmp_path / "set[1]", "train", ["shard", "record"])

    assert rows == [(1, 0), (1, 1), (0, 0), (0, 1)]
    assert columns["shard"].tolist() == [0, 0, 1, 1]
    assert columns["record"].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("content", [None, b"not a Parquet file"])
def test_missing_or_damaged_catalog_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / index.CATALOG_NAME).write_bytes(content)

    with pytest.raises(
        errors.BadIndexError, match=rf"{tmp_path}/catalog\.parquet cannot be read"
    ):
        index.load_catalog(tmp_path, "train", ["record"])


def test_a_catalog_that_ends_the_database_ends_no_later_query(copy_dir, data_dir):
    """DuckDB takes some damaged sizes for a fault of its own, and answers no more."""
    path = copy_dir / index.CATALOG_NAME
    sound, causes = path.read_bytes(), set()
    footer = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")

    for at in range(footer, len(sound) - 8):
        path.write_bytes(sound[:at] + b"\xff" + sound[at + 1 :])
        try:
            index.load_catalog(copy_dir, "train", ["record"])
        except errors.BadIndexError as error:
            causes.add(type(error.__cause__).__name__)
        if "InternalException" in causes:
            break

    assert "InternalException" in causes
    assert len(index.load_catalog(data_dir, "train", ["record"])["record"]) == 24


def test_after_an_error_of_any_class_the_next_query_opens_a_database():
    """A reader says the end of the database in an error of its own, with no cause."""

    def fails(own_error, cause):
        with index.catalog_connection():
            assert index._database() is before
            try:
                raise sql.engine().InternalException("the end")
            except sql.engine().Error as end:
                if own_error is None:
                    raise
                raise own_error from (end if cause else None)

    own = errors.BadIndexError("cannot be read")
    for own_error, cause in ((None, False), (own, True), (own, False)):
        before = index._database()
        with pytest.raises(type(own_error) if own_error else sql.engine().Error):
            fails(own_error, cause)
        assert index._database() is not before, (own_error, cause)


def test_a_disk_that_fails_is_not_blamed_on_the_catalog(data_dir):
    def fails(connection):
        raise PermissionError(13, "Permission denied")

    with pytest.raises(errors.BadIndexError, match=r"Permission denied. Run again whe"):
        index._from_catalog(data_dir, "SELECT ?", [], fails)


def test_catalog_tells_the_file_at_a_place_and_the_median_short_side(data_dir):
    columns = ["shard", "byte_offset", "filename", "height", "width"]
    rows = index.load_catalog(data_dir, "train", columns)
    names = [
        catalog.load_filename(
            data_dir, "train", shard=int(shard), byte_offset=int(offset)
        )
        for shard, offset in zip(rows["shard"], rows["byte_offset"], strict=True)
    ]

    assert names == rows["filename"].tolist()
    assert catalog.load_filename(data_dir, "train", shard=0, byte_offset=1) is None
    assert catalog.median_short_side(data_dir, "train") == np.median(
        np.minimum(rows["height"], rows["width"])
    )
