"""The command `tfpipe`: a menu of all commands, by names alone.

In: the words after `tfpipe`. Out: the menu, or the named command, with the menu's names
in its texts. The menu imports no command. A command is found by
its installed package, also in a folder that has a package `benchmarks` or `converters`
of its own.
"""

import importlib
import os
import signal
import sys
from collections.abc import Sequence

from tfpipe import errors
from tfpipe.cli import names

_HEAD = """\
tfpipe COMMAND ...   image data sets as TFRecords: made, read, measured

  tfpipe convert folder PHOTOS DIR
  tfpipe train --data_dir=DIR --model=resnet50
  horovodrun -np 4 tfpipe train --data_dir=DIR --model=resnet50"""
_TAIL = """\
tfpipe COMMAND --help says what a command does and takes.
tfpipe completion bash|zsh|fish prints a script, so that Tab completes commands."""
_CONVERT = "convert"
_HELP = ("--help", "-h", "--helpfull", "--helpshort")


def text(*, prefix: str = "") -> str:
    """Returns the menu, or its commands whose names begin with a word."""
    lines = [] if prefix else [_HEAD]
    for title, part in names.MENU.items():
        own = [name for name in part if name.startswith(prefix)]
        lines += ["", title] if own else []
        lines += [f"  tfpipe {name:20} {part[name][1]}" for name in own]
    return "\n".join([*lines, "", _TAIL]).lstrip("\n")


def command_of(words: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the name of the command of the first words, and the other words.

    Raises:
        ValueError: If there is no such command. The message names the nearest command.
    """
    for count in (2, 1):
        if (name := " ".join(words[:count])) in names.MODULES:
            return name, list(words[count:])
    inputs = [name.partition(" ")[2] for name in names.MODULES if _CONVERT in name]
    if words[0] == _CONVERT and (len(words) == 1 or words[1].startswith("-")):
        raise ValueError(f"tfpipe convert needs an input: {', '.join(inputs)}.")
    if words[0] == _CONVERT:
        hint = errors.did_you_mean(words[1], inputs, prefix="tfpipe convert ")
        if os.path.exists(words[1]):
            hint = f" For a folder of photos: tfpipe convert folder {words[1]} DIR."
        raise ValueError(
            f"tfpipe convert needs an input, {', '.join(inputs)}, got {words[1]}."
            f"{hint} tfpipe convert --help says what each reads."
        )
    wanted = words[0]
    # A user may know a command by its module: converters.verify is tfpipe check.
    by_word = {module.partition(".")[2]: name for name, module in names.MODULES.items()}
    by_word |= {module: name for name, module in names.MODULES.items()}
    by_word |= {name: name for name in names.MODULES}
    near = errors.nearest(wanted, by_word)
    hint = f" Did you mean tfpipe {by_word[near]}?" if near else ""
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
        print(text(prefix=prefix))
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
    # New processes of the command (-m) must not look into the current folder.
    os.environ["PYTHONSAFEPATH"] = "1"
    sys.argv[1:] = rest
    from tfpipe.cli import command

    command.run(
        *importlib.import_module(names.MODULES[name]).COMMANDS, say=names.as_typed
    )
