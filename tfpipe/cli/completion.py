"""Scripts for a shell to complete the command `tfpipe` at the Tab key.

In: the menu, and the options of all commands. Out: a script for bash, zsh or fish. The
script holds all names, so a shell starts no Python at the Tab key. A value of a flag
without choices, and a word without a flag, is completed as a path.
"""

import dataclasses
import itertools
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from tfpipe import errors
from tfpipe.cli import fields, names

_USAGE = """\
# {shell} completes tfpipe with this script. Write it again after an upgrade of tfpipe:
#   {command}
"""
_COMMANDS = {
    "bash": (
        "tfpipe completion bash > "
        "~/.local/share/bash-completion/completions/tfpipe  # or source it in ~/.bashrc"
    ),
    "zsh": "tfpipe completion zsh > FOLDER/_tfpipe  # a folder of $fpath",
    "fish": "tfpipe completion fish > ~/.config/fish/completions/tfpipe.fish",
}


@dataclasses.dataclass(frozen=True)
class FlagWords:
    """A flag as a shell completes it.

    Attributes:
        name: Name without dashes; a switch with the default on begins with "no".
        about: A short line.
        is_switch: Whether the flag takes no value.
        choices: Values of the flag; without choices a path.
        is_list: Whether commas join several values.
    """

    name: str
    about: str
    is_switch: bool = False
    choices: tuple[str, ...] = ()
    is_list: bool = False


@dataclasses.dataclass(frozen=True)
class CommandWords:
    """A command as a shell completes it: its forms, such as `warm`, and its flags."""

    about: str
    forms: tuple[str, ...]
    flags: tuple[FlagWords, ...]


_HELP = (
    FlagWords("help", "Say what the command does, and its main flags.", is_switch=True),
    FlagWords("helpfull", "Say all about the command and its flags.", is_switch=True),
)


def script(words: Sequence[str]) -> str:
    """Returns the script for a shell.

    Args:
        words: The name of the shell, alone.

    Raises:
        ValueError: If there is no script for the shell.
    """
    if len(words) != 1 or words[0] not in _WRITERS:
        got = " ".join(words) or "nothing"
        near = errors.did_you_mean(got, _WRITERS)
        raise ValueError(
            f"tfpipe completion needs one of {', '.join(_WRITERS)}, got {got}.{near}"
        )
    (shell,) = words
    usage = _USAGE.format(shell=shell, command=_COMMANDS[shell])
    return usage + _WRITERS[shell](commands())


def commands() -> dict[str, CommandWords]:
    """Returns all commands of the menu by name."""
    abouts = {
        name: about for part in names.MENU.values() for name, (_, about) in part.items()
    }
    made = {}
    for name, group in itertools.groupby(names.commands_of(""), lambda pair: pair[0]):
        own = [command for _, command in group]
        flags: dict[str, FlagWords] = {}
        for option in (o for command in own for o in command.flags):
            if not option.about.is_argument:
                flag = _flag(option)
                flags.setdefault(flag.name, flag)
        forms = tuple(command.form for command in own if command.form)
        made[name] = CommandWords(abouts[name], forms, (*flags.values(), *_HELP))
    made["completion"] = CommandWords("a script for a shell", tuple(_WRITERS), ())
    return made


def _flag(option: fields.Option) -> FlagWords:
    sentence = re.split(r"(?<=[.:?])\s", option.about.help, maxsplit=1)[0]
    return FlagWords(
        name="no" * (option.is_switch and option.default is True) + option.name,
        about=names.as_typed(sentence).rstrip(".:"),
        is_switch=option.is_switch,
        choices=tuple(option.choices or ()),
        is_list=option.is_list and not option.about.repeated,
    )


def _words(commands: Iterable[str]) -> tuple[list[str], list[str]]:
    """Returns the first words of the commands, and the second words of `convert`."""
    pairs = [name.partition(" ") for name in commands]
    return list(dict.fromkeys(a for a, _, _ in pairs)), [b for _, _, b in pairs if b]


_BASH = """\
_tfpipe() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  local command=${COMP_WORDS[1]} least=2 flag= list= words= flags= forms=
  COMPREPLY=()
  if [[ $command == convert ]]; then command+=" ${COMP_WORDS[2]}" least=3; fi
  # bash takes --flag=value for three words.
  if [[ $word == = ]]; then flag=$before word=
  elif [[ $before == = ]]; then flag=${COMP_WORDS[COMP_CWORD-2]}
  elif [[ $before == --* ]]; then flag=$before; fi
  if ((COMP_CWORD < least)); then
    if ((COMP_CWORD == 1)); then words="%(first)s"; else words="%(second)s"; fi
  else
    case $command in
%(cases)s
    esac
    if [[ $flag && " $flags " == *" $flag= "* ]]; then
      [[ $words ]] || return  # a path
      if [[ $list ]]; then
        list= ; [[ $word == *,* ]] && list=${word%%,*},
        COMPREPLY=($(compgen -P "$list" -W "$words" -- "${word##*,}"))
        compopt -o nospace 2>/dev/null
        return
      fi
    elif [[ $word == -* ]]; then words=$flags
    else words=$forms; fi
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [[ ${#COMPREPLY[@]} == 1 && $COMPREPLY == *= ]] && compopt -o nospace 2>/dev/null
}
complete -o default -F _tfpipe tfpipe
"""


