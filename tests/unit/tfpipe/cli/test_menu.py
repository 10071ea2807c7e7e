"""tfpipe.cli.menu: the commands by name."""

import importlib.util
import re
import sys

import pytest

from tests.house.test_rooms import AT_THE_TOP
from tfpipe.cli import menu


def test_the_menu_has_all_commands_and_fits_a_screen() -> None:
    modules = {module for part in menu.MENU.values() for module, _ in part.values()}
    packages = ("converters", "benchmarks")

    assert modules == {f"{p}.{name}" for p in packages for name in AT_THE_TOP[p]}
    assert all(importlib.util.find_spec(module) for module in modules)
    lines = menu.text().splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train --model=x", ("benchmarks.train", ["--model=x"])),
        ("convert folder a b", ("converters.folder", ["a", "b"])),
        ("check DIR", ("converters.verify", ["DIR"])),
    ],
)
def test_words_name_a_command(words: str, expected: object) -> None:
    assert menu.module_of(words.split()) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian", "no command tfpipe trian. Did you mean tfpipe train?"),
        (
            "convert foldr x",
            "convert foldr. Did you mean tfpipe convert folder?",
        ),
        ("convert", "tfpipe convert needs an input: folder, imagenet, table, web"),
        ("zzz", "no command tfpipe zzz. tfpipe --help lists the commands."),
    ],
)
def test_other_words_name_the_nearest(words: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        menu.module_of(words.split())


@pytest.mark.parametrize(
    ("words", "code", "out"),
    [
        ([], 0, "tfpipe COMMAND"),
        (["-h"], 0, "tfpipe COMMAND"),
        (["--version"], 0, "tfpipe 0."),
        (["trian"], 1, ""),
    ],
)
def test_exit_code(
    words: list[str],
    code: int,
    out: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["tfpipe", *words])

    assert menu.main() == code
    assert capsys.readouterr().out.startswith(out)
