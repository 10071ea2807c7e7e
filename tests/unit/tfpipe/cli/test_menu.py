"""tfpipe.cli.menu: the commands by name."""

import importlib.util
import itertools
import re
import sys

import pytest

from tests.house.test_rooms import AT_THE_TOP
from tests.support.processes import commands
from tfpipe.cli import menu, names


def test_the_menu_has_all_commands_and_fits_a_screen() -> None:
    modules = {module for part in names.MENU.values() for module, _ in part.values()}
    packages = ("converters", "benchmarks")

    assert modules == {f"{p}.{name}" for p in packages for name in AT_THE_TOP[p]}
    assert all(importlib.util.find_spec(module) for module in modules)
    lines = menu.text().splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train --model=x", ("train", ["--model=x"])),
        ("convert folder a b", ("convert folder", ["a", "b"])),
        ("check DIR", ("check", ["DIR"])),
    ],
)
def test_words_name_a_command(words: str, expected: object) -> None:
    assert menu.command_of(words.split()) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian", "no command tfpipe trian. Did you mean tfpipe train?"),
        (
            "convert foldr x",
            "stream, got foldr. Did you mean tfpipe convert folder?",
        ),
        ("convert", "tfpipe convert needs an input: folder, imagenet, table, web"),
        ("convert --seed=1", "tfpipe convert needs an input: folder, imagenet, ta"),
        ("verify DIR", "no command tfpipe verify. Did you mean tfpipe check?"),
        ("convert a b", "stream, got a. tfpipe convert --help says what each reads."),
        ("webdataset", "webdataset. Did you mean tfpipe convert webdataset?"),
        ("benchmarks.train", "benchmarks.train. Did you mean tfpipe train?"),
        ("zzz", "no command tfpipe zzz. tfpipe --help lists the commands."),
    ],
)
def test_other_words_name_the_nearest(words: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        menu.command_of(words.split())


@pytest.mark.parametrize(
    ("words", "code", "out"),
    [
        ([], 0, "tfpipe COMMAND"),
        (["-h"], 0, "tfpipe COMMAND"),
        (["help"], 0, "tfpipe COMMAND"),
        (["convert", "--help"], 0, "Make a data set\n  tfpipe convert folder "),
        (["completion", "fish"], 0, "# fish completes tfpipe"),
        (["completion", "csh"], 1, ""),
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python -m converters.verify DIR", "tfpipe check DIR"),
        (
            "horovodrun -np 4 python -m benchmarks.train",
            "horovodrun -np 4 tfpipe train",
        ),
        ("a flag of benchmarks.train.", "a flag of tfpipe train."),
        ("for python -m\nbenchmarks.report. It", "for\ntfpipe report. It"),
        ("python -m tfpipe.native", "python -m tfpipe.native"),
        ("converters.inputs has readers", "converters.inputs has readers"),
    ],
)
def test_texts_name_commands_as_the_menu_does(text: str, expected: str) -> None:
    assert names.as_typed(text) == expected


def test_help_of_all_commands_is_short_and_names_the_program() -> None:
    for name, group in itertools.groupby(names.commands_of(""), lambda pair: pair[0]):
        words = [command for _, command in group]
        help, whole = (
            commands.answer(words, flag, say=names.as_typed).stdout
            for flag in ("--help", "--helpfull")
        )
        by_module = commands.answer(words, "--help").stdout

        assert max(map(len, by_module.splitlines())) <= 80, name
        assert help == commands.answer(words, "-h", say=names.as_typed).stdout
        assert commands.answer(words, "--version").stdout.startswith("tfpipe 0.")
        assert f"  tfpipe {name} " in help
        assert "JSON object" in " ".join(whole.split()), name
        assert "python -m benchmarks" not in whole
        assert "python -m converters" not in whole
        assert len(help.splitlines()) <= 40, name
        assert max(map(len, help.splitlines())) <= 80, name
