"""The command `tfpipe`: a menu of all commands, by names alone.

In: the words after `tfpipe`. Out: the menu, or the command that the words name. The
menu imports no command. A command is found by its installed package, also in a folder
that has a package `benchmarks` or `converters` of its own.
"""

import difflib
import importlib
import os
import runpy
import signal
import sys
from collections.abc import Mapping, Sequence

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
_MODULES = {name: about[0] for part in MENU.values() for name, about in part.items()}
_HEAD = """\
tfpipe COMMAND ...   image data sets as TFRecords: made, read, measured

  tfpipe convert folder --input_dir=PHOTOS --output_dir=DIR
  tfpipe train --data_dir=DIR --model=resnet50
  horovodrun -np 4 python -m benchmarks.train --data_dir=DIR --model=resnet50"""
_TAIL = "tfpipe COMMAND --help says all about a command."


def text() -> str:
    """Returns the menu, which fits a screen."""
    lines = [_HEAD]
    for title, part in MENU.items():
        lines += ["", title]
        lines += [f"  tfpipe {name:20} {about}" for name, (_, about) in part.items()]
    return "\n".join([*lines, "", _TAIL])


def module_of(words: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the module of the command that the first words name, and other words.

    Raises:
        ValueError: If there is no such command. The message names the nearest one.
    """
    for count in (2, 1):
        if module := _MODULES.get(" ".join(words[:count])):
            return module, list(words[count:])
    inputs = [name.partition(" ")[2] for name in _MODULES if name.startswith("convert")]
    if list(words) == ["convert"]:
        raise ValueError(f"tfpipe convert needs an input: {', '.join(inputs)}.")
    name = " ".join(words[:2] if words[0] == "convert" else words[:1])
    near = difflib.get_close_matches(name, _MODULES, n=1)
    hint = f" Did you mean tfpipe {near[0]}?" if near else ""
    raise ValueError(
        f"There is no command tfpipe {name}.{hint} tfpipe --help lists the commands."
    )


def main() -> int:
    """Shows the menu, or runs a command in this process; returns the exit code."""
    words = sys.argv[1:]
    if not words or words[0] in ("--help", "-h", "--helpfull", "help"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `tfpipe | head` ends silently
        print(text())
        return 0
    if words[0] == "--version":
        import tfpipe

        print(f"tfpipe {tfpipe.__version__}")
        return 0
    try:
        module, rest = module_of(words)
    except ValueError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    # Processes that the command starts with -m must not look into the current folder.
    os.environ["PYTHONSAFEPATH"] = "1"
    sys.argv[1:] = rest
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


def owners_of(flag: str, package: str) -> list[str]:
    """Returns the commands of a package that take a flag.

    Args:
        flag: Name of the flag, also of a switch with "no" before it.
        package: benchmarks or converters.
    """
    from tfpipe.cli import fields

    names = {flag, flag.removeprefix("no")}
    owners = []
    for module in _MODULES.values():
        if not module.startswith(f"{package}."):
            continue
        for command in getattr(importlib.import_module(module), "COMMANDS", ()):
            options = fields.options_of(command.options)
            if names & {option.name for option in options}:
                owners.append(" ".join([module, command.form]).strip())
    return list(dict.fromkeys(owners))
