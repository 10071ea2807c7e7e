"""No password of a connection is shown, in whatever form a person writes it."""

import pathlib

import pytest

from converters import verify
from converters.inputs import servers
from converters.inputs.merged import kind_of
from converters.inputs.tables import databases, table_sources
from tests.support.processes import commands

# A place, and how it is shown; None if it is refused.
_PLACES: dict[str, str | None] = {
    "postgresql://me:hid:d&n@host:1/db#t": "postgresql://me@host:1/db#t",
    "postgresql://me:hid@d$n@host/db": "postgresql://me@host/db",
    "postgres://host/db?password=hid&user=x&sslpassword=d": "postgres://host/db",
    "POSTGRESQL://me:hid%2Fdn@host/db": "POSTGRESQL://me@host/db",
    " postgresql://me:hid@host/db ": "postgresql://me@host/db",
    "postgresql:///db?host=/run/x&password=hid": "postgresql:///db",
    "postgresql://me:hid@[::1]:5432/db": "postgresql://me@[::1]:5432/db",
    "mysql://me:hid@[::1]:3306/db": "mysql://me@[::1]:3306/db",
    "mariadb://me:hi:d@host": "mariadb://me@host",
    # Raw / ? and # belong to the password.
    "postgresql://me:12/hid@host/db": None,
    "postgresql://me:12?hid@host/db": None,
    "postgresql://me:12#hid@host/db": None,
    "postgresql://me:hid@host:x/db": None,
    "postgresql://me:hid@host:99999/db": None,
    "postgresql://me:hid@a:1,b:2/db": None,
    "postgresql+psycopg://me:hid@host/db": None,
    "jdbc:postgresql://me:hid@host/db": None,
    "jdbc:mysql://host/db?user=me&password=hid": None,
    "host=h password='hid d' dbname=x": None,
    "host=h PASSWORD = hid": None,
    "Server=h;Database=d;Pwd=hid;": None,
    "me:hid@host/db": None,
    "postgresql:/me:hid@host/db": None,
    "oracle://me:hid@host/db": None,
    "https://me:hid@host/x.csv": None,
    "https://host/x.csv?token=hid": None,
}


@pytest.mark.parametrize("place", _PLACES)
def test_no_password_is_shown(place: str) -> None:
    shown = _PLACES[place]

    if shown is not None:
        source = table_sources.find("--input", place)
        assert source.shown == servers.shown(place) == shown
        assert servers.shown(f"web={place.strip()}") == f"web={shown}"
        assert "hid" not in repr(source)
        return
    with pytest.raises(ValueError, match="--input must be") as caught:
        table_sources.find("--input", place)
    assert "hid" not in str(caught.value)
    if not servers.is_server(place):
        assert "hid" not in servers.shown(place)


@pytest.mark.parametrize("place", _PLACES)
def test_an_unexpected_argument_shows_no_password(place: str) -> None:
    done = commands.answer(verify.COMMANDS, "folder", place)

    assert done.returncode == 1
    assert "hid" not in done.stderr


@pytest.mark.parametrize(
    ("url", "said", "masked"),
    [
        ("x://u:a%2Fb@h/d", "bad a/b and a%2Fb", "bad *** and ***"),
        ("x://u:p1@h/d?sslpassword=p2", "p1, p2, u, h", "***, ***, u, h"),
        ("x://u:s3cret@h", 'at "x://u:s3cret@h"', 'at "x://u:***@h"'),
        ("x://u:s3cret@h", "host=h password='s3cret'", "host=h password='***'"),
        # The name of the user stays where it is no password.
        ("x://u:wort@h", "no wort, password=wort", "no ***, password=***"),
        ("x://pg1:pg1@h", 'no user "pg1" at pg1:pg1@h', 'no user "pg1" at pg1:***@h'),
        ("x://u:7@h:7/d", "port 7 password=7", "port 7 password=***"),
        ("x://u@h/d", "no such table", "no such table"),
        ("host=h password=x1", "x1", "an error that may repeat a password"),
    ],
)
def test_errors_of_drivers_are_masked(url: str, said: str, masked: str) -> None:
    assert servers.masked(said, url) == masked


_NEVER_SHOWN = [
    *("postgresql://u:SECRET@h/db?sslpassword=SECRET", "POSTGRESQL://u:SECRET@h/db"),
    *("postgresql://u:p@SECRET@h/db", "postgresql://u:a:SECRET@h/db"),
    *("postgresql://u:12#SECRET@h/db", "postgresql://u:12?SECRET@h/db"),
    *("postgresql://u:12/SECRET@h/db", "postgresql://u:SECRET@[::1]:5432/db"),
    *("postgresql://u:SECRET@h:port/db", "postgresql://u:SECRET@h1:1,h2:2/db"),
    *("postgresql://u@h/db?options=-c%20password%3DSECRET", "mysql://u:SECRET@h#t@x"),
    *("postgresql:/u:SECRET@h/db", "postgresql:u:SECRET@h", " mysql://u:SECRET@h/db"),
    *("postgresql+psycopg://u:SECRET@h/db", "jdbc:postgresql://u:SECRET@h/db"),
    *("jdbc:mysql://h/db?user=u&password=SECRET", "host=h password='SECRET b'"),
    *("Server=h;Database=d;Pwd=SECRET;", "u:SECRET@h/db", "s3://u:SECRET@b/x.csv"),
    *(
        "https://h/x.csv?token=SECRET",
        "mongodb+srv://u:SECRET@h",
        "oracle://u:SECRET@h",
    ),
]


@pytest.mark.parametrize("value", _NEVER_SHOWN)
def test_no_form_of_a_connection_shows_its_password(value: str) -> None:
    texts = []
    for look in (
        lambda: servers.shown(value),
        lambda: repr(table_sources.find("--input", value)),
        lambda: kind_of(value),
    ):
        try:
            texts.append(look())
        except ValueError as error:
            texts.append(str(error))

    assert not [text for text in texts if "SECRET" in text]


@pytest.mark.parametrize("name", ["a:b@c.csv", "token=x/a.csv", "pwd=*/a.csv"])
def test_a_file_is_no_connection(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = pathlib.Path(name.replace("*", "x"))
    path.parent.mkdir(exist_ok=True)
    path.write_text("image,label\n")

    assert table_sources.find("--input", name).files == [str(path)]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:p@SECRET@h/db", "no user with p@SECRET"),
        ("postgresql://u:p%40SECRET@h/db", "no user with p@SECRET"),
        ("postgresql://u:p%40SECRET@h/db", "bad escape in p%40SECRET"),
        ("postgresql://h/db?x=1&sslpassword=SECRET", "cannot open the key by SECRET"),
        ("mysql://u@h/db?passwd=SECRET", "got SECRET"),
    ],
)
def test_a_message_of_a_database_shows_no_password(url: str, said: str) -> None:
    source = table_sources.find("--input", url)

    with (
        pytest.raises(ValueError, match=r"the database refused: .*\*\*\*") as caught,
        databases._errors(source, KeyError, lambda error: False),
    ):
        raise KeyError(said)

    assert "SECRET" not in str(caught.value)
