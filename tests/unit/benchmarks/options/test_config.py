"""benchmarks.options.config: options that exclude each other."""

import dataclasses
import json
from types import ModuleType

import pytest

from benchmarks import (
    advise,
    input as input_command,
    report,
    service,
    storage,
    sweep,
    train,
)
from benchmarks.options.config import UNUSED as UNUSED_IN_A_RUN, Config
from benchmarks.results import gates
from tfpipe import cli
from tfpipe.cli import fields


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "One of --data_dir and --synthetic must be given"),
        ({"data_dir": "x", "synthetic": True}, "and not both"),
        (
            {"data_dir": "x", "num_steps": 1, "num_epochs": 1},
            "does not use --num_epochs",
        ),
        ({"synthetic": True, "num_epochs": 1}, "--synthetic does not use --num_epochs"),
        ({"data_dir": "x", "mode": "eval"}, "--mode=eval must have .*--checkpoint_dir"),
        ({"synthetic": True, "mode": "eval"}, "--mode=eval must have --data_dir"),
        ({"synthetic": True, "bars": True}, "--synthetic does not use --bars"),
        (
            {"data_dir": "x", "checkpoint_dir": "y", "bars": True},
            "A run with --bars does not use --checkpoint_dir",
        ),
        (
            {"data_dir": "x", "accelerators_file": "own.json"},
            "--accelerators_file needs --emulate",
        ),
        (
            {"data_dir": "x", "read_only": True},
            "A real model does not use --read_only",
        ),
        (
            {"synthetic": True, "read_only": True, "step_time_ms": 1.0},
            "--synthetic does not use --read_only",
        ),
        (
            {"data_dir": "x", "read_only": True, "step_time_ms": 1.0, "bars": True},
            "A run with --bars does not use --read_only",
        ),
        (
            {"data_dir": "x", "emulate": "h100", "step_time_ms": 1.0},
            "--emulate=h100 does not use --step_time_ms",
        ),
        (
            {"data_dir": "x", "step_time_ms": 1.0, "checkpoint_dir": "y"},
            "An emulated accelerator does not use --checkpoint_dir",
        ),
        ({"synthetic": True, "cache": "cold"}, "--cache=cold is the state of the page"),
        (
            {"data_dir": "s3://x", "cache": "warm"},
            "--cache=warm is the state .* or of --shard_cache_dir",
        ),
        (
            {"data_dir": "s3://x", "cache": "cold", "read_from": "direct"},
            "--cache=cold is the state .* there must be files or a shard cache",
        ),
        (
            {"data_dir": "x", "ram_cache": "records", "cache": "cold"},
            "--ram_cache=records does not use --cache",
        ),
        (
            {"synthetic": True, "ram_cache": "images"},
            "--synthetic does not use --ram_cache",
        ),
        (
            {"data_dir": "x", "ram_cache": "images", "whole_batches": True},
            "--ram_cache=images does not use --whole_batches",
        ),
        ({"data_dir": "x", "shard_cache_max_gb": 1.0}, "needs --shard_cache_dir"),
        (
            {"synthetic": True, "find_batch_size": True, "batch_size": 8},
            "A run with --find_batch_size does not use --batch_size",
        ),
        *(
            (
                {"synthetic": True, "report_dir": "r", "trace_steps": text},
                f"--trace_steps must be two numbers A:B .* got {text}",
            )
            for text in ("3", "3:3", "5:2", "a:b", "-1:3", "1:2:3", "")
        ),
        (
            {"synthetic": True, "trace_steps": "1:2"},
            "--trace_steps needs --report_dir",
        ),
        (
            {"synthetic": True, "trace_steps": "1:2", "report_dir": "r", "repeat": 2},
            "A run with --trace_steps does not use --repeat",
        ),
        (
            {"data_dir": "DIR", "repeat": 2, "checkpoint_dir": "C"},
            "A training with --repeat does not use --checkpoint_dir",
        ),
    ],
)
def test_contradictions_are_errors(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**fields)


def test_config_is_json() -> None:
    config = Config(data_dir="x", num_steps=3)

    assert Config(**json.loads(json.dumps(dataclasses.asdict(config)))) == config


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"data_dir": "x"}, "real"),
        ({"synthetic": True}, "synthetic"),
        ({"data_dir": "x", "emulate": "h100"}, "emulated"),
        ({"synthetic": True, "step_time_ms": 0.0}, "emulated"),
    ],
)
def test_kind_of_run(fields, kind):
    assert Config(**fields).kind == kind


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"mode": "eval", "checkpoint_dir": "y", "num_steps": 3},
            "--mode=eval does not use --num_steps.",
        ),
        ({"mode": "infer", "learning_rate": 1}, "does not use --learning_rate."),
        ({"store_connections": 4}, "without a URL does not use --store_connections."),
        ({"store_time_limit": 4}, "without a URL does not use --store_time_limit."),
        (
            {"data_dir": None, "synthetic": True, "tuning": "x"},
            "--synthetic does not use --tuning.",
        ),
        ({"step_time_ms": 3, "xla": True}, "emulated accelerator does not use --xla."),
        ({"max_faults": 3}, "--on_error=raise does not use --max_faults."),
    ],
)
def test_flag_that_would_have_no_effect_is_refused(
    values: dict[str, object], message: str
) -> None:
    config = Config(**{"data_dir": "x", **values})

    with pytest.raises(ValueError, match=message):
        cli.refuse_unused(config, UNUSED_IN_A_RUN)


