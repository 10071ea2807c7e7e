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

from typing import TYPE_CHECKING

import lazy_loader  # type: ignore[import-untyped]

# The menu starts without absl: a name is imported when it is first used.
_NAMES = {
    "command": ["Command", "call", "run"],
    "fields": [
        *("argument", "changed", "flag", "gigabytes", "group", "nested"),
        *("refuse", "refuse_unused", "required", "Unused"),
    ],
    "flags": ["from_flags", "options", "parse"],
    "stores": ["StoreOptions"],
    "signals": ["terminated_as_interrupted"],
}
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_NAMES)

if TYPE_CHECKING:  # the names above, for readers of types
    from tfpipe.cli.command import (
        Command as Command,
        call as call,
        run as run,
    )
    from tfpipe.cli.fields import (
        Unused as Unused,
        argument as argument,
        changed as changed,
        flag as flag,
        gigabytes as gigabytes,
        group as group,
        nested as nested,
        refuse as refuse,
        refuse_unused as refuse_unused,
        required as required,
    )
    from tfpipe.cli.flags import (
        from_flags as from_flags,
        options as options,
        parse as parse,
    )
    from tfpipe.cli.signals import (
        terminated_as_interrupted as terminated_as_interrupted,
    )
    from tfpipe.cli.stores import StoreOptions as StoreOptions
