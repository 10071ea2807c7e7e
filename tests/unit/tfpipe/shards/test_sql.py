"""Texts, names and paths in SQL: DuckDB reads each as it is, whatever is in it."""

import pathlib
from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import example, given, settings, strategies as st

from tfpipe.shards.sql import connected, identifier, one_file, quoted, system_error

HOSTILE = (
    *("it's", "'", "''", 'say "x"', '"', "back\\slash", "x\\", "\\'", "two\nlines"),
    *("a\0b", "\0", "é", "مجموعة", "画像 🦊", "e\u0301", "\u2028", "%", "_", "$1", "?"),
    *("; DROP TABLE x; --", "' OR '1'='1", "/*", "E'\\n'", "$$", "{x}", "[*]?", " "),
)
_TEXTS = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("'\"\\\0\n;-*"))
)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_read_as_they_are(
    connection: duckdb.DuckDBPyConnection, text: str
) -> None:
    _require_equal(connection, text)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(_TEXTS.filter(bool))
@example("'\0\"\\")
def test_any_text_is_read_as_it_is(
    connection: duckdb.DuckDBPyConnection, text: str
) -> None:
    _require_equal(connection, text)


def _require_equal(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    query = f"SELECT {quoted(text)} AS {identifier(text)}, {quoted(text + text)}"
    connection.execute(query)
    names = [column[0] for column in connection.description or ()]
    assert names[0] == text
    assert connection.fetchall() == [(text, text + text)]


def test_a_connection_loads_nothing_and_depends_on_no_host() -> None:
    wanted = {
        "threads": 1,
        "TimeZone": "UTC",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "enable_progress_bar": False,
        "python_enable_replacements": False,
    }
    with connected() as connection:
        found = {
            name: connection.execute("SELECT current_setting(?)", [name]).fetchall()
            for name in wanted
        }
    assert found == {name: [(value,)] for name, value in wanted.items()}


def test_a_hostile_path_is_one_file(
    connection: duckdb.DuckDBPyConnection, tmp_path: pathlib.Path
) -> None:
    """Beside each file are others that a pattern of its name would match as well."""
    names = [name for name in HOSTILE if not {*name} & {"\0", "/", "\\"}]
    names += ["x\\y", "*", "[ab]", "a", "**", "a]", "[!a]", "{a,b}", "~"]
    paths = [tmp_path / f"{name}.csv" for name in names]
    for number, path in enumerate(paths):
        connection.execute(f"COPY (SELECT {number}) TO {quoted(path)} (HEADER false)")

    read = "SELECT column0 FROM read_csv({}, header = false)"
    found = [
        connection.execute(read.format("?"), [one_file(path)]).fetchall()
        + connection.execute(read.format(quoted(one_file(path)))).fetchall()
        for path in paths
    ]

    assert found == [[(number,), (number,)] for number in range(len(paths))]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for path in paths
    )


@pytest.mark.parametrize("text", ["\udcff", "a\ud800b"])
def test_what_is_not_unicode_is_refused_by_name(text: str) -> None:
    for function in (quoted, identifier, one_file):
        with pytest.raises(ValueError, match=r"must be Unicode, got '.*\\ud") as caught:
            function(text)
        str(caught.value).encode()
    with pytest.raises(ValueError, match=r"a backslash together with one of \* \? \["):
        one_file("a\\b*")
    with pytest.raises(ValueError, match="at least one character"):
        identifier("")


@pytest.mark.parametrize(
    ("kind", "text", "is_of_system"),
    [
        ("IOException", 'IO Error: Cannot open file "a": Permission denied', True),
        ("IOException", 'IO Error: Cannot read file "a": Stale file handle', True),
        ("IOException", 'IO Error: No files found that match "a"', False),
        ("IOException", "IO Error: INT32 converted type can only be set", False),
        ("InvalidInputException", "No magic bytes: Permission denied", False),
    ],
)
def test_an_error_of_the_system_is_no_damage(
    kind: str, text: str, is_of_system: bool
) -> None:
    error = getattr(duckdb, kind)(text)
    system = system_error(error)

    assert (system is not None) == is_of_system
    if system is not None:
        assert (system.filename, system.strerror) == ("a", text.rpartition(": ")[2])
    with (
        pytest.raises(OSError if is_of_system else duckdb.Error, match=r"\w"),
        connected(),
    ):
        raise error