# Modes, and the flags that have no effect in each, besides those of other modes.
_EMULATED = {"precision", "data_format", "xla", "learning_rate", "num_classes"}
_EMULATED |= {"allow_nan", "fp16_allreduce", "as_nvidia", "find_batch_size"}
_OF_TRAINING = {"learning_rate", "allow_nan", "fp16_allreduce", "as_nvidia"}
_NO_RECORDS = {"tuning", "whole_batches", "on_error", "max_faults", "read_from"}
_NO_RECORDS |= {"affinity"}
UNUSED: dict[str, tuple[dict[str, object], set[str]]] = {
    "train": ({"data_dir": "x"}, {"max_faults"}),
    "infer": (
        {"data_dir": "x", "mode": "infer"},
        _OF_TRAINING | {"max_faults", "affinity"},
    ),
    "eval": (
        {"data_dir": "x", "mode": "eval", "checkpoint_dir": "y"},
        {"num_steps", "num_epochs", "num_warmup_steps", "seed", "find_batch_size"}
        | _OF_TRAINING
        | {"max_faults", "affinity"},
    ),
    "synthetic": ({"synthetic": True}, _NO_RECORDS),
    "emulated": ({"data_dir": "x", "step_time_ms": 1.0}, _EMULATED | {"max_faults"}),
    "emulated and synthetic": (
        {"synthetic": True, "step_time_ms": 1.0},
        _EMULATED | _NO_RECORDS,
    ),
    "read_only": (
        {"data_dir": "x", "step_time_ms": 1.0, "read_only": True},
        _EMULATED | {"image_size", "whole_batches", "max_faults"},
    ),
}
_OTHER_VALUES: dict[str, object] = {
    **{"precision": "float16", "data_format": "NCHW", "on_error": "skip"},
    **{"whole_batches": False, "max_faults": 7, "learning_rate": 1.0},
    **{"image_size": 64, "batch_size": 2, "num_classes": 10, "num_steps": 5},
    **{"num_epochs": 2, "num_warmup_steps": 1, "seed": 3, "repeat": 2},
    **{"rank_timeout": 9.0, "tuning": "x", "report_dir": "x", "model": "tiny"},
    **{"allow_nan": True, "xla": True, "link_gbps": 10.0},
    **{"fp16_allreduce": True, "as_nvidia": True, "affinity": 2},
    **{"find_batch_size": True},
}
# Flags that say what runs or where records are: contradictions are tested above.
_MODES = {
    *("data_dir", "mode", "synthetic", "emulate", "accelerators_file", "step_time_ms"),
    *("read_only", "bars", "elastic", "checkpoint_dir", "ram_cache", "cache"),
    *("read_from", "shard_cache_dir", "shard_cache_max_gb", "require"),
    *("shared_cache_dir", "shared_cache_max_gb"),
    *("store_connections", "store_time_limit"),
    "trace_steps",
}


@pytest.mark.parametrize("mode", UNUSED)
def test_each_flag_is_used_or_refused_in_each_mode(mode: str) -> None:
    """A new flag comes into the table, with the modes that do not use it."""
    fields_of_mode, unused = UNUSED[mode]
    names = {field.name for field in dataclasses.fields(Config)}
    assert names == _OTHER_VALUES.keys() | _MODES

    refused = set()
    for name, value in _OTHER_VALUES.items():
        try:
            config = Config(**fields_of_mode, **{name: value})
            cli.refuse_unused(config, UNUSED_IN_A_RUN)
        except ValueError:
            refused.add(name)

    refused.discard("num_epochs" if "synthetic" in fields_of_mode else "")
    assert refused == unused - {"read_from"}


