"""A MariaDB server of Debian's package on this host, for tests of tables."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.support.servers.postgresql_server import PASSWORD, USER

_DATABASE = "tfpipe"
_PROGRAMS = ("mariadbd", "mariadb-install-db")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"


class Server(NamedTuple):
    """A running server."""

    port: int
    socket: pathlib.Path

    def url(self, password: str) -> str:
        """Returns the URL of the database with a password."""
        secret = urllib.parse.quote(password, safe="")
        return f"mysql://{USER}:{secret}@127.0.0.1:{self.port}/{_DATABASE}"


def is_installed() -> bool:
    """Whether the programs of MariaDB are on this host."""
    return all(shutil.which(name, path=_PATH) for name in _PROGRAMS)


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """Starts a server with an empty database and a user, and yields it."""
    server_program, install = (shutil.which(name, path=_PATH) for name in _PROGRAMS)
    assert server_program is not None
    assert install is not None
    with tempfile.TemporaryDirectory(prefix="tfpipe-mariadb-") as name:
        folder = pathlib.Path(name)
        common = ["--no-defaults", f"--datadir={folder / 'data'}"]
        if os.getuid() == 0:
            common.append("--user=root")
        words = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        done = subprocess.run(
            [install, *common, *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = Server(port, folder / "socket")
        common += [f"--port={port}", "--bind-address=127.0.0.1"]
        common += [f"--socket={server.socket}", f"--pid-file={folder / 'pid'}"]
        with (
            open(folder / "log", "wb") as log,
            subprocess.Popen([server_program, *common], stderr=log) as process,
        ):
            try:
                _make_user(server, process, folder / "log")
                yield server
            finally:
                process.kill()


def _make_user(
    server: Server, process: "subprocess.Popen[bytes]", log: pathlib.Path
) -> None:
    import pymysql

    until = time.monotonic() + 60
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        if not server.socket.exists():
            time.sleep(0.05)
            continue
        try:
            connection = pymysql.connect(unix_socket=str(server.socket), user="root")
        except pymysql.OperationalError:
            time.sleep(0.05)
        else:
            break
    with connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {_DATABASE}")
        cursor.execute(f"CREATE USER {USER} IDENTIFIED BY %s", [PASSWORD])
        cursor.execute(f"GRANT ALL ON {_DATABASE}.* TO {USER}")


def fill(server: Server, rows: Sequence[tuple[Any, ...]]) -> None:
    """Makes the table photos, an empty table log, and a function that writes to it."""
    with _connected(server) as cursor:
        cursor.execute(
            "CREATE TABLE photos (path TEXT, img LONGBLOB, label TEXT, score DOUBLE)"
        )
        cursor.executemany(
            "INSERT INTO photos VALUES (%s, _binary %s, %s, %s)", map(tuple, rows)
        )
        cursor.execute("CREATE TABLE log (number INT)")
        cursor.execute(
            "CREATE FUNCTION ins() RETURNS INT MODIFIES SQL DATA "
            "BEGIN INSERT INTO log VALUES (1); RETURN 1; END"
        )


def count(server: Server) -> tuple[int, int]:
    """Returns the number of rows of photos and of log."""
    with _connected(server) as cursor:
        cursor.execute(
            "SELECT (SELECT COUNT(*) FROM photos), (SELECT COUNT(*) FROM log)"
        )
        photos, log = cursor.fetchone()
        return photos, log


@contextlib.contextmanager
def _connected(server: Server) -> Iterator[Any]:
    import pymysql

    with (
        pymysql.connect(
            host="127.0.0.1",
            port=server.port,
            user=USER,
            password=PASSWORD,
            database=_DATABASE,
        ) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor
        connection.commit()
