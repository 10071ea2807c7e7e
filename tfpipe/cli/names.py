"""Names of all commands, and their modules.

In: nothing. Out: the command of a name, and texts with commands as `tfpipe NAME`.
A module of a command is imported by `commands_of` alone.
"""

import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

MENU: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Make a data set": {
        "convert folder": ("converters.folder", "a folder for each class"),
        "convert imagenet": ("converters.imagenet", "ILSVRC-2012, tars or folders"),
        "convert table": ("converters.table", "CSV, JSON lines, Parquet or SQL"),
        "convert webdataset": ("converters.webdataset", "WebDataset tars"),
        "convert tfrecord": ("converters.tfrecord", "TFRecords of other tools"),
        "convert merge": ("converters.merge", "several inputs as one data set"),
        "convert stream": ("converters.stream", "images that arrive, as they arrive"),
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
BY_MODULE = {module: name for name, module in MODULES.items()}
_MODULE = re.compile(r"(?:python(\s+)-m(\s+))?\b((?:converters|benchmarks)\.\w+)\b")


def as_typed(text: str) -> str:
    """Returns a text with the menu's names of commands.

    Example:
        >>> as_typed("Run python -m converters.verify DIR.")
        'Run tfpipe check DIR.'
    """

    def typed(match: re.Match[str]) -> str:
        name = BY_MODULE.get(match[3])
        if name is None:
            return match[0]
        line_end = "\n" if "\n" in (match[1] or "") + (match[2] or "") else ""
        return f"{line_end}tfpipe {name}"

    return re.sub(r" +\n", "\n", _MODULE.sub(typed, text))


def commands_of(package: str) -> Iterator[tuple[str, Any]]:
    """Imports the commands of the menu, and yields name and `cli.Command`.

    Args:
        package: benchmarks, converters, or "" for both.
    """
    for name, module in MODULES.items():
        if module.startswith(package):
            for command in importlib.import_module(module).COMMANDS:
                yield name, command


def owners_of(flag: str, package: str) -> list[str]:
    """Returns the commands of a package with a flag.

    Args:
        flag: Name of the flag, also of a switch with "no" before it.
        package: benchmarks or converters.
    """
    names = {flag, flag.removeprefix("no")}
    owners = [
        f"{command.module} {command.form}".strip()
        for _, command in commands_of(package)
        if names & {each.name for each in command.flags if not each.about.is_argument}
    ]
    return list(dict.fromkeys(owners))
