"""benchmarks.options.command: help, wrong flags, and flags without an effect."""

import re
from collections.abc import Sequence
from types import ModuleType

import pytest
from absl import app, flags
from absl.testing import flagsaver

from benchmarks import input as input_command, sweep, train
from benchmarks.options import (
    command,
    input_flags,
    sweep_flags,
    train_flags,
)
from benchmarks.reporting import gates
from studies import decode
from tests.support.data.url_flags import check_url_is_refused, takes_text
from tests.support.processes import commands


def _key_flags(module: ModuleType) -> list[flags.Flag]:
    return list(flags.FLAGS.get_key_flags_for_module(module))


@pytest.mark.parametrize(
    ("own", "groups"),
    [
        (train_flags.KEY_FLAGS, train_flags.GROUPS),
        (_key_flags(input_flags), input_flags.GROUPS),
        (_key_flags(sweep_flags), sweep_flags.GROUPS),
    ],
)
def test_every_flag_is_in_one_group(
    own: Sequence[flags.Flag], groups: command.Groups
) -> None:
    grouped = [name for names in groups.values() for name in names]

    assert sorted(grouped) == sorted(flag.name for flag in own)


@pytest.mark.parametrize(
    ("main", "groups"),
    [
        (train.main, train_flags.GROUPS),
        (input_command.main, input_flags.GROUPS),
        (sweep.main, sweep_flags.GROUPS),
    ],
)
def test_help_has_an_example_and_the_groups_in_their_order(
    main: command.Main, groups: command.Groups
) -> None:
    text = command.help_text(main, groups, with_all=False)

    assert "  python -m benchmarks." in text
    titles = [line[:-1] for line in text.splitlines() if re.match(r"\S.*:$", line)]
    assert [title for title in titles if title in groups] == list(groups)
    shown = re.findall(r"^  --(?:\[no\])?(\w+): ", text, re.M)
    assert shown == [name for names in groups.values() for name in names]
    assert "--verbosity" not in text
    assert "--verbosity" in command.help_text(main, groups, with_all=True)


def test_help_lists_the_metrics_of_gates() -> None:
    text = command.help_text(train.main, train_flags.GROUPS, with_all=False)

    (found,) = re.findall(r"The metrics: ([^.]*)\.", text)
    assert re.split(r",\s+", found) == list(gates.METRICS)


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["--help"], "help"),
        (["--num_steps=3", "-helpfull"], "helpfull"),
        (["--", "--help"], None),
        (["help"], None),
    ],
)
def test_help_is_asked_for_before_two_dashes(
    arguments: list[str], asked: str | None
) -> None:
    assert command._asked_help(arguments) == asked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--chache=cold"], "Unknown command line flag 'chache'. Did you mean: cache?"),
        (["--mode=learn"], "flag --mode=learn: value should be one of <train|eval|inf"),
    ],
)
def test_wrong_flag_is_one_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with commands.flags_set(), pytest.raises(SystemExit) as raised:
        command._parse(
            ["train", *arguments], main=train.main, groups=train_flags.GROUPS
        )

    assert raised.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Error: {message}")
    assert line.endswith(" --help lists the flags.")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("cache", " It is a flag of benchmarks.train."),
        ("nobars", " It is a flag of benchmarks.train."),
        ("model", " It is a flag of benchmarks.train and benchmarks.input."),
        ("nonsense", ""),
    ],
)
def test_unknown_flag_of_another_command_names_that_command(
    name: str, sentence: str
) -> None:
    assert command._owner_sentence(name).startswith(sentence)
    assert bool(command._owner_sentence(name)) == bool(sentence)


def test_wrong_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def main(argv: object) -> int:
        raise app.UsageError("Unexpected\nargument: x.")

    with commands.flags_set():
        assert command._call(main, []) == 1

    expected = "Error: Unexpected argument: x. --help lists the flags.\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mode": "eval", "num_steps": "3"}, "--mode=eval does not use --num_steps."),
        ({"mode": "infer", "learning_rate": "1"}, "does not use --learning_rate."),
        ({"synthetic": "1", "tuning": "x"}, "--synthetic does not use --tuning."),
        ({"step_time_ms": "3", "xla": "1"}, "emulated accelerator does not use --xla."),
        ({"max_faults": "3"}, "--on_error=raise does not use --max_faults."),
    ],
)
def test_flag_of_train_that_would_have_no_effect_is_refused(
    values: dict[str, str], message: str
) -> None:
    with (
        flagsaver.as_parsed(data_dir="x", **values),
        pytest.raises(ValueError, match=message),
    ):
        train_flags.config_from_flags()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pipeline": "a:b", "batch_size": "3"}, "--pipeline does not use --batch_siz"),
        ({"data_dir": "x", "do": "profile", "cpu_budget": "9"}, "use --cpu_budget"),
        ({"data_dir": "x", "do": "profile", "tuning": "y"}, "not use --tuning"),
    ],
)
def test_flag_of_input_that_would_have_no_effect_is_refused(
    values: dict[str, str], message: str
) -> None:
    with flagsaver.as_parsed(**values), pytest.raises(ValueError, match=message):
        input_flags.config_from_flags()


@pytest.mark.parametrize(
    "flag",
    [
        flag
        for module in (train_flags, input_flags, sweep_flags, decode)
        for flag in _key_flags(module)
        if takes_text(flag) and flag.name not in command.URL_FLAGS
    ],
    ids=lambda flag: flag.name,
)
def test_no_other_flag_takes_a_url(flag: flags.Flag) -> None:
    """A new flag of these commands is tried too."""
    check_url_is_refused(flag, command.refuse_urls)


def test_data_sets_may_be_given_by_url() -> None:
    values = flags.FlagValues()
    for name in command.URL_FLAGS:
        flags.DEFINE_string(name, None, "text", flag_values=values)

    values([__name__, *(f"--{name}=s3://bucket/x" for name in command.URL_FLAGS)])

    command.refuse_urls(values)


def test_url_in_the_flags_of_a_run_of_a_sweep_is_refused() -> None:
    with pytest.raises(ValueError, match="--report_dir must be a path on this machine"):
        train_flags.parse(["--synthetic", "--report_dir=gs://bucket/x"])
