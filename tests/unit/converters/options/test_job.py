"""converters.options: the flags of all commands, and the options of all conversions."""

import dataclasses
from typing import Any

import pytest

from converters import (
    export,
    folder,
    imagenet,
    merge,
    query,
    replicate,
    synthesize,
    table,
    tfrecord,
    verify,
    webdataset,
)
from converters.images.policy import Policy
from converters.options import job
from tests.support.data.conversions import conversion
from tests.support.processes import commands
from tfpipe import cli

CONVERSIONS = (folder, imagenet, table, webdataset, tfrecord, merge)
OTHERS = (export, query, replicate, synthesize, verify)
MODULES: tuple[Any, ...] = (*CONVERSIONS, *OTHERS)
COMMANDS = [command for module in MODULES for command in module.COMMANDS]
# One option for each flag and argument, with the last command that has it.
OPTIONS = {
    (option.label, option.about.help): (command, option)
    for command in COMMANDS
    for option in cli.fields.options_of(command.options)
}
# The words that each command needs; replicate needs one of three sizes too.
NEEDED = {
    export: "data --output_dir=out --format=tree",
    query: "data",
    replicate: "data --output_dir=out",
    synthesize: "--output_dir=out --num_images=9 --num_classes=3",
    verify: "data --input_dir=raw",
    merge: "a=b --output_dir=out",
    folder: "--input_dir=raw --output_dir=out",
    imagenet: "--input_dir=raw --output_dir=out",
}
# Flags that need another one, or a library, or are no number of their kind.
WORDS = {
    "corrupt": "--corrupt=fail --decode=full",
    "enlarge": "--enlarge=2 --copies=1",
    "extra_in_records": "--extra_in_records --extra_columns=a",
    "for_ram": "--for_ram=3GB",
    "identical_by": "--identical_by=copy --identical",
    "--materialize": "--overwrite --materialize=x",
    "label_base": "--label_base=0",
    "paths": "--paths=split",
    "sheet": "--sheet=a.png",
    "split_fractions": "--split_fractions=train=0.5,test=0.5",
    "table": "--table=x=y --query=SELECT",
    "target_bytes": "--target_bytes=2TB",
    "weight": "--weight=x --save=y",
    "work_dir": "--work_dir=x --output_dir=s3://bucket/x",
}
NOT_ALONE = (
    *("near_duplicates", "engine", "ray_address", "quality", "reencode"),
    *("storage_cache", "num_hosts", "ram_factor", "write_entry_points", "entry_points"),
    *("restart_rows", "lossless_rotation", "name", "clause", "num_validation_images"),
)


def _words(command: cli.Command) -> list[str]:
    """The words that a command needs."""
    module = next(each for each in MODULES if command in each.COMMANDS)
    return NEEDED.get(module, "--input=raw --output_dir=out").split()


def _changed(option: cli.fields.Option) -> str:
    """A flag with another value than its default, and what the flag needs."""
    if option.choices:
        texts = [t for t, v in option.choices.items() if v != option.default]
        return f"--{option.name}={texts[0]}"
    if option.is_switch:
        return f"--{'no' if option.default else ''}{option.name}"
    least = option.about.bounds.get("least", 0)
    text = {int: f"{least + 3}", float: "0.5"}.get(option.kind, "a=x")
    return f"--{option.name}={text}"


@pytest.mark.parametrize("part", range(8))
def test_each_flag_reaches_its_field(part: int) -> None:
    for command, option in list(OPTIONS.values())[part::8]:
        assert option.about.help[0].isupper(), option.label
        assert option.about.help.endswith("."), option.label
        if option.is_required or option.about.is_argument or option.field in NOT_ALONE:
            continue
        changed = WORDS.get(option.about.needs) or WORDS.get(option.field)
        own = (changed or _changed(option)).split()
        names = {word.partition("=")[0] for word in own}
        words = [w for w in _words(command) if w.partition("=")[0] not in names] + own
        sizes = ("--copies", "--target", "--for_ram")
        if command in replicate.COMMANDS and not any(
            w.startswith(sizes) for w in words
        ):
            words.append("--copies=2")

        values: Any = command.parse(words)
        for name in option.path:
            values = getattr(values, name)

        assert getattr(values, option.field) not in (option.default, None), words


