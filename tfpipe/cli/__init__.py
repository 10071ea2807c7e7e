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

import lazy_loader

# The menu starts without absl: a name of `__init__.pyi` is imported when it is used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
