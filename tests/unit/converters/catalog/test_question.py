"""A clause chooses the records that Python chooses; bad clauses are refused."""

import dataclasses
import functools
import json
import pathlib
import re
from typing import Any

import duckdb
import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from converters.catalog import added, counts, question, samples
from converters.catalog.question import Question
from converters.exports.source import Source, open_source
from tests.support.data.trees import convert, make_tree
from tfpipe import errors
from tfpipe.location.location import Location
from tfpipe.shards import index

COLUMNS = "split, shard, record, label, height, width, num_bytes, filename, digest"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    # A name with characters that mean something in SQL and in patterns of files.
    folder = tmp_path_factory.mktemp("a'b [1] *")
    raw = make_tree(folder / "raw", num_images=22, num_validation_images=6)
    convert(raw, folder / "set", num_train_shards=3, num_validation_shards=2)
    return open_source(Location(str(folder / "set")), folder, ())


@functools.cache
def _read(folder: pathlib.Path) -> list[dict[str, Any]]:
    path = str(folder / "catalog.parquet").replace("[", "[[]").replace("*", "[*]")
    with index.catalog_connection() as connection:
        query = f"SELECT {COLUMNS} FROM read_parquet(?)"
        found = connection.execute(query, [path]).fetchall()
    return [dict(zip(COLUMNS.split(", "), row, strict=True)) for row in found]


def _rows(source: Source) -> list[dict[str, Any]]:
    return _read(source.folder)


def _chosen(source: Source, **options: Any) -> list[tuple[Any, ...]]:
    columns = "split, shard, record" + (", weight" if "weight" in options else "")
    with question.ask(source, Question(**options), num_threads=1) as rows:
        query = f"SELECT {columns} FROM chosen ORDER BY place"
        return rows.execute(query).fetchall()


def _places(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["split"], row["shard"], row["record"]) for row in rows]


_TERMS = st.one_of(
    st.tuples(
        st.sampled_from(["label", "height", "width", "shard", "record", "num_bytes"]),
        st.sampled_from(["<", ">=", "="]),
        st.integers(0, 50),
    ).map(lambda t: (f"{t[0]} {t[1]} {t[2]}", _compare(*t))),
    st.sampled_from(["train", "validation", "it's"]).map(
        lambda s: (
            "split = '{}'".format(s.replace("'", "''")),
            lambda row: row["split"] == s,
        )
    ),
)


def _compare(name: str, sign: str, number: int) -> Any:
    return lambda row: {
        "<": row[name] < number,
        ">=": row[name] >= number,
        "=": row[name] == number,
    }[sign]


_CLAUSES = st.recursive(
    _TERMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(
            lambda p: (
                f"({p[0][0]} AND {p[1][0]})",
                lambda r: p[0][1](r) and p[1][1](r),
            )
        ),
        st.tuples(inner, inner).map(
            lambda p: (f"({p[0][0]} OR {p[1][0]})", lambda r: p[0][1](r) or p[1][1](r))
        ),
        inner.map(lambda p: (f"NOT {p[0]}", lambda r: not p[1](r))),
    ),
    max_leaves=4,
)


@hypothesis.settings(max_examples=12, deadline=None, derandomize=True)
@hypothesis.given(_CLAUSES)
def test_clauses_choose_what_python_chooses(
    source: Source, clause: tuple[str, Any]
) -> None:
    text, is_wanted = clause

    expected = _places([row for row in _rows(source) if is_wanted(row)])
    assert _chosen(source, clause=text) == expected


def test_names_of_classes(source: Source) -> None:
    rows = _rows(source)

    assert _chosen(source, clause="class = 'n01440764' AND text = 'tench'") == _places(
        [row for row in rows if row["label"] == 1]
    )


