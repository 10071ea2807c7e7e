"""tfpipe.cli: help, exit codes and messages of a command."""

import sys
import types

import pytest
from absl import flags

from tests.unit.tfpipe.cli import sample
from tfpipe import cli
from tfpipe.cli import help as help_texts, messages

WORDS = ("DIR", "--out=x")


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ((), 0, ""),
        (("--seed=2",), 2, ""),
        (("--name=missing",), 1, "Error: no file. Look at x.\n"),
        (("--name=large",), 1, "Error: out of memory. Look at x.\n"),
        (("--name=stopped",), 1, "Error: interrupted. Look at x.\n"),
        (("--count=0",), 1, "Error: --count must be a whole number"),
        (("--sed=1",), 1, "Did you mean --seed? --help lists the flags.\n"),
    ],
)
def test_exit_code_and_message(
    words: tuple[str, ...], code: int, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.call((sample.COMMAND,), [*WORDS, *words]) == code

    shown = capsys.readouterr()
    assert error in shown.err
    assert len(shown.err.splitlines()) == (code == 1)


@pytest.mark.parametrize("is_imported", [False, True])
def test_an_import_of_tensorflow_is_filtered_once(
    is_imported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    others = [finder for finder in sys.meta_path if finder is not messages._FINDER]
    monkeypatch.setattr(sys, "meta_path", others)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setattr(flags.FLAGS["verbosity"], "present", 0)
    if is_imported:
        monkeypatch.setitem(sys.modules, "tensorflow", types.ModuleType("tensorflow"))
    count = len(sys.meta_path)

    for _ in range(2):
        cli.call((sample.COMMAND,), WORDS)

    assert len(sys.meta_path) - count == (not is_imported)


@pytest.mark.parametrize("words", [("-h",), ("--help",), ("x", "--count=0", "--help")])
def test_help_needs_no_other_words(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.call((sample.COMMAND,), words) == 0

    text = capsys.readouterr().out
    lines = text.splitlines()
    assert len(lines) <= help_texts.MOST_LINES
    assert max(map(len, lines)) <= help_texts.WIDTH
    assert lines[2] == "  python -m sample DIR --count=3"
    titles = [line for line in lines[5:] if line and line[0] != " "]
    assert titles[1:5] == ["Arguments", "Required", "Sizes", "Other flags"]
    assert "--nofsync" in text
    assert "[1,2]" in text
    assert titles[0].startswith("More words"), "there is room"


def test_full_help_says_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call((sample.COMMAND,), ["--helpfull"]) == 0

    text = capsys.readouterr().out
    for words in (
        "More words",
        "--[no]fsync: Wait",
        "It must be empty.",
        "--verbosity",
    ):
        assert words in text


def test_help_after_two_dashes_is_for_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.call((sample.COMMAND,), [*WORDS, "--", "--help"]) == 0
    assert "more=('--help',)" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.call((sample.COMMAND,), ["--version"]) == 0
    assert capsys.readouterr().out.startswith("tfpipe 0.")


def test_help_of_many_flags_lists_names_where_there_is_no_room() -> None:
    kind = type("Many", (), {"__annotations__": {f"flag_{i}": int for i in range(60)}})
    for name in kind.__annotations__:
        setattr(kind, name, cli.flag(0, f"About {name}.", group=f"Group {name[5]}"))

    parts = help_texts.parts_of(cli.fields.options_of(cli.options(kind)), ())
    text = help_texts.short(sample.__doc__ or "", parts)

    assert len(text.splitlines()) <= help_texts.MOST_LINES
    assert "About flag_0." in text
    assert all(f"--flag_{i}" in text for i in range(60))


FORMS = (
    cli.Command(sample.Base, lambda options: 3, form="first"),
    cli.Command(sample.Base, lambda options: options.seed, form="second"),
)


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["first"], 3, ""),
        (["--seed=4", "second"], 4, ""),
        ([], 1, "Name one of first, second, got nothing."),
        (["frist"], 1, "got frist. Did you mean first?"),
    ],
)
def test_a_word_chooses_the_form(
    words: list[str], code: int, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(FORMS, words) == code
    assert error in capsys.readouterr().err
