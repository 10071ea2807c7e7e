import dataclasses
import itertools
import resource

import duckdb
import numpy as np
import pytest

import tfpipe
from tfpipe import errors
from tfpipe.shards import index, subset

SIZES = {"train": (5, 0, 3), "validation": (4,)}


@pytest.fixture
def known():
    splits = {
        split: tuple(
            index.Shard(
                name=f"{split}-{n}", num_records=size, num_bytes=9, digest=f"{n}"
            )
            for n, size in enumerate(sizes)
        )
        for split, sizes in SIZES.items()
    }
    return index.Index(name="x", label_base=1, classes=(), splits=splits, made_by={})


def rows(places, weights=None):
    """Columns of (split, shard, record), in this order."""
    split, shard, record = zip(*places, strict=True)
    found = {"split": np.array(split, object), "shard": np.array(shard)}
    found["record"] = np.array(record, np.int32)
    return found if weights is None else found | {"weight": np.array(weights)}


def places(chosen):
    return {
        split: list(zip(of.shard.tolist(), of.record.tolist(), strict=True))
        for split, of in chosen.splits.items()
    }


def test_all_records_of_a_split_are_numbered_in_order():
    for sizes in ([5, 0, 3], [4], [0], []):
        chosen = subset.Chosen.of_all(np.array(sizes, int))

        found = list(zip(chosen.shard.tolist(), chosen.record.tolist(), strict=True))
        assert found == [(s, r) for s, size in enumerate(sizes) for r in range(size)]
        assert chosen.numbers(np.array(sizes, int)).tolist() == [*range(sum(sizes))]


def test_records_that_are_left_out_take_their_weights_with_them():
    sizes = np.array([5, 0, 3])
    given = {"shard": np.array([0, 0, 2]), "record": np.array([1, 4, 2])}
    is_kept = np.isin(np.arange(8), [1, 7])
    for weight, kept in ((None, None), (np.array([1.0, 2.0, 3.0]), [1.0, 3.0])):
        found = subset.Chosen(**given, weight=weight).where(is_kept, sizes)

        assert (found.shard.tolist(), found.record.tolist()) == ([0, 2], [1, 2])
        assert (found.weight if kept is None else found.weight.tolist()) == kept
    for wrong in ({"record": given["record"][:2]}, {"weight": np.array([1.0])}):
        with pytest.raises(errors.BadSubsetError, match="columns of a subset differ"):
            subset.Chosen(**given | wrong)


UNSORTED = [("validation", 0, 3), ("train", 2, 1), ("train", 0, 4), ("train", 0, 0)]


def test_rows_in_any_order_come_back_from_the_file_sorted_with_weights_and_query(
    known, tmp_path
):
    query = "text = 'it''s' AND \"label\" > 0\n -- 50 % {1} \\ \0 é 🦊"
    path = tmp_path / "a 'subset' [1]*?\n é 🦊.parquet"
    made = subset.choose(rows(UNSORTED, [0.5, 1, 2, 3]), known, query=query)

    subset.write(made, path)
    subset.write(made, path)  # replaces it
    found = subset.read(path)

    assert places(found) == {"train": [(0, 0), (0, 4), (2, 1)], "validation": [(0, 3)]}
    assert found.splits["train"].weight.tolist() == [3, 2, 1]
    assert found.query == query
    assert found == made
    assert hash(found) == hash(made)
    assert repr(found).startswith("Subset(4 records, ")
    of_train = found.of_split(known, "train")
    assert of_train.numbers(np.array(SIZES["train"])).tolist() == [0, 4, 6]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_same_records_give_the_same_bytes_and_other_ones_another_digest(
    known, tmp_path
):
    orders = itertools.islice(itertools.permutations(UNSORTED), 3)
    for number, order in enumerate(orders):
        subset.write(subset.choose(rows(order), known), tmp_path / f"{number}")
    files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert len(files) == 3
    assert len(set(files)) == 1

    made = [
        subset.choose(rows(UNSORTED), known),
        subset.choose(rows(UNSORTED[1:]), known),
        subset.choose(rows(UNSORTED, [1, 1, 1, 1]), known),
        subset.choose(rows(UNSORTED, [1, 1, 1, 2]), known),
    ]
    assert len({one.digest for one in made}) == 4