def _bash(commands: Mapping[str, CommandWords]) -> str:
    first, second = _words(commands)
    cases = []
    for name, command in commands.items():
        flags = (f"--{f.name}{'' if f.is_switch else '='}" for f in command.flags)
        own = [f"forms={shlex.quote(' '.join(command.forms))}"] if command.forms else []
        choices = [
            f"--{f.name}) words={shlex.quote(' '.join(f.choices))}"
            f"{' list=1' if f.is_list else ''};;"
            for f in command.flags
            if f.choices
        ]
        if choices:
            own += ["case $flag in", *(f"  {line}" for line in choices), "esac"]
        flags_line = f"flags={shlex.quote(' '.join(flags))}"
        lines = [
            f"{shlex.quote(name)})",
            *(f"  {o}" for o in [flags_line, *own]),
            "  ;;",
        ]
        cases += [f"    {line}" for line in lines]
    return _BASH % {
        "first": " ".join(first),
        "second": " ".join(second),
        "cases": "\n".join(cases),
    }


_ZSH = """\
#compdef tfpipe
_tfpipe() {
  local curcontext=$curcontext num=1
  local -a names
  if ((CURRENT == 2)); then
    names=(%(first)s)
    _describe command names
    return
  fi
  if [[ $words[2] == convert ]]; then
    if ((CURRENT == 3)); then
      names=(%(second)s)
      _describe input names
      return
    fi
    num=2
  fi
  local name="${(j: :)words[2,num+1]}"
  shift $num words
  ((CURRENT -= num))
  case $name in
%(cases)s
  esac
}
if [[ $funcstack[1] == _tfpipe ]]; then _tfpipe "$@"; else compdef _tfpipe tfpipe; fi
"""


def _zsh(commands: Mapping[str, CommandWords]) -> str:
    first, second = _words(commands)
    abouts = {name.rpartition(" ")[2]: c.about for name, c in commands.items()}
    abouts |= {name: c.about for name, c in commands.items()}
    abouts["convert"] = "make a data set"

    def described(words: Iterable[str]) -> str:
        return " ".join(shlex.quote(f"{name}:{abouts[name]}") for name in words)

    cases = []
    for name, command in commands.items():
        own = [_zsh_flag(flag) for flag in command.flags]
        rest = "*:path:_files"
        if command.forms:
            forms = f"'forms:form:({' '.join(command.forms)})'"
            rest = f"*:form or path:_alternative {forms} 'paths:path:_files'"
        specs = " \\\n      ".join(shlex.quote(spec) for spec in [*own, rest])
        cases += [
            f"  {shlex.quote(name)})",
            f"    _arguments \\\n      {specs}",
            "    ;;",
        ]
    return _ZSH % {
        "first": described(first),
        "second": described(second),
        "cases": "\n".join(cases),
    }


def _zsh_flag(flag: FlagWords) -> str:
    about = re.sub(r"([\[\]:\\])", r"\\\1", flag.about)
    if flag.is_switch:
        return f"--{flag.name}[{about}]"
    values = " ".join(shlex.quote(choice) for choice in flag.choices)
    action = f"({values})" if values else "_files"
    if flag.is_list and values:
        action = f"_sequence compadd - {values}"
    return f"--{flag.name}=[{about}]:{flag.name}:{action}"


_FISH = """\
function __tfpipe_is
    set -l words (commandline -opc)
    if test "$words[2]" = convert
        test "$words[2..3]" = "$argv"
    else
        test "$words[2]" = "$argv"
    end
end
function __tfpipe_needs
    set -l words (commandline -opc)
    test "$words[2..]" = "$argv"
end
complete -c tfpipe -n '__tfpipe_needs ""' -f
complete -c tfpipe -n '__tfpipe_needs convert' -f
"""


def _fish(commands: Mapping[str, CommandWords]) -> str:
    lines = []
    first, _ = _words(commands)
    for word in first:
        about = commands[word].about if word in commands else "make a data set"
        lines.append(_fish_line('__tfpipe_needs ""', about, f"-a {word}"))
    for name, command in commands.items():
        before, _, second = name.partition(" ")
        if second:
            lines.append(
                _fish_line(f"__tfpipe_needs {before}", command.about, f"-a {second}")
            )
        test = f"__tfpipe_is {name}"
        for form in command.forms:
            lines.append(_fish_line(f"__tfpipe_needs {name}", "", f"-a {form}"))
        for flag in command.flags:
            kind = "" if flag.is_switch else " -r"
            if flag.choices:
                values = shlex.quote(" ".join(flag.choices))
                kind = f" -x -a {values}"
                if flag.is_list:
                    kind = f" -x -a '(__fish_append , {' '.join(flag.choices)})'"
            lines.append(_fish_line(test, flag.about, f"-l {flag.name}{kind}"))
    return _FISH + "\n".join([*lines, ""])


def _fish_line(test: str, about: str, what: str) -> str:
    text = "'" + about.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"complete -c tfpipe -n '{test}' {what}{about and f' -d {text}'}"


_WRITERS: Mapping[str, Callable[[Mapping[str, CommandWords]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