@pytest.mark.parametrize(
    ("clause", "says"),
    [
        ("widht > 3", 'column "widht" not found'),
        ("width > 3; DROP TABLE chosen", "Cannot have any modifiers"),
        ("true) UNION SELECT 1 --", "syntax error"),
        ("true FROM catalog", "Cannot have any modifiers"),
        ("COPY (SELECT 1) TO '/tmp/x'", "syntax error"),
        ("SELECT 1", "syntax error"),
        ("true, false", "single expression"),
        ("exists(FROM read_csv('/etc/passwd'))", "disabled by configuration"),
        ("exists(FROM glob('/etc/*'))", "disabled by configuration"),
        ("exists(FROM 'https://127.0.0.1:9/x.parquet')", "disabled by configuration"),
        ("split", "Could not convert"),
        ("text = 'ten", "unterminated"),
        ("width > $1", "parameter"),
    ],
)
def test_refused_clauses(source: Source, clause: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) as caught:
        _chosen(source, clause=clause)

    assert repr(clause) in str(caught.value)
    assert "columns split, shard, record" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_and_files_are_out_of_reach(source: Source) -> None:
    with question.ask(source, Question(), num_threads=1) as rows:
        for statement in (
            "SET enable_external_access = true",
            "SET lock_configuration = false",
            "SET allowed_directories = ['/']",
            "COPY (SELECT 1) TO 'x.csv'",
            "ATTACH 'x.db'",
            "INSTALL httpfs",
        ):
            with pytest.raises(duckdb.Error, match=r"lock|disabled"):
                rows.execute(statement)


def test_limit_takes_random_or_first_records(source: Source) -> None:
    by_width = sorted(_rows(source), key=lambda row: (-row["width"], row["height"]))

    drawn = [_chosen(source, limit=7, seed=seed) for seed in (1, 1, 2)]
    first = _chosen(source, limit=2, order_by="width DESC, height -- first")

    assert [len(rows) for rows in drawn] == [7, 7, 7]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {row["width"] for row in by_width[:2]} == {41}
    assert set(first) <= {
        place
        for place, row in zip(_places(by_width), by_width, strict=True)
        if row["width"] == 41
    }
    assert _chosen(source, limit=99) == _places(_rows(source))
    with pytest.raises(ValueError, match=r"--order_by='1; DROP TABLE x'"):
        _chosen(source, limit=2, order_by="1; DROP TABLE x")
    with pytest.raises(ValueError, match="Add --limit=N"):
        Question(order_by="width")


def test_weights_are_over_the_chosen_records(source: Source) -> None:
    rows = _rows(source)
    train = [row for row in rows if row["split"] == "train"]
    labels = [row["label"] for row in train]

    found = _chosen(
        source,
        clause="split = 'train'",
        weight="1.0 / count(*) OVER (PARTITION BY label) -- balanced",
    )

    assert [row[:3] for row in found] == _places(train)
    assert np.allclose([row[3] for row in found], [1 / labels.count(n) for n in labels])
    for weight, says in (
        ("1, 2", "one expression"),
        ("-1", "got -1.0 for train/"),
        ("nullif(label, 1)", "got NULL for train/"),
        ("1e308 * 10", "got inf"),
        ("'x'", "Could not convert"),
        ("nothing", "not found"),
    ):
        with pytest.raises(ValueError, match=re.escape(says)):
            _chosen(source, weight=weight)