@pytest.mark.parametrize(
    ("places", "weights", "message"),
    [
        ([("train", 0, 5)], None, "got record 5 of shard 0, the first of 1"),
        ([("train", 1, 0)], None, "got record 0 of shard 1"),
        ([("train", 3, 0)], None, "got record 0 of shard 3"),
        ([("train", -1, 0)], None, "shard of a subset must be >= 0, got -1"),
        ([("train", 0, 1)] * 2, None, "record 1 of shard 0 after record 1 of shard 0"),
        ([("test", 0, 0)], None, "one of train, validation, got 'test'"),
        ([("train", 0, 0)], [-1.0], r"finite numbers >= 0, got -1\.0"),
        ([("train", 0, 0)], [np.nan], "finite numbers >= 0, got nan"),
        ([("train", 0, 0.5)], None, None),
        ([("train", 0, 0)], ["a"], "column weight must hold numbers, got"),
    ],
)
def test_wrong_rows_are_named(known, places, weights, message):
    given = rows(places, weights)
    if message is None:
        given["record"] = np.array([0.5])
        message = "column record must hold whole numbers, got float64"
    with pytest.raises(tfpipe.errors.BadSubsetError, match=message):
        subset.choose(given, known)


def test_records_that_do_not_rise_are_refused():
    """Rows of `choose` are sorted before: this is about a file."""
    for shard, record in (([0, 0], [1, 0]), ([1, 0], [0, 1]), ([0, 0], [1, 1])):
        with pytest.raises(errors.BadSubsetError, match="must rise by shard and rec"):
            subset.Chosen(shard=np.array(shard), record=np.array(record))


def test_no_record_and_an_empty_value_are_refused(known):
    given = rows(UNSORTED)
    nothing = {name: column[:0] for name, column in given.items()}
    with pytest.raises(
        tfpipe.errors.BadSubsetError, match="got none for the query 'width>9'"
    ):
        subset.choose(nothing, known, query="width>9")
    given["record"] = np.ma.array(given["record"], mask=[0, 0, 1, 0])
    with pytest.raises(
        tfpipe.errors.BadSubsetError, match="column record has an empty value"
    ):
        subset.choose(given, known)


def test_subset_of_other_data_and_of_another_split_is_refused(known):
    train = subset.choose(rows(UNSORTED[1:]), known)
    with pytest.raises(
        tfpipe.errors.BadSubsetError, match=r"'validation', got .* 'train' al"
    ):
        train.of_split(known, "validation")
    shard = known.splits["validation"][0]
    for change in ({"digest": "z"}, {"num_bytes": 8}, {"name": "y"}):
        changed = {"validation": (dataclasses.replace(shard, **change),)}
        other = dataclasses.replace(known, splits=known.splits | changed)
        with pytest.raises(
            tfpipe.errors.BadSubsetError, match="must be one of data set 'x'"
        ):
            train.of_split(other, "train")
    # Only the shards count.
    train.of_split(dataclasses.replace(known, name="y", files={}), "train")


GOOD = "SELECT 'train' AS split, 0::INT AS shard, 1::INT AS record"


