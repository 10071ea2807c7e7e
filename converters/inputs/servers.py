"""Texts that name a database server, and the same texts without passwords.

In: the text of a flag, or an error of a driver. Out: the parts of the URL of a server;
texts fit for messages, JSON and the index. A text that only looks like a connection,
such as `host=h password=x`, is never shown.
"""

import glob
import os
import re
import urllib.parse
from collections.abc import Mapping
from typing import Any

from tfpipe.location import location

POSTGRESQL, MYSQL = "PostgreSQL", "MySQL"
_SCHEMES = {
    **dict.fromkeys(("postgresql", "postgres"), POSTGRESQL),
    **dict.fromkeys(("mysql", "mariadb"), MYSQL),
}
# An @ behind the host would be part of a password with a raw / ? or #.
_URL = (
    r"(?P<scheme>\w+)://((?P<user>[^:/?#]*)(:(?P<password>[^/?#]*))?@)?"
    r"(?P<host>\[[\da-f:.]+\]|[^:/?#@\[\]]*)(:(?P<port>\d{1,5}))?(?P<path>/[^?#@]*)?"
    r"(\?(?P<query>[^#@]*))?(#(?P<table>[^@]*))?"
)
_MAX_PORT = 65535
# The forms of libpq, JDBC, ODBC and SQLAlchemy, and `user:password@host`.
_CONNECTION = re.compile(r"(?i)://|(pass|pwd|secret|token)\w*\s*=|:[^/]*@")
_PUBLIC = ("scheme", "user", "host", "port", "path", "table")


def is_server(value: str) -> bool:
    """Whether the text of a flag is the URL of a database server."""
    return value.strip().partition("://")[0].lower() in _SCHEMES and "://" in value


def server(name: str, value: str) -> dict[str, Any]:
    """Returns the fields of the `TableSource` for the value of a flag."""
    value = value.strip()
    kind = _SCHEMES[value.partition("://")[0].lower()]
    parts = re.fullmatch(_URL, value, re.IGNORECASE)
    if parts is None or int(parts["port"] or 0) > _MAX_PORT:
        raise ValueError(
            f"{name} must be a URL such as {kind.lower()}://user@host:5432/database, "
            "got one that cannot be read. The URL is not shown here because it may "
            "hold a password; write special characters of a password as %XX."
        )
    host = f"{parts['host']}{':' if parts['port'] else ''}{parts['port'] or ''}"
    user = f"{parts['user']}@" if parts["user"] else ""
    table = f"#{parts['table']}" if parts["table"] else ""
    return {
        "kind": kind,
        "url": value.partition("#")[0],
        "shown": f"{parts['scheme']}://{user}{host}{parts['path'] or ''}{table}",
        "table": parts["table"] or None,
    }


def shown(value: str) -> str:
    """Returns the place of a table without passwords; "..." for an odd connection.

    The name of a place may stand before the place, as in NAME=PLACE.
    """
    if named := re.fullmatch(r"((?:[^=:/]+=)+)(\w+://.*)", value, re.DOTALL):
        return f"{named[1]}{shown(named[2])}"
    if is_server(value):
        return str(server("A place", value)["shown"])
    if location.written_scheme(value):
        return location.shown(value)
    return "..." if may_hold_secret(value) else value


def may_hold_secret(value: str) -> bool:
    """Whether a text names no file and may be a connection string of a database."""
    if location.written_scheme(value) or _CONNECTION.search(value) is None:
        return False
    path = os.path.expanduser(value)
    return not (os.path.lexists(path) or glob.glob(path, recursive=True))


def masked(text: str, url: str) -> str:
    """Returns an error of a driver without the passwords of a URL.

    A password that is also the name of the user, the host or the database is masked
    only at the position of a password: masked names would tell the password.
    """
    parts = re.fullmatch(_URL, url, re.IGNORECASE)
    if parts is None:
        return "an error that may repeat a password"
    public = {urllib.parse.unquote(parts[name] or "").lstrip("/") for name in _PUBLIC}
    for secret in _secrets(parts.groupdict()):
        before = r"(?:(?<=[:=])|(?<==['\"]))" if secret in public else ""
        text = re.sub(f"{before}{re.escape(secret)}", "***", text)
    return text


def _secrets(parts: Mapping[str, str | None]) -> list[str]:
    """Returns all passwords: as written, plain, and with special characters as %XX."""
    options = (each.partition("=") for each in (parts["query"] or "").split("&"))
    written = [value for key, _, value in options if "pass" in key.lower()]
    written.append(parts["password"] or "")
    forms = {form for each in written for form in (each, urllib.parse.unquote(each))}
    forms |= {urllib.parse.quote(form, safe="") for form in forms}
    return sorted(forms - {""}, key=len, reverse=True)
