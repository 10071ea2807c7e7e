"""converters.table: every form of a table, with a real PostgreSQL server."""

import json
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
import xxhash

from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.tables import (
    CLASSES,
    Row,
    config,
    contents,
    make_rows,
    write_tables,
    write_tar,
)
from tests.support.processes import commands
from tests.support.servers import mariadb_server, postgresql_server
from tests.support.servers.postgresql_server import PASSWORD, USER

NO_POSTGRESQL = "PostgreSQL's programs are not here: apt install postgresql"
needs_postgresql = pytest.mark.skipif(
    postgresql_server.programs() is None, reason=NO_POSTGRESQL
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    return make_rows(tmp_path_factory.mktemp("tables") / "raw")


@pytest.fixture(scope="module")
def server(rows: list[Row]) -> Iterator[str]:
    """URL of a database with the rows, without a password."""
    import psycopg

    with postgresql_server.running() as port:
        url = f"postgresql://{USER}@127.0.0.1:{port}/postgres"
        with psycopg.connect(url, password=PASSWORD) as connection:
            connection.execute(
                "CREATE TABLE photos (path text, img bytea, label text, score float8)"
            )
            connection.cursor().executemany(
                "INSERT INTO photos VALUES (%s, %s, %s, %s)", rows
            )
        yield url


def _run(*words: str) -> commands.Ended:
    return commands.run("converters.table", *words, "--num_workers=1")


def test_six_forms_give_the_same_records(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> None:
    """Tree, CSV, Parquet, SQLite, PostgreSQL and tars: equal names, bytes, labels."""
    raw = tmp_path / "raw"
    rows = make_rows(raw)
    expected = [
        (
            pathlib.PurePath(row.path).name,
            xxhash.xxh3_128_hexdigest(row.img),
            1 + CLASSES.index(row.label),
        )
        for row in sorted(rows)
    ]
    write_tar(tmp_path / "train-000000.tar", rows)
    forms = write_tables(raw, rows)
    assert forms.keys() >= {"csv", "parquet paths", "parquet bytes", "sqlite"}
    if has_postgresql := postgresql_server.programs() is not None:
        forms |= _in_postgresql(request.getfixturevalue("server"), raw)

    def to(name: str) -> dict[str, Any]:
        return {"output_dir": str(tmp_path / name), "num_workers": 1, "fsync": False}

    found = {}
    tars = [str(tmp_path / "train-*.tar")]
    for name, made in (
        ("tree", conversion("folder", input_dir=str(raw), **to("tree"))),
        ("tars", conversion("webdataset", input=tars, **to("tars"))),
    ):
        made.convert()
        found[name] = contents(tmp_path / name)
    for number, (name, options) in enumerate(forms.items()):
        out = tmp_path / str(number)
        done = conversions.convert(config(out, root=str(raw), **options))
        found[name] = contents(out)
        assert PASSWORD not in json.dumps(done)
        assert "cret" not in (out / "index.json").read_text()
        assert not (out / ".converting").exists()

    assert found == dict.fromkeys(found, sorted(expected))
    if not has_postgresql:
        pytest.skip(f"All forms but PostgreSQL are equal. {NO_POSTGRESQL}")


def _in_postgresql(server: str, raw: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Returns the options that read the rows from the server."""
    secret = server.replace("@", f":{urllib.parse.quote(PASSWORD, safe='')}@")
    named = {"image_column": "img", "name_column": "path"}
    return {
        "postgresql": {
            "input": secret,
            "query": "SELECT * FROM photos ORDER BY score DESC;",
            **named,
        },
        "postgresql joined": {
            "input": f"{secret}#photos",
            "table": {"more": str(raw / "rows.csv")},
            "query": "SELECT img, path, m.label FROM input JOIN more m USING (path)",
            **named,
        },
    }


@needs_postgresql
def test_a_database_is_only_read_and_its_errors_hold_no_password(
    server: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    out = tmp_path / "out"
    words = ["--image_column=img", "--label_column=label", f"--output_dir={out}"]
    wrong = server.replace("@", ":WrOnG%2FSecret@")
    port = f"{server.rpartition(':')[0]}:1/postgres"
    delete = "WITH gone AS (DELETE FROM photos RETURNING *) SELECT * FROM gone"
    faults = {
        "Connection refused": {"input": f"{port}#photos"},
        'relation "nope" does not exist': {"input": f"{server}#nope"},
        "must be at the top level": {"input": server, "query": delete},
        "the database refused": {
            "input": server,
            "query": "SELECT 1) x; DROP TABLE photos; SELECT (1",
        },
        "none of this name. The columns are path, img, label, score": {
            "input": f"{server}#photos",
            "split_column": "fold",
        },
    }

    for said, options in faults.items():
        with pytest.raises((ValueError, OSError), match=re.escape(said)) as caught:
            conversions.convert(config(out, image_column="img", **options))
        assert "\n" not in str(caught.value)
        assert not out.exists()

    done = _run(*words, f"--input={wrong}#photos")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "password authentication failed" in done.stderr
    assert "ecret" not in done.stdout + done.stderr
    done = _run(*words, f"--input={server}#photos")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["num_records"] == 9


@needs_postgresql
def test_rows_of_a_server_are_read_again_after_they_were_corrected(
    server: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    out = tmp_path / "out"
    words = [f"--input={server}#own", "--image_column=img", f"--output_dir={out}"]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE TABLE own AS SELECT * FROM photos")
        for wrong, said in [("label = NULL", "label"), ("img = 'no'", "--max_bad")]:
            connection.execute(f"UPDATE own SET {wrong} WHERE label = 'emu'")
            refused = _run(*words, "--max_bad=0")
            assert (refused.returncode, out.exists()) == (1, False)
            assert said in refused.stderr
            connection.execute("DROP TABLE own")
            connection.execute("CREATE TABLE own AS SELECT * FROM photos")

        done = _run(*words, "--max_bad=0")
        connection.execute("UPDATE own SET label = 'owl' WHERE label = 'emu'")
        changed = _run(*words, "--max_bad=0")
        replaced = _run(*words, "--max_bad=0", "--overwrite")

    assert done.returncode == 0, done.stderr
    assert changed.returncode == 1
    assert "labels of the classes differ" in changed.stderr
    assert replaced.returncode == 0, replaced.stderr
    assert "owl" in (out / "labels.txt").read_text()


@pytest.mark.skipif(
    not mariadb_server.is_installed(),
    reason="MariaDB's programs are not here: apt install mariadb-server",
)
def test_mariadb_gives_the_records_of_the_tree_and_is_only_read(
    tmp_path: pathlib.Path,
) -> None:
    rows = make_rows(tmp_path / "raw")
    named = {"image_column": "img", "name_column": "path"}
    conversions.convert(
        conversion(
            "folder",
            input_dir=str(tmp_path / "raw"),
            output_dir=str(tmp_path / "tree"),
            num_workers=1,
        )
    )
    out = tmp_path / "out"
    with mariadb_server.running() as server:
        mariadb_server.fill(server, rows)
        url = server.url(PASSWORD)
        conversions.convert(config(out, input=f"{url}#photos", **named))
        assert contents(out) == contents(tmp_path / "tree")
        assert "cret" not in (out / "index.json").read_text()

        faults: list[tuple[type[Exception], str, str, str | None]] = [
            (OSError, "Access denied", server.url("WrOnG/sEcret"), "SELECT 1"),
            (OSError, "Unknown database|Access denied", f"{url}2", "SELECT 1"),
            (OSError, "Connection refused", "mysql://x:sEcret@127.0.0.1:1/y#z", None),
            (ValueError, "'photos.nope'|'tfpipe.nope'", f"{url}#nope", None),
            (ValueError, "Unknown column", url, "SELECT nope FROM photos"),
            (ValueError, "the database refused", url, "DELETE FROM photos"),
            (ValueError, "READ ONLY", url, "SELECT img, label, ins() FROM photos"),
            (
                ValueError,
                "Row 10",
                url,
                "SELECT img, label FROM photos UNION ALL SELECT img, NULL FROM photos",
            ),
        ]
        for kind, said, place, query in faults:
            with pytest.raises(kind, match=said) as caught:
                conversions.convert(
                    config(
                        tmp_path / "no", input=place, query=query, image_column="img"
                    )
                )
            assert "\n" not in str(caught.value)
            assert "cret" not in str(caught.value)
            assert not (tmp_path / "no").exists()
        assert mariadb_server.count(server) == (len(rows), 0)


def test_a_killed_conversion_goes_on_and_leaves_no_copy(
    rows: list[Row], tmp_path: pathlib.Path
) -> None:
    parquet, out = tmp_path / "many.parquet", tmp_path / "out"
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (img BLOB, label VARCHAR)")
        values = [[row.img, row.label] for row in rows]
        connection.executemany("INSERT INTO t VALUES (?, ?)", values)
        connection.execute(f"COPY (FROM t, range(300)) TO '{parquet}'")
    words = [f"--input={parquet}", "--image_column=img", "--label_column=label"]
    words += [f"--output_dir={out}", "--num_train_shards=30"]
    command = [sys.executable, "-m", "converters.table", *words, "--num_workers=1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 60
        while not list(out.glob(".converting/job-*/*.done")):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    (copied,) = out.glob(".converting/.table-*/images")
    before = copied.stat().st_mtime_ns
    shards = [path.stat().st_mtime_ns for path in out.glob(".converting/job-*/*.done")]

    # The copy is used again, so that the complete shards are newer than it.
    assert max(shards) > before
    done = _run(*words)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["num_records"] == 2700
    assert not (out / ".converting").exists()