@pytest.mark.parametrize(
    ("query", "about", "message"),
    [
        (GOOD, {}, r"must have tfpipe\.format = 1, .*got none.*converters\.query"),
        (GOOD, {subset.FORMAT_KEY: "2"}, r"must have tfpipe\.format = 1"),
        (GOOD, {subset.FORMAT_KEY: "1"}, r"tfpipe\.index and tfpipe\.query, got"),
        (f"{GOOD}, 'x' AS weight", None, "must be weight DOUBLE, got .*weight VARCHAR"),
        (f"SELECT * EXCLUDE record FROM ({GOOD})", None, "be record INTEGER, got spl"),
        (f"{GOOD} UNION ALL {GOOD}", None, "record 1 of shard 0 after record 1"),
        (f"{GOOD} WHERE false", None, "must have at least one record"),
        (f"SELECT * REPLACE (NULL AS record) FROM ({GOOD})", None, "empty|INTEGER"),
        (f"SELECT * REPLACE (NULL::INT AS record) FROM ({GOOD})", None, "empty value"),
        (f"SELECT * REPLACE (NULL::VARCHAR AS split) FROM ({GOOD})", None, "split has"),
        (f"SELECT * REPLACE (-1::INT AS record) FROM ({GOOD})", None, ">= 0, got -1"),
    ],
)
def test_wrong_files_are_named(tmp_path, query, about, message):
    path = tmp_path / "it.parquet"
    keys = (subset.FORMAT_KEY, subset.INDEX_KEY, subset.QUERY_KEY)
    about = dict.fromkeys(keys, "1") if about is None else about
    pairs = ", ".join(f"'{key}': '{value}'" for key, value in about.items())
    metadata = f", KV_METADATA {{{pairs}}}" if pairs else ""
    duckdb.sql(f"COPY ({query}) TO '{path}' (FORMAT parquet{metadata})")

    with pytest.raises(tfpipe.errors.BadSubsetError, match=message) as raised:
        subset.read(path)
    assert str(raised.value).startswith(f"Subset {path} cannot be read: ")


def test_what_is_no_subset_file_is_named_and_a_folder_is_no_place_to_write(
    known, tmp_path
):
    text = tmp_path / "text"
    text.write_text("split,shard,record\ntrain,0,1\n")
    cut = tmp_path / "cut"
    made = subset.choose(rows(UNSORTED), known)
    subset.write(made, cut)
    cut.write_bytes(cut.read_bytes()[:-20])
    for path, why in {
        text: "must be a Parquet file",
        cut: "must be a Parquet file",
        tmp_path / "none": "does not exist",
        tmp_path: "is no regular file",
    }.items():
        with pytest.raises(
            tfpipe.errors.BadSubsetError, match=f"Subset {path} cannot.*{why}"
        ):
            subset.read(path)
    with pytest.raises(OSError, match="none"):
        subset.write(made, tmp_path / "none" / "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        subset.write(made, tmp_path / "folder")
    assert {path.name for path in tmp_path.iterdir()} == {"text", "cut", "folder"}


def test_records_are_also_named_by_their_numbers_in_the_split(known):
    made = tfpipe.Subset.of_records(known, "train", [7, 0, 5], weights=[1, 2, 3])

    assert places(made) == {"train": [(0, 0), (2, 0), (2, 2)]}
    assert made.splits["train"].weight.tolist() == [2, 3, 1]
    for split, ids, message in [
        ("train", [8], "numbers of the 8 records of split 'train' of 'x', got 8"),
        ("train", [-1], "got -1"),
        ("test", [0], "the 0 records of split 'test'"),
        ("train", [1, 1], "record 1 of shard 0 after record 1 of shard 0"),
        ("train", np.array([], int), "must have at least one record"),
        ("train", [0.5], "record_ids must hold whole numbers, got float64"),
    ]:
        with pytest.raises(tfpipe.errors.BadSubsetError, match=message):
            tfpipe.Subset.of_records(known, split, ids)


def test_a_file_that_finds_no_room_is_one_line_and_leaves_nothing(known, tmp_path):
    made = subset.choose(rows(UNSORTED), known)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match=r"a\.parquet cannot be written") as caught:
            subset.write(made, tmp_path / "a.parquet")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert "\n" not in str(caught.value)
    assert not [*tmp_path.iterdir()]
