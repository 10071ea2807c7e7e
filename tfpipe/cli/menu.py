"""The command `tfpipe`: a menu of all commands, by names alone.

In: the words after `tfpipe`. Out: the menu, or the command that the words name, whose
texts name commands as the menu does. The menu imports no command. A command is found by
its installed package, also in a folder that has a package `benchmarks` or `converters`
of its own.
"""

import difflib
import importlib
import importlib.util
import os
import re
import runpy
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MENU: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Make a data set": {
        "convert folder": ("converters.folder", "a folder for each class"),
        "convert imagenet": ("converters.imagenet", "ILSVRC-2012, tars or folders"),
        "convert table": ("converters.table", "CSV, JSON lines, Parquet or SQL"),
        "convert webdataset": ("converters.webdataset", "WebDataset tars"),
        "convert tfrecord": ("converters.tfrecord", "TFRecords of other tools"),
        "convert merge": ("converters.merge", "several inputs as one data set"),
        "synthesize": ("converters.synthesize", "drawn images, for tests"),
    },
    "Work with a data set": {
        "check": ("converters.verify", "find faults, repair them"),
        "query": ("converters.query", "choose records in SQL"),
        "export": ("converters.export", "files of other formats"),
        "replicate": ("converters.replicate", "copies for tests of storage"),
    },
    "Measure": {
        "train": ("benchmarks.train", "train a model, and time it"),
        "input": ("benchmarks.input", "time and tune the input pipeline"),
        "sweep": ("benchmarks.sweep", "train with many settings"),
        "storage": ("benchmarks.storage", "time a storage"),
        "service": ("benchmarks.service", "a tf.data service for trainers"),
        "advise": ("benchmarks.advise", "compute what a training needs"),
        "report": ("benchmarks.report", "an HTML page of results"),
    },
}
MODULES: Mapping[str, str] = {
    name: module for part in MENU.values() for name, (module, _) in part.items()
}
_NAMES = {module: name for name, module in MODULES.items()}
_HEAD = """\
tfpipe COMMAND ...   image data sets as TFRecords: made, read, measured

  tfpipe convert folder --input_dir=PHOTOS --output_dir=DIR
  tfpipe train --data_dir=DIR --model=resnet50
  horovodrun -np 4 tfpipe train --data_dir=DIR --model=resnet50"""
_TAIL = """\
tfpipe COMMAND --help says what a command does and takes.
tfpipe completion bash|zsh|fish prints a script, so that Tab completes commands."""
_CONVERT = "convert"
_HELP = ("--help", "-h", "--helpfull", "--helpshort")
_MODULE = re.compile(r"(?:python(\s+)-m(\s+))?\b((?:converters|benchmarks)\.\w+)\b")


def text(prefix: str = "") -> str:
    """Returns the menu, which fits a screen, or the commands that begin with a word."""
    lines = [] if prefix else [_HEAD]
    for title, part in MENU.items():
        own = [name for name in part if name.startswith(prefix)]
        lines += ["", title] if own else []
        lines += [f"  tfpipe {name:20} {part[name][1]}" for name in own]
    return "\n".join([*lines, "", _TAIL]).lstrip("\n")


def as_typed(text: str) -> str:
    """Returns a text that names commands as the menu does.

    Example:
        >>> as_typed("Run python -m converters.verify DIR.")
        'Run tfpipe check DIR.'
    """

    def typed(match: re.Match[str]) -> str:
        name = _NAMES.get(match[3])
        if name is None:
            return match[0]
        line_end = "\n" if "\n" in (match[1] or "") + (match[2] or "") else ""
        return f"{line_end}tfpipe {name}"

    return re.sub(r" +\n", "\n", _MODULE.sub(typed, text))


def command_of(words: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the name of the command of the first words, and the other words.

    Raises:
        ValueError: If there is no such command. The message names the nearest one.
    """
    for count in (2, 1):
        if (name := " ".join(words[:count])) in MODULES:
            return name, list(words[count:])
    if words[0] == _CONVERT and (len(words) == 1 or words[1].startswith("-")):
        inputs = [name.partition(" ")[2] for name in MODULES if _CONVERT in name]
        raise ValueError(f"tfpipe convert needs an input: {', '.join(inputs)}.")
    wanted = " ".join(words[:2] if words[0] == _CONVERT else words[:1])
    # A user may know a command by its module: converters.verify is tfpipe check.
    by_word = {module.partition(".")[2]: name for name, module in MODULES.items()}
    by_word |= {module: name for name, module in MODULES.items()}
    by_word |= {name: name for name in MODULES}
    near = difflib.get_close_matches(wanted, by_word, n=1)
    hint = f" Did you mean tfpipe {by_word[near[0]]}?" if near else ""
    raise ValueError(
        f"There is no command tfpipe {wanted}.{hint} tfpipe --help lists the commands."
    )


def main() -> int:
    """Shows the menu, or runs a command in this process; returns the exit code."""
    words = sys.argv[1:]
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    prefix = _CONVERT if words[:1] == [_CONVERT] else ""
    if not words or words[bool(prefix) :][:1] in ([word] for word in _HELP):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `tfpipe | head` ends silently
        print(text(prefix))
        return 0
    if words[0] == "--version":
        import tfpipe

        print(f"tfpipe {tfpipe.__version__}")
        return 0
    try:
        if words[0] == "completion":
            from tfpipe.cli import completion

            print(completion.script(words[1:]), end="")
            return 0
        name, rest = command_of(words)
    except ValueError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    # Processes that the command starts with -m must not look into the current folder.
    os.environ["PYTHONSAFEPATH"] = "1"
    sys.argv[1:] = rest
    if not _has_commands(MODULES[name]):
        runpy.run_module(MODULES[name], run_name="__main__", alter_sys=True)
        return 0
    from tfpipe.cli import command

    command.run(*importlib.import_module(MODULES[name]).COMMANDS, say=as_typed)


def _has_commands(module: str) -> bool:
    spec = importlib.util.find_spec(module)
    assert spec
    assert spec.origin
    with open(spec.origin) as file:
        return "\nCOMMANDS = (" in file.read()


def commands_of(package: str = "") -> Iterator[tuple[str, Any]]:
    """Yields name and `cli.Command` of the commands of the menu, which it imports.

    Args:
        package: benchmarks or converters. Default: both.
    """
    for name, module in MODULES.items():
        if module.startswith(package) and _has_commands(module):
            for command in importlib.import_module(module).COMMANDS:
                yield name, command


def owners_of(flag: str, package: str) -> list[str]:
    """Returns the commands of a package that take a flag.

    Args:
        flag: Name of the flag, also of a switch with "no" before it.
        package: benchmarks or converters.
    """
    from tfpipe.cli import fields

    names = {flag, flag.removeprefix("no")}
    owners = [
        f"{command.module} {command.form}".strip()
        for _, command in commands_of(package)
        if names & {option.name for option in fields.options_of(command.options)}
    ]
    return list(dict.fromkeys(owners))
