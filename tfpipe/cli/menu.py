"""The commands by name: strings only, so that the menu imports none of them.

In: the words after `tfpipe`. Out: the module of a command, the menu, or completions.
"""

import importlib

from tfpipe.cli import fields

COMMANDS = {
    "benchmarks": ("train", "input", "sweep", "storage", "service", "advise", "report"),
    "converters": (),
}


def owners_of(flag: str, package: str) -> list[str]:
    """Returns the commands of a package that take a flag.

    Args:
        flag: Name of the flag, also of a switch with "no" before it.
        package: benchmarks or converters.
    """
    names = {flag, flag.removeprefix("no")}
    owners = []
    for name in COMMANDS.get(package, ()):
        module = importlib.import_module(f"{package}.{name}")
        for command in getattr(module, "COMMANDS", ()):
            options = fields.options_of(command.options)
            if names & {option.name for option in options}:
                owners.append(" ".join([f"{package}.{name}", command.form]).strip())
    return list(dict.fromkeys(owners))
