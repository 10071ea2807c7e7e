"""tfpipe.cli: texts of flags to values, and values that must not be."""

import dataclasses
import pathlib
import re

import pytest

from tests.unit.tfpipe.cli import sample
from tests.unit.tfpipe.cli.sample import Color, Sample
from tfpipe import cli
from tfpipe.cli import fields

WORDS = ("DIR", "--out=x")


def _parse(*words: str) -> Sample:
    options: Sample = sample.COMMAND.parse([*WORDS, *words])
    return options


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("", "data_dir", "DIR"),
        ("", "name", "sample"),
        ("--name s3", "name", "s3"),
        ("--count=3", "count", 3),
        ("-count 9", "count", 9),
        ("", "count", None),
        ("--rate=1", "rate", 1.0),
        ("--ranks=1,2,8", "ranks", (1, 2, 8)),
        ("--max_gb=1.5", "max_bytes", 1_500_000_000),
        ("--nofsync", "fsync", False),
        ("--fsync=no", "fsync", False),
        ("--fsync", "fsync", True),
        ("--level=deep", "level", "deep"),
        ("--color=blue", "color", Color.BLUE),
        ("", "color", Color.RED),
        ("--whole=yes", "whole", True),
        ("--whole=auto", "whole", "auto"),
        ("--models=vgg,resnet", "models", ("vgg", "resnet")),
        ("--models=", "models", ()),
        ("--inputs=a,b --inputs s3://c/d", "inputs", ("a,b", "s3://c/d")),
        ("-- --x y", "more", ("--x", "y")),
        ("--keep", "policy", sample.Policy(keep=True, turn="apply")),
        ("--turn=keep", "policy", sample.Policy()),
    ],
)
def test_texts_become_values(words: str, field: str, value: object) -> None:
    assert getattr(_parse(*words.split()), field) == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--count=0", "--count must be a whole number from 1 to 9, got 0."),
        ("--count=many", "--count must be a whole number from 1 to 9, got 'many'."),
        ("--count=2.5", "--count must be a whole number from 1 to 9, got '2.5'."),
        ("--count", "Missing value for flag --count."),
        ("--rate=0", "--rate must be a finite number > 0 and <= 1, got 0.0."),
        ("--rate=nan", "--rate must be a finite number"),
        ("--seed=-1", "--seed must be a whole number >= 0, got -1."),
        ("--ranks=1,x", "--ranks must be a whole number >= 1, got 'x'."),
        ("--max_gb=no", "--max_gb must be a number of GB above 0, got 'no'."),
        ("--fsync=maybe", "--fsync must be True or False, got 'maybe'."),
        ("--nofsync=1", "--nofsync=1 does not take an argument"),
        ("--level=dep", "must be one of quick, deep, got dep. Did you mean deep?"),
        ("--models=vgg,x", "--models must be one of vgg, resnet, got x."),
        ("--color=green", "--color must be one of red, blue, got green."),
        ("--name=s3://a/b", "--name must be a path on this machine, got s3://a/b."),
        ("--name=a --name=b", "--name was given twice: a and b. Leave one out."),
        ("--fsync --nofsync", "--fsync was given twice: true and false."),
        ("--ranks=1 --ranks=2", "given twice: 1 and 2. Leave one out. Commas join"),
        ("--cuont=3", "There is no flag --cuont. Did you mean --count?"),
        ("--coun=3", "There is no flag --coun."),
        (f"--{'dir' * 900}=3", f"There is no flag --{'dir' * 20}..."),
        ("-" * 3000, "There is no flag --..."),
        ("--data_dir=x", "no flag --data_dir: give DIR without a flag."),
        ("other", "Unexpected argument: other. Flags start with --."),
        ("s3://u:p@b/c", "Unexpected argument: a URL."),
        ("--level=deep --rate=1", "--level=deep does not use --rate. Leave it out."),
    ],
)
def test_wrong_words_name_what_must_hold(words: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        _parse(*words.split())


def test_flags_may_be_in_a_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "flags"
    path.write_text("# comment\n--count=3\n--nofsync\n")

    options = _parse(f"--flagfile={path}", "--seed=2")

    assert (options.count, options.fsync, options.seed) == (3, False, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "DIR and --out must be given. --help shows an example."),
        (["--out=x"], "DIR must be given: Folder with shards."),
        (["DIR"], "--out must be given: Folder to write."),
    ],
)
def test_what_is_missing_is_named(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        sample.COMMAND.parse(words)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 10}, "--count must be a whole number from 1 to 9, got 10."),
        ({"count": True}, "--count must be"),
        ({"models": "vgg"}, "--models must be a list, got 'vgg'."),
        ({"name": 3}, "--name must be a text, got 3."),
        ({"fsync": 1}, "--fsync must be True or False, got 1."),
    ],
)
def test_options_made_in_python_are_checked_too(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Sample(data_dir="x", out="y", **values)


def test_options_are_plain_and_frozen() -> None:
    options = Sample(data_dir="x", out="y", ranks=[1], rate=1)

    assert (options.ranks, type(options.rate)) == ((1,), float)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.out = "z"
    assert cli.changed(options, "ranks", "rate", "level") == ["--rate", "--ranks"]


def test_a_text_of_the_command_line_comes_back() -> None:
    for option in fields.options_of(Sample):
        if option.default not in (dataclasses.MISSING, None) and not option.about.parse:
            assert option.parse(option.text_of(option.default)) == option.default


def test_absl_has_the_flags_of_an_imported_module() -> None:
    absl = sample.FLAGS
    names = {flag.name for flag in absl.get_key_flags_for_module(sample)}

    assert names >= {"seed", "out", "keep", "max_gb"}
    assert "data_dir" not in names
    absl(["", "--out=folder", "--count=3"])
    options = cli.from_flags(Sample, values=absl, data_dir="x")
    assert (options.out, options.count) == ("folder", 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("a b c", (("a", "b"), "c")),
        ("a --target=c", (("a",), "c")),
        ("a b --target=c", (("a", "b"), "c")),
        ("--sources=a --sources=b --target=c", (("a", "b"), "c")),
        ("a c --target=c", (("a", "c"), "c")),
        ("a", "--target must be given"),
        ("a c --sources=a", (("a",), "c")),
        (
            "a c --sources=b",
            "--sources must be given once, got b by its flag, and a as",
        ),
        ("a c --save=x", "--save needs --level=deep. Add it, or leave --save out."),
        ("a c --level=deep --weight=2", "--weight needs --save. Add it, or leave"),
        ("a c --level=deep --save=x --weight=2", (("a",), "c")),
    ],
)
def test_words_without_a_flag_and_flags_that_need_others(
    words: str, said: object
) -> None:
    command = cli.Command(sample.Copy, print, arguments=("sources", "target"))
    if isinstance(said, str):
        with pytest.raises(ValueError, match=re.escape(said)):
            command.parse(words.split())
    else:
        options = command.parse(words.split())
        assert (options.sources, options.target) == said


def test_a_nested_class_may_be_made_by_a_function() -> None:
    assert sample.Nesting().policy == sample.Policy(keep=True, turn="apply")
    made = fields.build(sample.Nesting, policy={"turn": "keep"})
    assert made.policy == sample.Policy(keep=False, turn="keep")
