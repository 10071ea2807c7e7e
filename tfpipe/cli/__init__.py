"""Command lines from frozen dataclasses: flags, help, checks, exit codes, signals.

In: a dataclass whose fields are made by `flag`, and the function that does the work.
Out: an instance from the words of a command line, and the end of the process.
Never here: what a command does. absl runs the commands, and no other room knows absl.

    @cli.options
    class Options:
        data_dir: str = cli.argument("Folder with the shards.")
        num_steps: int | None = cli.flag(None, "Steps. Default: one epoch.", least=1)

    def work(options: Options) -> int: ...

    COMMANDS = (cli.Command(Options, work, arguments=("data_dir",)),)
    if __name__ == "__main__":
        cli.run(*COMMANDS)
"""

from tfpipe.cli.command import Command, call, run
from tfpipe.cli.fields import (
    argument,
    changed,
    flag,
    gigabytes,
    group,
    nested,
    refuse,
    required,
)
from tfpipe.cli.flags import from_flags, options, parse

__all__ = [
    "Command",
    "argument",
    "call",
    "changed",
    "flag",
    "from_flags",
    "gigabytes",
    "group",
    "nested",
    "options",
    "parse",
    "refuse",
    "required",
    "run",
]