def test_few_flags_take_a_url() -> None:
    """A new flag of a command is tried too."""
    options = [option for _, option in OPTIONS.values() if option.kind is str]
    for option in options:
        if not (option.about.url or option.choices or option.about.parse):
            said = f"{option.label} must be a path on this"
            with pytest.raises(ValueError, match=said):
                option.parse("s3://bucket/x")
    with_url = {option.name for option in options if option.about.url}
    named = {"output_dir", "input_dir", "input", "root", "table", "ray_address"}
    merged = {each.name for each in cli.fields.options_of(merge.MergeOptions)}
    assert with_url - merged <= named | {"data_dir", "clause"}


@pytest.mark.parametrize("module", CONVERSIONS)
def test_photographs_are_upright_but_for_imagenet(module: Any) -> None:
    (command,) = module.COMMANDS
    options = command.parse(_words(command))

    turned = "keep" if module is imagenet else "apply"
    assert options.policy == job.decided(exif_orientation=turned)
    assert options.name == module.__name__.rpartition(".")[2]
    kept = command.parse([*_words(command), "--exif_orientation=keep", "--cmyk=skip"])
    assert kept.policy == job.decided(cmyk="skip")
    fixed = ["--nolossless_rotation", "--corrupt=ignore"]
    assert command.parse([*_words(command), *fixed]).policy == Policy(
        exif_orientation=turned
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["raw", "out", "--validation_fraction=1"], "must be a finite number >= 0"),
        (["raw", "out", "--split_fractions=train=2"], "above 0 and below 1 each"),
        (["raw", "out", "--split_fractions=train"], "must be words such as train=0.8"),
        (["raw", "out", "--engine=ray", "--num_workers=0"], "--num_workers must be a"),
        (["raw", "--input_dir=photos", "out"], "--input_dir must be given once"),
        (["raw"], "--output_dir must be given"),
        (["raw", "out", "password=hid"], "Unexpected argument: a text."),
        (["raw", "out", "--cmyk=skipp"], "got skipp. Did you mean skip?"),
        (["raw", "out", "--max_sid=3"], "Did you mean --max_side?"),
    ],
)
def test_wrong_words_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        folder.COMMANDS[0].parse(words)


def test_json_has_the_options_of_every_conversion_alone() -> None:
    (command,) = merge.COMMANDS
    options = command.parse(["a=s3://me:hid@b", "--output_dir=out", "--classes=x"])

    shown = options.to_json()

    assert set(shown) == {each.name for each in dataclasses.fields(job.ConvertOptions)}
    assert "hid" not in str(shown)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"output_dir": "ftp://host/x"}, "--output_dir must be a path or a URL with"),
        ({"output_dir": "s3://me:secret@bucket/x"}, "without a password"),
        ({"output_dir": "https://host/x"}, "files of a web server are only read"),
        ({"output_dir": "s3://bucket/x", "num_tasks": 2}, "a folder that all tasks"),
        ({"output_dir": "x", "work_dir": "y"}, "--work_dir is for an --output_dir by"),
    ],
)
def test_output_that_no_job_can_write_is_refused(
    options: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        conversion("imagenet", input_dir="raw", **options)  # type: ignore[arg-type]
    assert "secret@" not in str(refused.value)


@pytest.mark.parametrize("module", MODULES)
def test_help_fits_a_screen(module: Any) -> None:
    lines = commands.answer(module.COMMANDS, "--help").lines

    assert len(lines) <= 40
    assert [line for line in lines if len(line) > 80] == []
    assert lines[2].startswith(f"  python -m {module.__name__} ")