_COMMANDS = {
    "train": train,
    "input": input_command,
    "sweep": sweep,
    "storage": storage,
    "service": service,
    "report": report,
    "advise": advise,
}
# For each command and mode: the words of the mode, and the flags without an effect.
_REFUSED: list[tuple[str, str, str]] = [
    ("train", "DIR --mode=infer", "--learning_rate=1 --allow_nan --fp16_allreduce"),
    ("train", "DIR --mode=infer", "--as_nvidia --max_faults=3"),
    ("train", "DIR --mode=eval --checkpoint_dir=C", "--num_steps=3 --num_epochs=2"),
    ("train", "DIR --mode=eval --checkpoint_dir=C", "--num_warmup_steps=3 --seed=1"),
    ("train", "--synthetic", "--tuning=T --whole_batches=no --on_error=skip"),
    ("train", "DIR --emulate=h100", "--precision=float16 --xla --num_classes=9"),
    ("train", "DIR --step_time_ms=5", "--data_format=NCHW --allow_nan --as_nvidia"),
    ("train", "DIR --step_time_ms=5 --read_only", "--image_size=64"),
    ("train", "DIR --step_time_ms=5 --read_only", "--whole_batches=yes"),
    ("input", "--pipeline=m:f", "--preset=imagenet_eval --image_size=64"),
    ("input", "--pipeline=m:f", "--batch_size=3 --whole_batches=no"),
    ("input", "--pipeline=m:f --do=throughput", "--seed=3 --model=tiny"),
    ("input", "DIR --do=throughput,profile", "--cpu_budget=1 --ram_budget_gb=1"),
    ("input", "DIR --do=throughput", "--any_order --demand=100 --tuning=T"),
    ("input", "DIR --do=tune", "--seconds=5"),
    ("advise", "--mode=infer --storage=5GB/s", "--write=1GB/s --exchange_ms=1"),
    ("advise", "--model=vgg16", "--shared_storage=no"),
    ("sweep", "--sweep_dir=S --data_dirs=D", "--horovodrun_arguments=-x"),
    ("sweep", "--sweep_dir=S --data_dirs=D", "--max_ranks=3"),
    ("sweep", "--sweep_dir=S --data_dirs=D", "--mount_dir=M --shard_cache_dir=C"),
]


@pytest.mark.parametrize(("command", "mode", "flags"), _REFUSED)
def test_flag_without_an_effect_is_refused_at_the_start(
    command: str, mode: str, flags: str
) -> None:
    (parser, *_) = _COMMANDS[command].COMMANDS
    parser.parse(mode.split())

    for flag in flags.split():
        name = flag.partition("=")[0]
        with pytest.raises(ValueError, match=rf"{name}\b"):
            parser.parse([*mode.split(), flag])


@pytest.mark.parametrize("module", _COMMANDS.values())
def test_tables_of_unused_flags_name_fields_of_their_options(
    module: ModuleType,
) -> None:
    for command in module.COMMANDS:
        names = {option.field for option in fields.options_of(command.options)}
        for row in command.unused:
            assert names.issuperset(row.names), row.why


def test_flags_that_may_have_a_url_are_those_of_data_sets() -> None:
    """A new flag of any benchmark that takes a text is tried too."""
    modules = (advise, input_command, report, service, storage, sweep, train)
    options = [
        option
        for module in modules
        for command in module.COMMANDS
        for option in fields.options_of(command.options)
        if option.kind is str and not option.choices
    ]

    allowed = {option.label for option in options if option.about.url}

    assert allowed == {
        *("--data_dir", "--data_dirs", "--remote_url", "DIR_OR_URL", "-- FLAGS")
    }
    for option in options:
        value = ("s3://b/x",) if option.is_list else "s3://b/x"
        if option.label not in allowed:
            with pytest.raises(ValueError, match=f"{option.label} must be a path on"):
                option.check(value)


def test_help_lists_the_metrics_of_gates() -> None:
    (option,) = (o for o in fields.options_of(Config) if o.field == "require")

    assert option.about.help.endswith(f"The metrics: {', '.join(gates.METRICS)}.")


@pytest.mark.parametrize(
    ("module", "words", "field", "value"),
    [
        (train, ["DIR"], "data_dir", "DIR"),
        (train, ["--data_dir=DIR"], "data_dir", "DIR"),
        (input_command, ["DIR", "--do=tune"], "data_dir", "DIR"),
        (advise, ["A", "B"], "results", ("A", "B")),
        (report, ["A", "B", "--output=x.html"], "results", ("A", "B")),
        (report, ["--results=A,B", "--output=x.html"], "results", ("A", "B")),
    ],
)
def test_data_and_results_may_be_words_without_a_flag(
    module: ModuleType, words: list[str], field: str, value: object
) -> None:
    options = module.COMMANDS[0].parse(words)

    assert getattr(options, field) == value


def test_as_nvidia_stands_for_flags_and_keeps_flags_of_the_user() -> None:
    plain = Config(data_dir="x")
    assert plain.spelled_out() == plain

    found = Config(data_dir="x", as_nvidia=True).spelled_out()
    own = Config(data_dir="x", as_nvidia=True, precision="bfloat16").spelled_out()

    assert (found.precision, found.xla, found.fp16_allreduce) == ("float16", True, True)
    assert own.precision == "bfloat16"
