"""The limits of requests: the variables decide, and each command sets the variables."""

import os

import pytest

import tfpipe
from tfpipe import cli
from tfpipe.cli import fields, names
from tfpipe.location import limits

SET = {limits.CONNECTIONS: "3", limits.TIME_LIMIT: "1.5"}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SET:
        monkeypatch.delenv(name, raising=False)


def _limits() -> tuple[float, ...]:
    cache = tfpipe.ShardCache("cache")
    files = tfpipe.Files("/folder")
    return files.time_limit, cache.time_limit, cache.num_connections


def test_variables_decide_where_no_argument_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _limits() == (60, 120, 16)

    for name, text in SET.items():
        monkeypatch.setenv(name, text)

    assert _limits() == (1.5, 1.5, 3)
    assert tfpipe.Files("/folder", 9).time_limit == 9
    assert tfpipe.ShardCache("cache", num_connections=7).num_connections == 7


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        (limits.CONNECTIONS, "many", "a whole number from 1 to 1024, got 'many'"),
        (limits.CONNECTIONS, "0", "a whole number from 1 to 1024, got 0"),
        (limits.CONNECTIONS, "2000", "a whole number from 1 to 1024, got 2000"),
        (limits.TIME_LIMIT, "long", "got 'long'"),
        (limits.TIME_LIMIT, "0", "got 0"),
    ],
)
def test_a_wrong_variable_is_named(
    name: str, text: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)

    with pytest.raises(ValueError, match=f"{name} must be .*{wanted}"):
        _limits()


def test_flags_hold_while_a_command_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limits.TIME_LIMIT, "7")
    options = cli.StoreOptions(store_connections=3, store_time_limit=1.5)

    with fields.environment(options):
        assert _limits() == (1.5, 1.5, 3)

    assert os.environ[limits.TIME_LIMIT] == "7"
    assert limits.CONNECTIONS not in os.environ


def test_flags_and_variables_have_the_same_names_and_bounds() -> None:
    connections, seconds = fields.options_of(cli.StoreOptions)

    assert connections.about.variable == limits.CONNECTIONS
    assert connections.about.bounds["most"] == limits.MOST_CONNECTIONS
    assert seconds.about.variable == limits.TIME_LIMIT
    assert seconds.about.bounds["most"] == limits.MOST_SECONDS


def test_each_command_that_takes_a_url_has_the_flags() -> None:
    has_url, has_flags = set(), set()
    for name, command in names.commands_of(""):
        shown = f"{name} {command.form}"
        if any(flag.about.url for flag in command.flags):
            has_url.add(shown)
        if issubclass(command.options, cli.StoreOptions):
            has_flags.add(shown)

    assert len(has_url) > 10
    assert has_flags == has_url