def _write_scores(path: pathlib.Path, rows: list[dict[str, Any]]) -> pathlib.Path:
    lines = [{"filename": row["filename"], "score": n} for n, row in enumerate(rows)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif path.suffix == ".csv":
        texts = [f"{line['filename']},{line['score']}" for line in lines]
        path.write_text("\n".join(["filename,score", *texts]))
    else:
        columns = [[row["digest"] for row in rows], [*range(len(rows))]]
        with index.catalog_connection() as connection:
            connection.execute(
                "COPY (SELECT unnest(?) AS digest, unnest(?)::INTEGER AS score) TO "
                f"'{path}' (FORMAT parquet)",
                columns,
            )
    return path


@pytest.mark.parametrize("name", ["s.csv", "s [x].jsonl", "s.parquet"])
def test_columns_of_other_files(
    source: Source, tmp_path: pathlib.Path, name: str
) -> None:
    rows = _rows(source)[:10]
    path = _write_scores(tmp_path / name, rows)

    expected = _places(rows[6:])
    for value in (f"{path}", f"score={path}"):
        found = _chosen(source, clause="score > 5", added=[added.parse(value)])
        assert found == expected


@pytest.mark.parametrize(
    ("content", "columns", "says"),
    [
        ("filename,score\nno.jpg,1\n", "", "must name records of the data set"),
        ("file,score\nno.jpg,1\n", "", "must have a column filename or digest"),
        ("filename,score\nx,1\nx,2\n", "", "must have one row for each filename"),
        ("filename,Label\nx,1\n", "", "which catalogs have already"),
        ("filename,score\nx,1\n", "tag=", "has no column tag"),
        ("filename\nx\n", "", "must have a column besides filename"),
    ],
)
def test_refused_columns(
    source: Source, tmp_path: pathlib.Path, content: str, columns: str, says: str
) -> None:
    path = tmp_path / "s.csv"
    path.write_text(content)

    with pytest.raises(ValueError, match=says) as caught:
        _chosen(source, added=[added.parse(f"{columns}{path}")])

    assert str(path) in str(caught.value)


def test_names_of_added_files(tmp_path: pathlib.Path) -> None:
    for value in ("x.png", f"{tmp_path}/none.csv", f"a,,b={tmp_path}/x.csv"):
        with pytest.raises(ValueError, match="--add_column must"):
            added.parse(value)


def test_counts(source: Source) -> None:
    rows = [row for row in _rows(source) if row["split"] == "train"]
    clause = Question(clause="split = 'train'", weight="2")

    with question.ask(source, clause, num_threads=1) as connection:
        found = counts.count(connection)
        drawn = samples.draw(connection, 5, seed=1)

    assert (found["num_records"], found["num_chosen"]) == (28, 22)
    assert found["splits"] == {"train": 22}
    assert found["num_bytes"] == sum(row["num_bytes"] for row in rows)
    assert [c["num_records"] for c in found["largest_classes"]] == [6, 6, 5, 5]
    assert found["largest_classes"][0]["class"] == "n01440764"
    assert found["smallest_class"]["num_records"] == 5
    heights = sorted(row["height"] for row in rows)
    assert found["sizes"]["height"]["min"] == heights[0]
    assert found["sizes"]["height"]["median"] == heights[10]
    assert found["sizes"]["height"]["max"] == heights[-1]
    assert found["weight"] == {"sum": 44.0, "min": 2.0, "max": 2.0}
    assert len({row.filename for row in drawn}) == 5
    assert "22 of 28 records (78.57%)" in "\n".join(counts.lines(found))
    with question.ask(source, Question(clause="false"), num_threads=1) as connection:
        none = counts.count(connection)
    assert (none["num_chosen"], none["sizes"], none["smallest_class"]) == (0, {}, None)
    assert counts.lines(none) == ["0 of 28 records (0.00%), 0 bytes"]


def test_a_catalog_that_is_none(source: Source, tmp_path: pathlib.Path) -> None:
    path = tmp_path / index.CATALOG_NAME
    broken = Source(
        name="x", folder=tmp_path, files=None, known=source.known, digest=""
    )

    for content in (None, b"PAR1 nothing"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(errors.BadIndexError, match="cannot be read"):
            _chosen(broken)
    duckdb.sql("SELECT 1 AS split").write_parquet(str(path))
    with pytest.raises(errors.BadIndexError, match="got none named shard"):
        _chosen(broken)


def test_a_catalog_of_other_shards(source: Source) -> None:
    known = source.known
    fewer = {"train": known.splits["train"][:2], "validation": ()}
    other = dataclasses.replace(source, known=dataclasses.replace(known, splits=fewer))

    assert _chosen(other, clause="split = 'train' AND shard < 2")
    for clause in ("split = 'train'", "split = 'validation'"):
        with pytest.raises(errors.BadIndexError, match="must name shards"):
            _chosen(other, clause=clause)


def test_help_names_every_column() -> None:
    text = question.column_help()

    for name, kind in index.CATALOG_COLUMNS.items():
        assert re.search(rf"^  {name} +{kind} ", text, re.M)
